"""Which keys a sample has to leave on or off: those kept or forbidden by name, and those of a melody."""

import re
from collections.abc import Sequence

import numpy as np

from longspan.data.music import KEYS, WITH_ONSETS
from longspan.data.sequences import Song
from longspan.errors import InputError
from longspan.models.outputs import FREE, OFF, ON

STEPS = {"C": 0, "D": 2, "E": 4, "F": 5, "G": 7, "A": 9, "B": 11}
ACCIDENTALS = {"": 0, "#": 1, "b": -1}


def pitch_of(name: str) -> int:
    """The MIDI pitch of a note name or number.

    >>> pitch_of("C4"), pitch_of("Bb2"), pitch_of("72")
    (60, 46, 72)
    """
    if re.fullmatch(r"\d{1,3}", name):
        return int(name)
    match = re.fullmatch(r"([A-Ga-g])([#b]?)(-?\d)", name)
    if match is None:
        raise InputError(f"{name!r} is not a key: expected a note such as C4 or F#3, or the number of a MIDI pitch")
    step, accidental, octave = match.groups()
    return 12 * (int(octave) + 1) + STEPS[step.upper()] + ACCIDENTALS[accidental]


def held_keys(
    length: int,
    lowest_pitch: int,
    *,
    keep: Sequence[str] = (),
    forbid: Sequence[str] = (),
    melody: Song | None = None,
    width: int = KEYS,
) -> np.ndarray | None:
    """What `generate` is to hold: once for all frames, for each of them if there is a melody, None if nothing is held.

    Args:
        length: number of frames to draw.
        lowest_pitch: the MIDI pitch at which the first key sounds.
        keep: notes that sound in every frame.
        forbid: notes that never sound.
        melody: frames whose notes sound, with none above them; where it rests or has ended, the model is free.
        width: columns of a frame; with onsets, the notes of the melody are struck again where it says so.
    """
    if not keep and not forbid and melody is None:
        return None
    if width not in (KEYS, WITH_ONSETS):
        raise InputError(f"only the {KEYS} keys of a piano can be held, and the frames of this model have {width}")
    held = np.full((length if melody is not None else 1, width), FREE, np.int8)
    if melody is not None:
        _hold_melody(held, melody)
    for names, value in ((forbid, OFF), (keep, ON)):
        for name in names:
            held[:, _key(name, lowest_pitch)] = value
            if value == OFF:
                held[:, KEYS + _key(name, lowest_pitch) : width : KEYS] = OFF
    both = {pitch_of(name) for name in keep} & {pitch_of(name) for name in forbid}
    if both:
        raise InputError(f"the MIDI pitch {min(both)} cannot be both kept and forbidden", fields=["keep", "forbid"])
    return held


def _hold_melody(held: np.ndarray, melody: Song) -> None:
    sounding = melody[: len(held), :KEYS].astype(bool)
    again = melody[: len(held), KEYS:].astype(bool)
    above = (np.cumsum(sounding[:, ::-1], axis=1)[:, ::-1] == 0) & sounding.any(axis=1, keepdims=True)
    keys, onsets = held[: len(sounding), :KEYS], held[: len(sounding), KEYS:]
    keys[above], keys[sounding] = OFF, ON
    if onsets.shape[1]:
        onsets[above | sounding] = OFF
        onsets[again] = ON


def _key(name: str, lowest_pitch: int) -> int:
    key = pitch_of(name) - lowest_pitch
    if not 0 <= key < KEYS:
        raise InputError(
            f"{name} lies beyond the model's keyboard, MIDI pitches {lowest_pitch} to {lowest_pitch + KEYS - 1}"
        )
    return key
