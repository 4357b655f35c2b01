"""The paper's steps as Optax transformations (clipping, Nesterov momentum), their schedules, and averaged weights."""

from collections.abc import Callable
from typing import NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import optax
from jax.tree_util import Partial
from jaxtyping import Array, Bool, Float, Int, PyTree


class ClipState(NamedTuple):
    """The norm seen by the last update; the next update does not need it."""

    norm: Float[Array, ""]
    clipped: Bool[Array, ""]


def clip_by_norm(threshold: float) -> optax.GradientTransformation:
    """Rescale the whole gradient to norm `threshold` when it is longer.

    `g -> g * threshold / ||g||` if `||g|| > threshold`, else `g`. The direction is kept, so the update stays a
    descent direction. Equals `optax.clip_by_global_norm`, but also records the norm before clipping, which shows
        whether gradients explode. A threshold of infinity clips nothing.

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


Schedule = Callable[[Int[Array, ""]], Float[Array, ""]]


class NesterovState(NamedTuple):
    """`velocity` is the paper's v; `scale` multiplies the learning rate and may be changed by the driver."""

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
        gradient = updates  # Optax calls its input updates
        epsilon = rate(state.step) * state.scale
        mu_previous, mu = decay(state.step), decay(state.step + 1)
        updates = jax.tree.map(lambda v, g: mu * mu_previous * v - (1 + mu) * epsilon * g, state.velocity, gradient)
        velocity = jax.tree.map(lambda v, g: mu_previous * v - epsilon * g, state.velocity, gradient)
        return updates, NesterovState(state.step + 1, velocity, state.scale)

    return optax.GradientTransformation(init, update)


def as_schedule(value: float | Schedule) -> Schedule:
    """Return a schedule unchanged, and a number as a constant schedule."""
    return value if callable(value) else Partial(_constant, value)


def ramp(ceiling: float, period: float = 250.0) -> Schedule:
    """Sutskever's momentum ramp `min(1 - 2^(-1 - log2(floor(t / period) + 1)), ceiling)`: 0.5, 0.75, 0.83, ..."""
    return Partial(_ramp, ceiling, period)


def inverse_decay(initial: float, tau: float) -> Schedule:
    """A learning rate that falls as `initial / (1 + t / tau)`."""
    return Partial(_inverse_decay, initial, tau)


# Schedules are trees of their numbers, so that programs which take these as arguments serve all of them.
def _constant(value, step):
    del step
    return jnp.asarray(value, jnp.float32)


def _ramp(ceiling, period, step):
    return jnp.minimum(1 - 0.5 / (jnp.floor(jnp.asarray(step, jnp.float32) / period) + 1), ceiling)


def _inverse_decay(initial, tau, step):
    return initial / (1 + jnp.asarray(step, jnp.float32) / tau)


Params = TypeVar("Params")

SHARE_OF_ALL = 1 / 4
"""The average covers at most this fraction of the updates so far, because early weights are far from the solution."""


def running_mean(mean: Params, params: Params, *, made: int, since: int, reach: float) -> Params:
    r"""Update a running mean of the weights.

    .. math:: \bar\theta \leftarrow \bar\theta + s (\theta - \bar\theta), \quad
        s = \min\big(1, \text{since} / \min(\text{reach}, \text{made} / 4)\big)

    Args:
        mean: the mean so far.
        params: the current weights.
        made: number of updates made so far.
        since: number of those updates since the mean was last updated.
        reach: approximate number of updates to average over, once four times as many have been made.

    Example:
        >>> float(running_mean(0.0, 1.0, made=100, since=1, reach=4.0))
        0.25
    """
    return _moved(mean, params, min(1.0, since / min(reach, SHARE_OF_ALL * made)))


@jax.jit
def _moved(mean, params, share):
    return jax.tree.map(lambda old, new: old + share * (new - old), mean, params)
