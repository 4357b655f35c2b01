"""Files that are small or plain and ask for much: one function each, which writes the file and returns its path."""

import io
import itertools
import os
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path

import mido
import numpy as np
import pyarrow
import pyarrow.parquet

Bomb = Callable[[Path], Path]


def midi(tracks: bytes, count: int = 1, ticks: int = 480) -> bytes:
    return b"MThd" + struct.pack(">IHHh", 6, 1, count, ticks) + tracks


def track(events: bytes) -> bytes:
    return b"MTrk" + struct.pack(">I", len(events)) + events


NOTE = b"\x00\x90\x3c\x40\x60\x80\x3c\x00"
ENDLESS = b"\xff" * 2_000_000 + b"\x7f"

MIDI = {
    "endless delta time of 200 KB": lambda: midi(track(b"\xff" * 200_000 + b"\x7f\x90\x3c\x40")),
    "endless delta time": lambda: midi(track(ENDLESS + NOTE)),
    "endless length of a meta event": lambda: midi(track(b"\x00\xff\x01" + ENDLESS + NOTE)),
    "endless length of a system exclusive": lambda: midi(track(b"\x00\xf0" + ENDLESS + NOTE)),
    "flood of events": lambda: midi(track(b"\0\x90\x3c\x40\0\x80\x3c\0" * 2_000_000)),
    "flood of running status": lambda: midi(track(b"\0\x90\x3c\x40" + b"\0\x3c\x40" * 5_000_000)),
    "flood of meta events": lambda: midi(track(b"\0\xff\x01\0" * 4_000_000)),
    "flood of empty tracks": lambda: midi(track(b"") * 65_535, 65_535),
    "very long note": lambda: midi(track(b"\0\x90\x3c\x40\xff\xff\xff\x7f\x80\x3c\0")),
    "65,535 long notes": lambda: midi(track(b"\0\x90\x3c\x40\x82\xf0\xff\x00\x80\x3c\0") * 65_535, 65_535),
    "no ticks in a beat": lambda: midi(track(NOTE), ticks=0),
    "header of 4 GB": lambda: b"MThd\xff\xff\xff\xff" + midi(track(NOTE))[8:],
    "track of 4 GB": lambda: midi(b"MTrk\xff\xff\xff\xff" + NOTE),
    "text of 256 MB in a meta event": lambda: midi(track(b"\0\xff\x01\xff\xff\xff\x7f" + NOTE)),
    "more tracks than there are": lambda: midi(track(NOTE), 65_535),
}
"""A MIDI file of each kind."""


def good_midi(path: Path, number: int) -> None:
    file = mido.MidiFile()
    events = [mido.Message("note_on", note=60 + place, time=(480 + 480 * number) * (place > 0)) for place in range(4)]
    file.tracks.append(mido.MidiTrack([*events, mido.MetaMessage("end_of_track", time=480)]))
    file.save(path)


def midi_folder(content: bytes, folder: Path) -> Path:
    """A folder of three good files and a bad one."""
    for number in range(3):
        good_midi(folder / f"good{number}.mid", number)
    (folder / "bad.mid").write_bytes(content)
    return folder


def header(shape: tuple[int, ...], descr: object = "|u1") -> bytes:
    buffer = io.BytesIO()
    np.lib.format.write_array_header_1_0(buffer, {"descr": descr, "fortran_order": False, "shape": shape})
    return buffer.getvalue()


def archive(folder: Path, members: dict[str, bytes], packing: int = zipfile.ZIP_DEFLATED) -> Path:
    with zipfile.ZipFile(folder / "a.npz", "w", packing) as file:
        for name, content in members.items():
            file.writestr(f"{name}.npy", content)
    return folder / "a.npz"


def zeros(folder: Path, shape: tuple[int, ...], descr: str = "|u1", packing: int = zipfile.ZIP_DEFLATED) -> Path:
    """Three splits of one array of zeros each, written a block at a time."""
    block = bytes(2**20)
    with zipfile.ZipFile(folder / "a.npz", "w", packing) as file:
        for split in ("train", "valid", "test"):
            left = int(np.prod(shape)) * np.dtype(descr).itemsize
            with file.open(f"{split}.npy", "w", force_zip64=True) as member:
                member.write(header(shape, descr))
                while left > 0:
                    left -= member.write(block[: min(left, len(block))])
    return folder / "a.npz"


def equal_numbers(folder: Path, names: dict[str, tuple[tuple[int, ...], str]], noise: int = 500_000) -> Path:
    """Arrays of zeros, beside bytes that keep the archive from being refused for how well it is packed."""
    with zipfile.ZipFile(folder / "a.npz", "w", zipfile.ZIP_DEFLATED) as file:
        for name, (shape, descr) in names.items():
            file.writestr(f"{name}.npy", header(shape, descr) + bytes(int(np.prod(shape)) * np.dtype(descr).itemsize))
        file.writestr("noise", np.random.default_rng(0).bytes(noise))
    return folder / "a.npz"


def many_members(folder: Path, count: int) -> Path:
    song = header((2, 88)) + bytes(176)
    return archive(folder, {f"{number}": song for number in range(count)}, zipfile.ZIP_STORED)


def overlapping(folder: Path) -> Path:
    """One member of 10 MB that the table of contents lists 10,000 times."""
    path = archive(folder, {"a": header((10**7 // 88, 88)) + bytes(10**7)})
    content = path.read_bytes()
    end = content.rindex(b"PK\x05\x06")
    size, start = struct.unpack("<II", content[end + 12 : end + 20])
    table = content[start : start + size] * 10_000
    record = struct.pack("<4s4H2IH", b"PK\x05\x06", 0, 0, 10_000, 10_000, len(table), start, 0)
    path.write_bytes(content[:start] + table + record)
    return path


def huge_header(folder: Path) -> Path:
    claim = b"\x93NUMPY\x02\x00" + struct.pack("<I", 2**30 - 100)
    return archive(folder, {"train": claim + b" " * 60_000_000})


def stored_text(folder: Path, tokens: int) -> Path:
    """Three splits of one token over and over."""
    text = '{"format": 1, "kind": "text", "unit": "word", "vocabulary": ["\\n"], "end_token": 0}'
    metadata = header((), f"<U{len(text)}") + text.encode("utf-32-le")
    stream = header((tokens,), "<i4") + bytes(4 * tokens)
    return archive(folder, {"metadata": metadata, "train": stream, "valid": stream, "test": stream})


def stored_with_a_late_fault(folder: Path, about: str, arrays: dict[str, bytes], fault: dict[str, bytes]) -> Path:
    """A stored set whose last split shows that it is none, beside bytes that make it no bomb by its ratio."""
    members = {f"{split}{name}": content for split in ("train", "valid") for name, content in arrays.items()}
    members |= {f"test{name}": content for name, content in (arrays | fault).items()}
    path = archive(folder, {"metadata": header((), f"<U{len(about)}") + about.encode("utf-32-le"), **members})
    with zipfile.ZipFile(path, "a", zipfile.ZIP_STORED) as file:
        file.writestr("noise", np.random.default_rng(0).bytes(2_000_000))
    return path


def late_token(folder: Path) -> Path:
    about = '{"format": 1, "kind": "text", "unit": "word", "vocabulary": ["\\n"], "end_token": 0}'
    tokens = header((50_000_000,)) + bytes(50_000_000)
    return stored_with_a_late_fault(folder, about, {"": tokens}, {"": header((1,)) + b"\1"})


def late_gap(folder: Path) -> Path:
    """Numbers of which the last are none."""
    about = (
        '{"format": 1, "kind": "own", "description": {"input_kind": "numbers", "target_kind": "numbers", '
        '"input_size": 1, "target_size": 1}}'
    )
    steps = 12_000_000
    numbers, marks = header((steps, 1), "<f4") + bytes(4 * steps), header((steps,), "|b1") + b"\1" * steps
    arrays = {"_inputs": numbers, "_targets": numbers, "_mask": marks}
    arrays |= {"_lengths": header((1,), "<i8") + np.array([steps], "<i8").tobytes()}
    return stored_with_a_late_fault(folder, about, arrays, {"_targets": numbers[:-4] + b"\xff" * 4})


def wide_numbers(folder: Path) -> Path:
    """A few steps, each of so many numbers that their products have trillions."""
    return archive(folder, {"inputs": header((4, 500_000), "<f8") + bytes(16_000_000)})


def long_metadata(folder: Path) -> Path:
    text = '{"vocabulary": [' + '"a",' * 5_000_000 + '"a"]}'
    return archive(folder, {"metadata": header((), f"<U{len(text)}") + text.encode("utf-32-le")})


def many_songs(folder: Path) -> Path:
    frames, ones = header((2_900_000, 88)) + bytes(255_200_000), np.ones(2_900_000, "<i8").tobytes()
    members = {"train": frames, "train_lengths": header((2_900_000,), "<i8") + ones}
    one = header((1, 88)) + bytes(88), header((1,), "<i8") + np.ones(1, "<i8").tobytes()
    members |= {"valid": one[0], "valid_lengths": one[1], "test": one[0], "test_lengths": one[1]}
    return archive(folder, members, zipfile.ZIP_STORED)


def nested(folder: Path) -> Path:
    inner = zeros(folder, (400_000, 88)).read_bytes()
    return archive(folder, {"train": inner})


NPZ: dict[str, Bomb] = {
    "three arrays of 1.2 million silent frames": lambda folder: zeros(folder, (1_200_000, 88)),
    "within the frames allowed": lambda folder: zeros(folder, (400_000, 88)),
    "zeros of 8 bytes": lambda folder: zeros(folder, (150_000, 88), "<f8"),
    "100,000 members": lambda folder: many_members(folder, 100_000),
    "60,000 members": lambda folder: many_members(folder, 60_000),
    "one member listed 10,000 times": overlapping,
    "a claim of 10^12 rows": lambda folder: archive(folder, {"train": header((10**12, 88)) + bytes(88)}),
    "a header of 1 GB": huge_header,
    "Python objects": lambda folder: archive(folder, {"train": header((4,), "|O") + bytes(64)}),
    "records": lambda folder: archive(folder, {"train": header((4, 88), [("x", "<f8", (1000,))]) + bytes(2_816_000)}),
    "a text of 360 MB": lambda folder: zeros(folder, (), "<U30000000"),
    "packed by LZMA": lambda folder: zeros(folder, (100_000, 88), packing=zipfile.ZIP_LZMA),
    "packed by bzip2": lambda folder: zeros(folder, (100_000, 88), packing=zipfile.ZIP_BZIP2),
    "an archive in an archive": nested,
    "30 million equal symbols": lambda folder: equal_numbers(folder, {"inputs": ((30_000_000,), "<i8")}),
    "30 million equal numbers": lambda folder: equal_numbers(folder, {"inputs": ((30_000_000, 1), "<f8")}),
    "60 million symbols of a byte": lambda folder: archive(
        folder, {"inputs": header((60_000_000,)) + b"\0\1" * 30_000_000}
    ),
    "30 million ids of a sequence": lambda folder: equal_numbers(
        folder, {"inputs": ((120, 1), "<f8"), "ids": ((30_000_000,), "<i8")}
    ),
    "60 million lengths": lambda folder: equal_numbers(
        folder, {"inputs": ((120, 1), "<f8"), "lengths": ((60_000_000,), "<i8")}, 1_000_000
    ),
    "arrays that no data have": lambda folder: equal_numbers(
        folder, {"inputs": ((120, 1), "<f8"), "x": ((30_000_000,), "<f8"), "y": ((30_000_000,), "<f8")}, 1_000_000
    ),
    "90 million stored tokens": lambda folder: stored_text(folder, 30_000_000),
    "100 million stored tokens before one that is none": late_token,
    "24 million stored numbers before one that is none": late_gap,
    "half a million numbers in each step": wide_numbers,
    "a vocabulary of 5 million": long_metadata,
    "2.9 million songs of a frame": many_songs,
}


def plain(name: str, parts: Callable[[], object]) -> Bomb:
    def write(folder: Path) -> Path:
        with (folder / name).open("wb") as file:
            file.writelines(parts())
        return folder / name

    return write


def sparse(folder: Path) -> Path:
    with (folder / "a.txt").open("wb") as file:
        file.truncate(2**30)
    return folder / "a.txt"


def pipe(folder: Path) -> Path:
    os.mkfifo(folder / "a.txt")
    return folder / "a.txt"


def device(folder: Path) -> Path:
    (folder / "a.txt").symlink_to("/dev/zero")
    return folder / "a.txt"


def different_words():
    for start in itertools.count(0, 100_000):
        if start == 4_000_000:
            return
        yield b"".join(b"%07x\n" % number for number in range(start, start + 100_000))


TEXT: dict[str, Bomb] = {
    "200 MB of newlines": plain("a.txt", lambda: itertools.repeat(b"\n" * 10**6, 200)),
    "100 MB of newlines": plain("a.txt", lambda: itertools.repeat(b"\n" * 10**6, 100)),
    "1 GB": sparse,
    "100 MB that continue one character": plain("a.txt", lambda: itertools.repeat(b"\x80" * 10**6, 100)),
    "a pipe": pipe,
    "a device without end": device,
}
WORDS: dict[str, Bomb] = {
    "4 million different words": plain("a.txt", different_words),
    "one word of 100 MB": plain("a.txt", lambda: itertools.chain([b"a\n" * 20], itertools.repeat(b"a" * 10**6, 100))),
}


def long_word(folder: Path, letters: int) -> Path:
    """A Parquet file of two rows, one of them a single word."""
    table = pyarrow.table({"word": ["a" * letters, "b"]})
    pyarrow.parquet.write_table(table, folder / "a.parquet", compression="zstd")
    return folder / "a.parquet"


def long_category(folder: Path, letters: int) -> Path:
    """A Parquet file of a few rows, all of the same word of a dictionary."""
    words = pyarrow.DictionaryArray.from_arrays(pyarrow.array([0] * 12, pyarrow.int32()), ["a" * letters])
    pyarrow.parquet.write_table(pyarrow.table({"word": words}), folder / "a.parquet", compression="zstd")
    return folder / "a.parquet"


def columns_of_words(count: int, rows: int) -> list[list[str]]:
    """Columns of short words and one long one, which decides what NumPy takes for each of them."""
    return [["x" * 256, *"y" * (rows - 1)] for _ in range(count)]


def words_in_parquet(folder: Path, count: int, rows: int) -> Path:
    columns = {f"c{number}": words for number, words in enumerate(columns_of_words(count, rows))}
    pyarrow.parquet.write_table(pyarrow.table(columns), folder / "a.parquet", compression="zstd")
    return folder / "a.parquet"


def equal_numbers_in_parquet(folder: Path, rows: int) -> Path:
    pyarrow.parquet.write_table(pyarrow.table({"a": np.zeros(rows)}), folder / "a.parquet", compression="zstd")
    return folder / "a.parquet"


def long_words(folder: Path, letters: int) -> Path:
    """Arrays of a single word, as NumPy has them, packed."""
    return archive(folder, {"inputs": header((2,), f"<U{letters}") + bytes(8 * letters)})


TABLES: dict[str, Bomb] = {
    "60 MB of commas for names": plain(
        "a.csv", lambda: itertools.chain(itertools.repeat(b"," * 10**6, 60), [b"\n1\n"])
    ),
    "60 MB of commas in a row": plain(
        "a.csv", lambda: itertools.chain([b"a,b\n1,2\n"], itertools.repeat(b"," * 10**6, 60), [b"\n1\n"])
    ),
    "rows of a million commas": plain(
        "a.csv", lambda: itertools.chain([b"a,b\n"], itertools.repeat(b"," * 10**6 + b"\n", 60))
    ),
    "a row of quoted lines": plain(
        "a.csv", lambda: itertools.chain([b"a,b\n"], itertools.repeat(b'"\n",' * 10**5, 120))
    ),
    "a word of 60 million letters in Parquet": lambda folder: long_word(folder, 60_000_000),
    "a category of 20 million letters in Parquet": lambda folder: long_category(folder, 20_000_000),
    "40 columns of words": plain(
        "a.csv",
        lambda: [
            ",".join(f"c{number}" for number in range(40)).encode() + b"\n",
            *(",".join(row).encode() + b"\n" for row in zip(*columns_of_words(40, 20_000), strict=True)),
        ],
    ),
    "40 columns of words in Parquet": lambda folder: words_in_parquet(folder, 40, 20_000),
    "60 million equal numbers in Parquet": lambda folder: equal_numbers_in_parquet(folder, 60_000_000),
    "a word of 30 million letters": lambda folder: long_words(folder, 30_000_000),
}

LAUGHS = "".join(f"<!ENTITY l{n} '{f'&l{n - 1};' * 10}'>" for n in range(1, 12))


def laughing(encoding: str) -> Callable[[], list[bytes]]:
    text = f"<!DOCTYPE score-partwise [<!ENTITY l0 'ha'>{LAUGHS}]><score-partwise>&l11;</score-partwise>"
    return lambda: [text.encode(encoding)]


def packed_score(folder: Path) -> Path:
    with zipfile.ZipFile(folder / "a.mxl", "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("score.xml", b"<a>" + b" " * 200_000_000 + b"</a>")
    return folder / "a.mxl"


SCORES: dict[str, Bomb] = {
    "billion laughs": plain("a.xml", laughing("utf-8")),
    "billion laughs in UTF-16": plain("a.xml", laughing("utf-16")),
    "one long entity named often": plain(
        "a.xml",
        lambda: [b"<!DOCTYPE a [<!ENTITY e '", b"x" * 10**6, b"'>]><a>", b"&e;" * 10**6, b"</a>"],
    ),
    "a flood of elements": plain("a.xml", lambda: [b"<a>", b"<a/>" * 1_048_000, b"</a>"]),
    "elements in elements": plain("a.xml", lambda: [b"<a>" * 599_000, b"</a>" * 599_000]),
    "an archive of spaces": packed_score,
    "many parts beside a long one": plain(
        "a.xml",
        lambda: [
            b"<score-partwise>",
            b"<part/>" * 200_000,
            b"<part>",
            b"<measure/>" * 200_000,
            b"</part></score-partwise>",
        ],
    ),
}
SETTINGS: dict[str, Bomb] = {
    "a number of 5,000 digits": plain("a.toml", lambda: [b"hidden_size = ", b"9" * 5_000]),
    "lists in lists": plain("a.toml", lambda: [b"hidden_size = ", b"[" * 3_000]),
    "dotted without end": plain("a.toml", lambda: [b"a." * 30_000, b"b = 1"]),
    "many tables": plain("a.toml", lambda: [b"[%s]\n" % b".".join([b"a"] * n) for n in range(1, 240)]),
    "200 MB": plain("a.toml", lambda: itertools.repeat(b"#" * 10**6, 200)),
}
RESULTS: dict[str, Bomb] = {
    "a line of lists": plain("a.jsonl", lambda: [b'{"settings":{"a":[', b"[]," * 5_000_000, b"0]}}\n"]),
    "lines of settings": plain(
        "a.jsonl",
        lambda: itertools.repeat(b'{"settings":{%s}}\n' % b",".join(b'"%d":0' % each for each in range(1500)), 1000),
    ),
    "200 MB": plain("a.jsonl", lambda: itertools.repeat(b" " * 10**6, 200)),
}
JSON: dict[str, Bomb] = {
    "objects in objects": plain("a.json", lambda: [b'{"a":' * 100_000]),
    "a flood of lists": plain("a.json", lambda: [b'{"a":[', b"[]," * 2_790_000, b"0]}"]),
    "200 MB": plain("a.json", lambda: itertools.repeat(b" " * 10**6, 200)),
}
