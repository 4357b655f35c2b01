"""Synthetic long-range tasks: the classical tests of whether a learner can bridge a time lag.

All come from Hochreiter and Schmidhuber (*Long short-term memory*, 1997) by way of Martens and Sutskever
(2011); where the sources differ, the variants are those of Pascanu, Mikolov and Bengio (*On the difficulty of
training recurrent neural networks*, 2013), and each function says what it draws. A batch is a pure function
of seed, split and step: nothing is stored, and training may continue without ever repeating a sequence.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Shaped

from longspan.errors import InputError

WRONG_SHARE = 0.01
"""A task counts as solved when less than this fraction of sequences is wrong."""
SQUARED_ERROR = 0.04
"""A number counts as wrong when its squared error exceeds this (Pascanu et al.)."""

Split = Literal["train", "valid", "test"]
SPLITS: tuple[Split, ...] = ("train", "valid", "test")


class TaskBatch(NamedTuple):
    """A batch of sequences with their targets.

    Attributes:
        inputs: symbols, also as one-hot vectors; or a number and its marker, zero past a sequence's end.
        targets: class numbers, or numbers with a last axis of one; meaningless where the mask is off.
        mask: the steps at which the loss counts.
    """

    inputs: Shaped[np.ndarray, "time lane ..."]
    targets: Shaped[np.ndarray, "time lane ..."]
    mask: Bool[np.ndarray, "time lane"]


def temporal_order(rng: np.random.Generator, span: int, batch_size: int) -> TaskBatch:
    """In which order did the two relevant symbols come?

    Six symbols {A, B, c, d, e, f}. A or B stands at one position drawn from [T/10, 2T/10) and at another from
    [5T/10, 6T/10), distractors c to f at all others. After T steps the class is 0 for AA, 1 for BA, 2 for AB,
    3 for BB. Experiment 6a of 1997 in the form of 2013: length exactly T, neither start nor trigger symbol.
    """
    symbols = rng.integers(2, 6, (span, batch_size))
    lanes = np.arange(batch_size)
    first, second = rng.integers(0, 2, (2, batch_size))
    symbols[rng.integers(span // 10, 2 * span // 10, batch_size), lanes] = first
    symbols[rng.integers(5 * span // 10, 6 * span // 10, batch_size), lanes] = second
    targets, mask = _at_last_step(span, first + 2 * second)
    return TaskBatch(symbols, targets, mask)


def addition(rng: np.random.Generator, span: int, batch_size: int) -> TaskBatch:
    """What is the mean of the two marked numbers?

    Two channels: a number uniform in [0, 1) and a marker that is one at two steps, drawn from [0, T/10) and
    from [T/10, T/2). The length of each sequence is drawn from T to 11T/10; at its end the target is
        half the sum of the marked numbers. Experiment 4 of 1997 with the positions and the target of 2013.
    """
    return _marked_numbers(rng, span, batch_size, lambda one, other: (one + other) / 2)


def multiplication(rng: np.random.Generator, span: int, batch_size: int) -> TaskBatch:
    """What is the product of the two marked numbers? Sequences as in `addition`; experiment 5 of 1997."""
    return _marked_numbers(rng, span, batch_size, lambda one, other: one * other)


def permutation(rng: np.random.Generator, span: int, batch_size: int) -> TaskBatch:
    """Which of two symbols opened the sequence?

    A hundred symbols. The first is 0 or 1; the others run through 2 to 99 in random order, in a new order
        each time all have been used, so that at T = 99 they are one permutation. After T steps the next symbol is
    the first again.
    """
    distractors = 98
    rounds = -(-(span - 1) // distractors)
    orders = rng.permuted(np.broadcast_to(np.arange(2, 100), (rounds, batch_size, distractors)), axis=-1)
    others = orders.transpose(0, 2, 1).reshape(rounds * distractors, batch_size)[: span - 1]
    first = rng.integers(0, 2, batch_size)
    targets, mask = _at_last_step(span, first)
    return TaskBatch(np.concatenate([first[None], others]), targets, mask)


def memorization(rng: np.random.Generator, span: int, batch_size: int) -> TaskBatch:
    """What were the first five bits?

    Four symbols: the bits 0 and 1, a blank and a cue. Five bits come first, then T blanks, then the cue and
    four more blanks; during these last five steps the bits are to be repeated in order. This is the noiseless
        five-bit problem, where only the answer counts; T + 10 steps in all.
    """
    count, blank, cue = 5, 2, 3
    bits = rng.integers(0, 2, (count, batch_size))
    symbols = np.full((span + 2 * count, batch_size), blank)
    symbols[:count] = bits
    symbols[count + span] = cue
    targets = np.zeros(symbols.shape, np.int32)
    targets[-count:] = bits
    mask = np.zeros(symbols.shape, bool)
    mask[-count:] = True
    return TaskBatch(symbols, targets, mask)


@dataclass(frozen=True)
class SyntheticTask:
    """A task: how to draw its sequences, and the sizes of its inputs and outputs."""

    draw: Callable[[np.random.Generator, int, int], TaskBatch]
    input_size: int
    output_size: int
    asks_for: Literal["class", "number"]
    smallest_span: int

    def batch(self, span: int, batch_size: int, *, seed: int, step: int, split: Split = "train") -> TaskBatch:
        """Draw the sequences of one step, symbols as one-hot vectors; the same arguments give the same sequences.

        Example:
            >>> batch = TASKS["temporal-order"].batch(span=30, batch_size=4, seed=0, step=0)
            >>> batch.inputs.shape, int(batch.mask.sum())
            ((30, 4, 6), 4)
        """
        drawn = self.drawn(span, batch_size, seed=seed, step=step, split=split)
        if self.asks_for == "number":
            return drawn
        return drawn._replace(inputs=np.eye(self.input_size, dtype=np.float32)[drawn.inputs])

    def drawn(self, span: int, batch_size: int, *, seed: int, step: int, split: Split = "train") -> TaskBatch:
        """The same with symbols as they are: a hundred numbers for each of them take a hundred times as much memory."""
        self.check_span(span)
        stream = np.random.SeedSequence(seed, spawn_key=(SPLITS.index(split), step))
        return self.draw(np.random.default_rng(stream), span, batch_size)

    def check_span(self, span: int) -> None:
        """Refuse a span that is too small for the task."""
        if span < self.smallest_span:
            raise InputError(f"span must be at least {self.smallest_span} for this task: got {span}", fields=["span"])

    def wrong_sequences(
        self, outputs: Float[np.ndarray, "time lane output"], batch: TaskBatch
    ) -> Bool[np.ndarray, " lane"]:
        """Which sequences count as wrong: any wrong class at a counted step, or a squared error above 0.04.

        Args:
            outputs: a score for every class, the largest being the answer; or the number itself.
            batch: the sequences and their targets.
        """
        if self.asks_for == "class":
            missed = np.argmax(outputs, axis=-1) != batch.targets
        else:
            missed = ~(np.square(outputs - batch.targets)[..., 0] <= SQUARED_ERROR)
        return np.any(missed & batch.mask, axis=0)


def is_solved(wrong: Bool[np.ndarray, " lane"]) -> bool:
    """Whether fewer than one sequence in a hundred is wrong."""
    return bool(np.mean(wrong) < WRONG_SHARE)


TASKS: dict[str, SyntheticTask] = {
    "temporal-order": SyntheticTask(temporal_order, 6, 4, "class", smallest_span=10),
    "addition": SyntheticTask(addition, 2, 1, "number", smallest_span=10),
    "multiplication": SyntheticTask(multiplication, 2, 1, "number", smallest_span=10),
    "permutation": SyntheticTask(permutation, 100, 100, "class", smallest_span=2),
    "memorization": SyntheticTask(memorization, 4, 2, "class", smallest_span=1),
}


def _marked_numbers(rng, span, batch_size, combine) -> TaskBatch:
    steps = span + span // 10
    lanes = np.arange(batch_size)
    lengths = rng.integers(span, steps + 1, batch_size)
    numbers = rng.random((steps, batch_size), np.float32)
    numbers[np.arange(steps)[:, None] >= lengths] = 0
    first = rng.integers(0, span // 10, batch_size)
    second = rng.integers(span // 10, span // 2, batch_size)
    markers = np.zeros_like(numbers)
    markers[first, lanes] = markers[second, lanes] = 1
    targets = np.zeros((steps, batch_size, 1), np.float32)
    targets[lengths - 1, lanes, 0] = combine(numbers[first, lanes], numbers[second, lanes])
    mask = np.arange(steps)[:, None] == lengths - 1
    return TaskBatch(np.stack([numbers, markers], axis=-1), targets, mask)


def _at_last_step(span: int, classes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    targets = np.zeros((span, len(classes)), np.int32)
    targets[-1] = classes
    mask = np.zeros(targets.shape, bool)
    mask[-1] = True
    return targets, mask
