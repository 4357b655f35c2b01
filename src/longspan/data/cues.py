"""Cues: further inputs of a music network, beside the last frame, that follow from the past of the song.

*recall* is the frame that followed the latest earlier passage like the present one, and the number of frames over which
the two agree. *meter* is the place of the step in groups of some numbers of steps. Both are bits beside the
keys of the last frame, so whatever reads keys reads them. They are computed once per song, at a cost linear in its
length. In training the recalled part is hidden at random steps, so that the network does not come to rely on it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from longspan.data.lookup import LEVELS, look_up
from longspan.data.recall import identities
from longspan.data.sequences import Song
from longspan.errors import InputError

METERS = (2, 3, 4, 8, 16)
"""Sizes of the groups of steps within which the position of a step is given."""
LEVEL_BITS = LEVELS - 1
"""One bit for each level of a match; all zero without a match."""


@dataclass(frozen=True)
class Cues:
    """Which cues are given.

    An input is the last frame, then, if asked for, the recalled frame, a bit for the level of its match, and the bits
    of the meter.
    """

    recall: bool = False
    meter: bool = False

    @staticmethod
    def named(names: str) -> Cues:
        """The cues of a config, such as `recall+meter` or `none`.

        Example:
            >>> Cues.named("meter")
            Cues(recall=False, meter=True)
        """
        given = (
            [] if names == "none" else names.replace("metre", "meter").split("+")
        )  # as run folders up to 0.2.0a5 say
        if not set(given) <= {"recall", "meter"} or len(set(given)) < len(given):
            raise InputError(f"unknown cues {names!r}: expected recall, meter, recall+meter or none", fields=["cues"])
        return Cues(**dict.fromkeys(given, True))

    def width(self, keys: int) -> int:
        """Number of inputs beside frames of some keys, the last frame included."""
        return keys + self.recall * (keys + LEVEL_BITS) + self.meter * sum(METERS)

    def inputs_of(self, song: Song) -> np.ndarray:
        """What a network reads before each frame of a song: uint8, time x input."""
        before = np.zeros_like(song)
        before[1:] = song[:-1]
        parts = [before]
        if self.recall:
            parts.append(recalled_of(song))
        if self.meter:
            steps = np.arange(len(song))[:, None]
            parts += [(steps % meter == np.arange(meter)) for meter in METERS]
        return np.concatenate(parts, axis=1, dtype=np.uint8, casting="unsafe")

    def moved(self, inputs: np.ndarray, keys: int, semitones: int) -> np.ndarray:
        """The inputs of the same song some semitones higher; none of its notes may leave the keyboard."""
        shifted = inputs.copy()
        for first in (0, keys) if self.recall else (0,):
            shifted[:, first : first + keys] = np.roll(inputs[:, first : first + keys], semitones, axis=1)
        return shifted

    def forgetting(self, inputs: np.ndarray, keys: int, hidden: np.ndarray) -> np.ndarray:
        """The inputs without what is recalled at the hidden steps."""
        shown = inputs.copy()
        shown[hidden, keys : 2 * keys + LEVEL_BITS] = 0
        return shown


def recalled_of(song: Song) -> np.ndarray:
    """For every step, the frame that the song's past recalls, and the level of the match as one of `LEVEL_BITS`."""
    found = look_up(identities(song), 1)
    level, place = found.level[:, 0], found.place[:, 0]
    frames = np.where((level > 0)[:, None], song[np.maximum(place, 0)], 0)
    levels = level[:, None] == np.arange(1, LEVEL_BITS + 1)
    return np.concatenate([frames, levels], axis=1, dtype=np.uint8, casting="unsafe")


NO_CUES = Cues()
