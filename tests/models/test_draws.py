"""Initial weights are those of `jax.random`, whatever their shape, and compile nothing for it."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from longspan.models import draws

SHAPES = [(1,), (88, 17), (5, 213), (3, 5, 7), (256, 2)]


@pytest.mark.parametrize("shape", SHAPES)
def test_normal_numbers_are_those_of_jax(shape):
    key = jax.random.key(len(shape))
    np.testing.assert_array_equal(draws.normal(key, shape, 0.3), 0.3 * jax.random.normal(key, shape))


@pytest.mark.parametrize("count", [1, 64, 213])
def test_uniform_numbers_are_those_of_jax(count):
    key, drawn = jax.random.key(count), count // 2
    expected = np.asarray(jax.random.uniform(key, (count,), minval=0.02, maxval=0.2)).copy()
    np.testing.assert_array_equal(draws.uniform(key, count, 0.02, 0.2), expected)
    expected[drawn:] = 0
    np.testing.assert_array_equal(draws.uniform(key, count, 0.02, 0.2, drawn), expected)


@pytest.mark.parametrize("size", [1, 30, 213])
def test_orthogonal_matrices_are_those_of_jax(size):
    key = jax.random.key(size)
    drawn = draws.orthogonal(key, size, 0.9)
    np.testing.assert_array_equal(drawn, 0.9 * jax.random.orthogonal(key, size))
    np.testing.assert_allclose(drawn.T @ drawn, 0.81 * np.eye(size), atol=1e-6)


def test_a_traced_model_has_the_same_numbers():
    def drawn(key):
        return draws.normal(key, (9, 5), 2.0), draws.uniform(key, 7, 0.1, 0.2, 3), draws.orthogonal(key, 6)

    key = jax.random.key(3)
    for traced, concrete in zip(jax.jit(drawn)(key), drawn(key), strict=True):
        np.testing.assert_allclose(traced, concrete, rtol=1e-6, atol=1e-6)


def test_another_shape_of_about_the_same_size_compiles_nothing(caplog):
    key = jax.random.key(0)

    def draw(size):
        draws.normal(key, (size, size), 0.5)
        draws.uniform(key, size, 0.0, 1.0, size // 2)
        draws.orthogonal(key, size)
        draws.zeros(size)

    draw(60)
    with jax.log_compiles(), caplog.at_level("WARNING"):
        _ = jnp.zeros(61) + 1  # so that the test would notice
        compiled = len(caplog.records)
        draw(63)
    assert compiled > 0
    assert len(caplog.records) == compiled
