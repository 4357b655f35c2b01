"""Convert notes with a start and an end to piano rolls: two ways to quantize them to frames.

Scores are sampled on the beat, as the paper's chorales are; MIDI files, whose notes are often shorter than a frame or
played slightly off the grid, are rounded to it. A note struck again without a gap looks like a held note.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from longspan.data.music import HIGHEST_PITCH, LOWEST_PITCH
from longspan.data.sequences import Song
from longspan.errors import InputError
from longspan.limits import SONG_FRAMES

PITCHES = 128

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


def sample_on_beat(notes: Sequence[Note], first_frame: float = 0.0) -> np.ndarray:
    """Sample frames of one quarter note, each with the pitches that sound at its beginning: uint8, time x 128.

    Args:
        notes: in quarter notes.
        first_frame: time at which the first frame begins; notes that end before it are lost.
    """
    starts, ends, pitches = _columns(notes)
    first = np.ceil(starts - first_frame - EDGE)
    return _paint(np.maximum(first, 0), np.ceil(ends - first_frame - EDGE), pitches)


def round_to_frames(notes: Sequence[Note], frames_per_beat: int) -> np.ndarray:
    """Round notes to frames of `1 / frames_per_beat` quarter notes: uint8, time x 128.

    A pitch is on in every frame that it fills at least half of; a note too short for that is on in the frame that
    contains most of it.
    """
    starts, ends, pitches = _columns(notes)
    starts, ends = starts * frames_per_beat, ends * frames_per_beat
    first, stop = np.ceil(starts - 0.5 - EDGE), np.floor(ends + 0.5 + EDGE)
    middle = np.floor((starts + ends) / 2 + EDGE)
    short = stop <= first
    return _paint(np.where(short, middle, first), np.where(short, middle + 1, stop), pitches)


def place_on_piano(roll: np.ndarray, shift: int = 0) -> PlacedSong:
    """Shift a roll of 128 pitches by `shift` semitones, cut it to 88 keys and trim silence at both ends."""
    # Padding on both sides, so that a shift moves pitches out of range instead of wrapping around.
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
    starts, ends, pitches = (np.array(column) for column in zip(*notes, strict=True))
    if not (np.isfinite(starts).all() and np.isfinite(ends).all()):
        raise NotARoll("it has a note that begins or ends at no time")
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
