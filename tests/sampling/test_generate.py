"""Generated steps follow the model's distribution, priming is running the model, and seeds mean what they say."""

import dataclasses
import itertools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array

from longspan.config import OUTPUTS_FOR, TrainConfig
from longspan.errors import InputError
from longspan.models.model import SequenceModel, build
from longspan.models.outputs import FREE, OFF, ON, Bernoulli
from longspan.models.parts import Candidates, Cell
from longspan.sampling import generate as generation
from longspan.sampling.generate import FromModel, Proposal, generate, state_after
from tests.support import reference

KEYS, SYMBOLS, END_TOKEN = 3, 4, 2
FRAMES = list(itertools.product((0, 1), repeat=KEYS))
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


def probabilities_of_frames(model, past):
    """The probability of every next frame, by enumeration."""
    logits = numpy_logits(model, [[0] * KEYS, *past])[-1]
    return {frame: np.exp(reference.bernoulli_log_prob(logits, np.array(frame)).sum()) for frame in FRAMES}


@pytest.mark.parametrize("prime", [[], [[1, 0, 1], [0, 0, 1]]], ids=["fresh", "primed"])
def test_frames_follow_the_conditional_distribution(music, prime):
    prime_frames = np.array(prime, np.uint8) if prime else None
    samples = generate(music, length=2, num=20_000, key=KEY, prime=prime_frames)
    exact = {
        first + second: before * after
        for first, before in probabilities_of_frames(music, prime).items()
        for second, after in probabilities_of_frames(music, [*prime, first]).items()
    }
    assert_frequencies(count(samples), exact)


def sharpened(probabilities, last, temperature):
    """Frames with as many notes and as many new ones keep their total; within it, powers of the probabilities."""
    groups = {}
    for frame, probability in probabilities.items():
        numbers = sum(frame), sum(on and not was for on, was in zip(frame, last, strict=True))
        groups.setdefault(numbers, {})[frame] = probability
    result = {}
    for group in groups.values():
        powers = {frame: probability ** (1 / temperature) for frame, probability in group.items()}
        result |= {frame: sum(group.values()) * power / sum(powers.values()) for frame, power in powers.items()}
    return result


class Thorough(Bernoulli):
    """Draws so many candidates that choosing among them is as good as drawing from the distribution itself."""

    candidates_drawn = 100


@pytest.fixture(scope="module")
def thorough(music) -> SequenceModel:
    return dataclasses.replace(music, output=Thorough(music.output.weights, music.output.bias))


@pytest.mark.parametrize("temperature", [0.5, 2.0])
def test_a_temperature_decides_which_notes_but_not_how_many(thorough, temperature):
    prime = np.array([[1, 0, 1]], np.uint8)
    samples = generate(thorough, length=1, num=4000, key=KEY, temperature=temperature, prime=prime)
    exact = sharpened(probabilities_of_frames(thorough, prime.tolist()), (1, 0, 1), temperature)
    found = count(samples)
    for frame, probability in exact.items():
        assert found.get(frame, 0) / len(samples) == pytest.approx(probability, abs=0.04)


def test_temperature_zero_takes_the_likeliest_of_the_frames_with_these_numbers_of_notes(thorough):
    prime = np.array([[1, 0, 1]], np.uint8)
    samples = generate(thorough, length=1, num=200, key=KEY, temperature=0, prime=prime)
    exact = sharpened(probabilities_of_frames(thorough, prime.tolist()), (1, 0, 1), 0.01)
    likeliest = {frame for frame, probability in exact.items() if probability > 0.001}
    # Of a rare number of notes, few frames are drawn, and the likeliest may be missing.
    assert sum(number for frame, number in count(samples).items() if frame in likeliest) > 190


def test_silence_is_avoided_and_the_rest_keeps_its_proportions(thorough):
    samples = generate(thorough, length=1, num=4000, key=KEY, avoid_silence=True)
    exact = probabilities_of_frames(thorough, [])
    silent = exact.pop((0,) * KEYS)
    found = count(samples)
    assert (0,) * KEYS not in found
    for frame, probability in exact.items():
        assert found.get(frame, 0) / len(samples) == pytest.approx(probability / (1 - silent), abs=0.04)


def test_the_last_notes_are_held_where_only_silence_is_proposed(music):
    mute = eqx.tree_at(lambda model: model.output.bias, music, jnp.full(KEYS, -1e6))
    samples = generate(mute, length=3, num=1, key=KEY, avoid_silence=True, prime=np.array([[0, 1, 1]], np.uint8))
    np.testing.assert_array_equal(samples[0], [[0, 1, 1]] * 3)


def test_wide_steps_are_drawn_as_far_as_memory_goes(monkeypatch):
    """The frames of somebody else's model may have a million keys: a report of it took nine gigabytes."""
    model = build(TrainConfig(hidden_size=2), 5, np.full(5, 0.5), key=jax.random.key(0))
    monkeypatch.setattr(generation, "MOST_DRAWN", 5 * 3 * 2)
    assert generate(model, length=3, num=2, key=jax.random.key(1)).shape == (2, 3, 5)
    with pytest.raises(InputError, match="2 samples of 4 steps of 5 values are 40 in all"):
        generate(model, length=4, num=2, key=jax.random.key(1))


def test_held_keys_over_time_condition_every_step_on_the_later_ones_too():
    """Particles against enumeration: NADE with its top key given in two frames."""
    model = lively("nade", [0.4, 0.5, 0.5])
    held = np.array([[FREE, FREE, ON], [FREE, FREE, OFF]])
    samples = generate(model, length=2, num=320, key=KEY, held=held)
    assert (samples[:, 0, 2] == 1).all()
    assert (samples[:, 1, 2] == 0).all()
    pairs = [first + second for first in FRAMES for second in FRAMES if first[2] == 1 and second[2] == 0]
    sequences = np.array(pairs, np.uint8).reshape(-1, 2, KEYS).swapaxes(0, 1)
    inputs = jnp.concatenate([jnp.zeros_like(sequences[:1]), sequences[:1]])
    resets, length = jnp.zeros(inputs.shape[:2], bool), jnp.asarray(2)
    _, hidden = model.run(model.start(len(pairs)), inputs, resets, length)
    joint = np.exp(np.asarray(model.output.log_prob(hidden, jnp.asarray(sequences), length).sum(axis=0), float))
    found = count(samples)
    for pair, probability in zip(pairs, joint / joint.sum(), strict=True):
        assert found.get(pair, 0) / len(samples) == pytest.approx(probability, abs=0.1)


def test_symbols_can_be_forbidden(text):
    samples = generate(text, length=40, num=5, key=KEY, end_token=END_TOKEN, held=np.array([[FREE, OFF, FREE, FREE]]))
    assert 1 in generate(text, length=40, num=5, key=KEY, end_token=END_TOKEN)
    assert 1 not in samples


class Echo(Proposal):
    """A copy of the step two before, if there is one, beside the model's candidates, which it outweighs."""

    weight: Array

    def __call__(self, model, hidden, past, count, *, keys, held):
        found = FromModel()(model, hidden, past, count, keys=keys, held=held)
        copy = jax.lax.dynamic_index_in_dim(past.steps, jnp.maximum(past.length - 2, 0), axis=1)
        weight = jnp.where(past.length >= 2, self.weight, -jnp.inf)
        more = (copy, jnp.zeros((len(copy), 1)), jnp.full((len(copy), 1), weight))
        return Candidates(*(jnp.concatenate(pair, axis=1) for pair in zip(found[:3], more, strict=True)))


def test_a_proposal_sees_the_prime_and_all_that_was_drawn(music):
    prime = np.array([[1, 0, 1], [0, 1, 1]], np.uint8)
    samples = generate(music, length=5, num=2, key=KEY, prime=prime, proposal=Echo(jnp.asarray(1e6)))
    np.testing.assert_array_equal(samples, np.broadcast_to([*prime, *prime, prime[0]], samples.shape))


class Pairs(Proposal):
    """Two frames of the network and two of a memory, all of them with one note; weights as given."""

    weights: Array

    def __call__(self, model, hidden, past, count, *, keys, held):
        every = jnp.log(jnp.broadcast_to(self.weights, (len(hidden), 4)))
        frames = jnp.asarray([[1, 0, 0], [0, 1, 0], [0, 0, 1], [1, 0, 0]], jnp.uint8)
        return Candidates(
            jnp.broadcast_to(frames, (len(hidden), *frames.shape)),
            every,
            every,
            jnp.broadcast_to(jnp.asarray([False, False, True, True]), every.shape),
        )


@pytest.mark.parametrize(("temperature", "power"), [(1.0, 1), (0.5, 2)])
def test_a_temperature_leaves_how_often_the_past_is_recalled(music, temperature, power):
    """What is heard again would otherwise crowd out everything else."""
    weights = np.array([0.3, 0.1, 0.2, 0.4])
    drawn = generate(
        music, length=1, num=20_000, key=KEY, temperature=temperature, proposal=Pairs(jnp.asarray(weights, jnp.float32))
    )
    sharp = weights**power
    network, memory = 0.4 * sharp[:2] / sharp[:2].sum(), 0.6 * sharp[2:] / sharp[2:].sum()
    assert_frequencies(count(drawn), {(1, 0, 0): network[0] + memory[1], (0, 1, 0): network[1], (0, 0, 1): memory[0]})


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
@pytest.mark.parametrize("temperature", [0.0, 0.7, 1.0])
def test_priming_with_its_beginning_continues_a_sample(kind, temperature, request):
    model = request.getfixturevalue(kind)
    options = {"key": KEY, "temperature": temperature, "end_token": None if kind == "music" else END_TOKEN}
    whole = generate(model, length=12, num=1, **options)[0]
    rest = generate(model, length=7, num=1, prime=whole[:5], **options)[0]
    np.testing.assert_array_equal(rest, whole[5:])


def test_temperature_zero_takes_the_likeliest_symbol_whatever_the_key(text):
    greedy = [
        generate(text, length=8, num=2, key=jax.random.key(seed), temperature=0, end_token=END_TOKEN)
        for seed in range(2)
    ]
    np.testing.assert_array_equal(greedy[0], greedy[1])
    np.testing.assert_array_equal(greedy[0][0], greedy[0][1])
    tokens = greedy[0][0]
    logits = numpy_logits(text, np.array([END_TOKEN, *tokens[:-1]]))
    np.testing.assert_array_equal(tokens, logits.argmax(axis=1))


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
        return jnp.sin(total * steps.astype(total.dtype))


def test_any_cell_can_be_sampled_and_primed(music):
    hidden = music.output.weights.shape[0]
    model = SequenceModel(TwoPartCell(jax.random.normal(jax.random.key(3), (KEYS, hidden))), music.output)
    whole = generate(model, length=12, num=1, key=KEY)[0]
    rest = generate(model, length=7, num=3, key=KEY, prime=whole[:5])
    np.testing.assert_array_equal(rest[0], whole[5:])


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
    for numbers in ({"length": 0}, {"length": "5"}, {"num": 0}, {"num": 1.5}, {"temperature": -1.0}):
        name = next(iter(numbers))
        with pytest.raises(InputError, match=f"^{name} must be .*at least [01]: got "):
            generate(music, **{"length": 1, "num": 1, "key": KEY} | numbers)
    with pytest.raises(InputError, match="end token"):
        generate(text, length=1, num=1, key=KEY)
    with pytest.raises(InputError, match=r"shape \(time, 3\), got \(2, 88\)"):
        generate(music, length=1, num=1, key=KEY, prime=np.zeros((2, 88), np.uint8))
