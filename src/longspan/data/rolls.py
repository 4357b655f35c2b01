"""From notes with a start and an end to piano rolls: two ways to put them on a grid of frames.

Scores are sampled on the beat, as the paper's chorales are; MIDI files, whose notes are often shorter than a
frame or played a little off the grid, are rounded to it. A note that is struck again without a gap looks
held.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from longspan.data.music import HIGHEST_PITCH, LOWEST_PITCH, Song

PITCHES = 128
MAX_FRAMES = 100_000

# A third of a quarter note has no exact binary form: times this close to a frame's edge are on it.
EDGE = 1e-6


class Note(NamedTuple):
    """One sounding MIDI pitch, in quarter notes from the start of the song."""

    start: float
    end: float
    pitch: int


class NotARoll(Exception):
    """The notes do not make a usable song; the message says why."""


class PlacedSong(NamedTuple):
    """A song on the piano, and how many notes lay beyond the keyboard."""

    song: Song
    notes_beyond: int


def sample_on_beat(notes: Sequence[Note], first_frame: float = 0.0) -> np.ndarray:
    """Frames of one quarter note, each with the pitches that sound at its beginning: uint8, time x 128.

    Args:
        notes: in quarter notes.
        first_frame: when the first frame begins; what ends before is lost.
    """
    starts, ends, pitches = _columns(notes)
    first = np.ceil(starts - first_frame - EDGE)
    return _paint(np.maximum(first, 0), np.ceil(ends - first_frame - EDGE), pitches)


def round_to_frames(notes: Sequence[Note], frames_per_beat: int) -> np.ndarray:
    """Frames of a fraction of a quarter note, uint8, time x 128.

    A pitch is on in every frame at least half of which it fills, and a note too short for that is on in the
    frame that has most of it.
    """
    starts, ends, pitches = _columns(notes)
    starts, ends = starts * frames_per_beat, ends * frames_per_beat
    first, stop = np.ceil(starts - 0.5 - EDGE), np.floor(ends + 0.5 + EDGE)
    middle = np.floor((starts + ends) / 2 + EDGE)
    short = stop <= first
    return _paint(np.where(short, middle, first), np.where(short, middle + 1, stop), pitches)


def place_on_piano(roll: np.ndarray, shift: int = 0) -> PlacedSong:
    """Move a roll of 128 pitches by `shift` semitones and cut it to 88 keys, without silence around it."""
    # Room on both sides, so that a shift moves pitches out of the range and never around its end.
    wide = np.pad(roll, ((0, 0), (12, 12)))
    song = wide[:, LOWEST_PITCH + 12 - shift : HIGHEST_PITCH + 13 - shift]
    sounding = np.flatnonzero(song.any(axis=1))
    if len(sounding) == 0:
        raise NotARoll("none of its notes lies on the piano's keyboard")
    if len(sounding) == 1:
        raise NotARoll("it is shorter than two frames")
    beyond = _count_onsets(roll) - _count_onsets(song)
    return PlacedSong(np.ascontiguousarray(song[sounding[0] : sounding[-1] + 1]), beyond)


def _count_onsets(roll: np.ndarray) -> int:
    before = np.vstack([np.zeros_like(roll[:1]), roll[:-1]])
    return int(np.count_nonzero(roll > before))


def _columns(notes: Sequence[Note]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    if not notes:
        raise NotARoll("it has no notes")
    starts, ends, pitches = zip(*notes, strict=True)
    return np.array(starts, float), np.array(ends, float), np.array(pitches, int)


def _paint(first: np.ndarray, stop: np.ndarray, pitches: np.ndarray) -> np.ndarray:
    frames = stop.max(initial=0)
    if frames > MAX_FRAMES:
        raise NotARoll(f"it has {frames:.0f} frames, more than {MAX_FRAMES}; is a note never released?")
    roll = np.zeros((int(frames), PITCHES), np.uint8)
    for begin, end, pitch in zip(first.astype(int), stop.astype(int), pitches, strict=True):
        roll[begin:end, pitch] = 1
    return roll
