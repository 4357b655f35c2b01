"""Logits along paths and descent by nodes, against dense arithmetic in NumPy float64."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from longspan.ops import tree
from tests.ops.paths import each_with

# steps, nodes, hidden, depth: one of each, broken vectors, paths longer than a vector, every step at every node
CASES = [(1, 1, 1, 1), (9, 5, 3, 2), (24, 300, 16, 20), (7, 90, 37, 33), (40, 3, 8, 3)]


def make(steps, count, hidden, depth, seed=0):
    """Arrays of floats, and paths of any length, some empty, some with nothing in the middle."""
    rng = np.random.default_rng([seed, steps, count, hidden])
    nodes = np.stack([rng.permutation(max(count, depth))[:depth] for _ in range(steps)])
    nodes = np.where((nodes < count) & (rng.random((steps, depth)) < 0.7), nodes, -1)
    nodes[0, 0] = 0
    shapes = [(steps, hidden), (count, hidden), (count,)]
    floats = [jnp.asarray(rng.normal(size=shape), jnp.float32) for shape in shapes]
    return floats, jnp.asarray(nodes, jnp.int32), jnp.asarray(rng.normal(size=nodes.shape), jnp.float32)


def dense(floats, nodes, cotangent):
    """Logits, and gradients of their weighted sum by hidden vectors, weights and bias."""
    hidden, weights, bias, cotangent = (np.asarray(array, np.float64) for array in (*floats, cotangent))
    nodes = np.asarray(nodes)
    logits, by_hidden, by_weights, by_bias = (np.zeros_like(array) for array in (cotangent, hidden, weights, bias))
    for step, depth in np.argwhere(nodes >= 0):
        node, factor = nodes[step, depth], cotangent[step, depth]
        logits[step, depth] = weights[node] @ hidden[step] + bias[node]
        by_hidden[step] += factor * weights[node]
        by_weights[node] += factor * hidden[step]
        by_bias[node] += factor
    return logits, by_hidden, by_weights, by_bias


@pytest.mark.parametrize(("path", "case"), each_with(CASES, CASES[1:3]), indirect=["path"], ids=str)
def test_value_and_gradients(path, case):
    floats, nodes, cotangent = make(*case)
    value, *gradients = dense(floats, nodes, cotangent)
    got, pull = jax.vjp(lambda *floats: tree.path_logits(*floats, nodes), *floats)
    np.testing.assert_allclose(got, value, rtol=1e-5, atol=1e-5)
    for one, other in zip(pull(cotangent), gradients, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("path", "case"), each_with(CASES, CASES[3:4]), indirect=["path"], ids=str)
def test_squares_and_descent_by_nodes(path, case):
    floats, nodes, cotangent = make(*case)
    _, _, by_weights, by_bias = dense(floats, nodes, cotangent)
    gradient = tree.PathGradient(floats[0], nodes, cotangent)
    np.testing.assert_allclose(gradient.squares(), (by_weights**2).sum() + (by_bias**2).sum(), rtol=1e-4)
    before = np.array(floats[1])
    weights, bias = gradient.descend((floats[1], floats[2]), jnp.float32(0.5))
    np.testing.assert_allclose(weights, before - 0.5 * by_weights, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(bias, floats[2] - 0.5 * by_bias, rtol=1e-4, atol=1e-5)
    np.testing.assert_array_equal(floats[1], before)  # in place only inside a program


def test_two_threads_find_what_one_does(native_path, monkeypatch):
    floats, nodes, cotangent = make(200, 2000, 64, 12)
    _, by_hidden, by_weights, by_bias = dense(floats, nodes, cotangent)
    monkeypatch.setenv("LONGSPAN_THREADS", "2")
    _, pull = jax.vjp(lambda *floats: tree.path_logits(*floats, nodes), *floats)
    for one, other in zip(pull(cotangent), (by_hidden, by_weights, by_bias), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-4)
    squares = tree.PathGradient(floats[0], nodes, cotangent).squares()
    np.testing.assert_allclose(squares, (by_weights**2).sum() + (by_bias**2).sum(), rtol=1e-4)


def test_tangents_transpose_the_gradients(native_path):
    floats, nodes, cotangent = make(*CASES[2])
    directions, _, _ = make(*CASES[2], seed=1)
    _, *gradients = dense(floats, nodes, cotangent)
    _, tangent = jax.jvp(lambda *floats: tree.path_logits(*floats, nodes), tuple(floats), tuple(directions))
    want = sum(np.vdot(gradient, direction) for gradient, direction in zip(gradients, directions, strict=True))
    np.testing.assert_allclose(np.vdot(tangent, cotangent), want, rtol=1e-4)


def test_a_node_beyond_the_last_means_the_last(path):
    floats, nodes, cotangent = make(9, 5, 3, 2)
    beyond = jnp.where(nodes == 4, 9, nodes)
    np.testing.assert_array_equal(tree.path_logits(*floats, beyond), tree.path_logits(*floats, nodes))
    for one, other in zip(
        tree.add_path_gradient(*floats, beyond, cotangent),
        tree.add_path_gradient(*floats, nodes, cotangent),
        strict=True,
    ):
        np.testing.assert_allclose(one, other, rtol=1e-6)
