"""Gauss-Newton products against explicit matrices made of finite differences of a NumPy network."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree

from longspan.errors import InputError
from longspan.optim.curvature import (
    WithStructure,
    curvature_factory,
    gauss_newton_product,
    mean_over_slices,
    objective,
)

STEPS, BATCH, INPUTS, HIDDEN, CLASSES = 4, 5, 2, 3, 3
AXES = {"inputs": 1, "targets": 0, "scale": None}


def start(seed=0):
    rng = np.random.default_rng(seed)
    shapes = {"b": (HIDDEN,), "u": (INPUTS, HIDDEN), "v": (HIDDEN, CLASSES), "w": (HIDDEN, HIDDEN)}
    params = {name: jnp.asarray(rng.normal(size=shape), jnp.float32) for name, shape in shapes.items()}
    batch = {
        "inputs": jnp.asarray(rng.normal(size=(STEPS, BATCH, INPUTS)), jnp.float32),
        "targets": jnp.asarray(rng.integers(0, CLASSES, BATCH)),
        "scale": jnp.asarray(1.5),
    }
    return params, batch


def network(params, batch):
    def step(hidden, drive):
        pre = hidden @ params["w"] + drive
        return jnp.tanh(pre), (jnp.tanh(pre), pre)

    drives = batch["inputs"] @ params["u"] + params["b"][None, None]
    _, (hidden, pre) = jax.lax.scan(step, jnp.zeros(drives.shape[1:]), drives)
    return WithStructure(batch["scale"] * hidden[-1] @ params["v"], pre, 1 - hidden**2)


def loss(outputs, batch):
    return jnp.mean(jax.nn.logsumexp(outputs, axis=-1) - outputs[jnp.arange(len(outputs)), batch["targets"]])


def numpy_network(params, batch):
    """Outputs and pre-activations by loops in double precision."""
    hidden, pres = np.zeros((batch["inputs"].shape[1], HIDDEN)), []
    for inputs in np.asarray(batch["inputs"], float):
        pres.append(hidden @ params["w"] + inputs @ params["u"] + params["b"])
        hidden = np.tanh(pres[-1])
    return float(batch["scale"]) * hidden @ params["v"], np.stack(pres)


def explicit_matrix(params, batch, weight):
    flat = np.asarray(ravel_pytree(params)[0], float)

    def values(vector):
        tree = {name: np.asarray(leaf) for name, leaf in unflatten(vector, params).items()}
        outputs, pres = numpy_network(tree, batch)
        return np.concatenate([outputs.ravel(), pres.ravel()])

    epsilon = 1e-5
    columns = [
        (values(flat + epsilon * unit) - values(flat - epsilon * unit)) / (2 * epsilon) for unit in np.eye(len(flat))
    ]
    jacobian = np.stack(columns, axis=1)
    outputs, pres = numpy_network({name: np.asarray(leaf, float) for name, leaf in params.items()}, batch)
    examples = len(outputs)
    middle = np.zeros((len(jacobian), len(jacobian)))
    for index, scores in enumerate(outputs):
        p = np.exp(scores - scores.max())
        p /= p.sum()
        block = slice(index * CLASSES, (index + 1) * CLASSES)
        middle[block, block] = (np.diag(p) - np.outer(p, p)) / examples
    rest = np.arange(outputs.size, len(jacobian))
    middle[rest, rest] = weight * (1 - np.tanh(pres.ravel()) ** 2) / (STEPS * examples)
    return jacobian.T @ middle @ jacobian


def unflatten(vector, params):
    tree, at = {}, 0
    for name in sorted(params):
        size = params[name].size
        tree[name] = vector[at : at + size].reshape(params[name].shape)
        at += size
    return tree


@functools.cache
def product_of(network, loss):
    return jax.jit(functools.partial(gauss_newton_product, network, loss))


def matrix_of(product, params):
    flat, unravel = ravel_pytree(params)
    columns = jax.jit(jax.vmap(lambda unit: ravel_pytree(product(unravel(unit)))[0]))(jnp.eye(len(flat)))
    return np.asarray(columns).T


@pytest.mark.parametrize("weight", [0.0, 0.7])
def test_product_is_that_of_the_explicit_matrix(weight):
    params, batch = start()
    made = matrix_of(lambda v: gauss_newton_product(network, loss, params, batch, v, weight), params)
    np.testing.assert_allclose(made, explicit_matrix(params, batch, weight), rtol=1e-3, atol=1e-5)


def test_matrix_is_positive_semi_definite_where_the_hessian_is_not():
    params, batch = start(1)
    flat, unravel = ravel_pytree(params)
    hessian = jax.jit(jax.hessian(lambda vector: objective(network, loss, unravel(vector), batch)))(flat)
    made = matrix_of(lambda v: gauss_newton_product(network, loss, params, batch, v), params)
    np.testing.assert_allclose(made, made.T, atol=1e-6)
    assert np.linalg.eigvalsh(np.asarray(hessian))[0] < -0.01
    assert np.linalg.eigvalsh(made)[0] > -1e-5


@pytest.mark.parametrize("slice_size", [1, 2, 5])
def test_slices_give_the_product_of_the_whole_batch(slice_size):
    params, batch = start(2)
    vector = jax.tree.map(lambda leaf: jnp.cos(7 * leaf), params)
    whole = product_of(network, loss)(params, batch, vector, 0.3)
    curvature = curvature_factory(network, loss, slice_size, AXES)(params, batch)
    made = jax.jit(lambda curvature, vector: curvature(vector, 0.3))(curvature, vector)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-6), made, whole)


def test_a_linearization_is_compiled_once_for_all_parameters():
    curvature_at = curvature_factory(network, loss)
    apply = jax.jit(lambda curvature, vector: curvature(vector, 0.0))
    results = []
    for seed in (3, 4):
        params, batch = start(seed)
        made = apply(curvature_at(params, batch), params)
        expected = product_of(network, loss)(params, batch, params)
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-6), made, expected)
        results.append(made["w"])
    assert apply._cache_size() == 1
    assert not np.allclose(*results)


def test_slices_need_less_memory():
    params, _ = start()
    batch = {
        "inputs": jnp.zeros((50, 512, INPUTS)),
        "targets": jnp.zeros(512, int),
        "scale": jnp.asarray(1.0),
    }

    def working_memory(slice_size):
        def product(params, batch, vector):
            return mean_over_slices(
                lambda part: gauss_newton_product(network, loss, params, part, vector),
                batch,
                slice_size,
                AXES,
            )

        compiled = jax.jit(product).lower(params, batch, params).compile()
        return compiled.memory_analysis().temp_size_in_bytes

    assert working_memory(32) < working_memory(None) / 4


def test_an_absolute_penalty_acts_through_the_gradient_alone():
    params, batch = start(5)

    def with_hidden(params, batch):
        result = network(params, batch)
        return result.outputs, jnp.tanh(result.structural)

    def penalized(outputs, batch):
        return loss(outputs[0], batch) + 0.1 * jnp.sum(jnp.mean(jnp.abs(outputs[1]), axis=1))

    made = product_of(with_hidden, penalized)(params, batch, params)
    expected = product_of(network, loss)(params, batch, params)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6), made, expected)

    slope = jax.jit(jax.grad(lambda p: objective(with_hidden, penalized, p, batch)))(params)
    unpenalized = jax.jit(jax.grad(lambda p: objective(network, loss, p, batch)))(params)
    values = []
    for change in (1e-5, -1e-5):
        moved = {name: np.asarray(leaf, float) for name, leaf in params.items()}
        moved["b"] = moved["b"] + np.array([change, 0, 0])
        values.append(0.1 * np.abs(np.tanh(numpy_network(moved, batch)[1])).mean(axis=1).sum())
    expected_slope = (values[0] - values[1]) / 2e-5
    assert slope["b"][0] - unpenalized["b"][0] == pytest.approx(expected_slope, abs=1e-4)


def test_batches_that_disagree_about_their_size_are_refused():
    params, batch = start()
    batch["targets"] = batch["targets"][:-1]
    with pytest.raises(InputError, match=r"same number of examples.*\[4, 5\]"):
        curvature_factory(network, loss, 2, AXES)(params, batch)
