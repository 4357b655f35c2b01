"""Convert a piano roll to notes, from which MIDI, sound and pictures are made.

A roll says which keys sound in a frame. A key that is on in consecutive frames is read as one held note, unless the
roll has onsets, which say where it is struck again, or it is to be struck again in each frame.
"""

from typing import NamedTuple

import numpy as np

from longspan.data.music import KEYS, LOWEST_PITCH, WITH_ONSETS
from longspan.errors import InputError

SEMITONES_PER_OCTAVE = 12
HIGHEST_MIDI_PITCH = 127


class RollNote(NamedTuple):
    """A MIDI pitch that sounds in the frames from `start` to before `stop`."""

    start: int
    stop: int
    pitch: int


class Score(NamedTuple):
    """Notes in order of time and pitch; `frames` in total, `frames_per_beat` per quarter note.

    `prime_frames` is the number of first frames that were given to the model; it generated the others. `meter` is the
    time signature, `program` the General MIDI instrument, counted from 0.
    """

    notes: list[RollNote]
    frames: int
    frames_per_beat: int
    prime_frames: int = 0
    meter: tuple[int, int] = (4, 4)
    program: int = 0

    def seconds(self, tempo: float) -> float:
        """Duration of the score at a tempo in quarter notes per minute."""
        return self.frames / self.frames_per_beat * 60 / tempo


def lowest_sounding_pitch(octave_shift: int, moved_by: int = 0) -> int:
    """The MIDI pitch at which column 0 of a roll sounds.

    Args:
        octave_shift: octaves to add to a data set's pitches to restore those of the scores.
        moved_by: semitones by which a prime was transposed before it became a roll.

    Example:
        >>> lowest_sounding_pitch(-1)
        9
    """
    return LOWEST_PITCH + SEMITONES_PER_OCTAVE * octave_shift - moved_by


def to_score(
    roll: np.ndarray,
    *,
    frames_per_beat: int,
    lowest_pitch: int = LOWEST_PITCH,
    re_attack: bool = False,
    prime_frames: int = 0,
) -> Score:
    """The notes of a roll, time x keys, of a piano also with onsets.

    Args:
        roll: nonzero where a key sounds.
        frames_per_beat: frames per quarter note.
        lowest_pitch: the MIDI pitch of the first column.
        re_attack: whether a key is struck again in every frame it is on, instead of being held.
        prime_frames: number of first frames that are a prime.

    Example:
        >>> to_score(np.array([[1, 0], [1, 1]]), frames_per_beat=2, lowest_pitch=60).notes
        [RollNote(start=0, stop=2, pitch=60), RollNote(start=1, stop=2, pitch=61)]
    """
    on = np.asarray(roll) != 0
    if on.ndim != 2:
        raise InputError(f"expected a roll of frames by keys, got an array of shape {on.shape}")
    on, again = (on[:, :KEYS], on[:, KEYS:]) if on.shape[1] == WITH_ONSETS else (on, np.zeros_like(on))
    silence = np.zeros((1, on.shape[1]), bool)
    starts, stops = on.copy(), on.copy()
    if not re_attack:
        starts &= ~np.concatenate([silence, on[:-1]]) | again
        stops &= ~np.concatenate([on[1:], silence]) | np.concatenate([again[1:], silence])
    # Column by column, the n-th start of a key belongs to its n-th end.
    keys, first = np.nonzero(starts.T)
    last = np.nonzero(stops.T)[1]
    pitches = keys + lowest_pitch
    if len(pitches) and not 0 <= pitches.min() <= pitches.max() <= HIGHEST_MIDI_PITCH:
        raise InputError(
            f"the sample's pitches {pitches.min()} to {pitches.max()} go beyond MIDI's 0 to {HIGHEST_MIDI_PITCH}; "
            "correct octave_shift in the data set's metadata"
        )
    notes = sorted(map(RollNote._make, zip(first.tolist(), (last + 1).tolist(), pitches.tolist(), strict=True)))
    return Score(notes, len(on), frames_per_beat, prime_frames)
