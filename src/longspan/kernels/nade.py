"""Conditional logits of NADE (section 3.3 of the paper) for frames with few keys on.

Key i of a frame x has the logit l_i = b_i + sigmoid(c + sum_{j<i} x_j W_j) . V_i, where the biases b and c
depend on the step and the weights W and V do not. The hidden vector changes only after a key that is on, so a
frame with m keys on needs m + 1 distinct ones instead of one per key. The native kernel computes exactly
those. The Bernoulli loss of the logits is the likelihood.
"""

from typing import NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, UInt8

from longspan.kernels import library
from longspan.kernels import nade_twin as twin
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
    parameters = Parameters(*map(jnp.asarray, (visible_bias, hidden_bias, weights, readout)))
    return _logits(parameters, jnp.asarray(targets), jnp.asarray(length))


@jax.custom_jvp
def _logits(parameters, targets, length):
    if not library.fits(*parameters):
        visible_bias, hidden_bias, weights, readout = parameters
        return shorten(visible_bias, length) + twin.forward(hidden_bias, weights, readout, targets, length)
    operands = (*parameters, targets, scalar(length))
    return library.call("nade_logits", (parameters.visible_bias,), *operands)[0]


@_logits.defjvp
def _differentiate(primals, tangents):
    parameters, targets, length = primals
    residuals = (*parameters[1:], targets, length)
    value = _logits(parameters, targets, length)
    return value, linear_map(_tangent, _adjoint, residuals, tuple(tangents[0]))[0]


def _tangent(residuals, operands):
    hidden_bias, weights, readout, targets, length = residuals
    if not library.fits(hidden_bias, weights, readout, *operands):
        visible_change, *changes = operands
        pushed = twin.tangent(hidden_bias, weights, readout, targets, length, changes)
        return [shorten(visible_change, length) + pushed]
    fixed = (hidden_bias, weights, readout, targets, scalar(length))
    return library.call("nade_tangent", (operands[0],), *fixed, *operands)


def _adjoint(residuals, cotangents):
    hidden_bias, weights, readout, targets, length = residuals
    cotangent = shorten(cotangents[0], length)
    if not library.fits(hidden_bias, weights, readout, cotangent):
        return [cotangent, *twin.adjoint(hidden_bias, weights, readout, targets, length, cotangent)]
    operands = (hidden_bias, weights, readout, targets, scalar(length), cotangents[0])
    return [cotangent, *library.call("nade_adjoint", operands[:3], *operands)]
