"""Synthetic tasks as data sets: sequences drawn when they are needed, and two fixed sets to be judged by.

What a task draws is in `synthetic`; here its sequences become chunks. A chunk holds whole sequences side by side, each
from a state of zero, so a gradient spans all of a sequence however long.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cached_property, partial
from typing import ClassVar, Literal, cast

import numpy as np

from longspan.data.names import DEFAULT_SPAN
from longspan.data.sequences import Chunks
from longspan.data.synthetic import TASKS, Split, SyntheticTask, TaskBatch

EPOCH = 1000
"""Sequences that count as one pass over training data that never repeat."""
JUDGED = {"train": 1000, "valid": 1000, "test": 10_000}
"""Sequences of the fixed set of each split."""
DRAWN_AT_ONCE = 1000
"""Of those; memory is bounded by it, and it divides all of them."""


@dataclass(frozen=True, eq=False)
class TaskData:
    """A synthetic task of a certain span.

    Args:
        name: a key of `longspan.data.synthetic.TASKS`.
        span: about how many steps a sequence has, and a learner has to bridge.

    Example:
        >>> TaskData("addition", span=50).training_chunks(lanes=10, seed=0, epoch=3).inputs.shape
        (100, 55, 10, 2)
    """

    name: str
    span: int = DEFAULT_SPAN
    origin: ClassVar[str] = "drawn as needed"
    remarks: ClassVar[tuple[str, ...]] = ()

    def __post_init__(self) -> None:
        self.task.check_span(self.span)

    @property
    def task(self) -> SyntheticTask:
        """How sequences are drawn."""
        return TASKS[self.name]

    @property
    def kind(self) -> Literal["classes", "numbers"]:
        """What is asked for."""
        return "classes" if self.task.asks_for == "class" else "numbers"

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 of the sequences it is judged by on validation, so that a change of the generator shows."""
        digest = hashlib.sha256(self.name.encode())
        for leaf in self.judged_chunks("valid", lanes=JUDGED["valid"]):
            digest.update(leaf.tobytes())
        return digest.hexdigest()

    @cached_property
    def counted_steps(self) -> int:
        """Steps of a sequence at which something is asked."""
        return int(self.task.batch(self.span, 1, seed=0, step=0).mask.sum())

    def training_chunks(self, lanes: int, *, seed: int, epoch: int) -> Chunks:
        """The sequences of an epoch, decided by seed and epoch; the last chunk is full too."""
        chunks = -(-EPOCH // lanes)
        return self._arrange([self.task.batch(self.span, chunks * lanes, seed=seed, step=epoch)], lanes)

    def judged_chunks(self, split: str, lanes: int) -> Chunks:
        """The fixed set of a split; `lanes` must divide its size."""
        draw = partial(self.task.batch, self.span, DRAWN_AT_ONCE, seed=0, split=cast(Split, split))
        return self._arrange([draw(step=step) for step in range(JUDGED[split] // DRAWN_AT_ONCE)], lanes)

    def _arrange(self, batches: list[TaskBatch], lanes: int) -> Chunks:
        parts = [batch._replace(inputs=self._compact(batch.inputs)) for batch in batches]
        inputs, targets, mask = (_fold(np.concatenate(leaves, axis=1), lanes) for leaves in zip(*parts, strict=True))
        resets = np.zeros(mask.shape, bool)
        resets[:, 0] = True
        last = mask.shape[1] - np.argmax(mask[:, ::-1], axis=1)
        return Chunks(inputs, targets, resets, mask, last.max(axis=1).astype(np.int32))

    def _compact(self, inputs: np.ndarray) -> np.ndarray:
        """Symbols by their numbers instead of as one-hot vectors; numbers as they are."""
        return np.argmax(inputs, axis=-1).astype(np.int32) if self.kind == "classes" else inputs


def _fold(array: np.ndarray, lanes: int) -> np.ndarray:
    """(time, sequence, ...) to (chunk, time, lane, ...)."""
    folded = array.reshape(len(array), -1, lanes, *array.shape[2:])
    return np.ascontiguousarray(np.moveaxis(folded, 1, 0))
