"""The three passes of the leaky recurrence: forward, tangent and adjoint, in plain XLA."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

ACTIVATIONS = {"tanh": jnp.tanh, "sigmoid": jax.nn.sigmoid, "rectifier": jax.nn.relu}
SLOPES = {
    "tanh": lambda value: 1 - value * value,
    "sigmoid": lambda value: value * (1 - value),
    "rectifier": lambda value: (value > 0).astype(value.dtype),
}


def forward(drive, first, recurrent, leak, resets, length, *, activation):
    """Run the recurrence; returns hidden states and `(1 - leak) f'(z)`, the gain of each unit at each step."""

    def step(hidden, now):
        drive_now, keep = now
        hidden = hidden * keep
        value = ACTIVATIONS[activation](hidden @ recurrent + drive_now)
        hidden = leak * hidden + (1 - leak) * value
        return hidden, (hidden, (1 - leak) * SLOPES[activation](value))

    _, (hidden, gain) = jax.lax.scan(step, first, (drive, _keep(resets, drive.dtype)))
    inside = _inside(length, drive)
    return jnp.where(inside, hidden, 0), jnp.where(inside, gain, 0)


def tangent(recurrent, leak, gain, resets, length, drive_tangent):
    """Push a change of the drive forward through time to the change of the hidden states."""

    def step(change, now):
        gain_now, keep, drive_now = now
        change = change * keep
        change = leak * change + gain_now * (change @ recurrent + drive_now)
        return change, change

    inside = _inside(length, drive_tangent)
    start = jnp.zeros_like(drive_tangent[0])
    _, change = jax.lax.scan(step, start, (gain, _keep(resets, gain.dtype), jnp.where(inside, drive_tangent, 0)))
    return jnp.where(inside, change, 0)


def adjoint(recurrent, leak, gain, resets, length, hidden_cotangent):
    """The exact transpose of `tangent`: pull a cotangent of the hidden states back to the drive."""

    def step(pulled, now):
        gain_now, keep, cotangent_now = now
        total = cotangent_now + pulled
        drive_now = gain_now * total
        return keep * (leak * total + drive_now @ recurrent.T), drive_now

    inside = _inside(length, hidden_cotangent)
    _, drive = jax.lax.scan(
        step,
        jnp.zeros_like(hidden_cotangent[0]),
        (gain, _keep(resets, gain.dtype), jnp.where(inside, hidden_cotangent, 0)),
        reverse=True,
    )
    return drive


def _keep(resets: Bool[Array, "time lane"], dtype) -> Float[Array, "time lane 1"]:
    return (~resets)[..., None].astype(dtype)


def _inside(length: Int[Array, ""], like) -> Bool[Array, "time 1 1"]:
    return (jnp.arange(like.shape[0]) < length)[:, None, None]
