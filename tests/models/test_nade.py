"""NADE: the sparse kernel against the dense recursion, the distribution against enumeration of all frames."""

import dataclasses
from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from longspan import recipes
from longspan.config import check_output
from longspan.errors import InputError
from longspan.models.model import build
from longspan.models.outputs import FREE, OFF, ON, Nade
from longspan.ops import outputs
from tests.support import reference_outputs as reference


def make_case(seed, time=7, lanes=2, keys=88, units=20, density=0.05):
    rng = np.random.default_rng(seed)
    targets = (rng.random((time, lanes, keys)) < density).astype(np.uint8)
    shapes = [(time, lanes, keys), (time, lanes, units), (keys, units), (units, keys)]
    return [jnp.asarray(rng.normal(size=shape), jnp.float32) for shape in shapes], targets


@jax.jit
def dense(visible_bias, hidden_bias, weights, readout, targets):
    """The recursion over keys as a scan, for its derivatives; its values are held to the NumPy twin below."""

    def step(pre_activation, key):
        logit = visible_bias[..., key] + jax.nn.sigmoid(pre_activation) @ readout[:, key]
        added = targets[..., key, None].astype(weights.dtype) * weights[key][None, None]
        return pre_activation + added, logit

    _, logits = jax.lax.scan(step, hidden_bias, jnp.arange(weights.shape[0]))
    return jnp.moveaxis(logits, 0, -1)


@jax.jit
def sparse(visible_bias, hidden_bias, weights, readout, targets, length=None):
    length = jnp.asarray(len(targets) if length is None else length)
    return outputs.nade_logits(visible_bias, hidden_bias, weights, readout, targets, length)


def frames_of_every_kind(targets):
    """Silence, every key on, only the lowest, only the highest, and what was drawn."""
    targets[0], targets[1], targets[2], targets[3] = 0, 1, 0, 0
    targets[2, :, 0] = 1
    targets[3, :, -1] = 1
    return targets


def assert_close(got, expected, tolerance=1e-5):
    for one, other in zip(jax.tree.leaves(got), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(one, other, rtol=tolerance, atol=tolerance * float(np.abs(other).max()))


def test_sparse_kernel_equals_the_recursion_for_every_kind_of_frame():
    arguments, targets = make_case(0)
    targets = frames_of_every_kind(targets)
    visible_bias, hidden_bias, weights, readout = (np.asarray(argument, np.float64) for argument in arguments)
    expected = [
        [
            reference.nade_logits(visible_bias[t, lane], hidden_bias[t, lane], weights, readout, targets[t, lane])
            for lane in range(targets.shape[1])
        ]
        for t in range(len(targets))
    ]
    assert_close(sparse(*arguments, targets), np.array(expected))
    assert_close(dense(*arguments, targets), np.array(expected))


@settings(max_examples=15)
@given(st.integers(0, 1000), st.floats(0, 1))
def test_sparse_kernel_equals_the_recursion_at_any_density(seed, density):
    arguments, targets = make_case(seed, keys=12, density=density)
    assert_close(sparse(*arguments, targets), dense(*arguments, targets))


def test_derivatives_equal_those_of_the_recursion():
    arguments, targets = make_case(1)
    targets = frames_of_every_kind(targets)
    change, _ = make_case(2)
    change, arguments = tuple(change), tuple(arguments)
    value, tangent = jax.jvp(lambda *moving: sparse(*moving, targets), arguments, change)
    dense_value, dense_tangent = jax.jvp(lambda *moving: dense(*moving, targets), arguments, change)
    assert_close((value, tangent), (dense_value, dense_tangent))

    cotangent = change[0]
    _, pull = jax.vjp(lambda *moving: sparse(*moving, targets), *arguments)
    _, dense_pull = jax.vjp(lambda *moving: dense(*moving, targets), *arguments)
    assert_close(pull(cotangent), dense_pull(cotangent))

    # A Gauss-Newton product linearizes once, then pushes and pulls.
    _, push = jax.linearize(lambda *moving: sparse(*moving, targets), *arguments)
    curved = jax.linear_transpose(push, *arguments)(push(*change))
    assert_close(curved, dense_pull(dense_tangent))


@pytest.mark.parametrize("moving", range(4))
def test_gradient_of_one_argument_alone(moving):
    arguments, targets = make_case(3, keys=9)

    def total(function):
        return jax.grad(lambda one: jnp.sum(function([*arguments[:moving], one, *arguments[moving + 1 :]]) ** 2))

    expected = total(lambda moved: dense(*moved, targets))(arguments[moving])
    assert_close(total(lambda moved: sparse(*moved, targets))(arguments[moving]), expected)


def test_padding_after_the_length_changes_nothing_before_it():
    arguments, targets = make_case(4)
    whole = sparse(*arguments, targets)
    targets[5:] = 1
    cut = sparse(*arguments, targets, 5)
    np.testing.assert_array_equal(whole[:5], cut[:5])
    gradient = jax.grad(lambda bias: jnp.sum(sparse(arguments[0], bias, *arguments[2:], targets, 5)))
    assert not np.any(gradient(arguments[1])[5:])


def normal(seed, shape):
    return jnp.asarray(np.random.default_rng(seed).normal(size=shape), jnp.float32)


@eqx.filter_jit  # one compilation instead of one an operation
def make_output(keys=8, hidden_size=5, units=6, seed=0) -> Nade:
    key_weights, key_bias = jax.random.split(jax.random.key(seed))
    return Nade.initial(hidden_size, units, jax.random.normal(key_bias, (keys,)), 1.0, key=key_weights)


def enumerate_log_probs(output: Nade, hidden):
    frames = reference.all_frames(len(output.visible_bias))
    steps = jnp.broadcast_to(hidden, (len(frames), 1, len(hidden)))
    log_prob = jax.jit(lambda targets: output.log_prob(steps, targets, jnp.asarray(len(frames))))
    return frames, log_prob(frames[:, None])[:, 0]


@pytest.mark.parametrize("keys", [1, 4, 10])
def test_probabilities_of_all_frames_sum_to_one_and_equal_the_twin(keys):
    output = make_output(keys)
    hidden = normal(1, (5,))
    frames, log_probs = enumerate_log_probs(output, hidden)
    assert np.exp(np.asarray(log_probs, np.float64)).sum() == pytest.approx(1, abs=1e-5)
    biases = [np.asarray(bias, np.float64) for bias in output.biases(hidden)]
    parameters = [np.asarray(array, np.float64) for array in (output.weights, output.readout)]
    twin = [reference.nade_log_prob(*biases, *parameters, frame) for frame in frames]
    np.testing.assert_allclose(log_probs, twin, rtol=1e-5, atol=1e-5)


def count_frames(samples) -> np.ndarray:
    codes = np.asarray(samples, int) @ (1 << np.arange(samples.shape[-1])[::-1])
    return np.bincount(codes, minlength=2 ** samples.shape[-1])


def test_sampling_frequencies_match_the_probabilities():
    output = make_output(keys=4)
    hidden = normal(1, (5,))
    draws = 40_000
    sample = jax.jit(lambda key: output.sample(jnp.broadcast_to(hidden, (draws, 5)), key=key))(jax.random.key(2))
    assert sample.dtype == np.uint8
    _, log_probs = enumerate_log_probs(output, hidden)
    expected = np.exp(np.asarray(log_probs))
    error = 5 * np.sqrt(expected * (1 - expected) / draws) + 1e-6
    assert np.all(np.abs(count_frames(sample) / draws - expected) < error)


@pytest.mark.parametrize("held", [[FREE, ON, FREE, OFF], [FREE, FREE, ON, FREE]])
def test_weighted_frames_follow_the_distribution_given_the_held_keys(held):
    output = make_output(keys=4)
    hidden, draws = normal(1, (1, 5)), 40_000
    found = jax.jit(partial(output.candidates, count=draws))(
        hidden, keys=jax.random.split(jax.random.key(3), 1), held=jnp.array([held])
    )
    weights = np.exp(np.asarray(found.log_weight[0], np.float64))
    codes = np.asarray(found.steps[0], int) @ (8, 4, 2, 1)
    estimated = np.bincount(codes, weights, minlength=16) / weights.sum()
    frames, log_probs = enumerate_log_probs(output, hidden[0])
    fits = np.all((np.array(held) == FREE) | (frames == held), axis=1)
    expected = np.where(fits, np.exp(np.asarray(log_probs, np.float64)), 0)
    np.testing.assert_allclose(estimated, expected / expected.sum(), atol=0.01)
    np.testing.assert_allclose(found.log_prob[0], np.asarray(log_probs)[codes], atol=1e-5)


def test_a_frame_is_predicted_only_from_frames_before_it():
    config = recipes.settings("nade:sgd+crm", "jsb", "frames")
    model = build(config, 88, np.full(88, 0.05), key=jax.random.key(0))
    rng = np.random.default_rng(0)
    targets = (rng.random((6, 1, 88)) < 0.05).astype(np.uint8)
    resets = jnp.zeros((6, 1), bool).at[0].set(True)

    @jax.jit
    def log_probs(targets):
        inputs = jnp.concatenate([jnp.zeros_like(targets[:1]), targets[:-1]])
        _, hidden = model.run(model.start(1), inputs, resets, jnp.asarray(6))
        return hidden, model.output.log_prob(hidden, targets, jnp.asarray(6))

    changed = targets.copy()
    changed[3] = 1 - changed[3]
    (hidden, before), (hidden_changed, after) = log_probs(targets), log_probs(changed)
    np.testing.assert_array_equal(hidden[:4], hidden_changed[:4])
    np.testing.assert_array_equal(before[:3], after[:3])
    assert not np.allclose(hidden[4], hidden_changed[4])
    assert before[3] != after[3]


def test_a_fresh_model_predicts_the_base_rates_when_its_weights_are_small():
    rates = np.linspace(0.01, 0.4, 88)
    config = recipes.settings("nade:sgd", "jsb", "frames")
    output = build(dataclasses.replace(config, output_scale=0.0), 88, rates, key=jax.random.key(0)).output
    logits = output.logits(jnp.ones((1, 1, config.hidden_size)), jnp.ones((1, 1, 88), jnp.uint8), 1)
    np.testing.assert_allclose(jax.nn.sigmoid(logits)[0, 0], rates, rtol=1e-5)


def test_nade_is_refused_for_text():
    with pytest.raises(InputError, match="expected softmax"):
        check_output(recipes.settings("nade:sgd", "ptb-chars", "characters"), "symbols")
