"""Polyphonic music as piano rolls: what a music data set is, and reading the paper's files.

A song is a uint8 array, time x 88 keys, 1 where a key sounds; column 0 is the lowest key of a piano, MIDI
pitch 21.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
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
SPLIT_SHARES = (0.6, 0.2, 0.2)

Song = np.ndarray
"""uint8, time x 88."""


@dataclass(frozen=True)
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
    if song.dtype != np.bool_ and (song.dtype.kind not in "iu" or np.any((song != 0) & (song != 1))):
        raise InputError(
            f"{where} must hold only 0 and 1, as integers or booleans; threshold velocities first"
        )
    if len(song) == 0:
        raise InputError(f"{where} has no frames; leave empty songs out")
    return song.astype(np.uint8)


def split_songs(
    songs: Mapping[str, Song], shares: Sequence[float] = SPLIT_SHARES, seed: int = 0
) -> dict[str, list[Song]]:
    """Deal named songs into the three splits.

    Songs are put in the order of the SHA-256 of seed and name and cut at the shares, so the split of a song
    hardly depends on which others there are and never on the order of files in a folder.
    """
    if len(songs) < len(SPLITS):
        raise InputError(
            f"found {len(songs)} usable songs, expected at least {len(SPLITS)}, one for each split"
        )
    order = sorted(songs, key=lambda name: hashlib.sha256(f"{seed}:{name}".encode()).digest())
    return {split: [songs[name] for name in order[part]] for split, part in cut(len(order), shares).items()}


def cut(count: int, shares: Sequence[float]) -> dict[str, slice]:
    """Cut `count >= 3` things in order into three splits by their shares, none of them empty."""
    if len(shares) != len(SPLITS) or min(shares) <= 0 or abs(sum(shares) - 1) > 1e-6:
        raise InputError(f"split shares must be three positive numbers that sum to 1, got {tuple(shares)}")
    held_out = [max(1, round(share * count)) for share in shares[1:]]
    while sum(held_out) > count - 1:
        held_out[held_out.index(max(held_out))] -= 1
    train, valid = count - sum(held_out), held_out[0]
    return {
        "train": slice(0, train),
        "valid": slice(train, train + valid),
        "test": slice(train + valid, count),
    }


def without_repeats(songs: Mapping[str, Song], report: Callable[[str, str], None]) -> dict[str, Song]:
    """Drop songs equal to an earlier one, so that no test song is seen in training; tell `report` which."""
    first: dict[bytes, str] = {}
    for name, song in songs.items():
        earlier = first.setdefault(hashlib.sha256(song.tobytes()).digest(), name)
        if earlier != name:
            report(name, f"the same music as {earlier}")
    return {name: songs[name] for name in first.values()}
