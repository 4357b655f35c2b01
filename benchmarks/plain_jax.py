"""The step as one writes it in JAX without longspan: `lax.scan` over time, `jax.grad`, Optax; many chunks a call."""

import jax
import jax.numpy as jnp
import numpy as np
import optax

from .contest import Turn


def training(inputs: np.ndarray, targets: np.ndarray, units: int, outputs: int) -> Turn:
    """One turn is an update for every chunk.

    Args:
        inputs: chunks x time x lanes x size, on or off, or without the last axis symbols.
        targets: like them.
        units: hidden size.
        outputs: keys or symbols.
    """
    rng = np.random.default_rng(0)
    symbols = inputs.ndim == 3
    shapes = {"w": (outputs, units), "u": (units, units), "b": (units,), "v": (units, outputs), "c": (outputs,)}
    params = {name: jnp.asarray(0.05 * rng.normal(size=shape), jnp.float32) for name, shape in shapes.items()}
    chain = optax.chain(optax.clip_by_global_norm(15.0), optax.sgd(1e-3, momentum=0.9, nesterov=True))
    steps = inputs.shape[1] * inputs.shape[2]

    def loss(params, hidden, inputs, targets):
        drive = (params["w"][inputs] if symbols else inputs.astype(jnp.float32) @ params["w"]) + params["b"]

        def step(hidden, now):
            hidden = jnp.tanh(hidden @ params["u"] + now)
            return hidden, hidden

        last, states = jax.lax.scan(step, hidden, drive)
        logits = states @ params["v"] + params["c"]
        if symbols:
            losses = optax.softmax_cross_entropy_with_integer_labels(logits, targets)
        else:
            losses = optax.sigmoid_binary_cross_entropy(logits, targets)
        return losses.sum() / steps, last

    def update(running, chunk):
        params, state, hidden = running
        (value, hidden), gradient = jax.value_and_grad(loss, has_aux=True)(params, hidden, *chunk)
        changes, state = chain.update(gradient, state)
        return (optax.apply_updates(params, changes), state, hidden), value

    advance = jax.jit(lambda running, chunks: jax.lax.scan(update, running, chunks), donate_argnums=0)
    running = (params, chain.init(params), jnp.zeros((inputs.shape[2], units)))
    chunks = (jnp.asarray(inputs), jnp.asarray(targets))

    def turn() -> int:
        nonlocal running
        running, values = advance(running, chunks)
        np.asarray(values)
        return len(inputs)

    return turn
