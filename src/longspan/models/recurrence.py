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

from longspan.kernels import matmul
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
    hidden, gain = passes.forward(*primals, activation=activation)
    return hidden, _hidden_change(primals, tangents, gain, _drive_change(primals, tangents, hidden))


leaky_scan.defjvp(_leaky_scan_tangent, symbolic_zeros=True)


@partial(jax.custom_jvp, nondiff_argnums=(0,))
def penalised_scan(
    activation: passes.Activation,
    drive: Float[Array, "time lane hidden"],
    first: Float[Array, "lane hidden"],
    recurrent: Float[Array, "hidden hidden"],
    leak: Float[Array, " hidden"],
    resets: Bool[Array, "time lane"],
    length: Int[Array, ""],
    weight: Float[Array, "time lane"],
) -> tuple[Float[Array, "time lane hidden"], Float[Array, ""]]:
    """`leaky_scan` and the sum of `w_t |h_t|` over steps, lanes and units, whose gradient joins the backward scan.

    The weights `w` are numbers: no derivative flows into them.
    """
    hidden = leaky_scan(activation, drive, first, recurrent, leak, resets, length)
    return hidden, _penalty(hidden, weight)


def _penalised_scan_tangent(activation, primals, tangents):
    *walked, weight = primals
    hidden, gain = passes.forward(*walked, activation=activation)
    change = _drive_change(walked, tangents, hidden)
    value = hidden, _penalty(hidden, weight)
    if isinstance(tangents[1], SymbolicZero):
        _, _, recurrent, leak, resets, length = walked
        residuals = (recurrent, leak, gain, resets, length, hidden, weight)
        return value, tuple(linear_map(_penalised_tangent, _penalised_adjoint, residuals, (change,)))
    hidden_change = _hidden_change(walked, tangents, gain, change)
    return value, (hidden_change, jnp.sum(weight[..., None] * jnp.sign(hidden) * hidden_change))


penalised_scan.defjvp(_penalised_scan_tangent, symbolic_zeros=True)


def _penalty(hidden, weight):
    return jnp.sum(weight * jnp.sum(jnp.abs(hidden), axis=-1))


def _penalised_tangent(residuals, operands):
    recurrent, leak, gain, resets, length, hidden, weight = residuals
    change = passes.tangent(recurrent, leak, gain, resets, length, operands[0])
    return [change, jnp.sum(weight[..., None] * jnp.sign(hidden) * change)]


def _penalised_adjoint(residuals, cotangents):
    recurrent, leak, gain, resets, length, hidden, weight = residuals
    of_hidden, of_penalty = cotangents
    weight = of_penalty * weight
    return [passes.penalised_adjoint(recurrent, leak, gain, resets, length, of_hidden, hidden, weight)]


@partial(jax.custom_jvp, nondiff_argnums=(0,))
def leaky_trace(
    activation: passes.Activation,
    drive: Float[Array, "time lane hidden"],
    first: Float[Array, "lane hidden"],
    recurrent: Float[Array, "hidden hidden"],
    leak: Float[Array, " hidden"],
    resets: Bool[Array, "time lane"],
    length: Int[Array, ""],
) -> tuple[Float[Array, "time lane hidden"], Float[Array, "time lane hidden"], Float[Array, "time lane hidden"]]:
    """`leaky_scan` with its inside: hidden states, pre-activations `z_t = h U + u_t` and the slopes `f'(z_t)`.

    The slopes are numbers: no derivative flows through them. All three are zero from `length` on.
    """
    primals = (drive, first, recurrent, leak, resets, length)
    return _inside(primals, *passes.forward(*primals, activation=activation))


def _inside(primals, hidden, gain):
    drive, first, recurrent, leak, resets, length = primals
    recurred = passes.previous_product(first, hidden, resets, length, recurrent)
    return hidden, matmul.shorten(recurred + drive, length), gain / (1 - leak)


def _leaky_trace_tangent(activation, primals, tangents):
    _, first, recurrent, _, resets, length = primals
    hidden, gain = passes.forward(*primals, activation=activation)
    change = _drive_change(primals, tangents, hidden)
    hidden_change = _hidden_change(primals, tangents, gain, change)
    before_change = previous_states(hidden_change, _materialize(tangents[1], first), resets)
    followed = linear_map(_follow, _lead, (recurrent, length), (before_change,))[0]
    inner_change = matmul.shorten(change + followed, length)
    return _inside(primals, hidden, gain), (hidden_change, inner_change, jnp.zeros_like(gain))


leaky_trace.defjvp(_leaky_trace_tangent, symbolic_zeros=True)


def _drive_change(primals, tangents, hidden):
    """How the pre-activations would change if the state before each step stayed what it is."""
    drive, first, _, _, resets, length = primals
    change = _materialize(tangents[0], drive)
    if isinstance(tangents[2], SymbolicZero):
        return change
    walked = (first, hidden, resets, length)
    return change + linear_map(_previous_product, _previous_outer, walked, (tangents[2],))[0]


def _hidden_change(primals, tangents, gain, change):
    _, _, recurrent, leak, resets, length = primals
    if isinstance(tangents[1], SymbolicZero):
        return _push(recurrent, leak, gain, resets, length, change)
    # A first state that moves is a step of its own in front of the others: unit gain, nothing before it.
    gain = jnp.concatenate([jnp.ones_like(gain[:1]), gain])
    resets = jnp.concatenate([jnp.ones_like(resets[:1]), resets])
    change = jnp.concatenate([tangents[1][None], change])
    return _push(recurrent, leak, gain, resets, length + 1, change)[1:]


def previous_states(hidden, first, resets):
    """The state each step starts from: the one before it, zero where it was reset."""
    before = jnp.concatenate([first[None], hidden[:-1]])
    return jnp.where(resets[..., None], 0, before)


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


def _follow(residuals, operands):
    recurrent, length = residuals
    return [matmul.product(operands[0], recurrent, length)]


def _lead(residuals, cotangents):
    recurrent, length = residuals
    return [matmul.product_transposed(cotangents[0], recurrent, length)]


def _materialize(tangent, primal):
    return jnp.zeros_like(primal) if isinstance(tangent, SymbolicZero) else tangent
