"""NADE logits against the definition, key by key in NumPy float64, and their derivatives against autodiff."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from longspan.ops import outputs
from longspan.ops.outputs import bernoulli_loss

# time, lanes, keys, hidden, length, density: sparse, empty, full, tiny, several blocks of frames, ragged ends
CASES = [
    (3, 2, 88, 37, 3, 0.05), (2, 1, 1, 1, 2, 0.5), (3, 2, 11, 16, 2, 1.0), (4, 1, 19, 24, 4, 0.0),
    (75, 2, 13, 9, 70, 0.3), (2, 2, 40, 90, 0, 0.1), (3, 1, 30, 8, 3, 0.5),
]  # fmt: skip


def make(time, lanes, keys, hidden, length, density, seed=0):
    rng = np.random.default_rng([seed, time, keys, hidden])
    shapes = [(time, lanes, keys), (time, lanes, hidden), (keys, hidden), (hidden, keys)]
    parameters = [rng.normal(size=shape).astype(np.float32) for shape in shapes]
    return parameters, (rng.random(shapes[0]) < density).astype(np.uint8), jnp.int32(length)


def definition(parameters, targets, length):
    visible_bias, hidden_bias, weights, readout = (p.astype(np.float64) for p in parameters)
    result = np.zeros(targets.shape)
    for t in range(length):
        for lane in range(targets.shape[1]):
            for key in range(targets.shape[2]):
                sum_before = targets[t, lane, :key] @ weights[:key]
                hidden = 1 / (1 + np.exp(-(hidden_bias[t, lane] + sum_before)))
                result[t, lane, key] = visible_bias[t, lane, key] + hidden @ readout[:, key]
    return result


def key_by_key(parameters, targets):
    """The definition once more, as a scan over keys that JAX differentiates by itself."""
    visible_bias, hidden_bias, weights, readout = parameters

    def step(hidden, inputs):
        on, row, column = inputs
        return hidden + jnp.multiply.outer(on, row), jax.nn.sigmoid(hidden) @ column

    on = jnp.moveaxis(jnp.asarray(targets, weights.dtype), -1, 0)
    _, columns = jax.lax.scan(step, hidden_bias, (on, weights, readout.T))
    return visible_bias + jnp.moveaxis(columns, 0, -1)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_logits_follow_the_definition(path, case):
    parameters, targets, length = make(*case)
    want = definition(parameters, targets, int(length))
    for ignored in parameters[:2]:
        ignored[int(length) :] = np.nan
    np.testing.assert_allclose(outputs.nade_logits(*parameters, targets, length), want, rtol=1e-5, atol=2e-5)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_derivatives_equal_those_of_the_key_by_key_form(native_path, case):
    parameters, targets, length = make(*case)
    directions, _, _ = make(*case, seed=1)
    cotangent = np.random.default_rng(2).normal(size=targets.shape).astype(np.float32)
    keep = (np.arange(targets.shape[0]) < length)[:, None, None]

    def ours(*parameters):
        return outputs.nade_logits(*parameters, targets, length)

    def oracle(*parameters):
        return jnp.where(keep, key_by_key(parameters, targets), 0)

    def derivatives(function):
        _, tangent = jax.jvp(function, tuple(parameters), tuple(directions))
        _, pull = jax.vjp(function, *parameters)
        return tangent, pull(jnp.asarray(cotangent)), pull(tangent)

    got, want = (jax.jit(derivatives, static_argnums=0)(function) for function in (ours, oracle))
    for one, other in zip(jax.tree.leaves(got), jax.tree.leaves(want), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-4)


def test_twin_is_exact_at_every_density(monkeypatch):
    """From silence to all keys on, through the public function and its gradient."""
    monkeypatch.setenv("LONGSPAN_KERNELS", "xla")
    parameters, targets, length = make(2, 2, 30, 5, 2, 0.1)

    def value_and_pull(form):
        return jax.jit(lambda x: (lambda value, pull: (value, pull(value)))(*jax.vjp(partial(form, x), *parameters)))

    ours = value_and_pull(lambda x, *parameters: outputs.nade_logits(*parameters, x, length))
    oracle = value_and_pull(lambda x, *parameters: key_by_key(parameters, x))
    for most in (0, 1, 17, 30):
        targets[1, 1] = np.random.default_rng(3).permutation(np.arange(30) < most)
        np.testing.assert_allclose(ours(targets)[0], definition(parameters, targets, 2), rtol=1e-5, atol=2e-5)
        for one, other in zip(jax.tree.leaves(ours(targets)), jax.tree.leaves(oracle(targets)), strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-4)


def test_probabilities_of_all_frames_sum_to_one(path):
    """Exact enumeration: what autoregressive conditionals promise and a wrong key order breaks."""
    keys = 6
    parameters, _, _ = make(1, 1, keys, 7, 1, 0)
    frames = ((np.arange(2**keys)[:, None] >> np.arange(keys)) & 1).astype(np.uint8)[:, None]
    shared = [np.broadcast_to(p, (2**keys, 1, p.shape[-1])) for p in parameters[:2]]
    logits = outputs.nade_logits(*shared, *parameters[2:], frames, jnp.int32(2**keys))
    negative = bernoulli_loss(logits, frames, jnp.ones((2**keys, 1)))
    np.testing.assert_allclose(np.exp(-np.asarray(negative, np.float64)).sum(), 1, rtol=1e-5)


def test_a_nan_bias_stays_in_its_frame(path):
    parameters, targets, length = make(3, 2, 20, 10, 3, 0.2)
    parameters[1][1, 0, 4] = np.nan
    bad = np.isnan(outputs.nade_logits(*parameters, targets, length))
    assert bad[1, 0].all()
    assert bad.sum() == 20


def test_vmap_of_the_gradient(native_path):
    parameters, targets, length = make(3, 1, 12, 5, 3, 0.2)
    several = np.stack([parameters[2], 2 * parameters[2]])

    def loss(weights):
        return jnp.sum(outputs.nade_logits(parameters[0], parameters[1], weights, parameters[3], targets, length) ** 2)

    got = jax.vmap(jax.grad(loss))(several)
    for one, weights in zip(got, several, strict=True):
        np.testing.assert_allclose(one, jax.grad(loss)(weights), rtol=1e-5, atol=1e-6)
