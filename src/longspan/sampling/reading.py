"""What a model reads while samples are drawn: the steps so far, and what they say about the next one.

`look_back` finds candidates for the next step as `data/lookup.py` does, but inside compiled code and for one step.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int, Shaped

from longspan.data.cues import LEVEL_BITS, METERS, Cues
from longspan.data.lookup import NONE, ORDERS, Found


class Past(NamedTuple):
    """The steps before the next one: the prime, then those drawn. Beyond `length` they are zero."""

    steps: Shaped[Array, "lane capacity ..."]
    length: Int[Array, ""]


class Reader(eqx.Module):
    """What a model is given to read before each step."""

    @abstractmethod
    def __call__(self, last: Shaped[Array, "lane ..."], past: Past) -> Shaped[Array, "lane ..."]:
        """The input of the next step of every lane, from the last step and all of them."""

    @abstractmethod
    def prime(self, inputs: Shaped[Array, "time ..."]) -> Shaped[Array, "time ..."]:
        """The same for all steps but the last of a sequence, which begins with the input before its first step."""


class LastStep(Reader):
    """The last step and nothing else."""

    def __call__(self, last, past):
        del past
        return last

    def prime(self, inputs):
        return inputs[:-1]


class WithCues(Reader):
    """The last frame and what a model of music was trained to be told beside it.

    Args:
        cues: what it is told.
    """

    cues: Cues = eqx.field(static=True)

    def __call__(self, last, past):
        parts = [last]
        if self.cues.recall:
            found = jax.vmap(lambda steps: look_back(steps, past.length, 1))(past.steps)
            level, place = found.level[:, 0], jnp.maximum(found.place[:, 0], 0)
            frame = past.steps[jnp.arange(len(last)), place]
            parts += [jnp.where((level > 0)[:, None], frame, 0), level[:, None] == jnp.arange(1, LEVEL_BITS + 1)[None]]
        if self.cues.meter:
            bits = jnp.concatenate([past.length % meter == jnp.arange(meter) for meter in METERS])
            parts.append(jnp.broadcast_to(bits, (len(last), len(bits))))
        return jnp.concatenate([part.astype(last.dtype) for part in parts], axis=1)

    def prime(self, inputs):
        return jnp.asarray(self.cues.inputs_of(np.asarray(inputs[1:])))


def look_back(steps: Shaped[Array, "capacity ..."], length: Int[Array, ""], candidates: int) -> Found:
    """The candidates for the next step of one sequence, of which `length` steps are known; as `look_up` finds them."""
    capacity = len(steps)
    # Frames are compared by a hash of 32 bits, as words are compared by their numbers.
    flat = steps.reshape(capacity, -1).astype(jnp.uint32)
    codes = flat @ jnp.asarray(np.random.default_rng(0).integers(1, 2**32, flat.shape[1], np.uint32) | 1)
    places = jnp.arange(capacity)
    levels = _levels(codes, length)

    def best_of_the_rest(open_, _):
        rank = jnp.where(open_, levels * capacity + places, NONE)
        place = jnp.argmax(rank)
        same = (codes == codes[place]) & (places < length)
        exists = rank[place] >= 0
        row = (levels[place], place, jnp.max(jnp.where(same, places, NONE)), jnp.sum(same))
        return open_ & ~same, tuple(jnp.where(exists, value, NONE).astype(jnp.int32) for value in row)

    _, rows = jax.lax.scan(best_of_the_rest, places < length, length=candidates)
    return Found(*rows, step=jnp.full(candidates, length, jnp.int32))


def _levels(codes: Array, length: Int[Array, ""]) -> Int[Array, " capacity"]:
    """The level of every place: over how many steps its past agrees with the present."""
    places = jnp.arange(len(codes))

    def agree_further(back, running):
        alike, matched = running
        exist = (places > back) & (length > back)
        before = jnp.roll(codes, back + 1)
        alike = alike & exist & (before == codes[jnp.maximum(length - 1 - back, 0)])
        return alike, matched + alike.astype(jnp.int32)

    start = jnp.ones(len(codes), bool), jnp.zeros(len(codes), jnp.int32)
    _, matched = jax.lax.fori_loop(0, ORDERS[-1], agree_further, start)
    return jnp.searchsorted(jnp.asarray(ORDERS), matched, side="right").astype(jnp.int32)
