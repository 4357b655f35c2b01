"""Gradient norm clipping (section 3.1): one norm over all parameters, rescaled to the threshold if above it."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, Float


class ClipState(NamedTuple):
    """What the last update saw; nothing that the next one needs."""

    norm: Float[Array, ""]
    clipped: Bool[Array, ""]


def clip_by_norm(threshold: float) -> optax.GradientTransformation:
    """Rescale the whole gradient to norm `threshold` when it is longer.

    `g -> g * threshold / ||g||` if `||g|| > threshold`, else `g`. The direction is kept, so the update stays a
    descent direction. Equal to `optax.clip_by_global_norm`, and it remembers the norm before clipping, which is
    what one looks at to see gradients explode. A threshold of infinity clips nothing.

    Example:
        >>> transformation = clip_by_norm(1.0)
        >>> state = transformation.init({"w": jnp.zeros(2)})
        >>> clipped, state = transformation.update({"w": jnp.array([3.0, 4.0])}, state)
        >>> [round(float(x), 6) for x in clipped["w"]], float(state.norm)
        ([0.6, 0.8], 5.0)

    Reference: Pascanu, Mikolov, Bengio, *On the difficulty of training recurrent neural networks*, 2012.
    """

    def init(params):
        del params
        return ClipState(norm=jnp.zeros(()), clipped=jnp.zeros((), bool))

    def update(updates, state, params=None):
        del state, params
        norm = optax.tree.norm(updates)
        clipped = norm > threshold
        factor = jnp.where(clipped, threshold / norm, 1.0)
        return jax.tree.map(lambda g: g * factor, updates), ClipState(norm, clipped)

    return optax.GradientTransformation(init, update)
