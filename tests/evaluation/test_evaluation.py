"""Scores against the NumPy twin, and the conventions of the paper's tables."""

import dataclasses
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from longspan.data import MusicData
from longspan.evaluation import Scores, SplitEvaluator, frame_accuracies, in_other_units
from longspan.metrics import METRICS
from longspan.models.model import build
from tests.support import reference
from tests.support.catalog import tiny_config, tiny_music, tiny_text


def twin_log_likelihood(model, sequences, first_input, make_input, log_prob):
    """Pooled log-likelihood, one sequence and one step at a time, from the model's weights alone."""
    cell = jax.tree.map(lambda leaf: np.asarray(leaf, float), model.cell)
    total, count = 0.0, 0
    for sequence in sequences:
        inputs = [first_input, *(make_input(target) for target in sequence[:-1])]
        drive = np.stack(inputs) @ cell.input_weights + cell.bias
        hidden = reference.leaky_states(
            model.cell.activation,
            drive[:, None],
            np.zeros((1, drive.shape[1])),
            cell.recurrent,
            cell.leak.value,
            np.zeros((len(drive), 1), bool),
        )[:, 0]
        logits = hidden @ np.asarray(model.output.weights, float) + np.asarray(model.output.bias, float)
        total += sum(log_prob(logit, target) for logit, target in zip(logits, sequence, strict=True))
        count += len(sequence)
    return total / count


@pytest.mark.parametrize("lanes", [1, 3, 16])
def test_music_score_is_pooled_over_frames_first_frames_included(lanes):
    class Cut(MusicData):
        def evaluation_lanes(self, split):
            return lanes

    data = Cut("tiny", tiny_music().splits, 1)
    model = build(tiny_config("sgd+cl", output_scale=1.0), 88, data.base_rates(), key=jax.random.key(0))
    expected = twin_log_likelihood(
        model, data.splits["test"], np.zeros(88), lambda frame: frame.astype(float), reference.bernoulli_log_prob
    )
    assert SplitEvaluator(data, "test").log_likelihood(model) == pytest.approx(expected, rel=1e-5)


def test_text_score_carries_the_state_through_the_whole_split():
    data = tiny_text(length=450)
    model = build(tiny_config("sgd+l", output="softmax", output_scale=1.0), 5, data.base_rates(), key=jax.random.key(0))
    stream = data.splits["test"]
    expected = twin_log_likelihood(
        model, [stream], np.eye(5)[0], lambda token: np.eye(5)[token], reference.softmax_log_prob
    )
    scores = SplitEvaluator(data, "test").scores(model)
    assert scores.log_likelihood == pytest.approx(expected, rel=1e-5)
    assert scores.bits_per_character == pytest.approx(-expected / np.log(2), rel=1e-5)


@pytest.mark.parametrize("unit", ["word", "character"])
def test_weights_of_strangers_may_be_as_wrong_as_they_like(unit):
    """The perplexity of a model that is sure of the wrong word is beyond any number, which was an OverflowError."""
    data = dataclasses.replace(tiny_text(length=450), unit=unit)
    config = tiny_config("sgd", output="softmax", output_scale=1e6)
    scores = SplitEvaluator(data, "test").scores(build(config, 5, data.base_rates(), key=jax.random.key(0)))
    assert scores.log_likelihood < -1000
    assert scores.perplexity == (math.inf if unit == "word" else None)
    assert (scores.bits_per_character is None) == (unit == "word")


@pytest.mark.parametrize("unit", ["word", "character", "byte"])
def test_a_likelihood_has_the_unit_of_the_text(unit):
    data = dataclasses.replace(tiny_text(length=450), unit=unit)
    for likelihood in (-2.0, -600.0, 0.0):
        [(name, found)] = in_other_units(data, likelihood).items()
        assert (name,) == data.metrics
        assert METRICS[name].nats(found) == pytest.approx(likelihood)


def test_accuracies_of_frames_equal_the_definition(random):
    true = (random.random((40, 6)) < 0.3).astype(np.uint8)
    predicted = (random.random((40, 6)) < 0.3).astype(np.uint8)
    true[0] = predicted[0] = true[1] = predicted[2] = 0
    expected = np.array([reference.frame_accuracies(a, b) for a, b in zip(true, predicted, strict=True)])
    found = frame_accuracies(jax.numpy.asarray(true), jax.numpy.asarray(predicted))
    np.testing.assert_allclose(found["accuracy"], expected[:, 0], rtol=1e-6)
    np.testing.assert_allclose(found["accuracy_union"], expected[:, 1], rtol=1e-6)


def test_expected_accuracy_of_independent_keys_agrees_with_its_exact_distribution():
    from longspan.data.music import expected_accuracy

    data = tiny_music(songs=30)
    model = build(tiny_config("sgd+cl", output_scale=1.0), 88, data.base_rates(), key=jax.random.key(0))
    evaluator = SplitEvaluator(data, "test")
    scores = evaluator.scores(model)
    rates, frames = [], []
    state = model.start(evaluator.lanes)
    for index in range(len(evaluator.chunks.lengths)):
        chunk = jax.tree.map(lambda leaf, i=index: jnp.asarray(leaf[i]), evaluator.chunks)
        state, hidden = model.run(state, chunk.inputs, chunk.resets, chunk.lengths)
        on = jax.nn.sigmoid(model.output.logits(hidden, chunk.targets, chunk.lengths))
        counted = np.asarray(chunk.mask)
        rates.append(np.asarray(on)[counted])
        frames.append(np.asarray(chunk.targets)[counted])
    exact, exact_union = expected_accuracy(np.concatenate(rates), np.concatenate(frames))
    assert scores.accuracy == pytest.approx(exact, abs=0.01)
    assert scores.accuracy_union == pytest.approx(exact_union, abs=0.01)


def test_a_frame_never_sees_itself():
    """Changing a frame must not change the prediction of that frame or of any before it."""
    data = tiny_music()
    model = build(tiny_config(), 88, data.base_rates(), key=jax.random.key(0))
    song = max(data.splits["test"], key=len)

    def losses(song):
        from longspan.data.sequences import arrange

        chunks = arrange([song], len(song))
        chunk = jax.tree.map(lambda leaf: jnp.asarray(leaf[0]), chunks)
        _, hidden = model.run(model.start(1), chunk.inputs, chunk.resets, chunk.lengths)
        return np.asarray(model.output.logits(hidden, chunk.targets, chunk.lengths))[:, 0]

    changed = song.copy()
    changed[3] = 1 - changed[3]
    before, after = losses(song), losses(changed)
    np.testing.assert_array_equal(before[:4], after[:4])
    assert np.abs(before[4:] - after[4:]).max() > 1e-4


def test_scores_are_printed_without_those_that_do_not_apply():
    assert str(Scores(-1.5, bits_per_character=2.25)) == "Scores(log_likelihood=-1.5, bits_per_character=2.25)"
    assert eval(repr(Scores(-1.5, 0.01, accuracy=0.3))) == Scores(-1.5, 0.01, accuracy=0.3)
