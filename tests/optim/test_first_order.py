"""Clipping and Nesterov momentum against Optax, Sutskever's form and the definition."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from longspan.optim.blocks import ClippedNesterov, FirstOrder
from longspan.optim.transforms import clip_by_norm, inverse_decay, nesterov, ramp
from tests.support import reference

MATRIX = np.array([[3.0, 0.5], [0.5, 1.0]])


def gradient(theta):
    return MATRIX @ theta - np.array([1.0, -2.0])


def simplified_path(transformation, start, steps):
    params = jnp.asarray(start, jnp.float32)
    state = transformation.init(params)
    path = [params]
    for _ in range(steps):
        updates, state = transformation.update(jnp.asarray(gradient(np.asarray(params)), jnp.float32), state)
        params = optax.apply_updates(params, updates)
        path.append(params)
    return path


def test_scheduled_nesterov_equals_sutskevers_look_ahead_in_the_shifted_variable():
    steps = 30
    momenta = [float(min(1 - 0.5 / (t // 5 + 1), 0.9)) for t in range(steps + 1)]
    rates = [0.1 / (1 + t / 20) for t in range(steps)]
    path = reference.sutskever_nesterov(gradient, [2.0, -1.0], rates, momenta, steps)
    shifted = [theta + momenta[t] * velocity for t, (theta, velocity) in enumerate(path)]
    found = simplified_path(nesterov(inverse_decay(0.1, 20), ramp(0.9, period=5)), [2.0, -1.0], steps)
    np.testing.assert_allclose(np.stack(found), np.stack(shifted), rtol=1e-4, atol=1e-5)
    assert np.abs(np.stack(shifted) - np.stack([theta for theta, _ in path])).max() > 0.05


@pytest.mark.parametrize("momentum", [0.0, 0.5, 0.95])
def test_constant_nesterov_equals_optax(momentum):
    ours = simplified_path(nesterov(0.05, momentum), [2.0, -1.0], 40)
    theirs = simplified_path(optax.sgd(0.05, momentum, nesterov=True), [2.0, -1.0], 40)
    np.testing.assert_allclose(np.stack(ours), np.stack(theirs), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("threshold", [0.3, np.inf])
def test_the_compiled_driver_takes_the_steps_of_the_optax_chain(threshold):
    chain = optax.chain(clip_by_norm(threshold), nesterov(inverse_decay(0.1, 20), ramp(0.9, period=5)))
    matrix = jnp.asarray(MATRIX, jnp.float32)

    def loss(params, carry, chunk, context):
        value = 0.5 * params["w"] @ matrix @ params["w"] + chunk @ params["w"] + context * params["b"] ** 2
        return value, (carry + 1, value)

    chunks = jnp.asarray(np.random.default_rng(0).normal(size=(6, 2)), jnp.float32)
    start = {"w": jnp.array([2.0, -1.0]), "b": jnp.asarray(0.5)}
    state, norms = chain.init(start), []
    params: Any = start
    for chunk in chunks[:5]:
        gradient = jax.grad(loss, has_aux=True)(params, 0, chunk, 3.0)[0]
        updates, state = chain.update(gradient, state)
        params, norms = optax.apply_updates(params, updates), [*norms, float(optax.tree.norm(gradient))]

    driver = FirstOrder(loss, ClippedNesterov(inverse_decay(0.1, 20), ramp(0.9, period=5), threshold))
    found, _, carry, info = driver.advance(dict(start), driver.init(start), jnp.asarray(0), chunks, 5, 3.0)
    np.testing.assert_allclose(found["w"], params["w"], rtol=1e-5)
    np.testing.assert_allclose(found["b"], params["b"], rtol=1e-5)
    figures = info.of_updates()
    np.testing.assert_allclose(figures["gradient_norm"], norms, rtol=1e-5)
    np.testing.assert_array_equal(figures["clipped"], np.array(norms) > threshold)
    np.testing.assert_allclose(figures["learning_rate"], [0.1 / (1 + step / 20) for step in range(5)], rtol=1e-5)
    np.testing.assert_allclose(figures["objective"], info.observed[:5], rtol=1e-6)
    assert int(carry) == 5


def test_the_driver_scales_the_learning_rate_through_the_state():
    transformation = nesterov(0.1)
    state = transformation.init(jnp.ones(2))._replace(scale=jnp.asarray(0.5))
    updates, state = transformation.update(jnp.array([1.0, -2.0]), state)
    np.testing.assert_allclose(updates, [-0.05, 0.1], rtol=1e-6)
    assert int(state.step) == 1


def test_ramp_is_sutskevers_formula():
    schedule = ramp(0.95)
    for step in (0, 249, 250, 1000, 10_000):
        expected = min(1 - 2 ** (-1 - np.log2(step // 250 + 1)), 0.95)
        assert float(schedule(jnp.asarray(step))) == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("threshold", [0.5, 4.999, 5.0, 5.001, np.inf])
def test_clip_takes_one_norm_over_all_leaves(threshold):
    tree = {"a": jnp.array([3.0, 0.0]), "b": jnp.array([[4.0]])}
    transformation: Any = clip_by_norm(threshold)
    clipped, state = transformation.update(tree, None)
    assert float(state.norm) == pytest.approx(5.0)
    assert bool(state.clipped) == (threshold < 5)
    length = np.sqrt(sum(float(jnp.sum(leaf**2)) for leaf in clipped.values()))
    assert length == pytest.approx(min(5.0, threshold), rel=1e-6)
    np.testing.assert_allclose(clipped["a"] / tree["a"][0], [length / 5, 0], rtol=1e-6)


def test_clip_equals_optax(random):
    tree = [jnp.asarray(random.normal(size=(3, 4)), jnp.float32), jnp.asarray(random.normal(size=5), jnp.float32)]
    ours, _ = clip_by_norm(1.5).update(tree, None)
    theirs, _ = optax.clip_by_global_norm(1.5).update(tree, optax.EmptyState())
    for a, b in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5)


def test_clip_compares_the_norm_and_not_its_square():
    transformation: Any = clip_by_norm(3.0)
    clipped, state = transformation.update(jnp.array([2.0, 0.0]), None)
    assert not bool(state.clipped)
    np.testing.assert_allclose(clipped, [2.0, 0.0])


def test_a_gradient_that_is_not_finite_is_not_hidden():
    transformation: Any = clip_by_norm(1.0)
    clipped, state = transformation.update(jnp.array([np.nan, 1.0]), None)
    assert np.isnan(float(state.norm))
    assert np.isnan(np.asarray(clipped)).any()
