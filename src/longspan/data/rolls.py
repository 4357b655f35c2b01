"""Convert notes with a start and an end to piano rolls: two ways to quantize them to frames.

Scores are sampled on the beat, as the paper's chorales are; MIDI files, whose notes are often shorter than a frame or
played slightly off the grid, are rounded to it. A note struck again without a gap looks like a held note, unless onsets
are kept: then a roll has as many columns more, which tell which keys are struck again while they sound.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from longspan.data.music import HIGHEST_PITCH, KEYS, LOWEST_PITCH
from longspan.data.sequences import Song
from longspan.errors import InputError
from longspan.limits import SONG_FRAMES

PITCHES = 128

MOST = 16
"""Times in a frame that a note is compared with: more than a chord has, so that a flood of notes stays cheap."""

# A third of a quarter note has no exact binary form: times this close to the edge of a frame count as on it.
EDGE = 1e-6


class Note(NamedTuple):
    """One sounding MIDI pitch, in quarter notes from the start of the song."""

    start: float
    end: float
    pitch: int


class NotARoll(InputError):
    """The notes do not form a usable song; the message says why."""


class PlacedSong(NamedTuple):
    """A song on the piano keyboard, and the number of notes outside its range."""

    song: Song
    notes_beyond: int


def sample_on_beat(notes: Sequence[Note], frames_per_beat: int = 1, first_frame: float = 0.0) -> np.ndarray:
    """Sample frames, each with the pitches that sound at its beginning: uint8, time x 128.

    Args:
        notes: in quarter notes.
        frames_per_beat: frames per quarter note.
        first_frame: time at which the first frame begins; notes that end before it are lost.
    """
    starts, ends, pitches = _columns(notes)
    starts, ends = ((times - first_frame) * frames_per_beat for times in (starts, ends))
    return _paint(np.maximum(np.ceil(starts - EDGE), 0), np.ceil(ends - EDGE), pitches)


def round_to_frames(
    notes: Sequence[Note], frames_per_beat: int, *, separate: bool = False, onsets: bool = False
) -> np.ndarray:
    """Round notes to frames of `1 / frames_per_beat` quarter notes: uint8, time x 128, or 256 with onsets.

    A pitch is on in every frame that it fills at least half of; a note too short for that is on in the frame that
    contains most of it. But notes that follow each other never share a frame: it belongs to the longer one in it, of
    equals to the first, so that a tune stays a tune on a coarse grid.

    Args:
        notes: in quarter notes.
        frames_per_beat: frames per quarter note.
        separate: whether a key that is struck again at once is released one frame early, unless it lasts only one.
        onsets: whether to add columns for the keys that are struck again while they sound.
    """
    starts, ends, pitches = _columns(notes)
    starts, ends = starts * frames_per_beat, ends * frames_per_beat
    first, stop = np.ceil(starts - 0.5 - EDGE), np.floor(ends + 0.5 + EDGE)
    middle = np.floor((starts + ends) / 2 + EDGE)
    short = stop <= first
    first, stop = np.where(short, middle, first), np.where(short, middle + 1, stop)
    _give_way(starts, ends, first, stop)
    if separate:
        stop = _released_before_next(first, stop, pitches)
    roll = _paint(first, np.maximum(stop, first), pitches)
    return np.hstack([roll, _struck_again(roll, first, stop, pitches)]) if onsets else roll


def _struck_again(roll: np.ndarray, first: np.ndarray, stop: np.ndarray, pitches: np.ndarray) -> np.ndarray:
    """Where a note begins on a key that sounded in the frame before."""
    again = np.zeros_like(roll)
    begins = (stop > first) & (first > 0)
    frames, keys = first[begins].astype(int), pitches[begins]
    again[frames, keys] = roll[frames - 1, keys]
    return again


def _give_way(starts: np.ndarray, ends: np.ndarray, first: np.ndarray, stop: np.ndarray) -> None:
    """Take frames from notes that another one, before or after it, fills more of; changes `first` and `stop`."""
    # Only first and last frames may be filled in part; a note that fills a whole frame overlaps all others in it.
    claims: dict[float, list[tuple[float, float, int]]] = {}
    for at_end in (False, True):
        frame = stop - 1 if at_end else first
        low, high = np.maximum(starts, frame), np.minimum(ends, frame + 1)
        partial = (high - low < 1 - EDGE) & ~(at_end & (stop - 1 == first))
        for note in np.flatnonzero(partial):
            claims.setdefault(frame[note], []).append((low[note], high[note], int(note)))
    for frame, rivals in claims.items():
        if len(rivals) > 1:
            for note in _losers(rivals):
                if first[note] == frame:
                    first[note] += 1
                else:
                    stop[note] -= 1


def _losers(rivals: list[tuple[float, float, int]]) -> list[int]:
    """The notes that follow or precede a note with a greater share of the frame: those that hardly overlap it."""
    kept: list[tuple[float, float]] = []
    losers = []
    for low, high, note in sorted(rivals, key=lambda rival: (round(rival[0] - rival[1], 6), rival[0])):
        together = (min(high, end) - max(low, start) >= min(high - low, end - start) / 2 for start, end in kept)
        if not all(together):
            losers.append(note)
        elif len(kept) < MOST and (low, high) not in kept:
            kept.append((low, high))
    return losers


def _released_before_next(first: np.ndarray, stop: np.ndarray, pitches: np.ndarray) -> np.ndarray:
    order = np.lexsort((first, pitches))
    followed = np.zeros(len(first), bool)
    followed[order[:-1]] = (pitches[order[:-1]] == pitches[order[1:]]) & (stop[order[:-1]] == first[order[1:]])
    return np.where(followed & (stop - first > 1), stop - 1, stop)


GRIDS = (1, 2, 3, 4, 6, 8, 12)
"""Frames per quarter note that are tried for music whose grid is not known."""
ON_GRID = 0.05
"""An onset lies on a grid if it is at most this share of a frame away from it."""
CLOSE_TO_BEST = 0.05
FITS = 0.8
PLAYED_GRID = 4


class Grid(NamedTuple):
    """Frames per quarter note, the share of onsets that lie on them, and whether that is enough to call it a grid."""

    frames_per_beat: int
    share: float
    fits: bool


def choose_grid(onsets: np.ndarray) -> Grid:
    """The coarsest grid with about as many onsets on it as the best has; sixteenth notes where none fits.

    Args:
        onsets: times in quarter notes.

    Example:
        >>> choose_grid(np.array([0, 0.5, 1, 2, 3.5])).frames_per_beat
        2
    """
    shares = {grid: share_on_grid(onsets, grid) for grid in GRIDS}
    best = max(shares.values())
    if best < FITS:
        return Grid(PLAYED_GRID, shares[PLAYED_GRID], False)
    chosen = next(grid for grid, share in shares.items() if share >= best - CLOSE_TO_BEST)
    return Grid(chosen, shares[chosen], True)


def share_on_grid(onsets: np.ndarray, frames_per_beat: int) -> float:
    """The share of onsets that lie on a grid."""
    frames = np.asarray(onsets) * frames_per_beat
    return float(np.mean(np.abs(frames - np.round(frames)) <= ON_GRID + EDGE))


def place_on_piano(roll: np.ndarray, shift: int = 0) -> PlacedSong:
    """Shift a roll of 128 pitches by `shift` semitones, cut it to 88 keys and trim silence at both ends.

    Onsets, if the roll has them, stay beside their keys.
    """
    # Padding on both sides, so that a shift moves pitches out of range instead of wrapping around.
    halves = [
        np.pad(roll[:, first : first + PITCHES], ((0, 0), (12, 12))) for first in range(0, roll.shape[1], PITCHES)
    ]
    song = np.hstack([half[:, LOWEST_PITCH + 12 - shift : HIGHEST_PITCH + 13 - shift] for half in halves])
    sounding = np.flatnonzero(song[:, :KEYS].any(axis=1))
    if len(sounding) == 0:
        raise NotARoll("none of its notes lies on the piano's keyboard")
    if len(sounding) == 1:
        raise NotARoll("it is shorter than two frames")
    beyond = _count_onsets(roll[:, :PITCHES]) - _count_onsets(song[:, :KEYS])
    return PlacedSong(np.ascontiguousarray(song[sounding[0] : sounding[-1] + 1]), beyond)


def _count_onsets(roll: np.ndarray) -> int:
    before = np.vstack([np.zeros_like(roll[:1]), roll[:-1]])
    return int(np.count_nonzero(roll > before))


def _columns(notes: Sequence[Note]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    if not notes:
        raise NotARoll("it has no notes")
    starts, ends, pitches = (np.array(column) for column in zip(*notes, strict=True))
    if not (np.isfinite(starts).all() and np.isfinite(ends).all()):
        raise NotARoll("it has a note whose beginning or end is not a finite time")
    if starts.min() < -EDGE:  # an index from the end of the roll
        raise NotARoll(f"it has a note {-starts.min():g} quarter notes before its beginning")
    if pitches.min() < 0 or pitches.max() >= PITCHES:
        raise NotARoll(f"it has a pitch outside the {PITCHES} of MIDI")
    return starts, ends, pitches


def _paint(first: np.ndarray, stop: np.ndarray, pitches: np.ndarray) -> np.ndarray:
    """The roll of notes, each on from frame `first` up to but excluding frame `stop`."""
    frames = stop.max()
    if frames > SONG_FRAMES:
        raise NotARoll(f"it has {frames:.0f} frames, more than {SONG_FRAMES}; is a note never released?")
    stop = np.maximum(stop, 0).astype(int)
    # A cumulative sum over starts and ends, so that many long notes cost no more than many short ones.
    changes = np.zeros((stop.max() + 1, PITCHES), np.int32)
    np.add.at(changes, (np.minimum(first, stop).astype(int), pitches), 1)
    np.add.at(changes, (stop, pitches), -1)
    return (np.cumsum(changes[:-1], axis=0, out=changes[:-1]) > 0).view(np.uint8)
