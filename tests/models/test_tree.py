"""Softmax over a Huffman tree: the tree by its optimality, probabilities against walks in NumPy and their sum."""

import dataclasses
import heapq

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import longspan
from longspan import recipes
from longspan.errors import InputError
from longspan.models.model import build
from longspan.models.parts import split_constants
from longspan.models.tree import DEEPEST, HuffmanTree, huffman_paths, tree_output
from tests.support import reference_outputs as reference
from tests.support.word_outputs import assert_log_probs, assert_same_loss, log_probs_of_words, loss, steps_of

HIDDEN, WORDS = 6, 40


@eqx.filter_jit  # one compilation instead of one an operation
def make_output(words=WORDS, seed=0) -> HuffmanTree:
    rates = 1 / np.arange(1, words + 1)
    return HuffmanTree.initial(HIDDEN, rates / rates.sum(), 1.0, key=jax.random.key(seed))


def least_mean_length(rates):
    """Of any prefix code: every merge of the two rarest makes the words below it one decision longer."""
    heap, total = list(rates), 0.0
    heapq.heapify(heap)
    while len(heap) > 1:
        merged = heapq.heappop(heap) + heapq.heappop(heap)
        total += merged
        heapq.heappush(heap, merged)
    return total


@settings(max_examples=50)
@given(st.lists(st.integers(1, 1000), min_size=2, max_size=60))
def test_no_tree_has_shorter_paths(counts):
    rates = np.array(counts, float)
    paths = huffman_paths(rates)
    lengths = np.sum(paths >= 0, axis=1)
    assert rates @ lengths == pytest.approx(least_mean_length(rates))
    assert np.sum(0.5**lengths) == 1  # no branch leads nowhere
    # Different words differ at a node that both pass, and a path has nothing behind its end.
    assert len({tuple(path[path >= 0]) for path in paths}) == len(rates)
    assert np.all(np.diff((paths >= 0).astype(int), axis=1) <= 0)
    assert np.all(paths[:, 0] >> 1 == 0)
    assert set(np.unique(paths[paths >= 0])) == set(range(2 * (len(rates) - 1)))


def test_frequent_words_have_short_paths():
    rates = 1 / np.arange(1, 10_001)
    lengths = np.sum(huffman_paths(rates) >= 0, axis=1)
    assert np.all(np.diff(lengths) >= 0)
    assert lengths[0] <= 4
    entropy = -np.sum(rates / rates.sum() * np.log2(rates / rates.sum()))
    assert entropy <= rates @ lengths / rates.sum() < entropy + 1


def test_the_shape_follows_from_the_number_of_words_alone():
    """A saved model is read without its data, so without the rates that made its tree."""
    fibonacci = [1, 1]
    while len(fibonacci) < 60:
        fibonacci.append(fibonacci[-1] + fibonacci[-2])
    assert huffman_paths(np.array(fibonacci, float)).shape == huffman_paths(np.ones(60)).shape == (60, DEEPEST)
    deepest = np.array(fibonacci[:33], float)  # one more would be rarer than any rate is taken to be
    assert np.sum(huffman_paths(deepest) >= 0, axis=1).max() == 32 < DEEPEST


def test_a_trained_tree_is_read_again(tmp_path):
    words = np.random.default_rng(0).zipf(1.5, 600) % 50
    (tmp_path / "text.txt").write_text(" ".join(f"w{word}" for word in words))
    config = {"hidden_size": 5, "max_epochs": 1, "chunk_length": 10}
    trained = longspan.train("tree:sgd+c", data=f"words:{tmp_path / 'text.txt'}", run_dir=tmp_path / "run", **config)
    scores = trained.evaluate("test")
    assert longspan.open_run(tmp_path / "run").evaluate("test") == scores
    assert len(trained.sample(length=20)) > 0


def test_a_compiled_construction_plants_the_same_tree_and_shapes_need_none(monkeypatch):
    rates = np.random.default_rng(0).random(50)

    def make():
        return HuffmanTree.initial(4, rates, 0.1, key=jax.random.key(0))

    for one, other in zip(jax.tree.leaves(make()), jax.tree.leaves(jax.jit(make)()), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-6)
    monkeypatch.setattr("longspan.models.tree.huffman_paths", lambda rates: pytest.fail("a tree was planted"))
    shapes = [(leaf.shape, leaf.dtype) for leaf in jax.tree.leaves(jax.eval_shape(make))]
    monkeypatch.undo()
    assert shapes == [(leaf.shape, leaf.dtype) for leaf in jax.tree.leaves(make())]


def test_a_single_word_is_refused():
    with pytest.raises(InputError, match="at least two, got 1"):
        huffman_paths(np.ones(1))
    with pytest.raises(InputError, match="at least two, got 1"):  # before a run folder is made
        jax.eval_shape(lambda: HuffmanTree.initial(4, np.ones(1), 0.1, key=jax.random.key(0)))


@pytest.mark.parametrize("words", [2, 3, WORDS, 300])
def test_log_prob_equals_a_walk_from_the_root_and_sums_to_one(words):
    output = make_output(words)
    state = np.random.default_rng(0).normal(size=HIDDEN)
    weights, bias = (np.asarray(array, np.float64) for array in (output.weights, output.bias))
    twin = [reference.tree_log_prob(state, weights, bias, path) for path in np.asarray(output.paths.value)]
    assert_log_probs(output, state, twin)


def test_probabilities_by_paths_equal_those_of_all_words_in_value_and_gradient():
    output = make_output()
    hidden, targets = steps_of(WORDS, HIDDEN)

    def by_all_words(output, hidden):
        return -jnp.take_along_axis(output.log_probs(hidden), targets[..., None], axis=-1)[..., 0]

    assert_same_loss(output, hidden, targets, by_all_words)


def test_padding_changes_nothing():
    output = make_output()
    hidden, targets = steps_of(len(output.paths.value), HIDDEN)
    whole = loss(output, hidden, targets, jnp.asarray(20))
    cut = loss(output, hidden, targets.at[12:].set(WORDS - 1), jnp.asarray(12))
    np.testing.assert_allclose(whole[:12], cut[:12], rtol=1e-6)
    gradient = jax.jit(
        jax.grad(lambda bias: jnp.sum(dataclasses.replace(output, bias=bias).loss(hidden, targets, jnp.asarray(0))))
    )(output.bias)
    assert not np.any(gradient)


def test_large_logits_neither_overflow_nor_vanish():
    output = make_output()
    hidden, targets = steps_of(len(output.paths.value), HIDDEN)
    losses = np.asarray(loss(output, 1e4 * hidden, targets, jnp.asarray(20)))
    assert np.all(np.isfinite(losses))
    listed = -np.take_along_axis(log_probs_of_words(output, 1e4 * hidden), np.asarray(targets)[..., None], axis=-1)
    np.testing.assert_allclose(losses, listed[..., 0], rtol=1e-4, atol=1.0)


def test_sampling_frequencies_match_the_probabilities():
    output = make_output(10)
    hidden = jnp.asarray(np.random.default_rng(5).normal(size=HIDDEN), jnp.float32)
    draws = 40_000
    words = output.sample(jnp.broadcast_to(hidden, (draws, HIDDEN)), key=jax.random.key(6))
    expected = np.exp(np.asarray(log_probs_of_words(output, hidden), np.float64))
    frequencies = np.bincount(words, minlength=10) / draws
    assert np.all(np.abs(frequencies - expected) < 5 * np.sqrt(expected * (1 - expected) / draws) + 1e-6)
    assert words.dtype == jnp.int32


def test_it_starts_from_the_rates_of_the_words_also_of_those_that_never_occur():
    config = dataclasses.replace(recipes.settings("tree:sgd+c", "ptb-words"), output_scale=0.0)
    assert (config.output, config.recipe) == ("tree", "tree:sgd+c")
    rates = np.append(1 / np.arange(1, 201), [0.0, 0.0])
    rates /= rates.sum()
    output = tree_output(config, config.hidden_size, rates, key=jax.random.key(0))
    found = np.exp(log_probs_of_words(output, jnp.ones(config.hidden_size)))
    np.testing.assert_allclose(found[:200], rates[:200], rtol=1e-4)
    assert np.all((found[200:] > 0) & (found[200:] < 1e-6))


def test_the_tree_is_saved_with_the_model_and_not_trained():
    model = build(recipes.settings("tree:sgd+c", "ptb-words"), 200, np.full(200, 1 / 200), key=jax.random.key(0))
    params, constants = split_constants(model)
    assert params.output.paths is None
    assert constants.output.paths.value.shape == (200, DEEPEST)
