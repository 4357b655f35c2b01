"""How far back a model remembers: its score when its past is cut off, and its loss at steps that repeat the past."""

from typing import Annotated

import equinox as eqx
import jax
import jax.numpy as jnp
import msgspec
import numpy as np
from jaxtyping import Float

from longspan.bounds import Figure, Positive, Share, Size, Whole, check_lengths
from longspan.data.dataset import Dataset
from longspan.data.recall import identities, longest_matches
from longspan.models.model import SequenceModel
from longspan.models.parts import Cell
from longspan.probes.steps import FlatCell, Steps, Walk, log_probs, steps_of

LONGEST_CUT = 128
BUCKETS = (1, 2, 3, 5, 9, 17, 33)
"""Smallest match length of each bucket; the last one has no end."""


Length = Annotated[int, msgspec.Meta(ge=1, le=2**53)]


class History(msgspec.Struct, frozen=True):
    """Mean log-likelihood when a step sees only the last k inputs, the state before them being the initial one.

    Attributes:
        lengths: k = 1, 2, 4, ...
        scores: nats per counted step for each of them.
        errors: standard errors of the differences from `whole`.
        whole: the score of the same steps with all of their past.
        steps: number of counted steps examined.
    """

    lengths: list[Length]
    scores: list[Figure]
    errors: list[Size]
    whole: Figure
    steps: Whole

    def __post_init__(self) -> None:
        check_lengths(lengths=self.lengths, scores=self.scores, errors=self.errors)

    @property
    def used(self) -> int | None:
        """Shortest history that is within 1 % of the gain of all of it over a single input; None if all is needed."""
        if not self.scores or self.whole <= self.scores[0]:
            return self.lengths[0] if self.lengths else None
        enough = self.whole - 0.01 * (self.whole - self.scores[0])
        return next((k for k, score in zip(self.lengths, self.scores, strict=True) if score >= enough), None)


class RepeatBucket(msgspec.Struct, frozen=True):
    """Repeats after a match of `shortest` or more steps, up to the next bucket."""

    shortest: Length
    steps: Whole
    loss: Figure
    """Mean loss of the model, nats per step."""
    reference_loss: Figure


class Repeats(msgspec.Struct, frozen=True):
    """Steps that repeat what followed the longest earlier match, beside all others.

    The price of a repeat is the mean loss at repeats over that elsewhere: 0 for a model that remembers, about that of
    the memoryless reference for one that does not.
    """

    share: Share
    """Fraction of counted steps that are repeats."""
    loss: Figure
    loss_elsewhere: Positive
    reference_loss: Figure
    reference_loss_elsewhere: Positive
    buckets: list[RepeatBucket]
    steps: Whole

    @property
    def price(self) -> float:
        return self.loss / self.loss_elsewhere

    @property
    def reference_price(self) -> float:
        """The price that a memoryless model pays: repeats are easier in themselves."""
        return self.reference_loss / self.reference_loss_elsewhere


def history(model: SequenceModel, steps: Steps, walked: Walk, *, most: int = 1024) -> History:
    """Score at most `most` counted steps with their past cut off k steps back, for k = 1, 2, 4, ..."""
    chosen = steps.counted(most)
    whole = log_probs(model, walked.hidden[chosen], steps.targets[chosen])
    longest = min(LONGEST_CUT, int(steps.past[chosen].max(initial=0)))
    lengths = [2**power for power in range(longest.bit_length()) if 2**power <= longest]
    lost = [whole - _cut_scores(model, steps, chosen, length) for length in lengths]
    return History(
        lengths=lengths,
        scores=[float(whole.mean() - each.mean()) for each in lost],
        errors=[float(each.std() / np.sqrt(len(each))) for each in lost],
        whole=float(whole.mean()),
        steps=len(chosen),
    )


def _cut_scores(model: SequenceModel, steps: Steps, chosen: np.ndarray, length: int) -> Float[np.ndarray, " chosen"]:
    places = (jnp.asarray(chosen), jnp.asarray(steps.starts[chosen]))
    hidden = _cut_hidden(model.cell, jnp.asarray(steps.inputs), *places, jnp.asarray(length))
    return log_probs(model, hidden, steps.targets[chosen])


@eqx.filter_jit
def _cut_hidden(cell: Cell, inputs, chosen, starts, length):
    """What the output sees at each chosen step after a walk of `length` steps from the initial state."""
    flat = FlatCell(cell)

    def advance(number, states):
        at = chosen - length + 1 + number
        states = jnp.where((at <= starts)[:, None], flat.first, states)  # never farther back than the sequence reaches
        return jax.vmap(flat.step)(states, inputs[jnp.maximum(at, 0)])

    first = jnp.broadcast_to(flat.first, (len(chosen), len(flat.first)))
    return jax.vmap(flat.hidden)(jax.lax.fori_loop(0, length, advance, first))


def repeats(model: SequenceModel, data: Dataset, steps: Steps, walked: Walk) -> Repeats | None:
    """Measure the price of a repeat; None if these steps hold none, or nothing else."""
    length = match_lengths(steps)
    loss = -log_probs(model, walked.hidden, steps.targets)
    reference = reference_losses(data, steps)
    again, other = steps.mask & (length > 0), steps.mask & (length == 0)
    if not again.any() or not other.any():
        return None
    number = np.searchsorted(BUCKETS, length, side="right")
    filled = [(shortest, again & (number == place)) for place, shortest in enumerate(BUCKETS, 1)]
    return Repeats(
        share=float(again.sum() / steps.mask.sum()),
        loss=float(loss[again].mean()),
        loss_elsewhere=float(loss[other].mean()),
        reference_loss=float(reference[again].mean()),
        reference_loss_elsewhere=float(reference[other].mean()),
        buckets=[
            RepeatBucket(shortest, int(rows.sum()), float(loss[rows].mean()), float(reference[rows].mean()))
            for shortest, rows in filled
            if rows.any()
        ],
        steps=int(steps.mask.sum()),
    )


def match_lengths(steps: Steps) -> np.ndarray:
    """For each step that repeats what followed the longest match of its past, the length of the match; 0 elsewhere."""
    found = np.zeros(len(steps.starts), np.int32)
    for begin, end in steps.bounds:
        ids = identities(steps.targets[begin:end])
        matches = longest_matches(ids)
        right = (matches.position >= 0) & (ids[matches.position] == ids)
        found[begin:end] = np.where(right, matches.length, 0)
    return found


FITTED = 200_000
"""Training steps to which the memoryless reference is fitted."""


def reference_losses(data: Dataset, steps: Steps) -> Float[np.ndarray, " time"]:
    """Loss of a model that sees nothing but the step before: a Markov chain per key, or a bigram."""
    train = steps_of(data, "train", FITTED)
    if steps.targets.ndim == 1:
        return _bigram_losses(train, steps, data.record.size)
    rates = _transition_rates(train)
    before = np.where(steps.resets[:, None], 0, np.roll(steps.targets, 1, axis=0))
    rate = np.where(before, rates[1], rates[0])
    return -np.log(np.where(steps.targets, rate, 1 - rate)).sum(axis=1)


def _transition_rates(train: Steps) -> Float[np.ndarray, "2 key"]:
    """How often each key sounds after a step without it, and after one with it."""
    before = np.where(train.resets[:, None], 0, np.roll(train.targets, 1, axis=0)).astype(bool)
    now = train.targets.astype(bool)
    counts = [(now & kind).sum(axis=0) + 0.5 for kind in (~before, before)]
    totals = [kind.sum(axis=0) + 1.0 for kind in (~before, before)]
    return np.array([count / total for count, total in zip(counts, totals, strict=True)])


def _bigram_losses(train: Steps, steps: Steps, size: int) -> Float[np.ndarray, " time"]:
    """Witten and Bell: a pair is trusted as its first symbol was followed by few different ones."""
    single = (np.bincount(train.targets, minlength=size) + 1.0) / (len(train.targets) + size)
    first, second = train.targets[:-1].astype(np.int64), train.targets[1:].astype(np.int64)
    pairs, counts = np.unique(first * size + second, return_counts=True)
    kinds = np.bincount(pairs // size, minlength=size)
    totals = np.bincount(first, minlength=size)
    before = np.where(steps.resets, steps.inputs, np.roll(steps.targets, 1)).astype(np.int64)
    asked = before * size + steps.targets
    place = np.minimum(np.searchsorted(pairs, asked), len(pairs) - 1)
    seen = np.where(pairs[place] == asked, counts[place], 0)
    rate = (seen + kinds[before] * single[steps.targets]) / np.maximum(totals + kinds, 1)[before]
    return -np.log(np.where(totals[before] > 0, rate, single[steps.targets]))
