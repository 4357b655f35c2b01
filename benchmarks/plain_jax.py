"""The step as one writes it in JAX without longspan: `lax.scan` over time, `jax.grad`, Optax; many chunks a call.

With a rule of its own for the scan, the way back needs no more than the states: its walk yields the cotangents of all
pre-activations, and the gradient of the recurrent matrix is one product of them.
"""

import jax
import jax.numpy as jnp
import numpy as np
import optax

from .contest import Contestant, Task


def scan(u, first, drive):
    """States of all steps."""

    def step(hidden, now):
        hidden = jnp.tanh(hidden @ u + now)
        return hidden, hidden

    return jax.lax.scan(step, first, drive)[1]


@jax.custom_vjp
def scan_by_rule(u, first, drive):
    """`scan` with a derivative rule, for a first state that is a constant."""
    return scan(u, first, drive)


def _forward(u, first, drive):
    states = scan(u, first, drive)
    return states, (u, first, states)


def _backward(kept, cotangents):
    u, first, states = kept

    def step(error, now):
        cotangent, slope = now
        through = (cotangent + error) * slope
        return through @ u.T, through

    _, through = jax.lax.scan(step, jnp.zeros_like(first), (cotangents, 1 - states * states), reverse=True)
    before = jnp.concatenate([first[None], states[:-1]])
    return jnp.einsum("tbi,tbj->ij", before, through), jnp.zeros_like(first), through


scan_by_rule.defvjp(_forward, _backward)


def training(task: Task, by_rule: bool = False) -> Contestant:
    """One turn is an update for every chunk."""
    walk = scan_by_rule if by_rule else scan
    clip = optax.clip_by_global_norm(task.threshold)
    chain = optax.chain(clip, optax.sgd(task.learning_rate, momentum=task.momentum, nesterov=True))

    def loss(params, hidden, inputs, targets):
        read = params["w"][inputs] if task.symbols else inputs.astype(jnp.float32) @ params["w"]
        states = walk(params["u"], hidden, read + params["b"])
        logits = states @ params["v"] + params["c"]
        if task.symbols:
            losses = optax.softmax_cross_entropy_with_integer_labels(logits, targets)
        else:
            losses = optax.sigmoid_binary_cross_entropy(logits, targets)
        return losses.sum() / task.steps, states[-1]

    def update(running, chunk):
        params, state, hidden = running
        (value, hidden), gradient = jax.value_and_grad(loss, has_aux=True)(params, hidden, *chunk)
        changes, state = chain.update(gradient, state)
        return (optax.apply_updates(params, changes), state, hidden), value

    advance = jax.jit(lambda running, chunks: jax.lax.scan(update, running, chunks), donate_argnums=0)
    params = {name: jnp.array(value) for name, value in task.weights.items()}
    running = (params, chain.init(params), jnp.zeros((task.inputs.shape[2], params["u"].shape[0])))
    chunks = (jnp.asarray(task.inputs), jnp.asarray(task.targets))

    def turn() -> int:
        nonlocal running
        running, values = advance(running, chunks)
        np.asarray(values)
        return len(task.inputs)

    return Contestant(turn, lambda: {name: np.array(value) for name, value in running[0].items()})
