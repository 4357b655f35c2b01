"""The recall memory: exact and normalized, as a slow computation finds it, and better than the network alone."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from longspan.config import TrainConfig
from longspan.data import load
from longspan.data.lookup import LEVELS
from longspan.errors import InputError
from longspan.evaluation import SplitEvaluator
from longspan.memory.gate import BARS, FEATURES
from longspan.memory.recall import Recall
from longspan.models.model import build
from tests.data.test_lookup import quadratic_candidates
from tests.memory.conftest import KEYS, FewKeys

ALL_FRAMES = [np.array(frame, np.uint8) for frame in itertools.product((0, 1), repeat=KEYS)]


@pytest.fixture(scope="module")
def memory():
    drawn = np.random.default_rng(3).normal(0, 0.7, len(FEATURES))
    return Recall(dict(zip(FEATURES, drawn.tolist(), strict=True)), 4)


def network_log_probs(model, song):
    """Log-likelihood under the network of each possible frame (columns) at each step (rows) of a song, by listing all
    frames where the output does not know it exactly."""
    inputs = jnp.asarray(np.concatenate([np.zeros((1, KEYS), np.uint8), song[:-1]]))[:, None]
    resets, length = jnp.zeros((len(song), 1), bool), jnp.asarray(len(song))
    hidden = model.run(model.start(1), inputs, resets, length)[1]
    frames = [jnp.broadcast_to(jnp.asarray(frame), (len(song), 1, KEYS)) for frame in ALL_FRAMES]
    relative = np.stack([np.asarray(model.output.relative_log_prob(hidden, frame))[:, 0] for frame in frames], axis=1)
    return relative - np.logaddexp.reduce(relative, axis=1, keepdims=True)


def slow_probabilities(network, memory, song, step):
    """Probability of each possible frame at a step, from all comparisons, one feature after the other."""
    ids = [int(frame @ [4, 2, 1]) for frame in song[:step]]
    network = network[step]
    scores = {}
    rows = [row for row in quadratic_candidates([*ids, 0], memory.candidates)[step] if row[0] >= 0]
    for number, (level, place, latest, count) in enumerate(rows):
        log_prob, best = network[ids[place]], number == 0
        known = {
            "any": 1,
            "repeats_last": ids[place] == ids[step - 1],
            "best": best,
            "below_best": np.log(1 + rows[0][0] - level),
            "log_count": np.log(1 + count),
            "log_age": np.log(1 + step - latest),
            "log_step": np.log(1 + step),
            "network": log_prob / 10,
            "network_of_likely": max(log_prob, -5) / 5,
            "network_of_best": log_prob / 10 * best,
            **{f"level_{other}": other == level for other in range(LEVELS)},
            **{f"best_level_{other}": other == level and best for other in range(LEVELS)},
            **{f"bars_of_{bar}": (step - place) % bar == 0 for bar in BARS},
        }
        scores[ids[place]] = np.exp(sum(memory.weights[name] * value for name, value in known.items()))
    right = np.exp(network) + [scores.get(frame, 0) for frame in range(len(ALL_FRAMES))]
    return right / (1 + sum(scores.values()))


def test_agrees_with_a_slow_computation(model, memory, songs):
    data = FewKeys(train=songs, valid=songs, test=songs[:1])
    network = network_log_probs(model, songs[0])
    expected = [
        np.log(slow_probabilities(network, memory, songs[0], step)[frame @ [4, 2, 1]])
        for step, frame in enumerate(songs[0])
    ]
    np.testing.assert_allclose(memory.recollect(model, data, "test").steps, expected, rtol=2e-4, atol=2e-5)


def test_what_is_estimated_is_scored_with_its_error(memory, songs):
    """The mixture of an RBM, whose partition function is known here from all frames."""
    config = TrainConfig(hidden_size=4, rbm_size=3, output="rbm", output_scale=0.7)
    machine = build(config, KEYS, np.full(KEYS, 0.4), key=jax.random.key(0))
    data, found = FewKeys(train=songs, valid=songs, test=songs[:2]), []
    for song in songs[:2]:
        network = network_log_probs(machine, song)
        rows = [slow_probabilities(network, memory, song, step) for step in range(len(song))]
        found += [row[frame @ [4, 2, 1]] for row, frame in zip(rows, song, strict=True)]
    scores = memory.recollect(machine, data, "test").scores
    assert scores.log_likelihood_error is not None
    assert 0 < scores.log_likelihood_error < 0.05
    assert scores.log_likelihood == pytest.approx(np.log(found).mean(), abs=0.01)
    assert scores.accuracy is None


def test_a_memory_helps_an_rbm_too(songs):
    config = TrainConfig(hidden_size=4, rbm_size=3, output="rbm", output_scale=0.7)
    machine = build(config, KEYS, np.full(KEYS, 0.4), key=jax.random.key(0))
    data = FewKeys(train=songs, valid=songs, test=songs[:2])
    fitted = Recall.fitted(machine, data)
    alone = np.concatenate(
        [network_log_probs(machine, song)[np.arange(len(song)), song @ [4, 2, 1]] for song in songs]
    ).mean()
    assert fitted.fit["network"] == pytest.approx(alone, abs=0.02)
    assert fitted.recollect(machine, data, "valid").scores.log_likelihood > alone + 0.3


@pytest.mark.parametrize("length", [1, 25])
def test_all_possible_frames_have_probability_one(model, memory, songs, length):
    past = songs[0][: length - 1]
    continued = [np.concatenate([past, frame[None]]) for frame in ALL_FRAMES]
    data = FewKeys(train=continued, valid=continued, test=continued)
    found = memory.recollect(model, data, "test").steps.reshape(len(ALL_FRAMES), length)
    assert np.exp(found[:, -1]).sum() == pytest.approx(1, abs=1e-5)


def test_a_fitted_memory_is_better_than_the_network_alone(model, few_keys):
    memory = Recall.fitted(model, few_keys)
    alone = SplitEvaluator(few_keys, "test").scores(model)
    found = memory.recollect(model, few_keys, "test")
    assert found.scores.log_likelihood > alone.log_likelihood + 0.5
    assert memory.fit["held_out"] > memory.fit["network"]
    assert 0.3 < found.recalled < 1
    again = Recall.from_values(memory.values()).recollect(model, few_keys, "test")
    assert again.scores == found.scores


def test_no_repeats_no_recall(model):
    """Where nothing comes again there is nothing to gain, and the fit must not pretend otherwise."""
    songs = [
        np.array([frame for frame in ALL_FRAMES if frame.any()])[list(order)]
        for order in ([0, 1, 2, 3, 4, 5, 6], [6, 5, 4, 3, 2, 1, 0], [3, 1, 4, 0, 5, 2, 6], [2, 6, 0, 4, 1, 5, 3])
    ]
    data = FewKeys(train=songs, valid=songs, test=songs)
    found = Recall.fitted(model, data).recollect(model, data, "test")
    alone = SplitEvaluator(data, "test").scores(model).log_likelihood
    assert found.recalled == 0
    assert alone - 0.05 < found.scores.log_likelihood <= alone + 1e-6


def test_trails_say_what_was_copied_from_where(model, songs, few_keys):
    trails = Recall.fitted(model, few_keys).recollect(model, few_keys, "test").trails
    for song, trail in zip(songs[:2], trails, strict=True):
        assert trail.length == len(song)
        assert trail.steps
        for step, place in zip(trail.steps, trail.places, strict=True):
            assert place < step
            assert np.array_equal(song[step], song[place])


def test_expected_accuracy_is_that_of_drawn_frames(model, memory, songs):
    """The mean over a song of the agreement of all possible frames with the true one, weighted by probability."""
    song = songs[0]
    data = FewKeys(train=songs, valid=songs, test=[song])
    network = network_log_probs(model, song)
    expected = [
        slow_probabilities(network, memory, song, step) @ [_agreement(true, frame) for frame in ALL_FRAMES]
        for step, true in enumerate(song)
    ]
    found = memory.recollect(model, data, "test").scores.accuracy
    assert found == pytest.approx(np.mean(expected), abs=0.03)  # the network's part is sampled, ten times a frame


def _agreement(true, frame):
    most = max(true.sum(), frame.sum())
    return 1.0 if most == 0 else (true & frame).sum() / most


def test_data_without_a_past_are_refused(model):
    with pytest.raises(InputError, match="no past to recall"):
        Recall.fitted(model, load("temporal-order", span=20))
