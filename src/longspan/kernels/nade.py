"""Conditional logits of NADE (section 3.3 of the paper) for frames with few keys on.

Key i of a frame x has the logit l_i = b_i + sigmoid(c + sum_{j<i} x_j W_j) . V_i, where the biases b and c
depend on the step and the weights W and V do not. The hidden vector changes only after a key that is on, so a
frame with m keys on needs m + 1 distinct ones instead of one per key. The native kernel computes exactly
those, the twin a padded number of them. The Bernoulli loss of the logits is the likelihood.
"""

from functools import partial
from typing import NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, UInt8

from longspan.kernels import library
from longspan.kernels.linear import linear_map
from longspan.kernels.matmul import scalar, shorten

Frames: TypeAlias = Float[Array, "time lanes keys"]
Targets: TypeAlias = UInt8[Array, "time lanes keys"]
Length: TypeAlias = Int[Array, ""]


class Parameters(NamedTuple):
    """What the logits depend on smoothly: biases of every step, and the weights all steps share."""

    visible_bias: Frames
    hidden_bias: Float[Array, "time lanes hidden"]
    weights: Float[Array, "keys hidden"]
    readout: Float[Array, "hidden keys"]


def logits(
    visible_bias: Frames,
    hidden_bias: Float[Array, "time lanes hidden"],
    weights: Float[Array, "keys hidden"],
    readout: Float[Array, "hidden keys"],
    targets: Targets,
    length: Length,
) -> Frames:
    """Logit of every key given the keys before it, for every step t < length.

    Args:
        visible_bias: b_t.
        hidden_bias: c_t.
        weights: W, a row for each key.
        readout: V, a column for each key.
        targets: x_t, the keys that are on.
        length: steps that count; the others have logits of zero.
    """
    return _logits(Parameters(visible_bias, hidden_bias, weights, readout), targets, length)


@jax.custom_jvp
def _logits(parameters, targets, length):
    if not library.fits(*parameters):
        return shorten(_twin(parameters, targets), length)
    operands = (*parameters, targets, scalar(length))
    return library.call("nade_logits", (parameters.visible_bias,), *operands)[0]


@_logits.defjvp
def _differentiate(primals, tangents):
    parameters, targets, length = primals
    residuals = (*parameters[1:], targets, length)
    value = _logits(parameters, targets, length)
    return value, linear_map(_tangent, _adjoint, residuals, tuple(tangents[0]))[0]


def _tangent(residuals, operands):
    *parameters, targets, length = residuals
    if not library.fits(*parameters, *operands):
        parameters = Parameters(jnp.zeros_like(operands[0]), *parameters)
        _, tangent = jax.jvp(lambda p: _twin(p, targets), (parameters,), (Parameters(*operands),))
        return [shorten(tangent, length)]
    return library.call("nade_tangent", (operands[0],), *parameters, targets, scalar(length), *operands)


def _adjoint(residuals, cotangents):
    *parameters, targets, length = residuals
    cotangent = shorten(cotangents[0], length)
    if not library.fits(*parameters, cotangent):
        parameters = Parameters(jnp.zeros_like(cotangent), *parameters)
        return list(jax.vjp(lambda p: _twin(p, targets), parameters)[1](cotangent)[0])
    operands = (*parameters, targets, scalar(length), cotangents[0])
    return [cotangent, *library.call("nade_adjoint", parameters, *operands)]


CAPACITIES = (8, 16)  # keys on in the fullest frame; beyond the last the twin goes key by key


def _twin(parameters, targets):
    fullest = targets.astype(jnp.int32).sum(-1).max()
    forms = [partial(_by_runs, capacity=capacity) for capacity in CAPACITIES]
    form = sum((fullest > capacity).astype(jnp.int32) for capacity in CAPACITIES)
    return jax.lax.switch(form, [*forms, _key_by_key], parameters, targets)


def _by_runs(parameters, targets, capacity):
    """Hidden vectors of every run up to the capacity, all their logits, of which each key keeps its run's."""
    visible_bias, hidden_bias, weights, readout = parameters
    on = targets.astype(jnp.int32)
    run_of_key = (jnp.cumsum(on, -1) - on)[:, :, None]
    runs = jnp.arange(capacity + 1)[:, None]
    before = (on[:, :, None] * (run_of_key < runs)).astype(weights.dtype)
    hidden = jax.nn.sigmoid(hidden_bias[:, :, None] + before @ weights)
    return visible_bias + jnp.where(run_of_key == runs, hidden @ readout, 0).sum(-2)


def _key_by_key(parameters, targets):
    """The definition: one hidden vector a key."""
    visible_bias, hidden_bias, weights, readout = parameters

    def step(hidden, inputs):
        on, row, column = inputs
        return hidden + on[..., None] * row, jax.nn.sigmoid(hidden) @ column

    on = jnp.moveaxis(targets.astype(weights.dtype), -1, 0)
    _, columns = jax.lax.scan(step, hidden_bias, (on, weights, readout.T))
    return visible_bias + jnp.moveaxis(columns, 0, -1)
