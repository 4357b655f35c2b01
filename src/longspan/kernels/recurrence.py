"""The leaky recurrence through time (section 3.2 of the paper), its tangent and its adjoint.

With k_t = 1 - reset_t, per lane: h_t = a k_t h_{t-1} + (1 - a) f(k_t h_{t-1} U + u_t). `forward` also returns
gain_t = (1 - a) f'(...), on which the two linear walks depend; `adjoint` is the exact transpose of `tangent`.
Steps from `length` on are zero in every result and ignored in every argument. Derivative rules live in
`longspan.models.recurrence`.
"""

from typing import Literal, TypeAlias

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from longspan.kernels import library
from longspan.kernels.matmul import outer, product, scalar, shorten

Activation: TypeAlias = Literal["tanh", "sigmoid", "rectifier"]
Steps: TypeAlias = Float[Array, "time lanes units"]
State: TypeAlias = Float[Array, "lanes units"]
Square: TypeAlias = Float[Array, "units units"]
Units: TypeAlias = Float[Array, " units"]
Resets: TypeAlias = Bool[Array, "time lanes"]
Length: TypeAlias = Int[Array, ""]


def forward(
    drive: Steps,
    first: State,
    recurrent: Square,
    leak: Units,
    resets: Resets,
    length: Length,
    *,
    activation: Activation,
) -> tuple[Steps, Steps]:
    """Walks through time and returns the hidden states and the gains.

    Args:
        drive: u_t, the input of each step already multiplied by its weights.
        first: the state before the first step.
        recurrent: U, applied from the right.
        leak: a, the share of the old state that a unit keeps.
        resets: steps before which a lane forgets its state.
        length: steps that count; the others cost nothing.
        activation: f.
    """
    if not library.fits(drive, first, recurrent, leak):
        return forward_twin(drive, first, recurrent, leak, resets, length, activation=activation)
    operation = f"recurrence_{activation}"
    return library.call(operation, (drive, drive), recurrent, leak, resets, scalar(length), drive, first)


def tangent(recurrent: Square, leak: Units, gain: Steps, resets: Resets, length: Length, drive_tangent: Steps) -> Steps:
    """Tangent of the hidden states: dh_t = a k_t dh_{t-1} + gain_t (k_t dh_{t-1} U + du_t), dh_0 = 0."""
    if not library.fits(recurrent, leak, gain, drive_tangent):
        return tangent_twin(recurrent, leak, gain, resets, length, drive_tangent)
    operands = (recurrent, leak, resets, scalar(length), gain, drive_tangent)
    return library.call("recurrence_tangent", (drive_tangent,), *operands)[0]


def adjoint(
    recurrent: Square, leak: Units, gain: Steps, resets: Resets, length: Length, hidden_cotangent: Steps
) -> Steps:
    """Cotangent of the drive: gain_t e_t with e_t = c_t + k_{t+1} (a e_{t+1} + (gain_{t+1} e_{t+1}) U^T)."""
    if not library.fits(recurrent, leak, gain, hidden_cotangent):
        return adjoint_twin(recurrent, leak, gain, resets, length, hidden_cotangent)
    operands = (recurrent, leak, resets, scalar(length), gain, hidden_cotangent)
    return library.call("recurrence_adjoint", (hidden_cotangent,), *operands)[0]


def penalised_adjoint(
    recurrent: Square,
    leak: Units,
    gain: Steps,
    resets: Resets,
    length: Length,
    hidden_cotangent: Steps,
    hidden: Steps,
    weight: Float[Array, "time lanes"],
) -> Steps:
    """`adjoint` where the hidden states also pay w_t |h_t|: c_t gains w_t sign(h_t) on the way."""
    if not library.fits(recurrent, leak, gain, hidden_cotangent, hidden, weight):
        cotangent = hidden_cotangent + weight[..., None] * jnp.sign(hidden)
        return adjoint_twin(recurrent, leak, gain, resets, length, cotangent)
    operands = (recurrent, leak, resets, scalar(length), gain, hidden_cotangent, hidden, weight)
    return library.call("recurrence_penalised_adjoint", (hidden_cotangent,), *operands)[0]


def previous_product(first: State, hidden: Steps, resets: Resets, length: Length, weights: Square) -> Steps:
    """k_t h_{t-1} W for every step t < length: how a change of U enters the drive."""
    if not library.fits(first, hidden, weights):
        return product(_previous(first, hidden, resets), weights, length)
    return library.call("recurrence_product", (hidden,), first, hidden, resets, scalar(length), weights)[0]


def previous_outer(first: State, hidden: Steps, resets: Resets, length: Length, drive_cotangent: Steps) -> Square:
    """The sum over steps of (k_t h_{t-1})^T c_t: the gradient of U, the transpose of `previous_product`."""
    if not library.fits(first, hidden, drive_cotangent):
        return outer(_previous(first, hidden, resets), drive_cotangent, length)
    result = jax.ShapeDtypeStruct((hidden.shape[2],) * 2, hidden.dtype)
    operands = (first, hidden, resets, scalar(length), drive_cotangent)
    return library.call("recurrence_outer", (result,), *operands)[0]


def forward_twin(
    drive: Steps,
    first: State,
    recurrent: Square,
    leak: Units,
    resets: Resets,
    length: Length,
    *,
    activation: Activation,
) -> tuple[Steps, Steps]:
    """`forward` in XLA."""

    def step(hidden, inputs):
        drive, reset = inputs
        kept = jnp.where(reset[:, None], 0, hidden)
        value, slope = _activate(kept @ recurrent + drive, activation)
        hidden = leak * kept + (1 - leak) * value
        return hidden, (hidden, (1 - leak) * slope)

    _, (hidden, gain) = jax.lax.scan(step, first, (drive, resets))
    return shorten(hidden, length), shorten(gain, length)


def tangent_twin(
    recurrent: Square, leak: Units, gain: Steps, resets: Resets, length: Length, drive_tangent: Steps
) -> Steps:
    """`tangent` in XLA."""

    def step(hidden, inputs):
        gain, drive, reset = inputs
        kept = jnp.where(reset[:, None], 0, hidden)
        hidden = leak * kept + gain * (kept @ recurrent + drive)
        return hidden, hidden

    _, hidden = jax.lax.scan(step, jnp.zeros_like(gain[0]), (gain, drive_tangent, resets))
    return shorten(hidden, length)


def adjoint_twin(
    recurrent: Square, leak: Units, gain: Steps, resets: Resets, length: Length, hidden_cotangent: Steps
) -> Steps:
    """`adjoint` in XLA."""

    def step(error, inputs):
        gain, cotangent, reset = inputs
        error = cotangent + error
        drive = gain * error
        return jnp.where(reset[:, None], 0, leak * error + drive @ recurrent.T), drive

    inputs = (shorten(gain, length), shorten(hidden_cotangent, length), resets)
    _, drive = jax.lax.scan(step, jnp.zeros_like(gain[0]), inputs, reverse=True)
    return drive


def _previous(first: State, hidden: Steps, resets: Resets) -> Steps:
    return jnp.where(resets[..., None], 0, jnp.concatenate([first[None], hidden[:-1]]))


def _activate(z: Array, activation: Activation) -> tuple[Array, Array]:
    if activation == "tanh":
        value = jnp.tanh(z)
        return value, 1 - value * value
    if activation == "sigmoid":
        value = jax.nn.sigmoid(z)
        return value, value * (1 - value)
    return jnp.maximum(z, 0), (z > 0).astype(z.dtype)
