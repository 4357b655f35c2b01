"""Reproducible assignment of songs and lines to training, validation and test."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np

from longspan.data.dataset import SPLITS
from longspan.data.music import KEYS
from longspan.data.sequences import Song
from longspan.errors import InputError

SONG_SHARES = (0.6, 0.2, 0.2)
TEXT_SHARES = (0.9, 0.05, 0.05)


def split_songs(
    songs: Mapping[str, Song],
    shares: Sequence[float] = SONG_SHARES,
    seed: int = 0,
    leaders: Mapping[str, str] | None = None,
) -> dict[str, list[Song]]:
    """Assign named songs to the three splits; those with the same leader (`versions`) to the same one.

    Songs are sorted by the SHA-256 of seed and name and cut at the shares, so the split of a song hardly depends on
    which others there are and never on the order of files in a folder.
    """
    if len(songs) < len(SPLITS):
        raise InputError(f"found {len(songs)} usable songs, expected at least {len(SPLITS)}, one for each split")
    splits = split_names(songs, shares, seed)
    splits = splits if leaders is None else together(splits, leaders)
    return {split: [songs[name] for name in names] for split, names in splits.items()}


OPENING = 10
"""Melodic steps at the beginning that make two songs versions of one."""
UPBEAT = 3
"""Steps that one of the versions may have before it."""


def versions(songs: Mapping[str, Song]) -> dict[str, str]:
    """The name of the first version of every song; songs are versions of each other if their top voices begin alike.

    The intervals between different notes are compared, so that neither the key nor the rhythm matters.
    """
    openings = {name: _opening(song) for name, song in songs.items()}
    first: dict[tuple[int, ...], str] = {}
    for name, opening in openings.items():
        if len(opening) >= OPENING:
            first.setdefault(opening[:OPENING], name)
    leaders = {name: name for name in songs}

    def leader(name: str) -> str:
        while leaders[name] != name:
            name = leaders[name]
        return name

    for name, opening in openings.items():
        for start in range(min(UPBEAT, len(opening) - OPENING) + 1):
            earlier = first.get(opening[start : start + OPENING])
            if earlier is not None:
                one, other = sorted((leader(name), leader(earlier)))
                leaders[other] = one
    return {name: leader(name) for name in songs}


def _opening(song: Song) -> tuple[int, ...]:
    """The first intervals of the top voice."""
    keys = song[:, :KEYS]
    sounding = keys[keys.any(axis=1)]
    top = keys.shape[1] - 1 - np.argmax(sounding[:, ::-1], axis=1)
    steps = np.diff(top[: 32 * (OPENING + UPBEAT)].astype(int))
    return tuple(steps[steps != 0][: OPENING + UPBEAT].tolist())


def together(splits: dict[str, list[str]], leaders: Mapping[str, str]) -> dict[str, list[str]]:
    """The splits with every song in that of its first version, unless a split would be left without songs."""
    found = {name: split for split, names in splits.items() for name in names}
    moved: dict[str, list[str]] = {split: [] for split in splits}
    for names in splits.values():
        for name in names:
            moved[found[leaders[name]]].append(name)
    return moved if all(moved.values()) else splits


def split_names(names: Iterable[str], shares: Sequence[float], seed: int) -> dict[str, list[str]]:
    """Assign at least three different names to the three splits."""
    order = sorted(names, key=lambda name: hashlib.sha256(os.fsencode(f"{seed}:{name}")).digest())
    return {split: order[part] for split, part in cut(len(order), shares).items()}


def cut(count: int, shares: Sequence[float]) -> dict[str, slice]:
    """Cut `count >= 3` ordered items into three non-empty splits by their shares."""
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
    """Drop songs equal to an earlier one, so that no test song is seen in training; call `report` for each."""
    first: dict[bytes, str] = {}
    for name, song in songs.items():
        earlier = first.setdefault(hashlib.sha256(song.tobytes()).digest(), name)
        if earlier != name:
            report(name, f"the same music as {earlier}")
    return {name: songs[name] for name in first.values()}
