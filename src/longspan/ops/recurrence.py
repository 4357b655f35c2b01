"""The leaky recurrence through time (section 3.2 of the paper), with its derivative rules.

With k_t = 1 - reset_t, per lane: h_t = a k_t h_{t-1} + (1 - a) f(k_t h_{t-1} U + u_t). Its tangent is a *linear* walk
whose parameter part is one matrix product outside the walk; the transpose walks backwards. From this single rule JAX
derives the gradient, the forward tangent and the Gauss-Newton product. Steps from `length` on are zero in every result
and ignored in every argument.
"""

from collections.abc import Callable
from functools import partial
from typing import Literal, NamedTuple, TypeAlias, get_args

import jax
import jax.numpy as jnp
from jax.custom_derivatives import SymbolicZero
from jaxtyping import Array, Bool, Float, Integer

from longspan.errors import InputError
from longspan.ops import backend, linear
from longspan.ops.backend import operation
from longspan.ops.linear import instantiate, linear_map

Activation: TypeAlias = Literal["tanh", "sigmoid", "rectifier"]
Precision: TypeAlias = Literal["float32", "bfloat16"]
Steps: TypeAlias = Float[Array, "time lane hidden"]
State: TypeAlias = Float[Array, "lane hidden"]
Square: TypeAlias = Float[Array, "hidden hidden"]
Units: TypeAlias = Float[Array, " hidden"]
Resets: TypeAlias = Bool[Array, "time lane"]
Length: TypeAlias = Integer[Array, ""]


class Nonlinearity(NamedTuple):
    """f, its slope from a pre-activation and the value there, and the largest slope it has."""

    value: Callable[[Array], Array]
    slope: Callable[[Array, Array], Array]
    steepest: float


ACTIVATIONS: dict[Activation, Nonlinearity] = {
    "tanh": Nonlinearity(jnp.tanh, lambda z, value: 1 - value * value, 1.0),
    "sigmoid": Nonlinearity(jax.nn.sigmoid, lambda z, value: value * (1 - value), 0.25),
    "rectifier": Nonlinearity(jax.nn.relu, lambda z, value: (z > 0).astype(z.dtype), 1.0),
}


class Kind(NamedTuple):
    """What a walk is made for."""

    activation: Activation
    precision: Precision


@partial(jax.custom_jvp, nondiff_argnums=(1,))
def rounded(matrix: Array, precision: Precision) -> Array:
    """A matrix as a walk of that precision reads it: rounded to bfloat16, or as it is.

    The gradient passes as if nothing had been rounded, so that steps smaller than what bfloat16 can tell apart add up.
    """
    return jax.lax.reduce_precision(matrix, exponent_bits=8, mantissa_bits=7) if precision == "bfloat16" else matrix


@rounded.defjvp
def _rounded_tangent(precision, primals, tangents):
    return rounded(*primals, precision), *tangents


@operation
def leaky_scan(
    activation: Activation,
    drive: Steps,
    first: State,
    recurrent: Square,
    leak: Units,
    resets: Resets,
    length: Length,
    precision: Precision = "float32",
) -> Steps:
    """Hidden states of all steps, differentiable in the drive, the first state and the recurrent matrix.

    Args:
        activation: f.
        drive: u_t, the input of each step already multiplied by its weights.
        first: the state before the first step.
        recurrent: U, applied from the right.
        leak: a, the share of the old state that a unit keeps; a constant, into which no derivative flows.
        resets: steps before which a lane forgets its state.
        length: steps that count; the others cost nothing.
        precision: of U as it is read. With bfloat16, which is half as much to read for a single lane, U is rounded, as
            `rounded` does, and nothing else is: all sums and all gradients, that of U too, stay as precise as they are.
    """
    return _leaky_scan(_kind(activation, precision), drive, first, recurrent, leak, resets, length)


@operation
def penalized_scan(
    activation: Activation,
    drive: Steps,
    first: State,
    recurrent: Square,
    leak: Units,
    resets: Resets,
    length: Length,
    weight: Float[Array, "time lane"],
    precision: Precision = "float32",
) -> tuple[Steps, Float[Array, ""]]:
    """`leaky_scan` and the sum of `w_t |h_t|` over steps, lanes and units, whose gradient joins the backward walk.

    The weights `w` are constants, too.
    """
    kind = _kind(activation, precision)
    return _penalized_scan(kind, drive, first, recurrent, leak, resets, length, weight)


@operation
def leaky_trace(
    activation: Activation,
    drive: Steps,
    first: State,
    recurrent: Square,
    leak: Units,
    resets: Resets,
    length: Length,
    precision: Precision = "float32",
) -> tuple[Steps, Steps, Steps]:
    """`leaky_scan` with its inside: hidden states, pre-activations `z_t = h U + u_t` and the slopes `f'(z_t)`.

    No derivative flows through the slopes.
    """
    return _leaky_trace(_kind(activation, precision), drive, first, recurrent, leak, resets, length)


@operation
def forward(
    drive: Steps,
    first: State,
    recurrent: Square,
    leak: Units,
    resets: Resets,
    length: Length,
    *,
    activation: Activation,
    precision: Precision = "float32",
) -> tuple[Steps, Steps]:
    """The hidden states and the gains (1 - a) f'(...), on which the two linear walks depend."""
    kind = _kind(activation, precision)
    twin = partial(forward_twin, activation=activation)
    operands = (drive, first, rounded(recurrent, precision), leak, resets, length)
    return backend.run(_named(f"recurrence_{activation}", kind.precision), twin, [drive, drive], *operands)


@operation
def tangent(
    recurrent: Square,
    leak: Units,
    gain: Steps,
    resets: Resets,
    length: Length,
    drive_tangent: Steps,
    precision: Precision = "float32",
) -> Steps:
    """Tangent of the hidden states: dh_t = a k_t dh_{t-1} + gain_t (k_t dh_{t-1} U + du_t), dh_0 = 0."""
    operands = (rounded(recurrent, precision), leak, gain, resets, length, drive_tangent)
    return backend.run(_named("recurrence_tangent", precision), _tangent_twin, [drive_tangent], *operands)


@operation
def adjoint(
    recurrent: Square,
    leak: Units,
    gain: Steps,
    resets: Resets,
    length: Length,
    hidden_cotangent: Steps,
    precision: Precision = "float32",
) -> Steps:
    """Cotangent of the drive: gain_t e_t with e_t = c_t + k_{t+1} (a e_{t+1} + (gain_{t+1} e_{t+1}) U^T).

    It is the exact transpose of `tangent`.
    """
    operands = (rounded(recurrent, precision), leak, gain, resets, length, hidden_cotangent)
    return backend.run(_named("recurrence_adjoint", precision), _adjoint_twin, [hidden_cotangent], *operands)


@operation
def penalized_adjoint(
    recurrent: Square,
    leak: Units,
    gain: Steps,
    resets: Resets,
    length: Length,
    hidden: Steps,
    weight: Float[Array, "time lane"],
    hidden_cotangent: Steps,
    precision: Precision = "float32",
) -> Steps:
    """`adjoint` where the hidden states also pay w_t |h_t|: c_t gains w_t sign(h_t) on the way."""
    operands = (rounded(recurrent, precision), leak, gain, resets, length, hidden, weight, hidden_cotangent)
    name = _named("recurrence_penalized_adjoint", precision)
    return backend.run(name, _penalized_adjoint_twin, [hidden_cotangent], *operands)


@operation
def previous_product(
    first: State, hidden: Steps, resets: Resets, length: Length, weights: Float[Array, "hidden output"]
) -> Float[Array, "time lane output"]:
    """k_t h_{t-1} W for every step t < length: how a change of U enters the drive."""
    result = jax.ShapeDtypeStruct((*hidden.shape[:2], weights.shape[1]), hidden.dtype)
    return backend.run("recurrence_product", _previous_product_twin, [result], first, hidden, resets, length, weights)


@operation
def previous_outer(
    first: State, hidden: Steps, resets: Resets, length: Length, drive_cotangent: Float[Array, "time lane output"]
) -> Float[Array, "hidden output"]:
    """The sum over steps of (k_t h_{t-1})^T c_t: the gradient of U, the transpose of `previous_product`."""
    result = jax.ShapeDtypeStruct((hidden.shape[2], drive_cotangent.shape[2]), hidden.dtype)
    operands = (first, hidden, resets, length, drive_cotangent)
    return backend.run("recurrence_outer", _previous_outer_twin, [result], *operands)


def previous_states(first: State, hidden: Steps, resets: Resets) -> Steps:
    """The state each step starts from: the one before it, zero where it was reset."""
    return jnp.where(resets[..., None], 0, jnp.concatenate([first[None], hidden[:-1]]))


# Derivative rules.

_push = {
    precision: linear_map(partial(tangent, precision=precision), partial(adjoint, precision=precision))
    for precision in get_args(Precision)
}
follow_recurrent = linear_map(previous_product, previous_outer)
"""`previous_product` as a linear map of the matrix."""


@partial(jax.custom_jvp, nondiff_argnums=(0,))
def _leaky_scan(kind: Kind, *walked):
    return forward(*walked, **kind._asdict())[0]


def _leaky_scan_tangent(kind: Kind, primals, tangents):
    hidden, gain = forward(*primals, **kind._asdict())
    return hidden, _hidden_change(kind, primals, tangents, gain, _drive_change(primals, tangents, hidden))


_leaky_scan.defjvp(_leaky_scan_tangent, symbolic_zeros=True)


@partial(jax.custom_jvp, nondiff_argnums=(0,))
def _penalized_scan(kind: Kind, *arguments):
    *walked, weight = arguments
    hidden = _leaky_scan(kind, *walked)
    return hidden, _penalty(hidden, weight)


def _penalized_scan_tangent(kind: Kind, primals, tangents):
    *walked, weight = primals
    hidden, gain = forward(*walked, **kind._asdict())
    change = _drive_change(walked, tangents, hidden)
    value = hidden, _penalty(hidden, weight)
    if isinstance(tangents[1], SymbolicZero):
        _, _, recurrent, leak, resets, length = walked
        return value, _push_penalized[kind.precision](recurrent, leak, gain, resets, length, hidden, weight, change)
    hidden_change = _hidden_change(kind, walked, tangents, gain, change)
    return value, (hidden_change, _penalty_change(hidden, weight, hidden_change))


_penalized_scan.defjvp(_penalized_scan_tangent, symbolic_zeros=True)


def _penalty(hidden, weight):
    return jnp.sum(weight * jnp.sum(jnp.abs(hidden), axis=-1))


def _penalty_change(hidden, weight, hidden_change):
    return jnp.sum(weight[..., None] * jnp.sign(hidden) * hidden_change)


def _penalized_tangent(recurrent, leak, gain, resets, length, hidden, weight, drive_change, *, precision):
    change = tangent(recurrent, leak, gain, resets, length, drive_change, precision)
    return change, _penalty_change(hidden, weight, change)


def _penalized_pull(recurrent, leak, gain, resets, length, hidden, weight, of_hidden, of_penalty, *, precision):
    return penalized_adjoint(recurrent, leak, gain, resets, length, hidden, of_penalty * weight, of_hidden, precision)


_push_penalized = {
    precision: linear_map(
        partial(_penalized_tangent, precision=precision), partial(_penalized_pull, precision=precision)
    )
    for precision in get_args(Precision)
}


@partial(jax.custom_jvp, nondiff_argnums=(0,))
def _leaky_trace(kind: Kind, *walked):
    return _inside(kind, walked, *forward(*walked, **kind._asdict()))


def _inside(kind: Kind, walked, hidden, gain):
    drive, first, recurrent, leak, resets, length = walked
    recurred = previous_product(first, hidden, resets, length, rounded(recurrent, kind.precision))
    return hidden, linear.shorten(recurred + drive, length), gain / (1 - leak[None, None])


def _leaky_trace_tangent(kind: Kind, primals, tangents):
    _, first, recurrent, _, resets, length = primals
    hidden, gain = forward(*primals, **kind._asdict())
    change = _drive_change(primals, tangents, hidden)
    hidden_change = _hidden_change(kind, primals, tangents, gain, change)
    before_change = previous_states(instantiate(tangents[1], first), hidden_change, resets)
    walked = rounded(recurrent, kind.precision)
    inner_change = linear.shorten(change + linear.push(walked, length, before_change), length)
    return _inside(kind, primals, hidden, gain), (hidden_change, inner_change, jnp.zeros_like(gain))


_leaky_trace.defjvp(_leaky_trace_tangent, symbolic_zeros=True)


def _drive_change(primals, tangents, hidden):
    """How the pre-activations would change if the state before each step stayed what it is."""
    drive, first, _, _, resets, length = primals
    change = instantiate(tangents[0], drive)
    if isinstance(tangents[2], SymbolicZero):
        return change
    return change + follow_recurrent(first, hidden, resets, length, tangents[2])


def _hidden_change(kind: Kind, primals, tangents, gain, change):
    _, _, recurrent, leak, resets, length = primals
    push = _push[kind.precision]
    if isinstance(tangents[1], SymbolicZero):
        return push(recurrent, leak, gain, resets, length, change)
    # A first state that moves is a step of its own in front of the others: unit gain, nothing before it.
    gain = jnp.concatenate([jnp.ones_like(gain[:1]), gain])
    resets = jnp.concatenate([jnp.ones_like(resets[:1]), resets])
    change = jnp.concatenate([tangents[1][None], change])
    return push(recurrent, leak, gain, resets, length + 1, change)[1:]


# The XLA twins.


def forward_twin(drive, first, recurrent, leak, resets, length, *, activation: Activation):
    """`forward` in XLA."""
    function, leak = ACTIVATIONS[activation], leak[None]

    def step(hidden, inputs):
        drive, reset = inputs
        kept = jnp.where(reset[:, None], 0, hidden)
        z = kept @ recurrent + drive
        value = function.value(z)
        hidden = leak * kept + (1 - leak) * value
        return hidden, (hidden, (1 - leak) * function.slope(z, value))

    _, (hidden, gain) = jax.lax.scan(step, first, (drive, resets))
    return linear.shorten(hidden, length), linear.shorten(gain, length)


def _tangent_twin(recurrent, leak, gain, resets, length, drive_tangent):
    leak = leak[None]

    def step(hidden, inputs):
        gain, drive, reset = inputs
        kept = jnp.where(reset[:, None], 0, hidden)
        hidden = leak * kept + gain * (kept @ recurrent + drive)
        return hidden, hidden

    start = jnp.zeros(gain.shape[1:], gain.dtype)
    _, hidden = jax.lax.scan(step, start, (gain, drive_tangent, resets))
    return linear.shorten(hidden, length)


def _adjoint_twin(recurrent, leak, gain, resets, length, hidden_cotangent):
    leak = leak[None]

    def step(error, inputs):
        gain, cotangent, reset = inputs
        error = cotangent + error
        drive = gain * error
        return jnp.where(reset[:, None], 0, leak * error + drive @ recurrent.T), drive

    inputs = (linear.shorten(gain, length), linear.shorten(hidden_cotangent, length), resets)
    _, drive = jax.lax.scan(step, jnp.zeros(gain.shape[1:], gain.dtype), inputs, reverse=True)
    return drive


def _penalized_adjoint_twin(recurrent, leak, gain, resets, length, hidden, weight, hidden_cotangent):
    cotangent = hidden_cotangent + weight[..., None] * jnp.sign(hidden)
    return _adjoint_twin(recurrent, leak, gain, resets, length, cotangent)


def _previous_product_twin(first, hidden, resets, length, weights):
    return linear.shorten(previous_states(first, hidden, resets) @ weights, length)


def _previous_outer_twin(first, hidden, resets, length, cotangent):
    return linear.outer_twin(previous_states(first, hidden, resets), length, cotangent)


def _kind(activation: Activation, precision: Precision) -> Kind:
    if precision not in get_args(Precision):
        raise InputError(f"The precision must be one of {', '.join(get_args(Precision))}, got {precision!r}.")
    return Kind(check_activation(activation), precision)


def _named(operation: str, precision: Precision) -> str:
    """The name of a native operation for a matrix of that precision."""
    return f"{operation}_{precision}" if precision == "bfloat16" else operation


def check_activation(activation: Activation) -> Activation:
    """The activation, or an `InputError` if there is none of that name."""
    if activation not in ACTIVATIONS:
        raise InputError(f"The activation must be one of {', '.join(ACTIVATIONS)}, got {activation!r}.")
    return activation
