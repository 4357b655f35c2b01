"""Softmax over ranges of rows, and descent by rows, against dense arithmetic in NumPy float64."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from longspan.ops import factored, linear, update
from tests.ops.paths import each_with, runnable

# steps, rows, hidden, ranges: one of each, single rows, broken vectors, many steps of one range
CASES = [(1, 2, 1, 1), (9, 5, 3, 5), (24, 300, 16, 9), (7, 90, 37, 2), (40, 33, 8, 1)]


def make(steps, count, hidden, ranges, seed=0):
    rng = np.random.default_rng([seed, steps, count, hidden])
    bounds = np.concatenate([[0], np.sort(rng.choice(np.arange(1, count), ranges - 1, replace=False)), [count]])
    target = rng.integers(0, count, steps).astype(np.int32)
    place = np.searchsorted(bounds, target, side="right") - 1
    start, stop = bounds[place].astype(np.int32), bounds[place + 1].astype(np.int32)
    floats = [rng.normal(size=shape).astype(np.float32) for shape in [(steps, hidden), (count, hidden), (count,)]]
    scale = rng.normal(size=steps).astype(np.float32)
    return [jnp.asarray(array) for array in floats], (target, start, stop), jnp.asarray(scale)


def dense(floats, ranges, scale):
    """Log-probabilities, and gradients of their weighted sum by hidden vectors, weights and bias."""
    hidden, weights, bias, scale = (np.asarray(array, np.float64) for array in (*floats, scale))
    values, by_hidden, by_weights, by_bias = [], np.zeros_like(hidden), np.zeros_like(weights), np.zeros_like(bias)
    for step, (target, start, stop) in enumerate(zip(*ranges, strict=True)):
        logits = weights[start:stop] @ hidden[step] + bias[start:stop]
        p = np.exp(logits - logits.max())
        p /= p.sum()
        values.append(np.log(p[target - start]))
        change = scale[step] * ((np.arange(start, stop) == target) - p)
        by_hidden[step] = change @ weights[start:stop]
        by_weights[start:stop] += np.outer(change, hidden[step])
        by_bias[start:stop] += change
    return np.array(values), by_hidden, by_weights, by_bias


@pytest.mark.parametrize(("path", "case"), each_with(CASES, CASES[1:3]), indirect=["path"], ids=str)
def test_value_and_gradients(path, case):
    floats, ranges, scale = make(*case)
    value, *gradients = dense(floats, ranges, scale)
    got, pull = jax.vjp(lambda *floats: factored.log_prob(*floats, *ranges), *floats)
    np.testing.assert_allclose(got, value, rtol=1e-5, atol=1e-5)
    for one, other in zip(pull(scale), gradients, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("path", "case"), each_with(CASES, CASES[3:4]), indirect=["path"], ids=str)
def test_squares_and_descent_by_rows(path, case):
    floats, ranges, scale = make(*case)
    value, by_hidden, by_weights, by_bias = dense(floats, ranges, scale)

    def weighted(hidden):
        values, of_loss = factored.log_prob_and_gradient(hidden, *floats[1:], *ranges, scale)
        return jnp.vdot(scale, values), (values, of_loss)

    gradient, (values, of_loss) = jax.grad(weighted, has_aux=True)(floats[0])
    np.testing.assert_allclose(values, value, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(gradient, by_hidden, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(of_loss.squares(), (by_weights**2).sum() + (by_bias**2).sum(), rtol=1e-4, atol=1e-7)

    before = np.array(floats[1])
    weights, bias = of_loss.descend(tuple(floats[1:]), jnp.float32(0.5))
    np.testing.assert_allclose(weights, before + 0.5 * by_weights, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(bias, floats[2] + 0.5 * by_bias, rtol=1e-4, atol=1e-5)
    np.testing.assert_array_equal(floats[1], before)  # in place only inside a program


@pytest.mark.parametrize("kept", ["some", "none"])
def test_descent_without_room_for_every_softmax(native_path, kept):
    floats, ranges, scale = make(3 * factored.STEPS_KEPT, 60, 16, 2)
    *_, by_weights, by_bias = dense(floats, ranges, scale)
    _, of_loss = factored.log_prob_and_gradient(*floats, *ranges, scale)
    assert np.sum(ranges[2] - ranges[1]) > len(of_loss.kept)
    of_loss = of_loss if kept == "some" else of_loss._replace(kept=jnp.zeros(0))
    weights, bias = of_loss.descend(tuple(floats[1:]), jnp.float32(1))
    np.testing.assert_allclose(weights, floats[1] + by_weights, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(bias, floats[2] + by_bias, rtol=1e-4, atol=1e-5)


def test_tangents_transpose_the_gradients(native_path):
    floats, ranges, scale = make(*CASES[2])
    directions, _, _ = make(*CASES[2], seed=1)
    _, *gradients = dense(floats, ranges, scale)
    _, tangent = jax.jvp(lambda *floats: factored.log_prob(*floats, *ranges), tuple(floats), tuple(directions))
    want = sum(np.vdot(gradient, direction) for gradient, direction in zip(gradients, directions, strict=True))
    np.testing.assert_allclose(np.vdot(tangent, scale), want, rtol=1e-4)


def test_large_logits_and_single_rows(path):
    hidden, weights = jnp.ones((2, 1)), jnp.asarray([[1e4], [1e4 + 1], [-1e4], [0]], jnp.float32)
    arguments = (jnp.zeros(4), np.int32([0, 3]), np.int32([0, 3]), np.int32([3, 4]))
    got = factored.log_prob(hidden, weights, *arguments)
    np.testing.assert_allclose(got, [np.log(1 / (1 + np.e)), 0], rtol=1e-3)


def test_rows_in_use_descend_like_the_whole_matrix(path):
    """One clipped step: dense leaves as ever, a table by its rows, one norm for both."""
    rng = np.random.default_rng(0)
    table, leaf, leaf_gradient = (rng.normal(size=s).astype(np.float32) for s in [(50, 7), (3, 4), (3, 4)])
    indices, parts = np.int32([4, 9, 4, 49, 0, 4]), rng.normal(size=(6, 7)).astype(np.float32)
    whole = np.zeros_like(table)
    np.add.at(whole, indices, parts)
    rate, threshold = 0.3, 0.9

    @jax.jit
    def by_rows(table, leaf):
        gradient = linear.RowGradient(jnp.asarray(indices), jnp.asarray(parts))
        [leaf], norm, clipped = update.clip_descend(
            [leaf],
            [leaf_gradient],
            learning_rate=rate,
            threshold=threshold,
            other_squares=gradient.squares(),
        )
        step = update.clipped_rate(rate, norm, clipped, threshold)
        return *gradient.descend((table,), step), leaf, norm, clipped

    norm = np.sqrt((whole**2).sum() + (leaf_gradient**2).sum())
    moved, moved_leaf, got_norm, clipped = by_rows(table, leaf)
    np.testing.assert_allclose(got_norm, norm, rtol=1e-5)
    assert clipped
    step = rate * threshold / norm
    np.testing.assert_allclose(moved, table - step * whole, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(moved_leaf, leaf - step * leaf_gradient, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("path", runnable(), indirect=True)
def test_ranges_that_are_none_neither_fail_nor_reach_other_steps(path):
    """They come from files too; their ends may be any integers, whose difference need not be one."""
    lowest, highest = np.iinfo(np.int32).min, np.iinfo(np.int32).max
    floats, ranges, scale = make(*CASES[2])
    value, *_ = dense(floats, ranges, scale)
    wrong = [(1, lowest), (lowest, highest), (-5, 3), (highest, lowest), (2, 10**9), (1, lowest + 10**9)]
    assert not {start for start, _ in wrong} & set(ranges[1].tolist())
    start, stop = (np.concatenate([right, ends]) for right, ends in zip(ranges[1:], np.int32(wrong).T, strict=True))
    hidden = jnp.concatenate([floats[0], jnp.ones((len(wrong), CASES[2][2]))])
    target = np.concatenate([ranges[0], np.ones(len(wrong), np.int32)])
    got, of_loss = factored.log_prob_and_gradient(hidden, *floats[1:], target, start, stop, jnp.ones(len(target)))
    np.testing.assert_allclose(got[: len(value)], value, rtol=1e-5, atol=1e-5)
    np.testing.assert_array_equal(got[len(value) :], 0)
    of_loss.descend(tuple(floats[1:]), jnp.float32(0.5))
