"""Walks that read the recurrent matrix in bfloat16: the definition with a matrix that NumPy rounds."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from longspan.layers import LeakyRNN
from longspan.ops import recurrence
from tests.ops.test_recurrence import floats, loop, loop_adjoint, loop_tangent, make, make_sparse

SHAPES = [(6, 1, 1, 6), (7, 1, 37, 5), (6, 1, 64, 6), (5, 1, 300, 5), (4, 3, 50, 4)]


def round_by_hand(matrix):
    """To the nearest number of eight significant bits, of two equally near ones to that with an even last bit."""
    bits = np.asarray(matrix, np.float32).view(np.uint32)
    kept, lost = bits >> 16, bits & 0xFFFF
    up = (lost > 0x8000) | ((lost == 0x8000) & (kept % 2 == 1))
    return ((kept + up) << 16).astype(np.uint32).view(np.float32)


def test_rounding_is_to_the_nearest_even_and_lets_gradients_through(random):
    ties = np.float32([1 + 2**-8, 1 + 3 * 2**-8, -(1 + 2**-8), 3e38, 1e-30, 0.0])
    numbers = np.concatenate([ties, random.normal(size=1000).astype(np.float32)])
    np.testing.assert_array_equal(
        jax.jit(recurrence.rounded, static_argnums=1)(numbers, "bfloat16"), round_by_hand(numbers)
    )
    numbers = jnp.asarray(numbers)
    np.testing.assert_array_equal(recurrence.rounded(numbers, "float32"), numbers)
    slope = random.normal(size=numbers.shape).astype(np.float32)
    gradient = jax.grad(lambda x: jnp.sum(slope * recurrence.rounded(x, "bfloat16")))(numbers)
    np.testing.assert_array_equal(gradient, slope)


@pytest.mark.parametrize("threads", ["1", "2"])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_walks_follow_their_definition_with_a_rounded_matrix(path, shape, threads, monkeypatch):
    monkeypatch.setenv("LONGSPAN_THREADS", threads)
    case = make(*shape)
    drive, first, recurrent, leak = floats(*(case[name] for name in ("drive", "first", "recurrent", "leak")))
    resets, length = jnp.asarray(case["resets"]), jnp.int32(case["length"])
    case["recurrent"] = round_by_hand(case["recurrent"]).astype(np.float64)
    hidden, gain = loop(case, "tanh")
    walked = (drive, first, recurrent, leak, resets, length)
    for got, want in zip(
        recurrence.forward(*walked, activation="tanh", precision="bfloat16"), (hidden, gain), strict=True
    ):
        np.testing.assert_allclose(got, want, rtol=2e-5, atol=4e-6)
    residuals = (recurrent, leak, *floats(gain), resets, length)
    got = recurrence.tangent(*residuals, *floats(case["tangent"]), precision="bfloat16")
    np.testing.assert_allclose(got, loop_tangent(case, gain), rtol=2e-5, atol=2e-5)
    cotangent = np.random.default_rng(1).normal(size=gain.shape)
    weight = np.random.default_rng(2).random(gain.shape[:2])
    for pay in (0, 1):
        expected = loop_adjoint(case, gain, cotangent + pay * weight[..., None] * np.sign(hidden))
        got = recurrence.penalized_adjoint(*residuals, *floats(hidden, pay * weight, cotangent), precision="bfloat16")
        np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-5 * np.abs(expected).max())
    got = recurrence.adjoint(*residuals, *floats(cotangent), precision="bfloat16")
    expected = loop_adjoint(case, gain, cotangent)
    np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-5 * np.abs(expected).max())


@pytest.mark.parametrize(("units", "lanes"), [(200, 1), (37, 1), (37, 2)])
@pytest.mark.parametrize("activation", ["tanh", "rectifier"])
def test_values_and_gradients_are_to_the_bit_those_at_the_rounded_matrix(native_path, activation, units, lanes):
    """Nothing but the matrix is rounded, and what flows back to it is not."""
    case = make_sparse(units, lanes, leaky=True) if activation == "rectifier" else make(12, lanes, units, 11)
    case["drive"][11:] = 0
    drive, first, recurrent, leak = floats(*(case[name] for name in ("drive", "first", "recurrent", "leak")))
    resets, weight = jnp.asarray(case["resets"]), jnp.full((12, lanes), 0.3)

    def loss(recurrent, drive, precision):
        walked = (drive, first, recurrent, leak, resets, jnp.int32(11))
        hidden, penalty = recurrence.penalized_scan(activation, *walked, weight, precision=precision)
        return jnp.sum(jnp.sin(hidden)) + penalty

    run = jax.jit(jax.value_and_grad(loss, argnums=(0, 1)), static_argnums=2)
    got, want = run(recurrent, drive, "bfloat16"), run(jnp.asarray(round_by_hand(recurrent)), drive, "float32")
    for one, other in zip(jax.tree.leaves(got), jax.tree.leaves(want), strict=True):
        np.testing.assert_array_equal(one, other)
    assert np.any(np.asarray(got[1][0]) != round_by_hand(got[1][0]))


def test_a_layer_takes_a_precision(path, random):
    inputs = jnp.asarray(random.normal(size=(9, 5)), jnp.float32)
    layer = LeakyRNN(5, 20, precision="bfloat16", key=jax.random.key(0))
    exact = LeakyRNN(5, 20, key=jax.random.key(0))
    assert np.any(layer(inputs)[0] != exact(inputs)[0])
    np.testing.assert_allclose(layer(inputs)[0], exact(inputs)[0], atol=0.02)
