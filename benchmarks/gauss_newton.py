"""Seconds per Gauss-Newton product: beside one gradient, and beside the same product by `jax.jvp` and `jax.vjp`.

The network is the paper's on music: tanh units, 88 independent keys, chunks of 100 frames side by side. Ours is the
product that conjugate gradient makes, on a network linearized once; the naive one is what one writes for any JAX
network, through `lax.scan`.
"""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from longspan.config import TrainConfig
from longspan.models.model import build
from longspan.models.outputs import bernoulli_loss
from longspan.models.parts import split_constants
from longspan.ops import backend
from longspan.optim.curvature import linearize, objective, without_structure
from longspan.training.objective import Objective
from longspan.training.second_order import Sequences, loss, network

from .contest import Turn, seconds_per_update

KEYS, NOTES, STEPS, UNITS, SEQUENCES, ROUNDS = 88, 4, 100, 200, 32, 41


def draw_sequences(model, constants) -> Sequences:
    """Random frames of four notes, all sequences full."""
    rng = np.random.default_rng(0)
    notes = np.argsort(rng.random((STEPS + 1, SEQUENCES, KEYS)), axis=-1) < NOTES
    frames = jnp.asarray(notes, jnp.uint8)
    shape = (STEPS, SEQUENCES)
    return Sequences(
        frames[:-1],
        frames[1:],
        resets=jnp.zeros(shape, bool),
        mask=jnp.ones(shape, bool),
        first=model.start(SEQUENCES),
        steps=jnp.full(SEQUENCES, STEPS, jnp.int32),
        scale=jnp.float32(1 / STEPS),
        inner_scale=jnp.float32(1),
        constants=constants,
    )


def naive_network(params, batch):
    """The same logits by a scan that JAX differentiates."""
    cell, output = params.cell, params.output

    def step(hidden, frame):
        hidden = jnp.tanh(hidden @ cell.recurrent + frame @ cell.input_weights + cell.bias)
        return hidden, hidden @ output.weights + output.bias

    return jax.lax.scan(step, batch.first, batch.inputs.astype(jnp.float32))[1]


def naive_loss(logits, batch):
    """The same objective as ours."""
    return jnp.sum(bernoulli_loss(logits, batch.targets)) / batch.mask.size


@jax.jit
def naive_product(params, batch, vector):
    """Tangent of the network, product with the Hessian of the loss, adjoint of the network."""
    logits, change = jax.jvp(lambda params: naive_network(params, batch), (params,), (vector,))
    _, curved = jax.jvp(jax.grad(lambda logits: naive_loss(logits, batch)), (logits,), (change,))
    _, pull = jax.vjp(lambda params: naive_network(params, batch), params)
    return pull(curved)[0]


def once(function) -> Turn:
    """A turn of one call."""

    def turn() -> int:
        jax.block_until_ready(function())
        return 1

    return turn


def measure() -> dict:
    """Seconds of each, and the ratios that matter."""
    config = TrainConfig(hidden_size=UNITS)
    model = build(config, KEYS, np.full(KEYS, NOTES / KEYS), key=jax.random.key(0))
    params, constants = split_constants(model)
    batch = draw_sequences(model, constants)
    vector = jax.tree.map(lambda leaf: jax.random.normal(jax.random.key(1), leaf.shape), params)
    bare = Objective(scale=1.0)
    undropped, bare_loss = partial(network, bare), partial(loss, bare)
    plain = without_structure(undropped)
    gradient = jax.jit(jax.grad(partial(objective, plain, bare_loss)))
    naive_gradient = jax.jit(jax.grad(lambda params, batch: naive_loss(naive_network(params, batch), batch)))
    curvature = jax.jit(partial(linearize, plain, bare_loss))(params, batch)
    damped = jax.jit(partial(linearize, undropped, bare_loss))(params, batch)
    product = jax.jit(lambda curvature, vector: curvature(vector, 0.5))
    calls = {
        "gradient": lambda: gradient(params, batch),
        "product": lambda: product(curvature, vector),
        "product with structural damping": lambda: product(damped, vector),
        "naive gradient": lambda: naive_gradient(params, batch),
        "naive product": lambda: naive_product(params, batch, vector),
    }
    seconds = seconds_per_update({name: once(call) for name, call in calls.items()}, ROUNDS)
    ours, theirs = product(curvature, vector), naive_product(params, batch, vector)
    pairs = zip(jax.tree.leaves(ours), jax.tree.leaves(theirs), strict=True)
    return {
        "shape": {"units": UNITS, "steps": STEPS, "sequences": SEQUENCES, "keys": KEYS},
        "kernels": backend.active(),
        "seconds": seconds,
        "product_over_gradient": seconds["product"] / seconds["gradient"],
        "damped_product_over_gradient": seconds["product with structural damping"] / seconds["gradient"],
        "naive_over_ours": seconds["naive product"] / seconds["product"],
        "largest_difference": max(float(jnp.max(jnp.abs(a - b)) / jnp.max(jnp.abs(b))) for a, b in pairs),
    }


def table(figures: dict) -> list[list[str]]:
    """Milliseconds of each, and how many gradients of ours that is."""
    seconds = figures["seconds"]
    rows = [[name, f"{1e3 * value:.2f}", f"{value / seconds['gradient']:.2f}"] for name, value in seconds.items()]
    return [["what", "ms", "gradients"], *rows]
