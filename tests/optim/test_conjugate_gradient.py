"""Conjugate gradient against dense solves and against a textbook twin in NumPy."""

import math

import jax.numpy as jnp
import numpy as np
import pytest
from jax.tree_util import Partial

from longspan.optim.conjugate_gradient import Interrupted, conjugate_gradient

SIZE = 60  # one size for all, so that the tests share compiled code


def positive_definite(condition):
    basis = np.linalg.qr(np.random.default_rng(0).normal(size=(SIZE, SIZE)))[0]
    return basis * np.geomspace(1, 1 / condition, SIZE) @ basis.T


def product(matrix, tree):
    flat = matrix @ jnp.concatenate([tree["a"].ravel(), tree["b"]])
    return {"a": flat[:6].reshape(2, 3), "b": flat[6:]}


def as_tree(flat):
    flat = jnp.asarray(flat, jnp.float32)
    return {"a": flat[:6].reshape(2, 3), "b": flat[6:]}


def as_vector(tree):
    return np.concatenate([np.ravel(tree["a"]), np.ravel(tree["b"])])


def solve(matrix, right_side, start=None, scaling=None, **options):
    return conjugate_gradient(
        Partial(product, jnp.asarray(matrix, jnp.float32)),
        as_tree(right_side),
        None if start is None else as_tree(start),
        None if scaling is None else as_tree(scaling),
        **options,
    )


def textbook(matrix, right_side, start, scaling, iterations):
    """Iterates and values of the quadratic, in double precision, by the formulas of any textbook."""
    x = start.copy()
    residual = right_side - matrix @ x
    z = scaling * residual
    direction = z.copy()
    for _ in range(iterations):
        length = residual @ z / (direction @ matrix @ direction)
        x = x + length * direction
        following = residual - length * matrix @ direction
        z_following = scaling * following
        direction = z_following + following @ z_following / (residual @ z) * direction
        residual, z = following, z_following
        yield x, 0.5 * x @ matrix @ x - right_side @ x


@pytest.mark.parametrize("scaled", [False, True])
def test_agrees_with_a_dense_solve(scaled):
    matrix = positive_definite(30)
    if scaled:
        spread = np.geomspace(1, 30, SIZE)
        matrix = matrix * np.outer(spread, spread)
    right_side = np.random.default_rng(1).normal(size=SIZE)
    scaling = 1 / np.diag(matrix) if scaled else None
    solution = solve(matrix, right_side, scaling=scaling, tolerance=0.0)
    expected = np.linalg.solve(matrix, right_side)
    np.testing.assert_allclose(as_vector(solution.iterates[-1].solution), expected, rtol=1e-3, atol=1e-3)


def test_iterates_and_values_are_those_of_the_textbook():
    rng = np.random.default_rng(2)
    matrix, right_side, start = positive_definite(100), rng.normal(size=SIZE), rng.normal(size=SIZE)
    scaling = rng.uniform(0.5, 2, SIZE)
    solution = solve(matrix, right_side, start, scaling)
    expected = list(textbook(matrix, right_side, start, scaling, 14))
    assert [iterate.iteration for iterate in solution.iterates[:9]] == [1, 2, 3, 4, 5, 7, 9, 11, 14]
    for iterate in solution.iterates[:9]:
        x, value = expected[iterate.iteration - 1]
        np.testing.assert_allclose(as_vector(iterate.solution), x, rtol=2e-3, atol=2e-3)
        assert iterate.value == pytest.approx(value, rel=1e-3)


def test_saved_iterates_grow_geometrically():
    solution = solve(positive_definite(1e4), np.ones(SIZE), tolerance=0.0, max_iterations=45)
    wanted = {math.ceil(1.3**j) for j in range(100)} | {45}
    made = [iterate.iteration for iterate in solution.iterates]
    assert made == sorted(i for i in wanted if i <= 45)
    assert solution.reason == "limit"


@pytest.mark.parametrize("seed", range(3, 8))
def test_stops_where_the_relative_gain_fades(seed):
    matrix, right_side = positive_definite(300), np.random.default_rng(seed).normal(size=SIZE)
    solution = solve(matrix, right_side, tolerance=0.01)
    values = [value for _, value in textbook(matrix, right_side, np.zeros(SIZE), np.ones(SIZE), 99)]

    def gain_over_threshold(i):
        window = max(10, i // 10)
        return (values[i - 1] - values[i - 1 - window]) / values[i - 1] / (window * 0.01)

    # Successive gains differ by a fifth; the hundredth is for the twin's double precision.
    assert solution.reason == "progress"
    assert solution.iterations > 12
    assert gain_over_threshold(solution.iterations) < 1.01
    assert all(gain_over_threshold(i) > 0.99 for i in range(11, solution.iterations))


def test_a_start_at_the_solution_is_not_left():
    matrix = positive_definite(10)
    expected = np.random.default_rng(4).normal(size=SIZE)
    solution = solve(matrix, matrix @ expected, start=expected)
    np.testing.assert_allclose(as_vector(solution.iterates[-1].solution), expected, rtol=1e-4, atol=1e-4)


def test_a_good_start_saves_iterations():
    matrix, right_side = positive_definite(1e3), np.random.default_rng(5).normal(size=SIZE)
    close = np.linalg.solve(matrix, right_side) * 0.999
    assert solve(matrix, right_side, start=close).iterations < solve(matrix, right_side).iterations


@pytest.mark.parametrize("low", [-1.0, 0.0, math.nan])
def test_curvature_that_is_not_positive_ends_the_run_with_a_finite_iterate(low):
    matrix = np.diag(np.r_[np.ones(5), low, np.full(SIZE - 6, 2.0)])
    solution = solve(matrix, np.r_[np.ones(5), 10.0, np.ones(SIZE - 6)])
    assert solution.reason == "curvature"
    for iterate in solution.iterates:
        assert np.all(np.isfinite(as_vector(iterate.solution)))


def test_a_direction_of_negative_curvature_is_not_followed():
    solution = solve(-np.eye(SIZE), np.ones(SIZE))
    assert solution.iterates == []
    assert solution.reason == "curvature"


def test_nothing_to_solve_gives_no_iterate():
    solution = solve(positive_definite(10), np.zeros(SIZE))
    assert solution.iterates == []
    assert solution.iterations == 0


def test_bursts_do_not_change_the_result():
    matrix, right_side = positive_definite(1e4), np.random.default_rng(6).normal(size=SIZE)
    short = solve(matrix, right_side, burst_seconds=0.0)
    long = solve(matrix, right_side, burst_seconds=100.0)
    assert [i.iteration for i in short.iterates] == [i.iteration for i in long.iterates]
    np.testing.assert_array_equal(as_vector(short.iterates[-1].solution), as_vector(long.iterates[-1].solution))


def test_can_be_interrupted_in_the_middle():
    looks = []

    def should_stop():
        looks.append(len(looks))
        return len(looks) > 20

    with pytest.raises(Interrupted):
        solve(positive_definite(1e4), np.ones(SIZE), burst_seconds=0.0, should_stop=should_stop)
    assert len(looks) == 21


def test_a_plain_function_will_do():
    solution = conjugate_gradient(lambda x: 2 * x, jnp.array([4.0, 6.0]))
    np.testing.assert_allclose(solution.iterates[-1].solution, [2, 3], rtol=1e-6)
