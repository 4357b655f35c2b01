"""From a piano roll to notes: what MIDI, sound and pictures are made of.

A roll says only which keys sound in a frame. A key that is on in consecutive frames is one held note; struck anew
each frame, it would be several.
"""

from typing import NamedTuple

import numpy as np

from longspan.data.music import LOWEST_PITCH
from longspan.errors import InputError

SEMITONES_PER_OCTAVE = 12
HIGHEST_MIDI_PITCH = 127


class RollNote(NamedTuple):
    """A MIDI pitch that sounds in the frames from `start` to before `stop`."""

    start: int
    stop: int
    pitch: int


class Score(NamedTuple):
    """Notes in order of time and pitch, and how to read the time: `frames` in all, `frames_per_beat` a quarter note.

    `prime_frames` is how many of the first frames were given to the model; the others it made up.
    """

    notes: list[RollNote]
    frames: int
    frames_per_beat: int
    prime_frames: int = 0

    def seconds(self, tempo: float) -> float:
        """How long the score lasts at a tempo in quarter notes a minute."""
        return self.frames / self.frames_per_beat * 60 / tempo


def lowest_sounding_pitch(octave_shift: int, moved_by: int = 0) -> int:
    """The MIDI pitch that column 0 of a roll sounds at.

    Args:
        octave_shift: octaves to add to a data set's pitches to hear them where the scores have them.
        moved_by: semitones a prime was moved by on its way into the roll.

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
    """The notes of a roll, time x keys.

    Args:
        roll: nonzero where a key sounds.
        frames_per_beat: frames a quarter note.
        lowest_pitch: the MIDI pitch of the first column.
        re_attack: whether a key is struck in every frame it is on, instead of being held.
        prime_frames: how many of the first frames are a prime.

    Example:
        >>> to_score(np.array([[1, 0], [1, 1]]), frames_per_beat=2, lowest_pitch=60).notes
        [RollNote(start=0, stop=2, pitch=60), RollNote(start=1, stop=2, pitch=61)]
    """
    on = np.asarray(roll) != 0
    silence = np.zeros((1, on.shape[1]), bool)
    starts, stops = on.copy(), on.copy()
    if not re_attack:
        starts &= ~np.concatenate([silence, on[:-1]])
        stops &= ~np.concatenate([on[1:], silence])
    # Column by column, the n-th beginning of a key belongs to its n-th end.
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
