"""Data sets as `.npz` files: how they are stored here, and which other layouts of piano rolls are understood.

For each split, stored music has arrays such as `train` (frames x 88, all songs concatenated) and `train_lengths`;
stored text has `train` (the token ids). `metadata` is JSON in a string array. A user's file may instead have one array
per song, named `train/000` and so on, or songs under any other names, which are then split like MIDI files. A file with
an array `inputs` holds a user's own sequences (docs/own-data.md); stored, those have `train_inputs`, `train_targets`,
`train_mask` and `train_lengths`.

Files may come from untrusted sources: pickles are refused, every size is known before memory is allocated, and arrays
are read in blocks, so that a roll takes one byte per key whatever the type of its numbers.
"""

from __future__ import annotations

import json
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, Literal, NamedTuple

import msgspec
import numpy as np

from longspan.data.blocks import BLOCK, Opened, opened_array
from longspan.data.checking import MOST_SYMBOLS, check_record
from longspan.data.dataset import SPLITS, texts_of
from longspan.data.music import (
    DEFAULT_FRAMES_PER_BEAT,
    MOST_AUGMENTED,
    WITH_ONSETS,
    MusicData,
    check_shape,
    check_values,
)
from longspan.data.own import Description, Pair, Sequences, record_of
from longspan.data.own_files import check_arrays, check_words, sequences_of
from longspan.data.sequences import Song
from longspan.data.splitting import SONG_SHARES, split_songs
from longspan.data.text import TextData
from longspan.data.vocabulary import END, Unit
from longspan.data.zips import open_zip
from longspan.errors import InputError, printable
from longspan.files import replacing
from longspan.limits import (
    FRAMES,
    FRAMES_PER_BEAT,
    METADATA_CHARACTERS,
    NUMBERS,
    OCTAVE_SHIFT,
    SONGS,
    TOKENS,
    most_of_own,
    most_unpacked,
)

FORMAT = 1
TYPES = {"symbols": np.int32, "numbers": np.float32, "binary": np.uint8}
"""How the values of a user's own sequences are stored."""


class Metadata(msgspec.Struct, frozen=True):
    """The metadata of a stored set; optional in a user's file of rolls."""

    format: int = FORMAT
    kind: Literal["music", "text", "own"] = "music"
    origin: str | None = None
    remarks: tuple[str, ...] = ()
    frames_per_beat: int | None = None
    octave_shift: int = 0
    augment: int = 0
    unit: Unit = "word"
    vocabulary: tuple[str, ...] = ()
    end_token: int = 0
    description: Description | None = None
    id_column: str | None = None


class Format(msgspec.Struct, frozen=True):
    """The only field that every format has."""

    format: int = FORMAT


Storable = MusicData | TextData | Sequences


def write_set(path: Path, data: Storable) -> None:
    """Store a data set at `path`, whole or not at all."""
    metadata = _describe(data)
    if len(metadata) > METADATA_CHARACTERS:
        raise InputError(
            f"the vocabulary and remarks of {data.name} have {len(metadata)} characters, more than the "
            f"{METADATA_CHARACTERS} allowed; keep fewer symbols or leave out bad files"
        )
    arrays = [_Stored("metadata", (), f"<U{len(metadata)}", [metadata.encode("utf-32-le")]), *_arrays(data)]
    with replacing(path) as file:
        # Very repetitive data can compress so well that a reader would take the file for a decompression bomb.
        for packing in (zipfile.ZIP_DEFLATED, zipfile.ZIP_STORED):
            file.seek(0)
            file.truncate()
            if _pack(file, arrays, packing) <= most_unpacked(file.tell()):
                break


class _Stored(NamedTuple):
    """An array to be stored, with its content in parts."""

    name: str
    shape: tuple[int, ...]
    descr: str
    parts: list[bytes] | list[np.ndarray]


def _describe(data: Storable) -> str:
    metadata: dict[str, Any] = {"format": FORMAT, "origin": data.origin, "remarks": list(data.remarks)}
    if isinstance(data, Sequences):
        metadata |= {"kind": "own", "description": msgspec.to_builtins(data.description)}
        metadata |= {} if data.id_column is None else {"id_column": data.id_column}
    elif isinstance(data, MusicData):
        metadata |= {"kind": "music", "frames_per_beat": data.frames_per_beat, "octave_shift": data.octave_shift}
        metadata |= {"augment": data.augment} if data.augment else {}
    else:
        metadata["kind"] = "text"
        metadata |= {"unit": data.unit, "vocabulary": list(data.vocabulary), "end_token": data.end_token}
    return json.dumps(metadata)


def _arrays(data: Storable) -> Iterator[_Stored]:
    for split in SPLITS:
        if isinstance(data, Sequences):
            yield from _own_arrays(split, data.pairs[split])
        elif isinstance(data, MusicData):
            songs = data.splits[split]
            lengths = np.array([len(song) for song in songs], "<i8")
            yield _Stored(
                split, (int(lengths.sum()), data.width), "|u1", [np.ascontiguousarray(song) for song in songs]
            )
            yield _Stored(f"{split}_lengths", lengths.shape, "<i8", [lengths])
        else:
            tokens = data.splits[split]
            smallest = np.min_scalar_type(max(len(data.vocabulary) - 1, 0)).newbyteorder("<")
            blocks = [tokens[start : start + BLOCK].astype(smallest) for start in range(0, len(tokens), BLOCK)]
            yield _Stored(split, tokens.shape, smallest.str, blocks)


def _own_arrays(split: str, pairs: list[Pair]) -> Iterator[_Stored]:
    lengths = np.array([len(pair.mask) for pair in pairs], "<i8")
    for leaf, name in enumerate(("inputs", "targets", "mask")):
        parts = [np.ascontiguousarray(pair[leaf], pair[leaf].dtype.newbyteorder("<")) for pair in pairs]
        yield _Stored(f"{split}_{name}", (int(lengths.sum()), *parts[0].shape[1:]), parts[0].dtype.str, parts)
    yield _Stored(f"{split}_lengths", lengths.shape, "<i8", [lengths])


def _pack(file: BinaryIO, arrays: list[_Stored], packing: int) -> int:
    """Write an archive of arrays; return the number of bytes it unpacks to."""
    with zipfile.ZipFile(file, "w", packing) as archive:
        for name, shape, descr, parts in arrays:
            with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                header = {"descr": descr, "fortran_order": False, "shape": shape}
                np.lib.format.write_array_header_1_0(member, header)  # pyright: ignore[reportArgumentType]
                for part in parts:
                    member.write(part if isinstance(part, bytes) else part.data)
        return sum(info.file_size for info in archive.infolist())


def read_set(
    path: Path,
    name: str,
    *,
    frames_per_beat: int = DEFAULT_FRAMES_PER_BEAT,
    split: tuple[float, float, float] = SONG_SHARES,
    seed: int = 0,
) -> Storable:
    """Read a stored set or a user's piano rolls; the keyword arguments supply what a user's file does not say."""
    with open_zip(path, ".npz file") as archive:
        rolls = _Rolls(archive, path)
        if "inputs" in rolls.members:
            arrays = rolls.own_arrays()
            return sequences_of(arrays, path, name=name, origin=printable(path.name), split=split, seed=seed)
        metadata = rolls.metadata()
        origin, remarks = printable(metadata.origin or path.name), tuple(map(printable, metadata.remarks))
        if metadata.kind == "text":
            splits = rolls.tokens(len(metadata.vocabulary))
            return TextData(name, metadata.unit, metadata.vocabulary, splits, metadata.end_token, origin, remarks)
        if metadata.kind == "own":
            assert metadata.description is not None
            pairs = rolls.pairs(metadata.description, name)
            return Sequences.of(name, metadata.description, pairs, origin, remarks, metadata.id_column)
        per_beat = frames_per_beat if metadata.frames_per_beat is None else metadata.frames_per_beat
        songs = rolls.songs(split, seed)
        return MusicData(name, songs, per_beat, metadata.octave_shift, origin, remarks, metadata.augment)


def describe_set(path: Path) -> str:
    """Kind, sizes and grid of a stored set in a few words, without reading its content."""
    with open_zip(path, ".npz file") as archive:
        rolls = _Rolls(archive, path)
        metadata = rolls.metadata()
        if metadata.kind == "text":
            tokens = sum(rolls.size(split) for split in SPLITS)
            return f"text, {tokens:,} {metadata.unit}s, {len(metadata.vocabulary):,} different"
        songs = sum(rolls.size(f"{split}_lengths") for split in SPLITS)
        if metadata.kind == "own":
            return f"{songs:,} sequences, {sum(rolls.size(f'{split}_mask') for split in SPLITS):,} steps"
        frames = sum(rolls.size(split) for split in SPLITS)
        onsets = ", with onsets" if rolls.width("train") == WITH_ONSETS else ""
        return f"music, {songs:,} songs, {frames:,} frames, {metadata.frames_per_beat} per beat{onsets}"


class _Rolls:
    """The arrays of an archive, interpreted as the parts of a data set."""

    def __init__(self, archive: zipfile.ZipFile, path: Path):
        self.archive = archive
        self.path = path
        npy = [info for info in archive.infolist() if info.filename.endswith(".npy")]
        self.members = {info.filename.removesuffix(".npy"): info for info in npy}
        self.frames = self.symbols = 0

    def metadata(self) -> Metadata:
        """The metadata of the file, checked."""
        if "metadata" not in self.members:
            return Metadata()
        with self._open("metadata") as array:
            del self.members["metadata"]
            if array.dtype.kind != "U" or array.shape != () or array.dtype.itemsize > 4 * METADATA_CHARACTERS:
                raise InputError(f"{self.path} has an array 'metadata' that is not JSON; rename or remove it")
            [text] = texts_of(array.take(1), f"the metadata of {self.path}")
        try:
            known = msgspec.json.decode(text, type=Format).format == FORMAT
        except (msgspec.MsgspecError, ValueError, RecursionError) as error:
            raise InputError(f"{self.path} has an array 'metadata' that is not JSON; rename or remove it") from error
        if not known:
            raise InputError(f"{self.path} was written in a format this version does not read; import its source again")
        try:
            return _checked(msgspec.json.decode(text, type=Metadata))
        except (msgspec.MsgspecError, ValueError, RecursionError) as error:
            raise InputError(f"{self.path} is a damaged data set ({error}); import it again") from error

    def size(self, name: str) -> int:
        """The length of an array."""
        with self._open(name) as array:
            return array.shape[0] if array.shape else 0

    def _about(self, name: str) -> tuple[int, int]:
        """The number of entries of an array, and the bytes that they take once they are understood."""
        with self._open(name) as array:
            keys = array.dtype.itemsize == 1 and len(array.shape) > 1
            return array.size, array.size * (1 if keys else max(array.dtype.itemsize, 8))

    def width(self, name: str) -> int:
        """The number of columns of an array."""
        with self._open(name) as array:
            return array.shape[1] if len(array.shape) == 2 else 0

    def songs(self, shares: tuple[float, float, float], seed: int) -> dict[str, list[Song]]:
        """The songs by split: the file's own split if it has one, otherwise by shares and seed."""
        if all(f"{split}_lengths" in self.members for split in SPLITS):
            return {split: self._cut(split) for split in SPLITS}
        songs = {name: self._song(name) for name in self.members}
        by_split = {split: [song for name, song in songs.items() if name.split("/")[0] == split] for split in SPLITS}
        if not any(by_split.values()):
            return split_songs(songs, shares, seed)
        missing = [split for split, members in by_split.items() if not members]
        if missing or sum(map(len, by_split.values())) < len(songs):
            raise InputError(f"{self.path} must name every song train/..., valid/... or test/... and have some of each")
        return by_split

    def tokens(self, vocabulary: int) -> dict[str, np.ndarray]:
        """Streams of tokens below the size of the vocabulary, all of them looked at before one takes memory."""
        for name in SPLITS:
            with self._open(name) as array:
                self._check_stream(array, TOKENS - self.symbols)
                self.symbols += array.size
                if any(block.min() < 0 or block.max() >= vocabulary for block in array.blocks()):
                    raise InputError(f"{self.path} has tokens of {name} outside the vocabulary; import it again")
        return {name: self._whole(name, np.int32) for name in SPLITS}

    def own_arrays(self) -> dict[str, np.ndarray]:
        """The arrays of a user's own sequences, refused by their names and sizes before any is read."""
        check_arrays(self.members, lambda name: self._about(name)[0], self.path)
        packed, taken = self.path.stat().st_size, sum(self._about(name)[1] for name in self.members)
        if taken > (most := most_of_own(packed)):
            raise InputError(
                f"the numbers in {self.path} take {taken} bytes, more than the {most} allowed for its {packed}; use a "
                "part, or save it without compression"
            )
        return {name: self.array(name) for name in self.members}

    def array(self, name: str) -> np.ndarray:
        """Any array of numbers or words."""
        with self._open(name) as array:
            if array.dtype.kind not in "biufU" or array.size > NUMBERS:
                raise InputError(
                    f"'{name}' in {self.path} has {array.size} values of {array.dtype}: expected fewer numbers"
                )
            check_words(array.dtype, array.size, f"'{name}' in {self.path}")
            return array.whole()

    def pairs(self, description: Description, name: str) -> dict[str, list[Pair]]:
        """The sequences of own data by split, all of them looked at before one takes memory."""
        _check_description(description, name)
        for split in SPLITS:
            for leaf in Pair._fields:
                with self._open(f"{split}_{leaf}") as array:
                    wrong = _wrong_leaf(description, leaf, array)
                    if wrong is not None:
                        raise InputError(f"{self.path} is a damaged data set ('{array.name}' {wrong}); import it again")
                    steps = array.shape[0]
                self._bounds(split, steps)
        return {split: self._pairs(split) for split in SPLITS}

    def _pairs(self, split: str) -> list[Pair]:
        leaves = [self._whole(f"{split}_{leaf}") for leaf in Pair._fields]
        bounds = self._bounds(split, len(leaves[0]))
        return [Pair(*parts) for parts in zip(*(np.split(leaf, bounds) for leaf in leaves), strict=True)]

    def _whole(self, name: str, dtype: type | None = None) -> np.ndarray:
        with self._open(name) as array:
            return array.whole(dtype)

    def _cut(self, split: str) -> list[Song]:
        frames = self._song(split)
        return np.split(frames, self._bounds(split, len(frames)))

    def _bounds(self, split: str, steps: int) -> np.ndarray:
        """Where the songs or sequences of a split end, but for the last."""
        with self._open(f"{split}_lengths") as array:
            self._check_stream(array, SONGS)
            lengths = array.take(array.shape[0]).tolist()
        if min(lengths, default=0) < 1 or sum(lengths) != steps:  # Python integers, which do not overflow
            raise InputError(
                f"'{split}' in {self.path} has {steps} steps, which its lengths do not add up to; "
                "import its source again"
            )
        return np.cumsum(lengths[:-1], dtype=np.int64)

    def _song(self, name: str) -> Song:
        where = f"'{name}' in {self.path}"
        with self._open(name) as array:
            check_shape(array.shape, array.dtype, where)
            self.frames += array.shape[0]
            if self.frames > FRAMES:
                raise InputError(f"{self.path} has more than {FRAMES} frames; import a part of it")
            song = np.empty(array.shape, np.uint8)
            # Blocks of whole frames, or of whole keys if the file stores key by key.
            lines = song.T if array.fortran else song
            height = max(1, BLOCK // lines.shape[1])
            for start in range(0, len(lines), height):
                part = lines[start : start + height]
                part[:] = check_values(array.take(part.size), where).reshape(part.shape)
        return song

    def _check_stream(self, array: Opened, most: int) -> None:
        if len(array.shape) != 1 or array.dtype.kind not in "iu":
            raise InputError(f"{self.path} is a damaged data set ('{array.name}' is not a list of integers)")
        if array.shape[0] > most:
            raise InputError(f"{self.path} has more than the {most} numbers allowed in '{array.name}'; split it up")

    @contextmanager
    def _open(self, name: str) -> Iterator[Opened]:
        if name not in self.members:
            raise InputError(f"{self.path} is a damaged data set (it has no '{name}'); import it again")
        with opened_array(self.archive, self.members[name], name) as array:
            yield array


def _checked(metadata: Metadata) -> Metadata:
    if metadata.frames_per_beat is not None and not 1 <= metadata.frames_per_beat <= FRAMES_PER_BEAT:
        raise ValueError(f"frames_per_beat must be from 1 to {FRAMES_PER_BEAT}, got {metadata.frames_per_beat}")
    if abs(metadata.octave_shift) > OCTAVE_SHIFT:
        raise ValueError(f"octave_shift must be from -{OCTAVE_SHIFT} to {OCTAVE_SHIFT}, got {metadata.octave_shift}")
    if not 0 <= metadata.augment <= MOST_AUGMENTED:
        raise ValueError(f"augment must be from 0 to {MOST_AUGMENTED}, got {metadata.augment}")
    if metadata.kind == "own" and metadata.description is None:
        raise ValueError("no description of its arrays")
    if metadata.kind == "text" and metadata.vocabulary[metadata.end_token : metadata.end_token + 1] != (END,):
        raise ValueError("no such unit or end token")
    return metadata


def _check_description(description: Description, name: str) -> None:
    """Refuse a description that no stored data have, before they are read."""
    if description.next_step:
        start = int(description.target_kind == "symbols")
        same = description.input_kind == description.target_kind
        if not same or description.input_size != description.target_size + start:
            raise InputError("the stored targets are not the next step of the inputs; import their source again")
    try:
        check_record(record_of(description, ""), name)
    except InputError as error:
        raise InputError(f"{error}; import their source again") from error


def _wrong_leaf(description: Description, leaf: str, array: Opened) -> str | None:
    """What is wrong with a stored array of inputs, targets or marks, given what all of them mean."""
    if leaf == "mask":
        right = array.dtype == bool and len(array.shape) == 1
        return None if right and any(block.any() for block in array.blocks()) else "marks no step that has a target"
    inputs = leaf == "inputs"
    kind = description.input_kind if inputs else description.target_kind
    size = description.input_size if inputs else description.target_size
    columns = () if kind == "symbols" else (size,)
    right = array.dtype == TYPES[kind] and len(array.shape) == 1 + len(columns) and array.shape[1:] == columns
    if kind == "symbols":
        right = right and 2 <= size <= MOST_SYMBOLS
        right = right and all(block.min() >= 0 and block.max() < size for block in array.blocks())
    else:
        finite = kind == "numbers"
        right = right and all(np.isfinite(block).all() if finite else block.max() <= 1 for block in array.blocks())
    return None if right else f"is not {size} {kind} per step"
