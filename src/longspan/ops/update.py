"""Clipping by the global norm and a step of descent (sections 3.1 and 3.5 of the paper) at once.

g is rescaled to the threshold where one norm over all leaves exceeds it; then v' = mu_prev v - eps g and
theta' = theta + mu mu_prev v - (1 + mu) eps g, or without momentum theta' = theta - eps g. Natively parameters and
velocity are overwritten in place.
"""

from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from longspan.errors import InputError
from longspan.ops import backend
from longspan.ops.backend import check_alike, describe_value

Leaves = Sequence[Float[Array | np.ndarray, "..."]]
Number = float | Float[Array, ""]
NORM_AND_CLIPPED = (jax.ShapeDtypeStruct((), jnp.float32), jax.ShapeDtypeStruct((), jnp.bool))


def clip_nesterov(
    parameters: Leaves,
    velocity: Leaves,
    gradients: Leaves,
    *,
    learning_rate: Number,
    momentum_previous: Number,
    momentum_next: Number,
    threshold: Number,
    other_squares: Number = 0.0,
) -> tuple[list[Array], list[Array], Float[Array, ""], Bool[Array, ""]]:
    """One update of all leaves: parameters, velocity, the norm before clipping, and whether it clipped.

    Args:
        parameters: theta, any number of arrays.
        velocity: v, of the same shapes.
        gradients: g, of the same shapes.
        learning_rate: eps.
        momentum_previous: mu of the previous step, which scales the old velocity.
        momentum_next: mu of this step, which looks ahead.
        threshold: the largest norm; infinity clips nothing.
        other_squares: squared norm of gradients that the caller applies elsewhere, row by row; it belongs to the
            one norm that decides about clipping.
    """
    parameters, velocity, gradients = _arrays(parameters), _arrays(velocity), _arrays(gradients)
    check_alike("update.clip_nesterov", parameters=parameters, velocity=velocity, gradients=gradients)
    numbers = _numbers(learning_rate, threshold, other_squares, momentum_previous, momentum_next)
    if not _fits(*parameters):
        norm, clipped, rate = _clip(gradients, learning_rate, threshold, other_squares)
        ahead, stride = momentum_next * momentum_previous, (1 + momentum_next) * rate
        triples = list(zip(parameters, velocity, gradients, strict=True))
        moved = [parameter + (ahead * v - stride * gradient) for parameter, v, gradient in triples]
        return moved, [momentum_previous * v - rate * gradient for _, v, gradient in triples], norm, clipped
    count = len(parameters)
    results = backend.call(
        "clip_nesterov",
        [*parameters, *velocity, *NORM_AND_CLIPPED],
        numbers,
        *parameters,
        *velocity,
        *gradients,
        aliases={1 + i: i for i in range(2 * count)},
    )
    return list(results[:count]), list(results[count : 2 * count]), results[-2], results[-1]


def clip_descend(
    parameters: Leaves,
    gradients: Leaves,
    *,
    learning_rate: Number,
    threshold: Number,
    other_squares: Number = 0.0,
) -> tuple[list[Array], Float[Array, ""], Bool[Array, ""]]:
    """`clip_nesterov` without momentum, which needs no velocity: parameters, norm before clipping, whether it clipped.

    Args:
        parameters: theta, any number of arrays.
        gradients: g, of the same shapes.
        learning_rate: eps.
        threshold: the largest norm; infinity clips nothing.
        other_squares: as for `clip_nesterov`.
    """
    parameters, gradients = _arrays(parameters), _arrays(gradients)
    check_alike("update.clip_descend", parameters=parameters, gradients=gradients)
    numbers = _numbers(learning_rate, threshold, other_squares)
    if not _fits(*parameters):
        norm, clipped, rate = _clip(gradients, learning_rate, threshold, other_squares)
        return [parameter - rate * g for parameter, g in zip(parameters, gradients, strict=True)], norm, clipped
    results = backend.call(
        "clip_descend",
        [*parameters, *NORM_AND_CLIPPED],
        numbers,
        *parameters,
        *gradients,
        aliases={1 + i: i for i in range(len(parameters))},
    )
    return list(results[:-2]), results[-2], results[-1]


def clipped_rate(
    learning_rate: Number, norm: Float[Array, ""], clipped: Bool[Array, ""], threshold: Number
) -> Float[Array, ""]:
    """What multiplies the raw gradient, once clipping is decided."""
    return learning_rate * jnp.where(clipped, threshold / norm, 1)


def _clip(gradients, learning_rate, threshold, other_squares):
    norm = jnp.sqrt(sum((jnp.sum(jnp.square(gradient)) for gradient in gradients), other_squares))
    clipped = norm > threshold
    return norm, clipped, clipped_rate(learning_rate, norm, clipped, threshold)


def _fits(*leaves: Array) -> bool:
    return backend.fits(*(leaf for leaf in leaves if leaf.size))  # these kernels pass over empty leaves


def _arrays(leaves: Leaves) -> list[Array]:
    return [jnp.asarray(leaf) for leaf in leaves]


def _numbers(*numbers: Number) -> Float[Array, " number"]:
    for number in numbers:
        if jnp.shape(number) != ():
            raise InputError(
                f"update: expected rates, momenta and threshold to be scalars, got {describe_value(number)}."
            )
    return jnp.stack([jnp.asarray(number, jnp.float32) for number in numbers])
