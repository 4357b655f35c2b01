"""Clipping by the global norm and the simplified Nesterov step (sections 3.1 and 3.5 of the paper) at once.

g is rescaled to the threshold where one norm over all leaves exceeds it; then v' = mu_prev v - eps g and
theta' = theta + mu mu_prev v - (1 + mu) eps g. Natively parameters and velocity are overwritten in place.
"""

from collections.abc import Sequence

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from longspan.kernels import library

Leaves = Sequence[Float[Array, "..."]]
Number = float | Float[Array, ""]


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
    numbers = (learning_rate, momentum_previous, momentum_next, threshold, other_squares)
    if not library.fits(*parameters, *velocity, *gradients):
        return _twin(parameters, velocity, gradients, *numbers)
    count = len(parameters)
    scalars = [
        jax.ShapeDtypeStruct((), jnp.float32),
        jax.ShapeDtypeStruct((), jnp.bool),
    ]
    results = library.call(
        "clip_nesterov",
        [*parameters, *velocity, *scalars],
        jnp.stack([jnp.asarray(number, jnp.float32) for number in numbers]),
        *parameters,
        *velocity,
        *gradients,
        aliases={1 + i: i for i in range(2 * count)},
    )
    return list(results[:count]), list(results[count : 2 * count]), results[-2], results[-1]


def _twin(parameters, velocity, gradients, learning_rate, momentum_previous, momentum_next, threshold, other_squares):
    norm = jnp.sqrt(sum((jnp.sum(jnp.square(gradient)) for gradient in gradients), other_squares))
    clipped = norm > threshold
    rate = learning_rate * jnp.where(clipped, threshold / norm, 1)
    ahead, stride = momentum_next * momentum_previous, (1 + momentum_next) * rate
    moved = [
        parameter + (ahead * v - stride * gradient)
        for parameter, v, gradient in zip(parameters, velocity, gradients, strict=True)
    ]
    faster = [momentum_previous * v - rate * g for v, g in zip(velocity, gradients, strict=True)]
    return moved, faster, norm, clipped
