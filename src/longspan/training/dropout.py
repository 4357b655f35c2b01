"""Dropout: which hidden units the output sees in training, and how it hears them."""

from functools import partial

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from longspan.models import noise


@partial(jax.jit, static_argnames=("dropout", "shape"))  # fused, or its many steps would each fill memory
def kept(key: PRNGKeyArray, dropout: float, shape: tuple[int, ...]) -> Bool[Array, "..."]:
    """Which hidden units the output sees: each is dropped with a chance of `dropout`."""
    return noise.bits(key, shape) >= jnp.uint32(int(dropout * 2**32))


def louder(
    hidden: Float[Array, "time lanes hidden"], kept: Bool[Array, "time lanes hidden"], dropout: float
) -> Float[Array, "time lanes hidden"]:
    """What the output sees: nothing of the dropped units, and of the others so much more in exchange."""
    return jnp.where(kept, hidden / (1 - dropout), 0)
