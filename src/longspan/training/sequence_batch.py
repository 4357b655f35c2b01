"""A block of chunks as one batch of sequences, which is what a gradient of many sequences at once is taken over.

Every lane of every chunk is a sequence of its own, entered with the state that the chunks before it leave at the
current weights. Those states are computed once and then are numbers.
"""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PyTree, Shaped

from longspan.data.sequences import Chunks, song_order
from longspan.models.sequence import SequenceModel
from longspan.training.objective import Carry, Context, Objective


class Sequences(NamedTuple):
    """A batch of sequences side by side.

    Attributes:
        first: the state each is entered with.
        steps: how long each is: up to its last step that counts; zero for filler.
        scale: from a mean over sequences to the objective.
        inner_scale: from a mean over all positions to one over those inside sequences.
        constants: what of the model is not trained.
        kept: which hidden units the output sees, where there is dropout; the same for all of an update, whose
            objective must not change under it.
    """

    inputs: Shaped[Array, "time sequence ..."]
    targets: Shaped[Array, "time sequence ..."]
    resets: Bool[Array, "time sequence"]
    mask: Bool[Array, "time sequence"]
    first: PyTree
    steps: Int[Array, " sequence"]
    scale: Float[Array, ""]
    inner_scale: Float[Array, ""]
    constants: SequenceModel
    kept: Bool[Array, "time sequence hidden"] | None = None


AXES: Any = Sequences(1, 1, 1, 1, first=0, steps=0, scale=None, inner_scale=None, constants=None, kept=1)  # pyright: ignore


@partial(jax.jit, static_argnums=0)
def enter(
    objective: Objective,
    params: SequenceModel,
    carry: Carry,
    chunks: Chunks,
    count: int | Int[Array, ""],
    context: Context,
) -> tuple[Carry, PyTree, Float[Array, " chunk"]]:
    """Walk through a block: the carry after its first `count` chunks, the state before each and its summed loss."""

    def step(carry, now):
        index, chunk = now
        _, (after, total) = objective(params, carry, chunk, context)
        inside = index < count
        kept = jax.tree.map(lambda new, old: jnp.where(inside, new, old), after, carry)
        return kept, (carry.state, jnp.where(inside, total, 0))

    carry, (entered, observed) = jax.lax.scan(step, carry, (jnp.arange(len(chunks.lengths)), chunks))
    return carry, entered, observed


class Block:
    """The chunks of an update as sequences: lane b of chunk n is number n * lanes + b."""

    def __init__(
        self,
        chunks: Chunks,
        entered: PyTree,
        constants: SequenceModel,
        mean: bool,
        kept: Bool[np.ndarray, "time sequence hidden"] | None = None,
    ):
        inputs, targets, resets, mask, lengths = chunks
        self.chunks = Chunks(*map(_side_by_side, (inputs, targets, resets, mask)), lengths=lengths)
        self.first = jax.tree.map(lambda leaf: np.asarray(leaf).reshape(-1, *leaf.shape[2:]), entered)
        self.constants = constants
        self.mean = mean
        self.kept = kept
        mask = self.chunks.mask
        self.steps = np.where(mask.any(axis=0), len(mask) - np.argmax(mask[::-1], axis=0), 0).astype(np.int32)

    def sequences(self, numbers: Int[np.ndarray, " part"], multiple: int) -> Sequences:
        """Some of the sequences, filled up to a multiple, so that all slices have one shape.

        The short ones come first, so that a slice of them is a short walk.
        """
        numbers = numbers[np.argsort(self.steps[numbers], kind="stable")]
        fillers = -len(numbers) % multiple
        numbers = np.concatenate([np.repeat(numbers[:1], fillers), numbers])
        inputs, targets, resets, mask = (leaf[:, numbers] for leaf in self.chunks[:-1])
        mask[:, :fillers] = False
        steps = np.where(np.arange(len(numbers)) < fillers, 0, self.steps[numbers])
        counted = mask.sum() if self.mean else np.count_nonzero(steps)
        batch = Sequences(
            inputs,
            targets,
            resets,
            mask,
            first=jax.tree.map(lambda leaf: leaf[numbers], self.first),
            steps=jnp.asarray(steps, jnp.int32),
            scale=jnp.float32(len(numbers) / counted),
            inner_scale=jnp.float32(mask.size / steps.sum()),
            constants=self.constants,
            kept=None if self.kept is None else jnp.asarray(self.kept[:, numbers]),
        )
        return jax.device_put(batch)  # once, not with every product


def draw(steps: Int[np.ndarray, " sequence"], count: int, seed: int, update: int) -> Int[np.ndarray, " part"]:
    """At most `count` sequences, decided by seed and update; filler only where there is nothing else left."""
    order = song_order(len(steps), seed, update)
    return order[np.argsort(steps[order] == 0, kind="stable")][:count]


def _side_by_side(leaf: np.ndarray) -> np.ndarray:
    """(chunk, time, lane, ...) to (time, sequence, ...)."""
    leaf = np.moveaxis(np.asarray(leaf), 0, 1)
    return leaf.reshape(len(leaf), -1, *leaf.shape[3:])
