"""Train a deep autoencoder, a model from outside the package, with the Hessian-free optimizer and with momentum.

The optimizer asks for two functions: a network, and a loss convex in the network's outputs. The data are
images of random smooth curves, after Hinton and Salakhutdinov (2006); six numbers decide each of them, so a
code of six units should do. Both methods get the same number of passes over the data, a pass being one
forward and one backward run; momentum is given several learning rates to choose from.

    python examples/hessian_free_autoencoder.py
"""

import time
from functools import partial
from itertools import pairwise

import jax
import jax.numpy as jnp
import numpy as np
import optax

from longspan.optim.hessian_free import HessianFree, HessianFreeInfo, HessianFreeSettings

SIDE = 12
LAYERS = (SIDE * SIDE, 64, 24, 6, 24, 64, SIDE * SIDE)
LEARNING_RATES = (0.001, 0.003, 0.01)
MINIBATCH = 50
SETTINGS = HessianFreeSettings(initial_damping=1.0, preconditioner_exponent=0.75, examples_per_map=20, tolerance=0.002)


def draw_curves(count: int, seed: int) -> np.ndarray:
    """Images of quadratic Bezier curves between random points, brightest on the curve, values from 0 to 1."""
    rng = np.random.default_rng(seed)
    first, bend, last = rng.uniform(0.1, 0.9, (3, count, 2)) * np.array([[[1, 0.5]], [[1, 1]], [[1, 0.5]]])
    t = np.linspace(0, 1, 40)[:, None, None]
    points = (1 - t) ** 2 * first + 2 * t * (1 - t) * bend + t**2 * last
    grid = (np.stack(np.meshgrid(*[np.arange(SIDE)] * 2, indexing="ij"), axis=-1) + 0.5) / SIDE
    distance = np.min(np.sum((grid[None, None] - points[:, :, None, None]) ** 2, axis=-1), axis=0)
    return np.exp(-distance * SIDE**2).reshape(count, -1).astype(np.float32)


def draw_params(seed: int) -> list[dict[str, jax.Array]]:
    """Sparse initial weights: every unit listens to at most 15 others (Martens, 2010)."""
    rng = np.random.default_rng(seed)
    params = []
    for inputs, units in pairwise(LAYERS):
        weights = rng.normal(size=(inputs, units))
        ranks = np.argsort(rng.random((inputs, units)), axis=0)
        weights[ranks >= 15] = 0
        params.append({"weights": jnp.asarray(weights, jnp.float32), "bias": jnp.zeros(units)})
    return params


def network(params, images):
    """Logits of the reconstruction."""
    values = images
    for layer in params[:-1]:
        values = jnp.tanh(values @ layer["weights"] + layer["bias"])
    return values @ params[-1]["weights"] + params[-1]["bias"]


def loss(logits, images):
    """Cross-entropy of the pixels, summed over an image, mean over images."""
    return jnp.mean(jnp.sum(jax.nn.softplus(logits) - images * logits, axis=-1))


@jax.jit
def squared_error(params, images):
    """Squared reconstruction error of an image, on average."""
    return jnp.mean(jnp.sum((jax.nn.sigmoid(network(params, images)) - images) ** 2, axis=-1))


def passes_of(info: HessianFreeInfo) -> float:
    """Passes over the data an update costs, an evaluation of the objective being a third of one.

    Two for the gradients of batch and single images; the products of conjugate gradient, one before its first
    step and one for the undamped model; the objectives looked at.
    """
    shares_tried = SETTINGS.line_search_tries
    if info.accepted:
        shares_tried = 1 + round(np.log(info.share) / np.log(SETTINGS.line_search_shrink))
    return 2 + info.iterations + 2 + (info.backtracks + 2 + shares_tried) / 3


def train_hessian_free(params, images, updates: int):
    """Trained parameters and the passes over the data they took."""
    optimizer = HessianFree(network, loss, SETTINGS)
    state = optimizer.init(params)
    passes = 0.0
    for _ in range(updates):
        params, state, info = optimizer.update(params, state, images)
        passes += passes_of(info)
    return params, passes


@partial(jax.jit, static_argnames="passes")
def train_momentum(params, images, learning_rate: float, passes: int):
    """Parameters trained by Nesterov momentum on shuffled minibatches."""
    method = optax.sgd(learning_rate, momentum=0.9, nesterov=True)
    batches = len(images) // MINIBATCH

    def update(carry, batch):
        params, state = carry
        gradient = jax.grad(lambda params: loss(network(params, batch), batch))(params)
        updates, state = method.update(gradient, state)
        return (optax.apply_updates(params, updates), state), None

    def epoch(carry, key):
        shuffled = jax.random.permutation(key, images)[: batches * MINIBATCH]
        return jax.lax.scan(update, carry, shuffled.reshape(batches, MINIBATCH, -1))[0], None

    keys = jax.random.split(jax.random.key(0), passes)
    return jax.lax.scan(epoch, (params, method.init(params)), keys)[0][0]


def row(name: str, passes: float, error: float, seconds: float) -> str:
    """A line of the table."""
    return f"{name:<24}{passes:>8.0f}{error:>16.3f}{seconds:>10.1f}"


def main(updates: int = 15, count: int = 400) -> dict[str, float]:
    """Print and return the squared error each method reaches."""
    images, start = jnp.asarray(draw_curves(count, seed=0)), draw_params(seed=0)
    print(f"{'method':<24}{'passes':>8}{'squared error':>16}{'seconds':>10}")
    print(row("untrained", 0, float(squared_error(start, images)), 0))
    began = time.perf_counter()
    trained, passes = train_hessian_free(start, images, updates)
    errors = {"Hessian-free": float(squared_error(trained, images))}
    print(row("Hessian-free", passes, errors["Hessian-free"], time.perf_counter() - began))
    for rate in LEARNING_RATES:
        began = time.perf_counter()
        name = f"momentum, rate {rate:g}"
        errors[name] = float(squared_error(train_momentum(start, images, rate, round(passes)), images))
        print(row(name, passes, errors[name], time.perf_counter() - began))
    return errors


if __name__ == "__main__":
    main()
