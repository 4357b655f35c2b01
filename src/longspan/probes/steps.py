"""Steps of a split, sequence after sequence, and what a model makes of them.

Sequences are laid end to end, so that their lengths may differ without padding. Every probe counts only the steps that
have a target.
"""

from dataclasses import dataclass
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, Shaped

from longspan.data.dataset import PLAIN_CHUNK, Dataset
from longspan.models.model import SequenceModel
from longspan.models.parts import Cell

SCORED_AT_ONCE = 500
"""Steps given to an output at a time, so that large vocabularies fit in memory."""
HOPELESS = -1e30


class Steps(NamedTuple):
    """Consecutive steps of some sequences.

    Attributes:
        inputs: (time, ...), as a cell takes them.
        targets: (time, ...), what is to be predicted.
        mask: (time) bool, which steps count.
        starts: (time) int32, the first step of the sequence that a step belongs to.
    """

    inputs: Shaped[np.ndarray, "time ..."]
    targets: Shaped[np.ndarray, "time ..."]
    mask: Bool[np.ndarray, " time"]
    starts: Int[np.ndarray, " time"]

    @property
    def resets(self) -> Bool[np.ndarray, " time"]:
        """Whether a sequence starts at a step."""
        return self.starts == np.arange(len(self.starts))

    @property
    def past(self) -> Int[np.ndarray, " time"]:
        """Number of steps before each step in its sequence."""
        return np.arange(len(self.starts)) - self.starts

    @property
    def bounds(self) -> list[tuple[int, int]]:
        """First step and end of each sequence."""
        begins = np.flatnonzero(self.resets)
        return list(zip(begins.tolist(), [*begins[1:].tolist(), len(self.starts)], strict=True))

    def counted(self, most: int, least_past: int = 0) -> Int[np.ndarray, " chosen"]:
        """At most `most` counted steps with some past, evenly spread."""
        return spread(np.flatnonzero(self.mask & (self.past >= least_past)), most)


def spread(values: np.ndarray, most: int) -> np.ndarray:
    """At most `most` of some values, evenly spread over them."""
    if len(values) <= most:
        return values
    return values[np.linspace(0, len(values) - 1, most).round().astype(int)]


def steps_of(data: Dataset, split: str, most: int) -> Steps:
    """About `most` steps of a split: whole sequences, evenly spread over it; a longer sequence is cut off."""
    chunks = data.chunks(split, PLAIN_CHUNK, 1)
    kept = np.arange(chunks.mask.shape[1]) < np.asarray(chunks.lengths)[:, None]
    inputs, targets, resets, mask = (np.asarray(part)[:, :, 0][kept] for part in chunks[:4])
    begins = np.flatnonzero(resets)
    lengths = np.diff(np.append(begins, len(resets)))
    chosen = np.sort(_within(lengths, most))
    kept_lengths = np.minimum(lengths[chosen], most)
    starts = np.repeat(np.cumsum(kept_lengths) - kept_lengths, kept_lengths).astype(np.int32)
    rows = np.repeat(begins[chosen], kept_lengths) + np.arange(len(starts)) - starts
    return Steps(inputs[rows], targets[rows], mask[rows], starts)


def _within(lengths: np.ndarray, most: int) -> np.ndarray:
    """Numbers of sequences, spread over all of them, that have about `most` steps together; at least one."""
    count = len(lengths)
    while count > 1:
        chosen = spread(np.arange(len(lengths)), count)
        total = int(np.minimum(lengths[chosen], most).sum())
        if total <= most:
            return chosen
        count = min(count - 1, max(1, count * most // total))
    return np.array([0])


class FlatCell:
    """A cell whose state, whatever tree it is, is one vector."""

    def __init__(self, cell: Cell):
        self.cell = cell
        self.first, self.unravel = ravel_pytree(cell.initial_state())

    def step(self, state: Float[Array, " state"], inputs: Shaped[Array, "..."]) -> Float[Array, " state"]:
        keys = (None,) if self.cell.takes_key else ()  # without noise
        return ravel_pytree(self.cell.step(self.unravel(state), inputs, *keys))[0]

    def hidden(self, state: Float[Array, " state"]) -> Float[Array, " hidden"]:
        return self.cell.output(self.unravel(state))


@dataclass(frozen=True)
class Walk:
    """The states of a model along some steps.

    Attributes:
        before: (time, state) the state that each step starts from, flattened to a vector.
        hidden: (time, hidden) what the output sees of the state after each step.
    """

    before: Float[Array, "time state"]
    hidden: Float[Array, "time hidden"]


def walk(model: SequenceModel, steps: Steps) -> Walk:
    """Run a model along some steps."""
    return Walk(*_walk(model.cell, jnp.asarray(steps.inputs), jnp.asarray(steps.resets)))


@eqx.filter_jit
def _walk(cell: Cell, inputs, resets):
    flat = FlatCell(cell)

    def step(state, now):
        inputs, reset = now
        before = jnp.where(reset, flat.first, state)
        after = flat.step(before, inputs)
        return after, (before, flat.hidden(after))

    return jax.lax.scan(step, flat.first, (inputs, resets))[1]


def log_probs(
    model: SequenceModel, hidden: Float[Array, "time hidden"], targets: Shaped[np.ndarray, "time ..."]
) -> Float[np.ndarray, " time"]:
    """Log-likelihood in nats of each step's target, given what the output sees; that of states that overflowed is
    `HOPELESS`."""
    length = len(targets)
    padded = -(-length // SCORED_AT_ONCE) * SCORED_AT_ONCE if length > SCORED_AT_ONCE else length
    rows = np.minimum(np.arange(padded), length - 1).reshape(-1, min(padded, SCORED_AT_ONCE))
    found = _log_probs(model, jnp.asarray(hidden)[rows], jnp.asarray(np.asarray(targets)[rows]), jax.random.key(0))
    return np.nan_to_num(np.asarray(found, np.float64).ravel()[:length], nan=HOPELESS, neginf=HOPELESS)


@eqx.filter_jit
def _log_probs(model: SequenceModel, hidden, targets, key: PRNGKeyArray):
    length = jnp.asarray(hidden.shape[1], jnp.int32)

    def score(part):
        hidden, targets = part
        return model.output.log_prob(hidden[:, None], targets[:, None], length, key=key)[:, 0]

    return jax.lax.map(score, (hidden, targets))
