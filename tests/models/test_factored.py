"""Class-factored softmax: classes by the rule, the kernel against brute force, the distribution against its sum."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from longspan import recipes
from longspan.models.factored import ClassFactored, class_starts, factored_output
from longspan.models.model import build
from longspan.models.outputs import Softmax
from longspan.models.parts import split_constants
from longspan.ops import factored
from tests.support import reference_outputs as reference
from tests.support.word_outputs import assert_log_probs, assert_same_loss, log_probs_of_words, loss, steps_of

HIDDEN = 6


def normal(seed, shape):
    return jnp.asarray(np.random.default_rng(seed).normal(size=shape), jnp.float32)


@eqx.filter_jit  # one compilation instead of one an operation
def make_output(words=300, classes=12, rule="frequency", seed=0) -> ClassFactored:
    rates = 1 / np.arange(1, words + 1)
    starts = class_starts(np.asarray(rates, float), classes, rule)
    return ClassFactored.initial(HIDDEN, rates / rates.sum(), starts, 1.0, key=jax.random.key(seed))


@settings(max_examples=50)
@given(st.lists(st.integers(1, 1000), min_size=1, max_size=60), st.integers(1, 12), st.booleans())
def test_classes_follow_the_rule(counts, classes, square_root):
    counts = np.array(sorted(counts, reverse=True))
    starts = class_starts(counts.astype(float), classes, "square-root" if square_root else "frequency")
    membership = np.searchsorted(starts, np.arange(len(counts)), side="right") - 1
    expected = reference.class_of_words(np.sqrt(counts) if square_root else counts, classes)
    assert starts.shape == (classes + 1,)
    assert np.mean(membership == expected) > 0.9  # a sum in another order may move one boundary by one word
    assert starts[0] == 0
    assert starts[-1] == len(counts)


def test_most_frequent_words_are_alone_and_the_last_class_is_the_largest():
    sizes = np.diff(class_starts(1 / np.arange(1, 10_001), 30, "frequency"))
    assert sizes[0] == 1
    assert sizes[-1] == sizes.max() > 2000
    assert np.diff(class_starts(1 / np.arange(1, 10_001), 30, "square-root")).max() < 1000


@pytest.mark.parametrize(("words", "classes"), [(300, 12), (5, 9), (40, 1), (500, 3)])
def test_log_prob_equals_brute_force_and_sums_to_one(words, classes):
    output = make_output(words, classes)
    starts = np.asarray(output.starts.value)
    membership = np.searchsorted(starts, np.arange(words), side="right") - 1
    state = np.random.default_rng(0).normal(size=HIDDEN)
    parameters = [
        np.asarray(array, np.float64)
        for array in (output.class_weights, output.class_bias, output.weights, output.bias)
    ]
    twin = [reference.factored_log_prob(state, *parameters, membership, word) for word in range(words)]
    assert_log_probs(output, state, twin)


def test_kernel_equals_the_dense_cut_in_value_and_gradient():
    output = make_output()
    hidden, targets = steps_of(300, HIDDEN)

    def by_dense_cut(output, hidden):
        return output.loss_of(output.logits(hidden, targets, jnp.asarray(len(targets))), targets)

    assert_same_loss(output, hidden, targets, by_dense_cut)


@settings(max_examples=10)
@given(st.integers(0, 1000), st.integers(1, 20))
def test_kernel_takes_any_mix_of_ranges(seed, ranges):
    rng = np.random.default_rng(seed)
    rows, steps = 400, 24
    bounds = np.sort(np.concatenate([[0, rows], rng.integers(0, rows + 1, ranges - 1)]))
    target = rng.integers(0, rows, steps)
    place = np.searchsorted(bounds, target, side="right") - 1
    hidden, weights, bias = (rng.normal(size=shape).astype(np.float32) for shape in [(steps, 5), (rows, 5), (rows,)])
    start, stop = bounds[place], bounds[place + 1]
    got = jax.jit(factored.log_prob)(hidden, weights, bias, target, start, stop)
    logits = hidden.astype(np.float64) @ weights.T.astype(np.float64) + bias
    expected = [
        logits[step, target[step]] - np.log(np.exp(logits[step, start[step] : stop[step]]).sum())
        for step in range(steps)
    ]
    np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-5)


def test_padding_costs_and_changes_nothing():
    output = make_output()
    hidden, targets = steps_of(len(output.bias), HIDDEN)
    whole = loss(output, hidden, targets, jnp.asarray(20))
    cut = loss(output, hidden, targets.at[12:].set(299), jnp.asarray(12))
    np.testing.assert_allclose(whole[:12], cut[:12], rtol=1e-6)
    gradient = jax.jit(
        jax.grad(lambda bias: jnp.sum(dataclasses.replace(output, bias=bias).loss(hidden, targets, jnp.asarray(0))))
    )(output.bias)
    assert not np.any(gradient)


def test_large_logits_neither_overflow_nor_vanish():
    output = make_output()
    hidden, targets = steps_of(len(output.bias), HIDDEN)
    losses = np.asarray(loss(output, 1e4 * hidden, targets, jnp.asarray(20)))
    assert np.all(np.isfinite(losses))
    dense = output.loss_of(output.logits(1e4 * hidden, targets, jnp.asarray(20)), targets)
    np.testing.assert_allclose(losses, dense, rtol=1e-4, atol=1.0)


def test_one_class_is_the_full_softmax():
    output = make_output(50, 1)
    hidden, targets = steps_of(len(output.bias), HIDDEN)
    full = Softmax(output.weights.T, output.bias).loss(hidden, targets, jnp.asarray(20))
    np.testing.assert_allclose(loss(output, hidden, targets, jnp.asarray(20)), full, rtol=1e-5, atol=1e-5)


def test_sampling_frequencies_match_the_probabilities():
    output = make_output(10, 3)
    hidden = normal(5, (HIDDEN,))
    draws = 40_000
    words = output.sample(jnp.broadcast_to(hidden, (draws, HIDDEN)), key=jax.random.key(6))
    weights = np.exp(np.asarray(log_probs_of_words(output, hidden), np.float64))
    expected = weights / weights.sum()
    frequencies = np.bincount(words, minlength=10) / draws
    assert np.all(np.abs(frequencies - expected) < 5 * np.sqrt(expected * (1 - expected) / draws) + 1e-6)
    assert words.dtype == jnp.int32


def test_the_likeliest_word_has_the_highest_probability():
    output = make_output(60, 7)
    hidden, _ = steps_of(len(output.bias), HIDDEN)
    np.testing.assert_array_equal(output.likeliest(hidden), np.argmax(log_probs_of_words(output, hidden), axis=-1))


def test_gauss_newton_curvature_of_the_cut_is_finite_and_positive():
    output = make_output(40, 5)
    hidden, targets = steps_of(len(output.bias), HIDDEN)
    logits = output.logits(hidden, targets, jnp.asarray(20))
    _, curvature = jax.linearize(jax.grad(lambda logits: jnp.sum(output.loss_of(logits, targets))), logits)
    direction = jax.tree.map(lambda leaf: jnp.asarray(np.random.default_rng(0).normal(size=leaf.shape)), logits)
    product = curvature(direction)
    assert all(np.all(np.isfinite(leaf)) for leaf in jax.tree.leaves(product))
    assert sum(float(jnp.vdot(a, b)) for a, b in zip(direction, product, strict=True)) > 0


def test_words_are_factored_by_default_and_start_from_their_rates():
    config = recipes.settings("sgd+c", "ptb-words")
    assert (config.output, config.classes, config.class_rule) == ("factored", 30, "frequency")
    rates = 1 / np.arange(1, 201)
    rates /= rates.sum()
    output = factored_output(
        dataclasses.replace(config, output_scale=0.0), config.hidden_size, rates, key=jax.random.key(0)
    )
    np.testing.assert_allclose(np.exp(log_probs_of_words(output, jnp.ones(config.hidden_size))), rates, rtol=1e-4)


def test_classes_are_saved_with_the_model_and_not_trained():
    model = build(recipes.settings("sgd+c", "ptb-words"), 200, np.full(200, 1 / 200), key=jax.random.key(0))
    params, constants = split_constants(model)
    assert params.output.starts is None
    assert len(constants.output.starts.value) == 31
