"""Synthetic tasks as data sets: training sequences drawn as needed, and a fixed set for each split.

The tasks themselves are in `synthetic`; here their sequences become chunks. A chunk holds whole sequences side by side,
each starting from a zero state, so a gradient spans the whole sequence however long it is.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, Literal, cast

import numpy as np

from longspan.data.benchmarks import DEFAULT_SPAN
from longspan.data.dataset import Baselines, Chunks, DataRecord, Dataset, TargetKind, whole
from longspan.data.synthetic import SQUARED_ERROR, TASKS, WRONG_SHARE, Split, SyntheticTask, TaskBatch
from longspan.errors import InputError

EVALUATION_LANES = 100
EPOCH = 1000
"""Number of sequences that count as one epoch, since training data never repeat."""
JUDGED = {"train": 1000, "valid": 1000, "test": 10_000}
"""Number of sequences in the fixed set of each split."""
DRAWN_AT_ONCE = 1000
"""Number of those sequences drawn at a time, which bounds the memory; it divides all of `JUDGED`."""


@dataclass(frozen=True)
class TaskSplit:
    """Sizes of a fixed set: sequences, steps of the longest, and steps per sequence that have a target."""

    sequences: int
    longest_sequence: int
    asked_steps: int


LONGEST_SPAN = 10_000
"""The validation sequences of a task are drawn at once, with 350 MB at this span."""


@dataclass(frozen=True, eq=False)
class TaskData(Dataset):
    """A synthetic task of a certain span.

    Args:
        name: a key of `longspan.data.synthetic.TASKS`.
        span: approximate number of steps in a sequence, which a learner has to bridge.

    Example:
        >>> TaskData("addition", span=50).training_chunks(lanes=10, seed=0, epoch=3).inputs.shape
        (100, 55, 10, 2)
    """

    name: str
    span: int = DEFAULT_SPAN
    origin = "drawn as needed"

    def __post_init__(self) -> None:
        if self.name not in TASKS:
            raise InputError(f"unknown task {self.name!r}: expected one of {', '.join(TASKS)}", fields=["data"])
        object.__setattr__(self, "span", whole(self.span, "span", self.task.smallest_span, LONGEST_SPAN))

    @property
    def task(self) -> SyntheticTask:
        """The task that draws the sequences."""
        return TASKS[self.name]

    @property
    def kind(self) -> Literal["classes", "numbers"]:
        """What the task asks for."""
        return "classes" if self.task.asks_for == "class" else "numbers"

    @property
    def record(self) -> DataRecord:
        return DataRecord(self.kind, self._digest, self.task.output_size, self.task.input_size)

    @property
    def target_kind(self) -> TargetKind:
        return self.kind

    @property
    def metrics(self) -> tuple[str, ...]:
        return ("error_rate",) if self.kind == "classes" else ("error_rate", "squared_error")

    @property
    def solved_below(self) -> dict[str, float]:
        return {"error_rate": WRONG_SHARE}

    @property
    def implied_settings(self) -> dict[str, Any]:
        return {"span": self.span}

    @cached_property
    def _digest(self) -> str:
        """SHA-256 of the validation sequences, so that a change of the generator is detected."""
        digest = hashlib.sha256(self.name.encode())
        for leaf in self.judged_chunks("valid", lanes=JUDGED["valid"]):
            digest.update(leaf.tobytes())
        return digest.hexdigest()

    @cached_property
    def asked_steps(self) -> int:
        """Number of steps in a sequence that have a target."""
        return int(self.task.drawn(self.span, 1, seed=0, step=0).mask.sum())

    def counted_steps(self, chunk_length: int) -> int:
        del chunk_length  # a chunk holds whole sequences
        return self.asked_steps

    def evaluation_lanes(self, split: str) -> int:
        del split
        return EVALUATION_LANES

    def chunks(self, split: str, chunk_length: int, lanes: int) -> Chunks:
        """The fixed set of a split, whole sequences whatever the chunk length."""
        del chunk_length
        return self.judged_chunks(split, lanes)

    def epoch(self, number: int, *, seed: int, chunk_length: int, lanes: int) -> Chunks:
        """New sequences for every epoch."""
        del chunk_length
        return self.training_chunks(lanes, seed=seed, epoch=number)

    def baselines(self, split: str) -> TaskBaselines:
        return task_baselines(self._answers("train"), self._answers(split), numbers=self.kind == "numbers")

    def split_figures(self, split: str) -> TaskSplit:
        mask = self.judged_chunks(split, lanes=1).mask
        return TaskSplit(len(mask), mask.shape[1], self.asked_steps)

    def details(self) -> dict[str, Any]:
        return {"span": self.span}

    def steps_of_epoch(self) -> int:
        return EPOCH * self.span

    def training_chunks(self, lanes: int, *, seed: int, epoch: int) -> Chunks:
        """The sequences of an epoch, determined by seed and epoch; the last chunk is full, too."""
        chunks = -(-EPOCH // lanes)
        return self._arrange([self.task.drawn(self.span, chunks * lanes, seed=seed, step=epoch)], lanes)

    def judged_chunks(self, split: str, lanes: int) -> Chunks:
        """The fixed set of a split; `lanes` must divide its size."""
        draw = partial(self.task.drawn, self.span, DRAWN_AT_ONCE, seed=0, split=cast(Split, split))
        return self._arrange([draw(step=step) for step in range(JUDGED[split] // DRAWN_AT_ONCE)], lanes)

    def _answers(self, split: str) -> np.ndarray:
        """The right answers of a split, (sequences, answers per sequence)."""
        chunks = self.judged_chunks(split, lanes=1)
        return chunks.targets[chunks.mask].reshape(len(chunks.lengths), -1)

    def _arrange(self, batches: list[TaskBatch], lanes: int) -> Chunks:
        inputs, targets, mask = (_fold(np.concatenate(leaves, axis=1), lanes) for leaves in zip(*batches, strict=True))
        if self.kind == "classes":
            inputs = inputs.astype(np.int32)
        resets = np.zeros(mask.shape, bool)
        resets[:, 0] = True
        last = mask.shape[1] - np.argmax(mask[:, ::-1], axis=1)
        return Chunks(inputs, targets, resets, mask, last.max(axis=1).astype(np.int32))


def _fold(array: np.ndarray, lanes: int) -> np.ndarray:
    """(time, sequence, ...) to (chunk, time, lane, ...)."""
    folded = array.reshape(len(array), -1, lanes, *array.shape[2:])
    return np.ascontiguousarray(np.moveaxis(folded, 1, 0))


@dataclass(frozen=True)
class TaskBaselines(Baselines):
    """Fraction of sequences that the best constant answer gets wrong and, for numbers, its mean squared error."""

    error_rate: float
    squared_error: float | None = None

    def rows(self) -> list[tuple[str, dict[str, float]]]:
        squares = {} if self.squared_error is None else {"squared_error": self.squared_error}
        constant = {"error_rate": self.error_rate, **squares}
        return [("solved below", {"error_rate": WRONG_SHARE}), ("always the same answer", constant)]


def task_baselines(train: np.ndarray, test: np.ndarray, *, numbers: bool) -> TaskBaselines:
    """Baseline of the best constant answer, from the right answers of two splits, (sequences, answers per sequence)."""
    if numbers:
        squares = np.square(test - train.mean())
        return TaskBaselines(float(np.mean(squares > SQUARED_ERROR)), float(squares.mean()))
    usual = np.array([np.bincount(column).argmax() for column in train.T])
    return TaskBaselines(float(np.mean(np.any(test != usual, axis=1))))
