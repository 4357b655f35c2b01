"""Time, written once: hidden states of a whole chunk, with the derivative rules of the leaky family.

The tangent of `h_t = a h + (1-a) f(h U + u_t)` is a *linear* scan whose parameter part is one matrix product
outside the scan; its transpose is the backward scan. From this single rule JAX derives the gradient, the forward
tangent and the Gauss-Newton product. Any other cell runs by the generic scan of `Cell.run`.
"""

from functools import partial

import jax
import jax.numpy as jnp
from jax.custom_derivatives import SymbolicZero
from jaxtyping import Array, Bool, Float, Int

from longspan.kernels import recurrence as passes
from longspan.kernels.linear import linear_map


@partial(jax.custom_jvp, nondiff_argnums=(0,))
def leaky_scan(
    activation: passes.Activation,
    drive: Float[Array, "time lane hidden"],
    first: Float[Array, "lane hidden"],
    recurrent: Float[Array, "hidden hidden"],
    leak: Float[Array, " hidden"],
    resets: Bool[Array, "time lane"],
    length: Int[Array, ""],
) -> Float[Array, "time lane hidden"]:
    """Hidden states `h_t = a h + (1-a) f(h U + u_t)` where `h` is `h_{t-1}`, or zero where `resets` is set.

    `leak` (the paper's alpha) is a constant: no derivative flows into it. Steps from `length` on are padding:
    their hidden states are zero.
    """
    hidden, _ = passes.forward(drive, first, recurrent, leak, resets, length, activation=activation)
    return hidden


def _leaky_scan_tangent(activation, primals, tangents):
    drive, first, recurrent, leak, resets, length = primals
    drive_tangent, first_tangent, recurrent_tangent, *_ = tangents
    hidden, gain = passes.forward(drive, first, recurrent, leak, resets, length, activation=activation)

    change = _materialize(drive_tangent, drive)
    if not isinstance(recurrent_tangent, SymbolicZero):
        walked = (first, hidden, resets, length)
        change = change + linear_map(_previous_product, _previous_outer, walked, (recurrent_tangent,))[0]
    if isinstance(first_tangent, SymbolicZero):
        return hidden, _push(recurrent, leak, gain, resets, length, change)
    # A first state that moves is a step of its own in front of the others: unit gain, nothing before it.
    gain = jnp.concatenate([jnp.ones_like(gain[:1]), gain])
    resets = jnp.concatenate([jnp.ones_like(resets[:1]), resets])
    change = jnp.concatenate([first_tangent[None], change])
    return hidden, _push(recurrent, leak, gain, resets, length + 1, change)[1:]


leaky_scan.defjvp(_leaky_scan_tangent, symbolic_zeros=True)


def _push(recurrent, leak, gain, resets, length, change):
    return linear_map(_tangent, _adjoint, (recurrent, leak, gain, resets, length), (change,))[0]


def _tangent(residuals, operands):
    recurrent, leak, gain, resets, length = residuals
    return [passes.tangent(recurrent, leak, gain, resets, length, operands[0])]


def _adjoint(residuals, cotangents):
    recurrent, leak, gain, resets, length = residuals
    return [passes.adjoint(recurrent, leak, gain, resets, length, cotangents[0])]


def _previous_product(residuals, operands):
    first, hidden, resets, length = residuals
    return [passes.previous_product(first, hidden, resets, length, operands[0])]


def _previous_outer(residuals, cotangents):
    first, hidden, resets, length = residuals
    return [passes.previous_outer(first, hidden, resets, length, cotangents[0])]


def _materialize(tangent, primal):
    return jnp.zeros_like(primal) if isinstance(tangent, SymbolicZero) else tangent
