"""NADE's likelihood and gradient: all distinct hidden vectors against the recursion over 88 keys.

Frames hold four notes, as chorales do; derivatives are with respect to biases and weights.
"""

import jax
import jax.numpy as jnp
import numpy as np

from longspan.models.outputs import bernoulli_loss
from longspan.ops import outputs

from .contest import Turn, ratios, seconds_per_update
from .ours import kernels

KEYS, UNITS, NOTES = 88, 150, 4
FRAMES = [(100, 1), (100, 16)]


def recursion(visible_bias, hidden_bias, weights, readout, targets, length):
    """One hidden vector a key, each from the one before it, differentiated by JAX."""
    del length
    keys = visible_bias.shape[-1]

    def step(pre_activation, now):
        bias, weight, read, on = now
        logit = bias + jax.nn.sigmoid(pre_activation) @ read
        return pre_activation + on[:, None] * weight, logit

    # Frames in one axis: the matrix products are faster so.
    frames = targets.reshape(-1, keys).astype(visible_bias.dtype)
    by_key = (visible_bias.reshape(-1, keys).T, weights, readout.T, frames.T)
    _, logits = jax.lax.scan(step, hidden_bias.reshape(len(frames), -1), by_key)
    return logits.T.reshape(visible_bias.shape)


def contestant(logits, arguments, targets, which: str = "native") -> Turn:
    """Value and gradient of the summed loss."""

    @jax.jit
    @jax.value_and_grad
    def function(arguments, targets):
        return jnp.sum(bernoulli_loss(logits(*arguments, targets, jnp.asarray(len(targets))), targets))

    def turn() -> int:
        with kernels(which):
            jax.block_until_ready(function(arguments, targets))
        return 1

    return turn


def measure() -> dict:
    """Seconds by number of frames."""
    rng = np.random.default_rng(0)
    found = {}
    for time_steps, lanes in FRAMES:
        notes = np.argsort(rng.random((time_steps, lanes, KEYS)), axis=-1) < NOTES
        targets = jnp.asarray(notes, jnp.uint8)
        shapes = [(time_steps, lanes, KEYS), (time_steps, lanes, UNITS), (KEYS, UNITS), (UNITS, KEYS)]
        arguments = tuple(jnp.asarray(0.3 * rng.normal(size=shape), jnp.float32) for shape in shapes)
        seconds = seconds_per_update(
            {
                "longspan": contestant(outputs.nade_logits, arguments, targets),
                "longspan in XLA": contestant(outputs.nade_logits, arguments, targets, "xla"),
                "recursion": contestant(recursion, arguments, targets, "xla"),
            },
            rounds=21,
        )
        found[f"{time_steps * lanes} frames"] = {"seconds": seconds, "ratios": ratios(seconds)}
    return {"keys": KEYS, "units": UNITS, "notes": NOTES, "by_frames": found}


def table(figures: dict) -> list[list[str]]:
    """Milliseconds and ratios."""
    rows = [["frames", "longspan ms", "in XLA", "recursion"]]
    for frames, found in figures["by_frames"].items():
        ratio = found["ratios"]
        own = f"{1e3 * found['seconds']['longspan']:.2f}"
        rows.append([frames, own, f"{ratio['longspan in XLA']:.1f}x", f"{ratio['recursion']:.1f}x"])
    return rows
