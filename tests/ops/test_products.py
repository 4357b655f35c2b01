"""Affine maps and sums of rows against dense NumPy products, with all their derivatives."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from longspan.ops import linear
from tests.ops.paths import select

# time, lanes, inputs, outputs, length: single numbers, whole and broken vectors and tiles, nothing
SHAPES = [(1, 1, 1, 1, 1), (3, 2, 5, 7, 2), (9, 1, 33, 24, 9), (4, 3, 16, 8, 0), (13, 8, 40, 100, 12)]
BIG = (3, 100, 270, 260, 3)


def make(time, lanes, inputs, outputs, length, seed=0):
    rng = np.random.default_rng([seed, time, lanes, inputs, outputs])
    x, y = rng.normal(size=(time, lanes, inputs)), rng.normal(size=(time, lanes, outputs))
    x[length:], y[length:] = np.nan, np.nan
    weights, bias = rng.normal(size=(inputs, outputs)), rng.normal(size=outputs)
    return [jnp.asarray(array, jnp.float32) for array in (x, weights, bias, y)], jnp.int32(length)


def double(array):
    return np.asarray(array, np.float64)


def used(array, length):
    """The steps that count, as rows, in float64."""
    return double(array)[:length].reshape(-1, array.shape[-1])


@pytest.mark.parametrize("shape", [*SHAPES, BIG], ids=str)
def test_products_equal_numpy(path, shape):
    (x, weights, bias, y), length = make(*shape)
    X, W, Y = used(x, length), double(weights), used(y, length)
    for got, want in [
        (linear.affine(x, weights, bias, length), X @ W + double(bias)),
        (linear.product(weights, length, x), X @ W),
        (linear.product_transposed(weights, length, y), Y @ W.T),
    ]:
        assert not np.any(got[int(length) :])
        np.testing.assert_allclose(used(got, length), want, rtol=1e-5, atol=2e-5)
    np.testing.assert_allclose(linear.outer(x, length, y), X.T @ Y, rtol=1e-5, atol=2e-5)


def derivatives(function, arguments, directions, cotangent):
    """Gradient, tangent and Gauss-Newton product of a function of several arrays."""
    _, tangent = jax.jvp(function, arguments, directions)
    _, pull = jax.vjp(function, *arguments)
    return pull(cotangent), tangent, pull(tangent)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_derivatives_of_affine_equal_those_of_a_dense_product(path, shape):
    (x, weights, bias, y), length = make(*shape)
    (dx, dw, db, _), _ = make(*shape, seed=1)
    finite = [jnp.nan_to_num(array) for array in (x, weights, bias, dx, dw, db, y)]
    arguments, directions, cotangent = tuple(finite[:3]), tuple(finite[3:6]), finite[6]
    keep = (jnp.arange(shape[0]) < length)[:, None, None]

    def dense(x, weights, bias):
        return jnp.where(keep, x @ weights + bias[None, None], 0)

    def ours(x, weights, bias):
        return linear.affine(x, weights, bias, length)

    got = jax.jit(lambda: derivatives(ours, arguments, directions, cotangent))()
    want = jax.jit(lambda: derivatives(dense, arguments, directions, cotangent))()
    for one, other in zip(jax.tree.leaves(got), jax.tree.leaves(want), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-4)


def test_derivatives_by_some_arguments_only(path):
    (x, weights, bias, y), length = make(3, 2, 5, 7, 3)
    for position in range(3):
        arguments = [x, weights, bias]

        def loss(value, position=position, arguments=arguments):
            given = [*arguments[:position], value, *arguments[position + 1 :]]
            return jnp.vdot(linear.affine(*given, length), y)

        X, W, Y = used(x, length), double(weights), used(y, length)
        want = [(Y @ W.T).reshape(x.shape), X.T @ Y, Y.sum(0)][position]
        np.testing.assert_allclose(jax.grad(loss)(arguments[position]), want, rtol=1e-5, atol=1e-5)


def test_vmap_inside_and_outside_of_grad(native_path, monkeypatch):
    (x, weights, bias, y), length = make(4, 2, 6, 9, 3)
    x, y = jnp.nan_to_num(x), jnp.nan_to_num(y)
    several = jnp.stack([weights, 2 * weights, weights - 1])

    def per_weights(weights):
        return jnp.vdot(linear.affine(x, weights, bias, length), y**2)

    def summed(several):
        return jnp.sum(jax.vmap(per_weights)(several) ** 2)

    got = jax.vmap(jax.grad(per_weights))(several), jax.grad(summed)(several)
    select(monkeypatch, "xla")
    want = jax.vmap(jax.grad(per_weights))(several), jax.grad(summed)(several)
    for one, other in zip(got, want, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4)


def test_second_derivatives_equal_those_of_a_dense_product(path):
    (x, weights, bias, y), length = make(3, 1, 3, 4, 2)
    x, y = jnp.nan_to_num(x), jnp.nan_to_num(y)

    def ours(weights, x):
        return jnp.vdot(linear.affine(x, weights, bias, length) ** 3, y)

    def dense(weights, x):
        return jnp.vdot((x @ weights + bias[None, None])[:length] ** 3, y[:length])

    for derivative in (jax.hessian, lambda f: jax.jacrev(jax.grad(f, argnums=1)), lambda f: jax.jacfwd(jax.jacfwd(f))):
        got, want = (derivative(function)(weights, x) for function in (ours, dense))
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4)


def roll(shape, density, seed=0):
    rng = np.random.default_rng([seed, *shape])
    return jnp.asarray(rng.random(shape) < density).astype(jnp.uint8)


@pytest.mark.parametrize("density", [0.0, 0.05, 1.0])
@pytest.mark.parametrize("shape", [(1, 1, 1, 1, 1), (5, 2, 88, 19, 4), (3, 1, 13, 40, 3)], ids=str)
def test_sums_of_selected_rows(path, shape, density):
    (_, weights, bias, y), length = make(*shape)
    inputs = roll(shape[:3], density) * 3  # any count is a count
    X, Y = used(inputs, length), used(y, length)
    got = linear.sum_rows(weights, inputs, length, bias)
    np.testing.assert_allclose(used(got, length), X @ double(weights) + double(bias), rtol=1e-5, atol=1e-5)
    assert not np.any(got[int(length) :])
    plain = linear.sum_rows(weights, inputs, length)
    np.testing.assert_allclose(used(plain, length), X @ double(weights), rtol=1e-5, atol=1e-5)

    by_weights, by_bias = jax.vjp(lambda w, b: linear.sum_rows(w, inputs, length, b), weights, bias)[1](y)
    np.testing.assert_allclose(by_weights, X.T @ Y, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(by_bias, Y.sum(0), rtol=1e-5, atol=1e-5)


def test_rows_chosen_by_index(path):
    (_, weights, bias, y), length = make(6, 2, 7, 11, 5)
    indices = np.random.default_rng(0).integers(0, 7, size=(6, 2)).astype(np.int32)
    indices[0, 0], indices[1, 1] = -3, 99  # out of range: the nearest row, as in XLA
    onehot = np.eye(7)[np.clip(indices, 0, 6)][:5].reshape(-1, 7)
    got = linear.sum_rows(weights, indices, length, bias)
    np.testing.assert_allclose(used(got, length), onehot @ double(weights) + double(bias), rtol=1e-6)
    tangent = jax.jvp(lambda w: linear.sum_rows(w, indices, length, bias), (weights,), (2 * weights,))[1]
    np.testing.assert_allclose(used(tangent, length), 2 * onehot @ double(weights), rtol=1e-6)
    (by_weights,) = jax.vjp(lambda w: linear.sum_rows(w, indices, length, bias), weights)[1](y)
    np.testing.assert_allclose(by_weights, onehot.T @ used(y, length), rtol=1e-5, atol=1e-6)


def test_other_dtypes_take_the_twin(native_path):
    (x, weights, bias, _), length = make(3, 2, 5, 7, 3)
    half = [array.astype(jnp.bfloat16) for array in (x, weights, bias)]
    assert linear.affine(*half, length).dtype == jnp.bfloat16
