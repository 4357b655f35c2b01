"""Stored sets come back the same; hostile files are refused before memory is taken."""

import io
import json
import zipfile
from pathlib import Path

import numpy as np
import pytest

from longspan import limits
from longspan.data import MusicData, TextData
from longspan.data.archive import read_set, write_set
from longspan.errors import InputError

RANDOM = np.random.default_rng(0)


def some_songs(count: int) -> list[np.ndarray]:
    return [RANDOM.integers(0, 2, (length, 88), np.uint8) for length in range(3, 3 + count)]


def splits_of(songs: list[np.ndarray]) -> dict[str, list[np.ndarray]]:
    return {"train": songs[:-2], "valid": songs[-2:-1], "test": songs[-1:]}


def assert_same_songs(data: object, splits: dict[str, list[np.ndarray]]) -> None:
    assert isinstance(data, MusicData)
    for split, songs in splits.items():
        assert len(data.splits[split]) == len(songs)
        for found, song in zip(data.splits[split], songs, strict=True):
            assert found.dtype == np.uint8
            np.testing.assert_array_equal(found, song)


def test_music_comes_back(tmp_path: Path) -> None:
    splits = splits_of(some_songs(6))
    write_set(tmp_path / "a.npz", MusicData("a", splits, 4, -1, "somewhere", ("one", "two")))
    data = read_set(tmp_path / "a.npz", "b")
    assert_same_songs(data, splits)
    assert isinstance(data, MusicData)
    assert (data.name, data.frames_per_beat, data.octave_shift) == ("b", 4, -1)
    assert (data.origin, data.remarks) == ("somewhere", ("one", "two"))


def test_text_comes_back(tmp_path: Path) -> None:
    vocabulary = ("\n", "ä", "\x00", "\U0001f3b5", '"', "</unk>")
    splits = {split: RANDOM.integers(0, 6, 20, np.int32) for split in ("train", "valid", "test")}
    text = TextData("a", "word", vocabulary, splits, 0, "somewhere", ("remark",))
    write_set(tmp_path / "a.npz", text)
    data = read_set(tmp_path / "a.npz", "a")
    assert isinstance(data, TextData)
    assert data.vocabulary == vocabulary
    assert data.fingerprint == text.fingerprint
    assert (data.unit, data.end_token, data.origin, data.remarks) == ("word", 0, "somewhere", ("remark",))


def test_one_array_a_song(tmp_path: Path) -> None:
    splits = splits_of(some_songs(5))
    named = {f"{split}/{n:03}": song for split, songs in splits.items() for n, song in enumerate(songs)}
    np.savez(tmp_path / "a.npz", **named)  # pyright: ignore[reportArgumentType]
    assert_same_songs(read_set(tmp_path / "a.npz", "a"), splits)


def test_one_song_a_split(tmp_path: Path) -> None:
    splits = splits_of(some_songs(3))
    np.savez(tmp_path / "a.npz", **{split: songs[0] for split, songs in splits.items()})  # pyright: ignore[reportArgumentType]
    assert_same_songs(read_set(tmp_path / "a.npz", "a"), splits)


@pytest.mark.parametrize("dtype", [bool, np.int64, np.float32])
def test_songs_without_splits_are_split(tmp_path: Path, dtype: type) -> None:
    songs = some_songs(10)
    np.savez_compressed(tmp_path / "a.npz", *(song.astype(dtype) for song in songs))
    data = read_set(tmp_path / "a.npz", "a", frames_per_beat=3)
    assert isinstance(data, MusicData)
    assert data.frames_per_beat == 3
    assert [len(part) for part in data.splits.values()] == [6, 2, 2]
    found = sorted(song.tobytes() for part in data.splits.values() for song in part)
    assert found == sorted(song.tobytes() for song in songs)


class Bomb:
    """Runs when unpickled."""

    def __reduce__(self):
        return (pytest.fail, ("unpickled",))


def npy_header(shape: tuple[int, ...], descr: str = "|u1") -> bytes:
    buffer = io.BytesIO()
    np.lib.format.write_array_header_1_0(buffer, {"descr": descr, "fortran_order": False, "shape": shape})
    return buffer.getvalue()


def zip_of(members: dict[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as file:
        for name, content in members.items():
            file.writestr(name, content)
    return buffer.getvalue()


def saved(**arrays: object) -> bytes:
    buffer = io.BytesIO()
    np.savez(buffer, **arrays)  # pyright: ignore[reportArgumentType]
    return buffer.getvalue()


SONG = np.ones((4, 88), np.uint8)
STORED = {"valid": SONG, "valid_lengths": np.array([4]), "test": SONG, "test_lengths": np.array([4])}


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "not a readable .npz"),
        (b"PK\x03\x04 broken", "not a readable .npz"),
        (saved(train=SONG)[:-30], "not a readable .npz"),
        (saved(train=np.array([Bomb()], object)), "Python objects, which are never opened"),
        (zip_of({"train.npy": npy_header((2**40, 88)) + bytes(88)}), "claims .* bytes and has"),
        (zip_of({"train.npy": npy_header((-1, 88))}), "not a readable .npz"),
        (zip_of({"train.npy": b"not an array"}), "not a readable .npz"),
        (saved(a=SONG[:, :80]), r"'a' in .* has shape \(4, 80\)"),
        (saved(a=SONG, b=SONG), "found 2 usable songs, expected at least 3"),
        (saved(**{"train/0": SONG, "valid/0": SONG}), "have some of each"),
        (saved(**{"train/0": SONG, "valid/0": SONG, "test/0": SONG, "x": SONG}), "must name every song"),
        (saved(train=SONG, train_lengths=np.array([3]), **STORED), "lengths do not add up"),
        (saved(train=SONG, train_lengths=np.array([8, -4]), **STORED), "lengths do not add up"),
        (saved(train=SONG, metadata=np.array("{")), "not JSON"),
        (saved(train=SONG, metadata=np.array('{"format": 99}')), "format this version does not read"),
        (saved(train=SONG, metadata=np.array(json.dumps({"kind": "text"}))), "damaged data set"),
        (
            saved(
                train=np.array([5]),
                metadata=np.array(json.dumps({"kind": "text", "vocabulary": ["\n"]})),
                valid=np.array([0]),
                test=np.array([0]),
            ),
            "outside the vocabulary",
        ),
        (
            saved(
                metadata=np.array(json.dumps({"kind": "text", "vocabulary": ["a"], "unit": "word", "end_token": 0})),
                **{split: np.array([0]) for split in ("train", "valid", "test")},
            ),
            "no such unit or end token",
        ),
    ],
)
def test_bad_files_are_refused_in_one_line(tmp_path: Path, content: bytes, reason: str) -> None:
    (tmp_path / "a.npz").write_bytes(content)
    with pytest.raises(InputError, match=reason) as caught:
        read_set(tmp_path / "a.npz", "a")
    assert "\n" not in str(caught.value)


def test_what_unpacks_to_too_much_is_refused_unread(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    frames = limits.FREE_RATIO_BYTES // 88 + 1
    np.savez_compressed(tmp_path / "a.npz", np.zeros((frames, 88), np.uint8))
    assert (tmp_path / "a.npz").stat().st_size < 100_000
    monkeypatch.setattr(zipfile.ZipFile, "open", lambda *_, **__: pytest.fail("read"))
    with pytest.raises(InputError, match=f"unpacks to {88 * frames + 128} bytes, more than the 67108864"):
        read_set(tmp_path / "a.npz", "a")
