"""Matrices whose rows lag: the same bits as with momentum at every update, and sums over the rows that count."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from longspan.ops import lagging, linear, recurrence, update
from longspan.ops.lagging import Lagging, OuterGradient

UPDATES = 9


def floats(*arrays):
    return tuple(jnp.asarray(array, jnp.float32) for array in arrays)


def momenta_of(rng):
    momentum = rng.uniform(0.5, 0.99, UPDATES + 1).astype(np.float32)
    return momentum, np.stack([momentum[1:] * momentum[:-1], momentum[:-1]], axis=1)


def make(rows, columns, seed=0):
    rng = np.random.default_rng(seed)
    weights, velocity = floats(rng.normal(size=(rows, columns)), 0.1 * rng.normal(size=(rows, columns)))
    return rng, weights, velocity


def behind(rng, weights, velocity):
    """The matrix after some updates that few rows made, and the same matrix with all rows caught up."""
    matrix = Lagging.of(weights, velocity, *floats(momenta_of(rng)[1]))
    moved = rng.integers(0, 6, len(weights))
    matrix = matrix._replace(moved=jnp.asarray(moved, jnp.int32), now=jnp.asarray(5, jnp.int32))
    return matrix, matrix.settled()[0]


def sparse(rng, *shape, share=0.1):
    return np.where(rng.random(shape) < share, rng.uniform(0.1, 1, shape), 0)


@pytest.mark.parametrize("share", [0.1, 0.6], ids=["few rows", "most rows"])
@pytest.mark.parametrize(("rows", "columns"), [(40, 70), (5, 3), (64, 256)])
def test_rows_that_lag_end_in_the_bits_of_rows_that_move_every_time(native_path, rows, columns, share):
    rng, weights, velocity = make(rows, columns)
    momentum, momenta = momenta_of(rng)
    matrix = Lagging.of(jnp.array(weights), jnp.array(velocity), jnp.asarray(momenta))
    for number in range(UPDATES):
        states, errors = floats(sparse(rng, 6, 1, rows, share=share / 3), rng.normal(size=(6, 1, columns)))
        gradient = OuterGradient.of(matrix, states, errors, jnp.asarray(6))
        whole = jnp.where(gradient.reached[:, None], gradient.rows, 0)
        rate = jnp.float32(0.01)
        matrix = gradient.accelerate(rate, (1 + momentum[number + 1]) * rate)
        (weights,), (velocity,), _, _ = update.clip_nesterov(
            [weights],
            [velocity],
            [whole],
            learning_rate=rate,
            momentum_previous=float(momentum[number]),
            momentum_next=float(momentum[number + 1]),
            threshold=np.inf,
        )
    assert int(matrix.now) == UPDATES
    assert np.any(np.asarray(matrix.moved) < UPDATES)  # some rows are behind, and still are not what they will be
    assert not np.array_equal(matrix.weights, weights)
    for got, want in zip(matrix.settled(), (weights, velocity), strict=True):
        np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("share", [0.08, 0.7], ids=["sparse", "dense"])
@pytest.mark.parametrize(("units", "lanes", "threads"), [(64, 1, "1"), (37, 3, "1"), (250, 1, "2"), (37, 5, "2")])
def test_walks_read_rows_that_have_caught_up(native_path, units, lanes, threads, share, monkeypatch):
    monkeypatch.setenv("LONGSPAN_THREADS", threads)
    rng, weights, velocity = make(units, units)
    on = rng.random((12, lanes, units)) < share
    drive = np.where(on, 1.0, -9.0) + 0.1 * rng.normal(size=on.shape)
    first, leak, cotangent = sparse(rng, lanes, units), np.zeros(units), rng.normal(size=on.shape)
    resets, length = jnp.asarray(rng.random((12, lanes)) < 0.1), jnp.asarray(11)
    drive, first, leak, cotangent = floats(drive, first, leak, cotangent)
    weight = jnp.full((12, lanes), 0.1)
    matrix, settled = behind(rng, 0.1 * weights, 0.1 * velocity)
    before = np.asarray(matrix.moved)
    walked = recurrence.forward(drive, first, settled, leak, resets, length, activation="rectifier")
    matrix, hidden, gain = lagging.walk(matrix, drive, first, leak, resets, length)
    np.testing.assert_array_equal(hidden, walked[0])
    np.testing.assert_array_equal(gain, walked[1])
    residuals = (leak, gain, resets, length, hidden, weight, cotangent)
    want = recurrence.penalized_adjoint(settled, *residuals)
    matrix, errors = lagging.walk_back(matrix, *residuals)
    np.testing.assert_array_equal(errors, want)
    on_before = np.asarray(recurrence.previous_states(first, hidden, resets)[:11]).any((0, 1))
    assert (np.asarray(matrix.moved)[on_before] == 5).all()
    if share < 0.1 and lanes == 1:
        assert (np.asarray(matrix.moved)[~on_before] == before[~on_before]).all()
        assert not on_before.all()
    np.testing.assert_array_equal(matrix.settled()[0], settled)


@pytest.mark.parametrize("share", [0.05, 0.7], ids=["sparse", "dense"])
@pytest.mark.parametrize(("units", "outputs"), [(64, 33), (5, 3), (130, 90)])
def test_products_of_sparse_states(native_path, units, outputs, share):
    rng, weights, velocity = make(units, outputs)
    x, y = sparse(rng, 7, 2, units, share=share), rng.normal(size=(7, 2, outputs))
    y[:, 1] = sparse(rng, 7, outputs, share=0.04)
    bias, length = rng.normal(size=outputs), jnp.asarray(6)
    matrix, settled = behind(rng, weights, velocity)
    matrix, got = lagging.project_sparse(matrix, *floats(x, bias), length)
    want = x @ np.asarray(settled, np.float64) + bias
    want[length:] = 0
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)
    back = lagging.product_transposed_where(matrix.weights, length, *floats(y, x))
    want = np.where(x != 0, y @ np.asarray(settled, np.float64).T, 0)
    want[length:] = 0
    np.testing.assert_allclose(back, want, rtol=1e-5, atol=1e-5)
    gradient = OuterGradient.of(matrix, *floats(x, y), length)
    want = np.einsum("tbi,tbo->io", x[:length], y[:length])
    reached = (x[:length] != 0).any((0, 1))
    np.testing.assert_array_equal(gradient.reached, reached)
    np.testing.assert_allclose(np.asarray(gradient.rows)[reached], want[reached], rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(gradient.squares(), np.square(want).sum(), rtol=1e-5)


def test_counts_of_updates_out_of_range_mean_the_nearest(native_path):
    """A number that cannot be is not followed beyond the momenta, nor waited for."""
    rng, weights, velocity = make(4, 6)
    matrix = Lagging.of(weights, velocity, *floats(momenta_of(rng)[1]))
    odd = matrix._replace(moved=jnp.asarray([-1, 0, 99, 3], jnp.int32), now=jnp.asarray(99, jnp.int32))
    even = matrix._replace(moved=jnp.asarray([0, 0, UPDATES, 3], jnp.int32), now=jnp.asarray(UPDATES, jnp.int32))
    for got, want in zip(odd.settled(), even.settled(), strict=True):
        np.testing.assert_array_equal(got, want)


def test_the_drive_of_sparse_errors(native_path):
    """The gradient of input weights adds errors of the units that are on alone, or whole rows of them."""
    rng = np.random.default_rng(0)
    inputs = jnp.asarray(rng.random((9, 2, 12)) < 0.3, jnp.uint8)
    for share in (0.04, 0.5):
        errors = sparse(rng, 9, 2, 80, share=share)
        _, pull = jax.vjp(partial(_drive, inputs), jnp.zeros((12, 80)), jnp.zeros(80))
        weights, bias = pull(*floats(errors))
        used = errors[:8]
        want = np.einsum("tbi,tbo->io", np.asarray(inputs, float)[:8], used)
        np.testing.assert_allclose(weights, want, rtol=1e-5, atol=1e-5)
        np.testing.assert_allclose(bias, used.sum((0, 1)), rtol=1e-5, atol=1e-5)


def _drive(inputs, weights, bias):
    return linear.sum_rows(weights, inputs, 8, bias)
