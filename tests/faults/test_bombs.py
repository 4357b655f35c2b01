"""No file makes a reader take more than 300 MB before it is refused, and none is refused with anything but one line.

Every arm has a control: the library underneath, given the same kind of file, does take more or does raise another
exception, so that a measure that always says "little" would be found out.
"""

import signal
import struct
import subprocess
import sys
import zipfile

import mido
import numpy as np
import pytest

from longspan import limits
from longspan.data import MusicData, Sequences, TextData
from longspan.data.archive import BLOCK, read_set, write_set
from longspan.data.midi import read_notes
from longspan.data.text import _start_of_character, load_text_file
from longspan.data.zips import open_zip
from longspan.errors import InputError
from tests.faults import bombs
from tests.faults.conftest import HANG

MOST = 300 * 10**6


def assert_refused_cheaply(found) -> None:
    assert found.outcome == "refused", found
    assert "\n" not in found.message
    assert found.bytes < MOST


@pytest.mark.parametrize("name", bombs.MIDI)
def test_a_midi_bomb_is_skipped_and_the_rest_imported(name, measured, tmp_path):
    found = measured("import", bombs.midi_folder(bombs.MIDI[name](), tmp_path))
    assert found.outcome == "accepted", found
    assert found.bytes < MOST
    if not name.startswith("65,535 "):  # notes: a song like any other, once it is painted in linear time
        assert found.message.startswith("skipped bad.mid: it")


READERS = {
    "import": bombs.NPZ | bombs.TEXT | bombs.TABLES,
    "results": bombs.RESULTS,
    "words": bombs.WORDS,
    "settings": bombs.SETTINGS,
}


@pytest.mark.parametrize(("reader", "name"), [(reader, name) for reader, made in READERS.items() for name in made])
def test_a_bomb_is_refused_in_one_line(reader, name, measured, tmp_path):
    assert_refused_cheaply(measured(reader, READERS[reader][name](tmp_path)))


def test_a_character_of_utf8_is_not_followed_farther_than_one_can_go():
    """Byte by byte through 100 MB of a text that is none took ten seconds."""

    class Counted(bytes):
        looked = 0

        def __getitem__(self, place):
            self.looked += 1
            return super().__getitem__(place)

    content = Counted(b"\x80" * 1000)
    assert _start_of_character(content, 0) == 0
    assert content.looked <= 4
    for character in ("a", "é", "€", "𝄞"):
        around = f"x{character}y".encode()
        assert _start_of_character(around, 2) == len(around) - 1
    assert _start_of_character(b"ab", 9) == 2


@pytest.mark.parametrize("name", bombs.SCORES)
def test_a_score_takes_little_memory_whatever_it_holds(name, measured, tmp_path):
    found = measured("score", bombs.SCORES[name](tmp_path))
    assert found.bytes < MOST
    expected = "accepted" if "elements" in name or "parts" in name else "refused"  # these are scores without notes
    assert found.outcome == expected, found


CHILDREN = {
    "scores": (
        "from longspan.data import score_child as child; from types import ModuleType, SimpleNamespace\n"
        "child.CHILD_BYTES, child.CHILD_SECONDS = 2**29, 1\n"
        "sys.modules['music21'] = made = ModuleType('music21')\n"
        "made.converter = SimpleNamespace(parseData=read)\n"
        "child.main()"
    ),
    "tables": (
        "from longspan.data import parquet_child as child\n"
        "child.PARQUET_CHILD_BYTES, child.PARQUET_CHILD_SECONDS, child.read_columns = 2**29, 1, read\n"
        "child.main('x', '.')"
    ),
}
"""The processes in which others' libraries read files, with low limits and a library that is asked for too much."""


@pytest.mark.parametrize("name", CHILDREN)
@pytest.mark.parametrize("limited", [True, False])
def test_a_child_process_has_no_more_memory_than_its_limit(name, limited, tmp_path):
    size = 2**30 if limited else 2**20
    program = f"import sys\ndef read(*_, **__): raise ValueError(len(bytearray({size})))\n{CHILDREN[name]}"
    (tmp_path / "a.abc").write_text("X:1")
    told = subprocess.run(
        [sys.executable, "-c", program], input=f'"{tmp_path}/a.abc"\n', capture_output=True, text=True, check=True
    ).stdout
    assert ("memory" in told.lower()) is limited
    assert (str(size) in told) is not limited


@pytest.mark.parametrize("name", CHILDREN)
def test_a_child_process_that_computes_without_end_is_ended_by_the_system(name, tmp_path):
    program = f"import sys\ndef read(*_, **__):\n    while True: pass\n{CHILDREN[name]}"
    (tmp_path / "a.abc").write_text("X:1")
    ended = subprocess.run([sys.executable, "-c", program], input=f'"{tmp_path}/a.abc"\n'.encode(), timeout=HANG)
    assert ended.returncode in (-signal.SIGXCPU, -signal.SIGKILL)


@pytest.mark.parametrize("name", bombs.JSON)
def test_json_takes_little_memory_whatever_it_holds(name, measured, tmp_path):
    found = measured("json", bombs.JSON[name](tmp_path))
    assert found.bytes < MOST
    assert found.outcome == ("accepted" if name == "a flood of lists" else "refused"), found


def test_control_the_memory_of_a_bomb_that_goes_off_is_seen(measured, tmp_path):
    found = measured("numpy", bombs.zeros(tmp_path, (1_200_000, 88)))
    assert found.outcome == "accepted"
    assert 3 * 1_200_000 * 88 < found.bytes < 3 * 1_200_000 * 88 + MOST


def test_control_mido_accepts_an_endless_number(tmp_path):
    """It takes time in the square of the bytes, and gives a time that no float holds."""
    path = tmp_path / "a.mid"
    path.write_bytes(bombs.midi(bombs.track(b"\xff" * 2_000 + b"\x7f\x90\x3c\x40")))
    [message] = mido.MidiFile(path).tracks[0]
    with pytest.raises(OverflowError):
        _ = message.time / 480
    with pytest.raises(InputError, match="more than 4 bytes"):
        read_notes(path)


def test_a_claimed_size_that_lies_is_found_by_the_checksum(tmp_path):
    """The table of contents says 1 MB of a member of 50 MB: no more than that is unpacked, and it does not fit."""
    path = bombs.archive(tmp_path, {"train": bombs.header((500_000, 88)) + bytes(44_000_000)})
    content = bytearray(path.read_bytes())
    entry = content.rindex(b"PK\x01\x02")
    content[entry + 24 : entry + 28] = struct.pack("<I", 88_128)
    path.write_bytes(content)
    with pytest.raises(InputError, match="claims 44000000 bytes and has 88000"):
        read_set(path, "x")
    content[entry + 24 : entry + 28] = struct.pack("<I", 44_000_128 - 88)
    path.write_bytes(content)
    with pytest.raises(InputError, match=r"not a readable \.npz"):
        read_set(path, "x")


def test_the_limits_leave_room_for_ten_nottinghams_in_any_type():
    """Sizes only: a file of 155 MB is in the slow tests."""
    frames, songs = 1_770_000, 10_370
    assert frames <= limits.FRAMES
    assert songs <= limits.MEMBERS
    assert 100 * songs <= limits.DIRECTORY_BYTES
    for itemsize, ratio in ((1, 92), (4, 227)):  # as measured on the paper's rolls
        unpacked = 88 * frames * itemsize
        assert unpacked <= limits.most_unpacked(unpacked // ratio)
    assert limits.most_unpacked(88 * 4_000_000 // 1029) < 88 * 4_000_000  # zeros, as deflate packs them


def test_what_is_packed_like_a_bomb_is_stored_so_that_it_can_be_read_again(tmp_path):
    song = np.zeros((limits.FREE_RATIO_BYTES // 88 + 1, 88), np.uint8)
    song[::100_000, 40] = 1
    data = MusicData("x", {"train": [song], "valid": [song[:5]], "test": [song[:5]]}, 2)
    write_set(tmp_path / "a.npz", data)
    assert read_set(tmp_path / "a.npz", "x").fingerprint == data.fingerprint
    np.savez_compressed(tmp_path / "b.npz", train=song, valid=song[:5], test=song[:5])
    with pytest.raises(InputError, match="without compression"):  # the control: it is needed
        read_set(tmp_path / "b.npz", "x")


def test_tokens_are_stored_small_and_read_whole(tmp_path):
    random = np.random.default_rng(0)
    for size in (200, 60_000, 70_000):
        vocabulary = ("\n", *(f"w{number}" for number in range(size)))
        splits = {name: random.integers(0, size, 1000, dtype=np.int32) for name in ("train", "valid", "test")}
        data = TextData("x", "word", vocabulary, splits, 0)
        write_set(tmp_path / "a.npz", data)
        with np.load(tmp_path / "a.npz") as arrays:
            assert arrays["train"].dtype.itemsize == (1 if size < 256 else 2 if size < 65_536 else 4)
            np.testing.assert_array_equal(arrays["train"], splits["train"])
        read = read_set(tmp_path / "a.npz", "x")
        assert read.fingerprint == data.fingerprint
        assert read.splits["train"].dtype == np.int32


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("dtype", [bool, np.int16, np.float16, ">f8", np.longdouble])
def test_rolls_of_any_type_and_order_are_read_in_blocks(tmp_path, dtype, order):
    lengths = (BLOCK // 80, 37, 38)  # a roll of one block and a part of another, along either axis
    songs = [np.random.default_rng(length).integers(0, 2, (length, 88)) for length in lengths]
    names = ("train/a", "valid/b", "test/c")
    stored = {name: np.array(song, dtype, order=order) for name, song in zip(names, songs, strict=True)}
    np.savez_compressed(tmp_path / "a.npz", **stored)
    data = read_set(tmp_path / "a.npz", "x")
    for split, song in zip(("train", "valid", "test"), songs, strict=True):
        np.testing.assert_array_equal(data.splits[split][0], song)


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
@pytest.mark.parametrize("inputs", [np.arange(600_000.0)[:, None], np.arange(600_000) % 7], ids=["numbers", "symbols"])
def test_arrays_of_more_bytes_than_a_table_of_contents_are_read(tmp_path, save, inputs):
    """Without compression they were refused for their table of contents, which has a hundred bytes."""
    save(tmp_path / "a.npz", inputs=inputs)
    data = read_set(tmp_path / "a.npz", "x")
    assert isinstance(data, Sequences)
    assert data.split_figures("train").steps == 360_000


def test_a_large_vocabulary_that_is_stored_without_compression_is_read(tmp_path):
    vocabulary = ("\n", *(f"{number:0200}" for number in range(6_000)))
    splits = {name: np.zeros(limits.FREE_RATIO_BYTES // 4, np.int32) for name in ("train", "valid", "test")}
    data = TextData("x", "word", vocabulary, splits, 0)
    write_set(tmp_path / "a.npz", data)
    with zipfile.ZipFile(tmp_path / "a.npz") as archive:
        assert {info.compress_type for info in archive.infolist()} == {zipfile.ZIP_STORED}
        assert archive.getinfo("metadata.npy").file_size > limits.DIRECTORY_BYTES
    assert read_set(tmp_path / "a.npz", "x").fingerprint == data.fingerprint


@pytest.mark.parametrize("unit", ["word", "character"])
def test_a_text_of_several_blocks_is_read_whole(tmp_path, unit):
    lines = [f"line {n % 99} ä\U0001f3b5 of {'many ' * (n % 7)}words\n" for n in range(60_000)]
    text = "".join(lines)
    assert len(text.encode()) > 2 * limits.UNBROKEN_BYTES
    (tmp_path / "a.txt").write_bytes(text.replace("\n", "\r\n").encode())
    data = load_text_file(tmp_path / "a.txt", "x", unit)
    ends = (0, 54_000, 57_000, 60_000)
    for split, start, stop in zip(data.splits, ends[:-1], ends[1:], strict=True):
        assert data.symbols.decode(data.splits[split]).splitlines(keepends=True) == lines[start:stop]


def test_a_song_of_an_hour_is_read(tmp_path):
    """Twenty notes a second and fifty movements of the pedal: 324,000 events."""
    second = (b"\x00\x90\x3c\x40\x04\x80\x3c\x00" + b"\x00\xb0\x40\x10" * 5 + b"\x00\x90\x40\x40\x04\x80\x40\x00") * 10
    path = tmp_path / "a.mid"
    path.write_bytes(bombs.midi(bombs.track(second * 3600), ticks=40))
    assert len(read_notes(path).notes) == 20 * 3600


def test_a_long_sequence_is_not_held_with_the_past_of_every_step(measured, tmp_path):
    """The linear predictor of 64 MB of symbols took more than five gigabytes."""
    np.save(tmp_path / "a.npy", np.random.default_rng(0).integers(0, 50, 1_000_000))
    found = measured("import", tmp_path / "a.npy")
    assert found.outcome == "accepted", found
    assert found.bytes < 2 * MOST


def test_the_mean_of_long_sequences_of_symbols_takes_no_row_for_each_step(measured, tmp_path):
    """20 KB, with one target for each of four sequences, took three gigabytes and more."""
    inputs = np.resize(np.arange(400, dtype=np.uint16), 2_000_000)
    np.savez_compressed(tmp_path / "a.npz", inputs=inputs, lengths=np.full(4, 500_000), targets=np.arange(4.0))
    found = measured("import", tmp_path / "a.npz")
    assert found.outcome == "accepted", found
    assert found.bytes < MOST


def test_an_unusual_packing_is_refused_before_it_is_unpacked(tmp_path, monkeypatch):
    path = bombs.zeros(tmp_path, (10, 88), packing=zipfile.ZIP_LZMA)
    monkeypatch.setattr(zipfile.ZipFile, "open", lambda *_: pytest.fail("unpacked"))
    with pytest.raises(InputError, match="unusual way"), open_zip(path, ".npz file"):
        pass


@pytest.mark.slow
@pytest.mark.parametrize("packed", [True, False])
def test_ten_nottinghams_are_imported(packed, benchmark_data, measured, tmp_path):
    import scipy.io

    content = scipy.io.loadmat(benchmark_data / "Nottingham.mat")
    songs = [np.asarray(song, np.uint8) for song in content["traindata"].ravel()]
    frames = np.concatenate(songs * 10)
    assert len(frames) > 1_760_000
    (np.savez_compressed if packed else np.savez)(tmp_path / "a.npz", train=frames, valid=songs[0], test=songs[1])
    assert measured("import", tmp_path / "a.npz").outcome == "accepted"
    one_each = {f"train/{number:05}": song for number, song in enumerate(songs * 10)}
    np.savez(tmp_path / "a.npz", **one_each, **{"valid/0": songs[0], "test/0": songs[1]})
    assert measured("import", tmp_path / "a.npz").outcome == "accepted"


@pytest.mark.slow
@pytest.mark.parametrize("reader", ["import", "words"])
def test_a_hundred_megabytes_of_text_are_imported(reader, benchmark_data, measured, tmp_path):
    (tmp_path / "a.txt").write_bytes((benchmark_data / "ptb.train.txt").read_bytes() * 20)
    assert measured(reader, tmp_path / "a.txt").outcome == "accepted"
