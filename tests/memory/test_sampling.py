"""Samples of a model with memory follow the mixture that is scored, and return to what was said."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from longspan.config import TrainConfig
from longspan.memory.gate import FEATURES
from longspan.memory.recall import Recall
from longspan.models.model import build
from longspan.sampling.generate import generate
from longspan.sampling.reading import Past
from tests.memory.conftest import KEYS, FewKeys
from tests.memory.test_recall import ALL_FRAMES, slow_probabilities


@pytest.fixture(scope="module")
def memory():
    drawn = np.random.default_rng(3).normal(0, 0.7, len(FEATURES))
    return Recall(dict(zip(FEATURES, drawn.tolist(), strict=True)), 4)


def scored(model, memory, past):
    """Probability of each possible next frame, by scoring songs that end in it."""
    songs = [np.concatenate([past, frame[None]]) for frame in ALL_FRAMES]
    steps = memory.recollect(model, FewKeys(train=songs, valid=songs, test=songs), "test").steps
    return np.exp(steps.reshape(len(songs), -1)[:, -1])


def test_draws_follow_the_scored_mixture(model, memory, songs):
    past, draws = songs[0][:20], 1024
    drawn = generate(model, length=1, num=draws, key=jax.random.key(0), prime=past, proposal=memory.proposal())
    counts = np.bincount(drawn[:, 0] @ [4, 2, 1], minlength=8)
    expected = scored(model, memory, past)
    # Four standard deviations of a binomial count.
    assert np.abs(counts / draws - expected).max() < 4 * np.sqrt(0.25 / draws)


def test_the_gate_of_an_rbm_sees_an_estimate_of_what_its_network_expects(memory, songs):
    config = TrainConfig(hidden_size=4, rbm_size=3, output="rbm", output_scale=0.7)
    machine = build(config, KEYS, np.full(KEYS, 0.4), key=jax.random.key(0))
    past = Past(jnp.zeros((1, 30, KEYS), jnp.uint8).at[0, :20].set(songs[0][:20]), jnp.asarray(20))
    hidden = jnp.full((1, 4), 0.3)
    copies, exist, mixed = memory.proposal().recall(machine, hidden, past)
    listed = machine.output.relative_log_prob(jnp.broadcast_to(hidden, (8, 1, 4)), jnp.asarray(ALL_FRAMES)[:, None])
    network = np.asarray(jax.nn.log_softmax(listed[:, 0]))
    expected = slow_probabilities(np.tile(network, (21, 1)), memory, songs[0], 20)
    found = np.exp(network + np.asarray(mixed.network)[0])
    for copy, weight in zip(np.asarray(copies)[0][exist[0]], np.asarray(mixed.candidates)[0][exist[0]], strict=True):
        found[copy @ [4, 2, 1]] += np.exp(weight)
    np.testing.assert_allclose(found, expected, atol=0.02)


def test_candidates_are_weighted_by_the_mixture_and_compared_with_their_like(model, memory, songs):
    past = songs[0][:20]
    steps = jnp.zeros((1, 30, KEYS), jnp.uint8).at[0, :20].set(past)
    inputs = jnp.asarray(np.concatenate([np.zeros((1, KEYS), np.uint8), past]))[:, None]
    resets, length = jnp.zeros((21, 1), bool), jnp.asarray(21)
    hidden = model.run(model.start(1), inputs, resets, length)[1][-1]
    propose = partial(memory.proposal(), model, hidden, Past(steps, jnp.asarray(20)), 16)
    found = propose(keys=jax.random.split(jax.random.key(0), 1), held=None)
    recalled = np.asarray(found.recalled[0])
    frames, log_prob, weights = found.steps[0], found.log_prob[0], np.exp(found.log_weight[0])
    rows = jnp.broadcast_to(hidden, (len(frames), *hidden.shape))
    network = np.asarray(model.output.log_prob(rows, frames[:, None], jnp.asarray(len(frames)), key=jax.random.key(0)))
    np.testing.assert_allclose(log_prob[~recalled], network[~recalled, 0], atol=1e-4)
    np.testing.assert_allclose(np.exp(log_prob[recalled]), weights[recalled], rtol=1e-5)
    share = weights[~recalled].sum()
    assert share + weights[recalled].sum() == pytest.approx(1, abs=1e-5)
    copied = np.bincount(np.asarray(frames)[recalled] @ [4, 2, 1], weights[recalled], minlength=8)
    expected = scored(model, memory, past)[np.asarray(frames) @ [4, 2, 1]]
    np.testing.assert_allclose(
        share * np.exp(network[:, 0]) + copied[np.asarray(frames) @ [4, 2, 1]], expected, atol=1e-4
    )
    held = jnp.asarray([[1, -1, 0]], jnp.int8)
    possible = np.asarray(propose(keys=jax.random.split(jax.random.key(0), 1), held=held).log_weight[0]) > -np.inf
    kept = np.asarray(propose(keys=jax.random.split(jax.random.key(0), 1), held=held).steps[0])[possible]
    assert (kept[:, 0] == 1).all()
    assert (kept[:, 2] == 0).all()


def test_samples_repeat_themselves_more_than_those_of_the_network(model):
    weights = dict.fromkeys(FEATURES, 0.0) | {"any": -3.0} | {f"best_level_{level}": level for level in range(12)}
    memory = Recall(weights, 2)

    def repeats(proposal):
        drawn = generate(model, length=40, num=8, key=jax.random.key(1), proposal=proposal)
        codes = drawn @ [4, 2, 1]
        pairs = [set(zip(code[:-2], code[1:-1], code[2:], strict=True)) for code in codes]
        return np.mean([1 - len(each) / 38 for each in pairs])

    assert repeats(memory.proposal()) > repeats(None) + 0.1
