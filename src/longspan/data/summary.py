"""A data set in figures: how many songs or tokens, how long, how dense."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from longspan.data.baselines import Baselines, trivial_baselines
from longspan.data.kinds import Data
from longspan.data.music import MusicData
from longspan.data.names import SPLITS
from longspan.data.tasks import TaskData


@dataclass(frozen=True)
class MusicSplit:
    """A split of music: songs, frames, and notes a frame."""

    songs: int
    frames: int
    longest_song: int
    notes_per_frame: float
    most_notes: int


@dataclass(frozen=True)
class TextSplit:
    """A split of text: tokens with one end token a line, and lines."""

    tokens: int
    lines: int


@dataclass(frozen=True)
class TaskSplit:
    """The fixed set of a synthetic task: sequences, the steps of the longest, and those at which something is asked."""

    sequences: int
    longest_sequence: int
    asked_steps: int


@dataclass(frozen=True)
class DataSummary:
    """What `longspan data info` shows; the fields that do not apply are None."""

    name: str
    kind: Literal["music", "text", "classes", "numbers"]
    origin: str
    fingerprint: str
    splits: dict[str, MusicSplit] | dict[str, TextSplit] | dict[str, TaskSplit]
    baselines: Baselines
    frames_per_beat: int | None = None
    unit: str | None = None
    vocabulary_size: int | None = None
    span: int | None = None
    remarks: tuple[str, ...] = ()


def summarize(data: Data) -> DataSummary:
    """Count a data set and compute its trivial baselines on the test split."""
    if isinstance(data, TaskData):
        return DataSummary(
            data.name,
            data.kind,
            data.origin,
            data.fingerprint,
            {split: _task_split(data, split) for split in SPLITS},
            trivial_baselines(data),
            span=data.span,
        )
    if isinstance(data, MusicData):
        return DataSummary(
            data.name,
            data.kind,
            data.origin,
            data.fingerprint,
            {split: _music_split(data.splits[split]) for split in SPLITS},
            trivial_baselines(data),
            frames_per_beat=data.frames_per_beat,
            remarks=data.remarks,
        )
    return DataSummary(
        data.name,
        data.kind,
        data.origin,
        data.fingerprint,
        {split: _text_split(data.splits[split], data.end_token) for split in SPLITS},
        trivial_baselines(data),
        unit=data.unit,
        vocabulary_size=len(data.vocabulary),
        remarks=data.remarks,
    )


def _music_split(songs: list[np.ndarray]) -> MusicSplit:
    notes = np.concatenate([song.sum(axis=1) for song in songs])
    return MusicSplit(len(songs), len(notes), max(map(len, songs)), float(notes.mean()), int(notes.max()))


def _task_split(data: TaskData, split) -> TaskSplit:
    mask = data.judged_chunks(split, lanes=1).mask
    return TaskSplit(len(mask), mask.shape[1], data.counted_steps)


def _text_split(tokens: np.ndarray, end_token: int) -> TextSplit:
    return TextSplit(len(tokens), int(np.count_nonzero(tokens == end_token)))
