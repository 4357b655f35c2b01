"""The cache memory of text: normalized, as a slow computation finds it, and refused for music."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from longspan.config import TrainConfig
from longspan.data.text import TextData
from longspan.errors import InputError
from longspan.memory.cache import Cache, Kernel
from longspan.models.model import build
from tests.support.catalog import tiny_music, tiny_text

SYMBOLS = 5


@pytest.fixture(scope="module")
def model():
    config = TrainConfig(output="softmax", hidden_size=4)
    return build(config, SYMBOLS, np.full(SYMBOLS, 0.2), key=jax.random.key(0))


def text_of(symbols):
    splits = dict.fromkeys(("train", "valid", "test"), np.asarray(symbols, np.int32))
    return TextData("mine", "character", ("\n", "a", "b", "c", "d"), splits, 0)


def slow_probabilities(model, memory, symbols):
    """Probability of every symbol at every step, from the definition, in float64."""
    inputs = jnp.asarray([0, *symbols[:-1]], jnp.int32)[:, None]
    resets = jnp.zeros((len(symbols), 1), bool)
    hidden = np.asarray(model.run(model.start(1), inputs, resets, jnp.asarray(len(symbols)))[1], np.float64)[:, 0]
    logits = hidden @ np.asarray(model.output.weights, np.float64) + np.asarray(model.output.bias, np.float64)
    network = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    rows = [network[0]]
    for step in range(1, len(symbols)):
        row = memory.shares[0] * network[step]
        for share, kernel in zip(memory.shares[1:], memory.kernels, strict=True):
            copies = np.zeros(SYMBOLS)
            for place in range(max(0, step - kernel.window), step):
                apart = np.sum((hidden[step] - hidden[place]) ** 2)
                copies[symbols[place]] += np.exp(-kernel.sharpness * apart / 2) * (step - place) ** -kernel.fading
            row = row + share * copies / copies.sum()
        rows.append(row)
    return np.array(rows)


MEMORY = Cache([Kernel(7, 0.0, 0.0), Kernel(500, 3.0, 0.7)], [0.3, 0.1, 0.6])


def test_agrees_with_the_definition(model):
    symbols = tiny_text(40).splits["test"]
    rows = slow_probabilities(model, MEMORY, symbols.tolist())
    assert rows.sum(axis=1) == pytest.approx(np.ones(len(rows)))
    found = MEMORY.recollect(model, text_of(symbols), "test").steps
    np.testing.assert_allclose(found, np.log(rows[np.arange(len(symbols)), symbols]), rtol=1e-4)


@pytest.mark.parametrize("length", [1, 9])
def test_all_possible_symbols_have_probability_one(model, length):
    past = tiny_text(40).splits["test"][: length - 1]
    last = [MEMORY.recollect(model, text_of([*past, symbol]), "test").steps[-1] for symbol in range(SYMBOLS)]
    assert np.exp(last).sum() == pytest.approx(1, abs=1e-5)


def test_a_fitted_cache_is_better_than_the_network_alone(model):
    data = text_of(np.repeat([1, 2, 3, 4, 1, 3], 20))
    memory = Cache.fitted(model, data)
    assert memory.fit["log_likelihood"] > memory.fit["network"] + 0.3
    found = memory.recollect(model, data, "test")
    assert found.scores.log_likelihood == pytest.approx(memory.fit["log_likelihood"])
    assert found.scores.bits_per_character == pytest.approx(-found.scores.log_likelihood / np.log(2))
    assert Cache.from_values(memory.values()).values() == memory.values()
    for step, place in zip(found.trails[0].steps, found.trails[0].places, strict=True):
        assert data.splits["test"][step] == data.splits["test"][place]


def test_music_is_refused(model):
    with pytest.raises(InputError, match="is for text"):
        Cache.fitted(model, tiny_music())
