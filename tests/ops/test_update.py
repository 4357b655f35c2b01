"""Clip + Nesterov in one pass against its formulas in NumPy, and against Optax at constant momentum."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from longspan.ops import update

SHAPES = [(3, 5), (1,), (17,), (64, 8), (0,), (), (70, 70)]


def make(seed, scale=1.0):
    rng = np.random.default_rng(seed)
    return [np.asarray(scale * rng.normal(size=shape), np.float32) for shape in SHAPES]


def formulas(parameters, velocity, gradients, rate, previous, following, threshold):
    norm = np.sqrt(sum(np.sum(np.square(g, dtype=np.float64)) for g in gradients))
    scale = threshold / norm if norm > threshold else 1.0
    faster = [previous * v - rate * scale * g for v, g in zip(velocity, gradients, strict=True)]
    moved = [
        p + following * previous * v - (1 + following) * rate * scale * g
        for p, v, g in zip(parameters, velocity, gradients, strict=True)
    ]
    return moved, faster, norm, norm > threshold


@pytest.mark.parametrize("threshold", [0.5, 1e3, np.inf])
def test_one_step_follows_the_formulas(path, threshold):
    leaves = make(0), make(1), make(2)
    numbers = (0.05, 0.7, 0.9, threshold)
    names = ("learning_rate", "momentum_previous", "momentum_next", "threshold")
    got = update.clip_nesterov(*leaves, **dict(zip(names, numbers, strict=True)))
    want = formulas(*leaves, *numbers)
    for one, other in zip([*got[0], *got[1]], [*want[0], *want[1]], strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(got[2], want[2], rtol=1e-6)
    assert got[3].dtype == bool
    assert bool(got[3]) == want[3]


@pytest.mark.parametrize("threshold", [0.5, np.inf])
def test_descent_is_the_step_without_momentum(path, threshold):
    parameters, gradients = make(0), make(2)
    got, norm, clipped = update.clip_descend(
        parameters, gradients, learning_rate=0.05, threshold=threshold, other_squares=2.0
    )
    others = [np.zeros(1, np.float32), np.float32([np.sqrt(2)])]
    want, _, want_norm, want_clipped = formulas(
        [*parameters, others[0]], [*parameters, others[0]], [*gradients, others[1]], 0.05, 0, 0, threshold
    )
    for one, other in zip(got, want[:-1], strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(norm, want_norm, rtol=1e-6)
    assert bool(clipped) == want_clipped


def test_many_steps_in_one_call_equal_optax(path):
    """In place inside a compiled loop: nothing reads a buffer after it was overwritten."""
    rate, momentum, threshold, steps = 0.1, 0.9, 3.0, 12
    target = make(3)

    def gradients(parameters):
        return [p - t for p, t in zip(parameters, target, strict=True)]

    @jax.jit
    def run(parameters, velocity):
        def body(carry, _):
            parameters, velocity, norm, _ = update.clip_nesterov(
                *carry,
                gradients(carry[0]),
                learning_rate=rate,
                momentum_previous=momentum,
                momentum_next=momentum,
                threshold=threshold,
            )
            return (parameters, velocity), norm

        return jax.lax.scan(body, (parameters, velocity), length=steps)

    start = [jnp.asarray(leaf) for leaf in make(4)]
    (got, _), norms = run(start, [jnp.zeros_like(leaf) for leaf in start])
    chain = optax.chain(optax.clip_by_global_norm(threshold), optax.sgd(rate, momentum, nesterov=True))
    want, state, seen = start, chain.init(start), []
    for _ in range(steps):
        g = gradients(want)
        seen.append(optax.tree.norm(g))
        changes, state = chain.update(g, state)
        want = optax.apply_updates(want, changes)
    for one, other in zip(got, want, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(norms, seen, rtol=1e-5)
    assert norms[0] > threshold > 0


def test_arguments_survive_a_call(path):
    """In place means inside a program: an array the caller still holds must not change."""
    leaves = [[jnp.asarray(leaf) for leaf in make(seed)] for seed in range(3)]
    update.clip_nesterov(*leaves, learning_rate=1, momentum_previous=0.5, momentum_next=0.5, threshold=1)
    for seed, held in enumerate(leaves):
        for one, other in zip(held, make(seed), strict=True):
            np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_a_gradient_that_is_not_finite_shows(path, bad):
    gradients = make(2)
    gradients[3][5, 5] = bad
    moved, _, norm, _ = update.clip_nesterov(
        make(0), make(1), gradients, learning_rate=0.1, momentum_previous=0, momentum_next=0, threshold=1.0
    )
    assert not np.isfinite(norm)
    assert not np.isfinite(moved[3][5, 5])


def test_a_large_norm_does_not_overflow_natively(path):
    gradients = [np.full(100, 1e18, np.float32)]
    _, _, norm, clipped = update.clip_nesterov(
        gradients, gradients, gradients, learning_rate=0, momentum_previous=0, momentum_next=0, threshold=1.0
    )
    np.testing.assert_allclose(norm, 1e19, rtol=1e-5)
    assert clipped
