"""Dynamic evaluation: as a slow computation finds it, normalized, anew for every song, below the other memories."""

import jax
import numpy as np
import pytest

from longspan.config import TrainConfig
from longspan.data.text import TextData
from longspan.errors import InputError
from longspan.library import open_run, train
from longspan.memory import MEMORIES
from longspan.memory.adapting import SCALED_BY, Adaptation, Dynamic
from longspan.memory.recall import RecallDynamic
from longspan.models.model import build
from tests.memory.conftest import FewKeys
from tests.support.catalog import tiny_text
from tests.support.reference import leaky_gradients, leaky_states

SYMBOLS = 5
LEARNING = Adaptation(3, 0.02, 0.1)


@pytest.fixture(scope="module")
def reader():
    config = TrainConfig(output="softmax", hidden_size=4, leaky_share=0.5, output_scale=0.5)
    return build(config, SYMBOLS, np.full(SYMBOLS, 0.2), key=jax.random.key(0))


def text_of(symbols, train_on=None):
    streams = {"train": symbols if train_on is None else train_on, "valid": symbols, "test": symbols}
    splits = {name: np.asarray(stream, np.int32) for name, stream in streams.items()}
    return TextData("mine", "character", ("\n", "a", "b", "c", "d"), splits, 0)


class SlowReader:
    """The network in NumPy, in double precision, with its gradient by hand."""

    def __init__(self, model):
        cell, output = model.cell, model.output
        parts = (cell.input_weights, cell.recurrent, cell.bias, output.weights, output.bias)
        self.weights = [np.asarray(part, np.float64) for part in parts]
        self.leak = np.asarray(cell.leak.value, np.float64)

    def read(self, weights, state, inputs, targets):
        """Log-likelihoods of a segment, the gradient of their negative sum, and the state after it."""
        into, recurrent, bias, out, out_bias = weights
        drive, resets = (into[inputs] + bias)[:, None], np.zeros((len(inputs), 1), bool)
        hidden = leaky_states("tanh", drive, state[None], recurrent, self.leak, resets)
        exponentials = np.exp(hidden[:, 0] @ out + out_bias)
        chances = exponentials / exponentials.sum(axis=1, keepdims=True)
        wrong = chances - np.eye(SYMBOLS)[targets]
        sent = (wrong @ out.T)[:, None]
        pulled, _, recurrent_slope = leaky_gradients("tanh", drive, state[None], recurrent, self.leak, resets, sent)
        into_slope = np.zeros_like(into)
        np.add.at(into_slope, inputs, pulled[:, 0])
        slopes = [into_slope, recurrent_slope, pulled.sum((0, 1)), hidden[:, 0].T @ wrong, wrong.sum(0)]
        return np.log(chances[np.arange(len(targets)), targets]), slopes, hidden[-1, 0]

    def segments(self, symbols, segment):
        before = [0, *symbols[:-1]]
        return [(before[at : at + segment], symbols[at : at + segment]) for at in range(0, len(symbols), segment)]

    def scales(self, symbols, segment):
        squares = [np.zeros_like(weight) for weight in self.weights]
        state, parts = np.zeros(4), self.segments(symbols, segment)[:SCALED_BY]
        for inputs, targets in parts:
            _, slopes, state = self.read(self.weights, state, inputs, targets)
            squares = [square + slope**2 for square, slope in zip(squares, slopes, strict=True)]
        sizes = [np.sqrt(square / len(parts)) for square in squares]
        return [size + np.concatenate([each.ravel() for each in sizes]).mean() for size in sizes]

    def log_likelihoods(self, symbols, train_on, how):
        scales, state, now, found = self.scales(train_on, how.segment), np.zeros(4), self.weights, []
        for inputs, targets in self.segments(symbols, how.segment):
            likelihoods, slopes, state = self.read(now, state, inputs, targets)
            found.extend(likelihoods)
            now = [
                weight - how.rate * slope / scale + how.decay * (first - weight)
                for weight, slope, scale, first in zip(now, slopes, scales, self.weights, strict=True)
            ]
        return np.array(found)


@pytest.mark.parametrize("how", [LEARNING, Adaptation(1, 0.05, 0.0)])
def test_agrees_with_a_slow_computation(reader, how):
    text, other = tiny_text(40).splits["test"].tolist(), tiny_text(31, seed=1).splits["train"].tolist()
    found = Dynamic(how).recollect(reader, text_of(text, other), "test").steps
    expected = SlowReader(reader).log_likelihoods(text, other, how)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)
    unlearned = Dynamic(how._replace(rate=1e-9)).recollect(reader, text_of(text, other), "test").steps
    assert np.abs(found - unlearned).max() > 0.1


@pytest.mark.parametrize("name", ["dynamic", "cache+dynamic", "recall+dynamic"])
def test_all_possible_symbols_have_probability_one(reader, name):
    text = tiny_text(60).splits["test"]
    memory = MEMORIES[name].fitted(reader, text_of(text))
    memory.adaptation = LEARNING
    for length in (6, 8):  # the last step begins or ends a segment
        last = [
            memory.recollect(reader, text_of([*text[:length], symbol], text), "test").steps[-1]
            for symbol in range(SYMBOLS)
        ]
        assert np.exp(last).sum() == pytest.approx(1, abs=1e-5)


def test_a_new_song_begins_with_the_weights_of_training(model, songs):
    together = FewKeys(train=songs, valid=songs, test=songs[:3])
    alone = FewKeys(train=songs, valid=songs, test=songs[2:3])
    memory = Dynamic(Adaptation(4, 0.05, 0.0))
    last = memory.recollect(model, alone, "test").steps
    np.testing.assert_allclose(memory.recollect(model, together, "test").steps[-len(last) :], last, rtol=1e-5)


def test_learning_on_the_way_helps_where_songs_repeat_themselves(model, few_keys):
    memory = Dynamic.fitted(model, few_keys)
    found = memory.recollect(model, few_keys, "valid")
    assert memory.adaptation is not None
    unlearned = Dynamic(memory.adaptation._replace(rate=1e-9)).recollect(model, few_keys, "valid")
    assert found.scores.log_likelihood > unlearned.scores.log_likelihood + 0.1
    assert Dynamic.from_values(memory.values()).adaptation == memory.adaptation


def test_a_run_is_scored_with_a_memory_that_learns(tmp_path):
    trained = train("sgd+c", tiny_text(), run_dir=tmp_path / "run", hidden_size=4, max_epochs=1, memory="cache+dynamic")
    found = open_run(tmp_path / "run").recollect("test", data=tiny_text())
    assert found.scores == trained.recollect("test").scores
    assert found.scores.bits_per_character is not None
    assert (trained.run.memory() or {})["adaptation"]["segment"] >= 1


def test_a_likelihood_that_is_only_estimated_is_refused(few_keys):
    machine = build(TrainConfig(output="rbm", hidden_size=4, rbm_size=3), 3, np.full(3, 0.4), key=jax.random.key(0))
    for memory in (Dynamic, RecallDynamic):
        with pytest.raises(InputError, match="exact likelihood"):
            memory.fitted(machine, few_keys)


@pytest.mark.parametrize(
    "change", [{"segment": 0}, {"segment": 1.5}, {"segment": 10**6}, {"rate": -1.0}, {"rate": "x"}, {"decay": 1.0}]
)
def test_impossible_parameters_are_refused(change):
    with pytest.raises(InputError, match="longspan remember"):
        Dynamic.from_values({"adaptation": {**LEARNING._asdict(), **change}})
