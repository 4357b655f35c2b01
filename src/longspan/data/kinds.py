"""The kinds of data sets there are, and what each of them asks to be predicted."""

from __future__ import annotations

from typing import Literal

from longspan.data.music import MusicData
from longspan.data.tasks import TaskData
from longspan.data.text import TextData, Unit

Data = MusicData | TextData | TaskData
TargetKind = Literal["frames", "words", "characters", "classes", "numbers"]


def targets_of(data: Data) -> TargetKind:
    """What the targets of a loaded data set are."""
    return data.kind if isinstance(data, TaskData) else targets_of_unit(getattr(data, "unit", None))


def targets_of_unit(unit: Unit | None) -> TargetKind:
    """Frames of music, which have no unit, or the words or characters of a text."""
    if unit is None:
        return "frames"
    return "words" if unit == "word" else "characters"
