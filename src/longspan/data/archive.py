"""Data sets as `.npz` files: how sets are stored here, and which other layouts of piano rolls are understood.

Stored sets of music hold, for each split, `train` (frames x 88, all songs one after another) and
`train_lengths`; of text, `train` (the token ids). `metadata` is JSON in a string array. A user's file may
instead hold one array a song, named `train/000` and so on, or songs under any other names, which are then
split like MIDI files.

Files may come from anywhere: pickles are refused, and every size is known before memory is taken.
"""

from __future__ import annotations

import json
import math
import zipfile
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from longspan.data.music import DEFAULT_FRAMES_PER_BEAT, MusicData, Song, check_song
from longspan.data.names import SPLITS
from longspan.data.splitting import SONG_SHARES, split_songs
from longspan.data.text import END, UNKNOWN, TextData
from longspan.errors import InputError
from longspan.files import replacing

FORMAT = 1
MAX_BYTES = 2**30

Arrays = dict[str, np.ndarray]


def write_set(path: Path, data: MusicData | TextData) -> None:
    """Store a data set at `path`, whole or not at all."""
    metadata: dict[str, Any] = {
        "format": FORMAT,
        "kind": data.kind,
        "origin": data.origin,
        "remarks": list(data.remarks),
    }
    arrays: Arrays = {}
    if isinstance(data, MusicData):
        metadata |= {"frames_per_beat": data.frames_per_beat, "octave_shift": data.octave_shift}
        for split in SPLITS:
            arrays[split] = np.concatenate(data.splits[split])
            arrays[f"{split}_lengths"] = np.array([len(song) for song in data.splits[split]], np.int64)
    else:
        metadata |= {"unit": data.unit, "vocabulary": list(data.vocabulary), "end_token": data.end_token}
        arrays |= data.splits
    with replacing(path) as file:
        np.savez_compressed(file, metadata=np.array(json.dumps(metadata)), **arrays)  # pyright: ignore[reportArgumentType]


def read_set(
    path: Path,
    name: str,
    *,
    frames_per_beat: int = DEFAULT_FRAMES_PER_BEAT,
    split: tuple[float, float, float] = SONG_SHARES,
    seed: int = 0,
) -> MusicData | TextData:
    """Read a stored set, or a user's piano rolls; the keywords are for what a user's file does not say."""
    arrays = read_arrays(path)
    metadata = _metadata(arrays.pop("metadata", None), path)
    try:
        if metadata.get("kind") == "text":
            return _text(arrays, metadata, name)
        return MusicData(
            name,
            _songs(arrays, path, split, seed),
            int(metadata.get("frames_per_beat", frames_per_beat)),
            int(metadata.get("octave_shift", 0)),
            str(metadata.get("origin", path.name)),
            tuple(map(str, metadata.get("remarks", ()))),
        )
    except (LookupError, TypeError, ValueError) as error:
        raise InputError(f"{path} is a damaged data set ({error!r}); import it again") from error


def read_arrays(path: Path) -> Arrays:
    """The arrays of an `.npz` file of at most `MAX_BYTES`, without pickles."""
    try:
        with zipfile.ZipFile(path) as archive:
            members = [info for info in archive.infolist() if info.filename.endswith(".npy")]
            total = sum(info.file_size for info in members)
            if total > MAX_BYTES:
                raise InputError(f"{path} unpacks to {total} bytes, more than the {MAX_BYTES} allowed; split it up")
            return {info.filename.removesuffix(".npy"): _read_member(archive, info) for info in members}
    except FileNotFoundError:
        raise
    except (OSError, ValueError, EOFError, zipfile.BadZipFile, NotImplementedError, RuntimeError) as error:
        raise InputError(f"{path} is not a readable .npz file: {error}") from error


def _read_member(archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> np.ndarray:
    with archive.open(info) as file:
        shape, dtype = _header(file)
        claimed = math.prod(shape) * dtype.itemsize
        if dtype.hasobject:
            raise ValueError(f"{info.filename} holds Python objects, which are never opened; save one array a song")
        if claimed > info.file_size:
            raise ValueError(f"{info.filename} claims {claimed} bytes and has {info.file_size}")
    with archive.open(info) as file:
        return np.lib.format.read_array(file, allow_pickle=False)


def _header(file: BinaryIO | Any) -> tuple[tuple[int, ...], np.dtype]:
    version = np.lib.format.read_magic(file)
    read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    shape, _, dtype = read(file)
    return shape, dtype


def _metadata(array: np.ndarray | None, path: Path) -> dict[str, Any]:
    if array is None:
        return {}
    try:
        metadata = json.loads(str(array))
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path} has an array 'metadata' that is not JSON; rename or remove it") from error
    if not isinstance(metadata, dict) or metadata.get("format", FORMAT) != FORMAT:
        raise InputError(f"{path} was written in a format this version does not read; import its source again")
    return metadata


def _songs(arrays: Arrays, path: Path, shares: tuple[float, float, float], seed: int) -> dict[str, list[Song]]:
    if all(f"{split}_lengths" in arrays for split in SPLITS):
        return {split: _cut(arrays[split], arrays[f"{split}_lengths"], f"'{split}' in {path}") for split in SPLITS}
    songs = {name: check_song(array, f"'{name}' in {path}") for name, array in arrays.items()}
    by_split = {split: [song for name, song in songs.items() if name.split("/")[0] == split] for split in SPLITS}
    if not any(by_split.values()):
        return split_songs(songs, shares, seed)
    missing = [split for split, members in by_split.items() if not members]
    if missing or sum(map(len, by_split.values())) < len(songs):
        raise InputError(f"{path} must name every song train/..., valid/... or test/... and have some of each")
    return by_split


def _cut(frames: np.ndarray, lengths: np.ndarray, where: str) -> list[Song]:
    frames = check_song(frames, where)
    if (
        lengths.ndim != 1
        or lengths.dtype.kind not in "iu"
        or lengths.min(initial=1) < 1
        or lengths.sum() != len(frames)
    ):
        raise InputError(f"{where} has {len(frames)} frames, which its lengths do not add up to")
    return np.split(frames, np.cumsum(lengths[:-1]))


def _text(arrays: Arrays, metadata: dict[str, Any], name: str) -> TextData:
    vocabulary = tuple(map(str, metadata["vocabulary"]))
    splits = {split: arrays[split].astype(np.int32) for split in SPLITS}
    for split, tokens in splits.items():
        if tokens.ndim != 1 or tokens.min(initial=0) < 0 or tokens.max(initial=0) >= len(vocabulary):
            raise ValueError(f"tokens of {split} outside the vocabulary")
    if metadata["unit"] not in UNKNOWN or vocabulary[metadata["end_token"]] != END:
        raise ValueError("no such unit or end token")
    return TextData(
        name,
        metadata["unit"],
        vocabulary,
        splits,
        int(metadata["end_token"]),
        str(metadata["origin"]),
        tuple(map(str, metadata["remarks"])),
    )
