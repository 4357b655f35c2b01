"""Polyphonic music as piano rolls: what a music data set is, and reading the paper's files.

A song is a uint8 array, time x 88 keys, 1 where a key sounds; column 0 is the lowest key of a piano, MIDI
pitch 21.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import ClassVar, Literal

import numpy as np

from longspan.data.names import SPLITS, Benchmark
from longspan.errors import InputError

KEYS = 88
LOWEST_PITCH = 21
HIGHEST_PITCH = LOWEST_PITCH + KEYS - 1
DEFAULT_FRAMES_PER_BEAT = 2

Song = np.ndarray
"""uint8, time x 88."""


@dataclass(frozen=True, eq=False)
class MusicData:
    """Songs in three splits.

    Args:
        name: how the user asked for it.
        splits: songs by split, `train`, `valid`, `test`; each uint8, time x 88.
        frames_per_beat: time resolution, in frames a quarter note.
        octave_shift: octaves to add to the pitches to hear the songs where their scores have them.
        origin: where the songs come from, in a phrase.
        remarks: what was left out or changed on the way, one line each.
    """

    name: str
    splits: Mapping[str, list[Song]]
    frames_per_beat: int
    octave_shift: int = 0
    origin: str = ""
    remarks: tuple[str, ...] = field(default=(), repr=False)
    kind: ClassVar[Literal["music"]] = "music"

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 of the songs and their splits: equal for equal content, wherever it came from."""
        digest = hashlib.sha256(b"music")
        for split in SPLITS:
            songs = self.splits[split]
            digest.update(np.array([len(songs), *map(len, songs)], "<i8").tobytes())
            for song in songs:
                digest.update(np.packbits(song, axis=1).tobytes())
        return digest.hexdigest()


def read_benchmark_rolls(benchmark: Benchmark, path: Path) -> MusicData:
    """Read the piano rolls of the paper from a `.mat` file whose checksum was verified."""
    import scipy.io

    content = scipy.io.loadmat(path, variable_names=[f"{split}data" for split in SPLITS])
    splits = {
        split: [np.ascontiguousarray(song, dtype=np.uint8) for song in content[f"{split}data"].ravel()]
        for split in SPLITS
    }
    return MusicData(
        benchmark.name,
        splits,
        benchmark.frames_per_beat,
        benchmark.octave_shift,
        f"{path.name}, the authors' rolls",
    )


def check_song(song: np.ndarray, where: str) -> Song:
    """The array as a song, or an `InputError` that says what a song must be."""
    if song.ndim != 2 or song.shape[1] != KEYS:
        raise InputError(
            f"{where} has shape {song.shape}, expected time x {KEYS} keys; "
            f"cut rolls of 128 pitches as roll[:, {LOWEST_PITCH}:{HIGHEST_PITCH + 1}]"
        )
    if song.dtype.kind not in "biuf" or np.any((song != 0) & (song != 1)):
        raise InputError(f"{where} must hold nothing but 0 and 1; threshold velocities first")
    if len(song) == 0:
        raise InputError(f"{where} has no frames; leave empty songs out")
    return song.astype(np.uint8)
