"""Dropout: which hidden units the output sees in training, and how it hears them."""

import math
from functools import partial

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, PRNGKeyArray, UInt32


@partial(jax.jit, static_argnames=("dropout", "shape"))  # fused, or its many steps would each fill memory
def kept(key: PRNGKeyArray, dropout: float, shape: tuple[int, ...]) -> Bool[Array, "..."]:
    """Which hidden units the output sees: each is dropped with a chance of `dropout`.

    A hash of key and unit decides. The generators of `jax.random` would take a fifth of a training step for that, being
    made for numbers of which more is asked than to say yes or no.
    """
    first, second = jax.random.bits(key, (2,), jnp.uint32)
    number = jax.lax.iota(jnp.uint32, math.prod(shape)).reshape(shape)
    return _mixed(_mixed(number + first) ^ second) >= jnp.uint32(int(dropout * 2**32))


def louder(
    hidden: Float[Array, "time lanes hidden"], kept: Bool[Array, "time lanes hidden"], dropout: float
) -> Float[Array, "time lanes hidden"]:
    """What the output sees: nothing of the dropped units, and of the others so much more in exchange."""
    return jnp.where(kept, hidden / (1 - dropout), 0)


def _mixed(bits: UInt32[Array, "..."]) -> UInt32[Array, "..."]:
    """One to one, and every bit depends on all bits: the last stage of MurmurHash3."""
    bits = (bits ^ (bits >> 16)) * jnp.uint32(0x85EBCA6B)
    bits = (bits ^ (bits >> 13)) * jnp.uint32(0xC2B2AE35)
    return bits ^ (bits >> 16)
