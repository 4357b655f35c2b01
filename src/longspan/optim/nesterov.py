"""Simplified Nesterov momentum (section 3.5), for momentum and learning rates that change with time.

The parameters kept are the paper's peeked-ahead ones, so the gradient is always taken where the parameters are.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Int, PyTree

Schedule = Callable[[Int[Array, ""]], Float[Array, ""]]


class NesterovState(NamedTuple):
    """`velocity` is the paper's v; `scale` multiplies the learning rate and is the driver's to change."""

    step: Int[Array, ""]
    velocity: PyTree
    scale: Float[Array, ""]


def nesterov(learning_rate: float | Schedule, momentum: float | Schedule = 0.0) -> optax.GradientTransformation:
    r"""Simplified Nesterov momentum.

    .. math::
        v_t = \mu_{t-1} v_{t-1} - \epsilon_{t-1} \nabla f(\Theta_{t-1}), \qquad
        \Theta_t = \Theta_{t-1} + \mu_t \mu_{t-1} v_{t-1} - (1 + \mu_t) \epsilon_{t-1} \nabla f(\Theta_{t-1})

    With constant settings this is `optax.sgd(learning_rate, momentum, nesterov=True)`; with a momentum of zero it
    is plain gradient descent. Unlike the usual library forms it stays equal to Nesterov's method when the
    momentum is scheduled, because both the old and the new coefficient enter.

    Args:
        learning_rate: a number, or a function of the number of updates done.
        momentum: likewise, the paper's mu, in [0, 1).

    Example:
        >>> transformation = nesterov(0.1, momentum=0.9)
        >>> params = jnp.array([1.0])
        >>> state = transformation.init(params)
        >>> updates, state = transformation.update(params, state)
        >>> round(float(updates[0]), 6)
        -0.19

    Reference: equations 6 and 7 of the paper; Sutskever's thesis, 2012.
    """
    rate, decay = as_schedule(learning_rate), as_schedule(momentum)

    def init(params):
        return NesterovState(jnp.zeros((), jnp.int32), jax.tree.map(jnp.zeros_like, params), jnp.ones(()))

    def update(updates, state, params=None):
        del params
        gradient = updates  # Optax names what comes in by what goes out
        epsilon = rate(state.step) * state.scale
        mu_previous, mu = decay(state.step), decay(state.step + 1)
        updates = jax.tree.map(lambda v, g: mu * mu_previous * v - (1 + mu) * epsilon * g, state.velocity, gradient)
        velocity = jax.tree.map(lambda v, g: mu_previous * v - epsilon * g, state.velocity, gradient)
        return updates, NesterovState(state.step + 1, velocity, state.scale)

    return optax.GradientTransformation(init, update)


def as_schedule(value: float | Schedule) -> Schedule:
    """A schedule as it is, a number as the schedule that never changes."""
    return value if callable(value) else lambda step: jnp.asarray(value, jnp.float32)


def ramp(ceiling: float, period: float = 250.0) -> Schedule:
    """Sutskever's momentum ramp `min(1 - 2^(-1 - log2(floor(t / period) + 1)), ceiling)`: 0.5, 0.75, 0.83, ..."""
    return lambda step: jnp.minimum(1 - 0.5 / (jnp.floor(step / period) + 1), ceiling)


def inverse_decay(initial: float, tau: float) -> Schedule:
    """A learning rate that falls as `initial / (1 + t / tau)`."""
    return lambda step: initial / (1 + step / tau)
