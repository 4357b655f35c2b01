"""NADE likelihood: all distinct hidden vectors against the recursion over 88 keys, milliseconds in one run.

    python benchmarks/nade_likelihood.py

Frames hold four notes, as chorales do. Value and gradient of the summed loss, with respect to biases and weights.
"""

import os

os.environ.setdefault("NPROC", "1")  # one thread for both: the comparison is about work, not about cores

import time

import jax
import jax.numpy as jnp
import numpy as np

from longspan import kernels
from longspan.kernels import nade
from longspan.models.outputs import bernoulli_loss

KEYS, UNITS, NOTES, REPEATS = 88, 150, 4, 15


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


def milliseconds(logits, arguments, targets) -> float:
    """Value and gradient; best of some repeats, after one call that compiles."""

    @jax.jit
    @jax.value_and_grad
    def function(arguments, targets):
        return jnp.sum(bernoulli_loss(logits(*arguments, targets, jnp.asarray(len(targets))), targets))

    jax.block_until_ready(function(arguments, targets))
    spent = []
    for _ in range(REPEATS):
        began = time.perf_counter()
        jax.block_until_ready(function(arguments, targets))
        spent.append(time.perf_counter() - began)
    return 1e3 * min(spent)


def main() -> None:
    rng = np.random.default_rng(0)
    print(f"{KEYS} keys, {UNITS} units, {NOTES} notes a frame, {kernels.active()} kernels; ms, best of {REPEATS}")
    print(f"{'frames':>7} {'recursion':>10} {'distinct':>9} {'ratio':>6}")
    for time_steps, lanes in ((100, 1), (100, 16)):
        notes = np.argsort(rng.random((time_steps, lanes, KEYS)), axis=-1) < NOTES
        targets = jnp.asarray(notes, jnp.uint8)
        shapes = [(time_steps, lanes, KEYS), (time_steps, lanes, UNITS), (KEYS, UNITS), (UNITS, KEYS)]
        arguments = tuple(jnp.asarray(0.3 * rng.normal(size=shape), jnp.float32) for shape in shapes)
        dense, sparse = (milliseconds(function, arguments, targets) for function in (recursion, nade.logits))
        print(f"{time_steps * lanes:>7,} {dense:>10.2f} {sparse:>9.2f} {dense / sparse:>5.1f}x", flush=True)


if __name__ == "__main__":
    main()
