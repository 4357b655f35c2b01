"""Generated steps follow the model's distribution, priming is running the model, and seeds mean what they say."""

import itertools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array

from longspan.config import OUTPUTS_FOR, TrainConfig
from longspan.models.cells import Cell
from longspan.models.sequence import SequenceModel, build
from longspan.sampling import generate as generation
from longspan.sampling.generate import generate, state_after
from tests.support import reference

KEYS, SYMBOLS, END_TOKEN = 3, 4, 2
SETTINGS = {"hidden_size": 5, "leaky_share": 0.5, "input_scale": 2.0, "output_scale": 2.0}
KEY = jax.random.key(7)


def lively(output: str, rates) -> SequenceModel:
    """A model whose units have biases, so that even silence in the initial state moves them."""
    model = build(TrainConfig(output=output, **SETTINGS), len(rates), np.array(rates), key=jax.random.key(1))
    bias = jax.random.normal(jax.random.key(2), model.cell.bias.shape)
    return eqx.tree_at(lambda model: model.cell.bias, model, bias)


@pytest.fixture(scope="module")
def music() -> SequenceModel:
    return lively("bernoulli", [0.3, 0.5, 0.6])


@pytest.fixture(scope="module")
def text() -> SequenceModel:
    return lively("softmax", [0.4, 0.3, 0.2, 0.1])


def numpy_logits(model, inputs):
    """Logits after each input, by the slow twin of the recurrence; tokens are one-hot vectors."""
    inputs = np.asarray(inputs)
    vectors = np.eye(SYMBOLS)[inputs] if inputs.ndim == 1 else inputs
    cell, output = model.cell, model.output
    drive = vectors @ np.asarray(cell.input_weights, float) + np.asarray(cell.bias)
    resets = np.zeros((len(drive), 1), bool)
    hidden = reference.leaky_states(
        cell.activation,
        drive[:, None],
        np.zeros((1, drive.shape[1])),
        np.asarray(cell.recurrent, float),
        np.asarray(cell.leak.value, float),
        resets,
    )
    return hidden[:, 0] @ np.asarray(output.weights, float) + np.asarray(output.bias)


def assert_frequencies(counts, probabilities):
    """Every count within five standard deviations of its expectation."""
    total = sum(counts.values())
    assert sum(probabilities.values()) == pytest.approx(1, abs=1e-5)
    for outcome, probability in probabilities.items():
        spread = np.sqrt(total * probability * (1 - probability))
        assert abs(counts.get(outcome, 0) - total * probability) < 5 * spread + 1, outcome


def count(samples):
    """How often each sample occurs, samples as nested tuples."""
    found, numbers = np.unique(samples.reshape(len(samples), -1), axis=0, return_counts=True)
    return {tuple(row.tolist()): int(number) for row, number in zip(found, numbers, strict=True)}


@pytest.mark.parametrize(
    ("prime", "temperature"), [([], 1.0), ([[1, 0, 1], [0, 0, 1]], 0.5)], ids=["fresh", "primed and cold"]
)
def test_frames_follow_the_conditional_distribution(music, prime, temperature):
    samples = generate(
        music,
        length=2,
        num=20_000,
        key=KEY,
        temperature=temperature,
        prime=np.array(prime, np.uint8) if prime else None,
    )
    frames = list(itertools.product((0, 1), repeat=KEYS))
    exact = {}
    for first, second in itertools.product(frames, repeat=2):
        logits = numpy_logits(music, [[0] * KEYS, *prime, first])[-2:] / temperature
        exact[first + second] = np.exp(reference.bernoulli_log_prob(logits, np.array([first, second])).sum())
    assert_frequencies(count(samples), exact)


@pytest.mark.parametrize("prime", [[], [3, 0, 1]], ids=["fresh", "primed"])
def test_tokens_follow_the_conditional_distribution(text, prime):
    samples = generate(
        text, length=2, num=20_000, key=KEY, prime=np.array(prime) if prime else None, end_token=END_TOKEN
    )
    exact = {}
    for first, second in itertools.product(range(SYMBOLS), repeat=2):
        logits = numpy_logits(text, np.array([END_TOKEN, *prime, first]))[-2:]
        exact[first, second] = np.exp(
            reference.softmax_log_prob(logits[0], first) + reference.softmax_log_prob(logits[1], second)
        )
    assert_frequencies(count(samples), exact)


@pytest.mark.parametrize("name", OUTPUTS_FOR["keys"] + OUTPUTS_FOR["symbols"])
def test_every_output_is_sampled_as_its_likelihood_says(name):
    model = lively(name, [0.4, 0.3, 0.2, 0.1])
    num = 20_000 if model.output.exact else 50
    samples = generate(model, length=1, num=num, key=KEY, end_token=END_TOKEN)
    is_text = samples.ndim == 2
    first = jnp.array([END_TOKEN], jnp.int32) if is_text else jnp.zeros((1, SYMBOLS), jnp.uint8)
    hidden = model.cell.output(state_after(model, first))
    outcomes = np.arange(SYMBOLS) if is_text else np.array(list(itertools.product((0, 1), repeat=SYMBOLS)), np.uint8)
    if not model.output.exact:
        assert set(count(samples)) <= {tuple(outcome) for outcome in outcomes.tolist()}
        return
    lanes = jnp.broadcast_to(hidden, (1, len(outcomes), len(hidden)))
    log_probs = model.output.log_prob(lanes, jnp.asarray(outcomes[None]), jnp.ones((), jnp.int32))[0]
    keys = [tuple(np.atleast_1d(outcome).tolist()) for outcome in outcomes]
    assert_frequencies(count(samples), dict(zip(keys, np.exp(np.asarray(log_probs, float)).tolist(), strict=True)))


def test_the_state_after_a_prime_is_that_of_running_the_cell(music, random):
    frames = (random.random((9, KEYS)) < 0.4).astype(np.uint8)
    state = music.cell.initial_state()
    for frame in frames:
        state = music.cell.step(state, jnp.asarray(frame))
    np.testing.assert_allclose(state_after(music, jnp.asarray(frames)), state, atol=1e-6)


@pytest.mark.parametrize("kind", ["music", "text"])
def test_priming_with_a_greedy_sample_continues_it(kind, request):
    model = request.getfixturevalue(kind)
    end_token = None if kind == "music" else END_TOKEN
    whole = generate(model, length=12, num=1, key=KEY, temperature=0, end_token=end_token)[0]
    rest = generate(model, length=7, num=1, key=KEY, temperature=0, prime=whole[:5], end_token=end_token)[0]
    np.testing.assert_array_equal(rest, whole[5:])


def test_temperature_zero_takes_the_likeliest_whatever_the_key(text, music):
    greedy = [
        generate(text, length=8, num=2, key=jax.random.key(seed), temperature=0, end_token=END_TOKEN)
        for seed in range(2)
    ]
    np.testing.assert_array_equal(greedy[0], greedy[1])
    np.testing.assert_array_equal(greedy[0][0], greedy[0][1])
    tokens = greedy[0][0]
    logits = numpy_logits(text, np.array([END_TOKEN, *tokens[:-1]]))
    np.testing.assert_array_equal(tokens, logits.argmax(axis=1))
    frames = generate(music, length=8, num=1, key=KEY, temperature=0)[0]
    np.testing.assert_array_equal(frames, numpy_logits(music, [[0] * KEYS, *frames[:-1]]) > 0)


def test_a_sample_depends_on_its_seed_and_number_only(music):
    few = generate(music, length=10, num=2, key=KEY)
    many = generate(music, length=30, num=5, key=KEY)
    np.testing.assert_array_equal(few, many[:2, :10])
    assert len(np.unique(many.reshape(5, -1), axis=0)) == 5
    assert (generate(music, length=10, num=2, key=jax.random.key(8)) != few).any()


class TwoPartCell(Cell):
    """A cell whose state is more than its output: it counts its steps and integrates its input."""

    weights: Array

    def initial_state(self):
        return jnp.zeros(self.weights.shape[1]), jnp.zeros((), jnp.int32)

    def step(self, state, inputs):
        total, steps = state
        return 0.5 * total + inputs.astype(jnp.float32) @ self.weights + 0.1, steps + 1

    def output(self, state):
        total, steps = state
        return jnp.sin(total * steps)


def test_any_cell_can_be_sampled_and_primed(music):
    hidden = music.output.weights.shape[0]
    model = SequenceModel(TwoPartCell(jax.random.normal(jax.random.key(3), (KEYS, hidden))), music.output)
    whole = generate(model, length=12, num=1, key=KEY, temperature=0)[0]
    rest = generate(model, length=7, num=3, key=KEY, temperature=0, prime=whole[:5])
    np.testing.assert_array_equal(rest, np.broadcast_to(whole[5:], rest.shape))


def test_dtypes_are_those_the_cells_read(music, text):
    frames = generate(music, length=1, num=1, key=KEY)
    tokens = generate(text, length=1, num=1, key=KEY, end_token=END_TOKEN)
    assert (frames.dtype, frames.shape) == (np.uint8, (1, 1, KEYS))
    assert (tokens.dtype, tokens.shape) == (np.int32, (1, 1))


def test_models_are_not_compiled_again_for_other_weights(music):
    generate(music, length=3, num=2, key=KEY)
    compiled = generation._continue._cache_size()
    other = eqx.tree_at(lambda model: model.output.bias, music, music.output.bias + 1)
    generate(other, length=3, num=2, key=jax.random.key(9))
    assert generation._continue._cache_size() == compiled


def test_mistakes_of_a_caller_are_named(music, text):
    with pytest.raises(ValueError, match="at least 1"):
        generate(music, length=0, num=1, key=KEY)
    with pytest.raises(ValueError, match="end token"):
        generate(text, length=1, num=1, key=KEY)
    with pytest.raises(ValueError, match=r"shape \(time, 3\), got \(2, 88\)"):
        generate(music, length=1, num=1, key=KEY, prime=np.zeros((2, 88), np.uint8))
