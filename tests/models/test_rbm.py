"""RBM: energies and log Z against enumeration, annealing against exact log Z, gradients and samples by their law."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from longspan import recipes
from longspan.data.dataset import SPLITS
from longspan.data.music import MusicData
from longspan.evaluation import SplitEvaluator, corrected_mean
from longspan.models import boltzmann
from longspan.models.boltzmann import Biases
from longspan.models.model import SequenceModel, build
from longspan.models.outputs import FREE, OFF, ON, Bernoulli
from longspan.models.rbm import Annealing, Chains, Rbm
from longspan.training.pretraining import pretrain
from longspan.training.setup import ChunkSource
from tests.support import reference_outputs as reference
from tests.support.quick_rbm import QUICK, with_chains

HIDDEN = 4


def make_machines(machines=5, keys=6, units=4, seed=0, scale=1.0):
    rng = np.random.default_rng(seed)
    shapes = [(keys, units), (machines, keys), (machines, units)]
    weights, visible, hidden = (jnp.asarray(scale * rng.normal(size=shape), jnp.float32) for shape in shapes)
    return weights, Biases(visible, hidden)


def exact_probabilities(weights, biases: Biases, machine: int) -> tuple[np.ndarray, np.ndarray]:
    """All frames and their probabilities under one machine."""
    arguments = [np.asarray(array, np.float64) for array in (biases.visible[machine], biases.hidden[machine], weights)]
    frames = reference.all_frames(weights.shape[0])
    energies = np.array([reference.rbm_free_energy(*arguments, frame.astype(float)) for frame in frames])
    return frames, np.exp(-energies - reference.rbm_log_partition(*arguments))


def count_frames(samples) -> np.ndarray:
    codes = np.asarray(samples, int) @ (1 << np.arange(samples.shape[-1])[::-1])
    return np.bincount(codes, minlength=2 ** samples.shape[-1])


def test_free_energy_and_log_partition_equal_enumeration():
    weights, biases = make_machines()
    frames = jnp.asarray(np.random.default_rng(1).integers(0, 2, (5, 6)), jnp.float32)
    arguments = [
        [np.asarray(array, np.float64) for array in (biases.visible[machine], biases.hidden[machine], weights)]
        for machine in range(5)
    ]
    energies = [
        reference.rbm_free_energy(*machine, np.asarray(frame, np.float64))
        for machine, frame in zip(arguments, frames, strict=True)
    ]
    np.testing.assert_allclose(boltzmann.free_energy(weights, biases, frames), energies, rtol=1e-5)
    partitions = [reference.rbm_log_partition(*machine) for machine in arguments]
    np.testing.assert_allclose(jax.jit(boltzmann.log_partition)(weights, biases), partitions, rtol=1e-5)


def test_enumerating_many_units_is_refused():
    weights, biases = make_machines(units=16)
    with pytest.raises(ValueError, match="at most 15"):
        boltzmann.log_partition(weights, biases)


def test_annealing_finds_the_exact_log_partition():
    weights, biases = make_machines(machines=8, keys=20, units=8, scale=0.5)
    exact = jax.jit(boltzmann.log_partition)(weights, biases)
    anneal = jax.jit(boltzmann.annealed_log_partition, static_argnums=(2, 3))
    np.testing.assert_allclose(anneal(weights, biases, 300, 50, key=jax.random.key(0)), exact, atol=0.05)
    # With few steps, a chain that moved before it was weighted would be off by whole nats, however many there are.
    np.testing.assert_allclose(anneal(weights, biases, 4, 4000, key=jax.random.key(1)), exact, atol=0.15)


def test_annealing_is_exact_without_weights():
    weights, biases = make_machines(keys=7, units=5)
    weights = jnp.zeros_like(weights)
    estimate = jax.jit(boltzmann.annealed_log_partition, static_argnums=(2, 3))(
        weights, biases, 3, 2, key=jax.random.key(0)
    )
    np.testing.assert_allclose(estimate, jax.jit(boltzmann.log_partition)(weights, biases), rtol=1e-5)


def two_gibbs_steps(*chains, key):
    return boltzmann.gibbs(*chains, 2, key=key)


def a_tempered_transition(*chains, key):
    return boltzmann.tempered_transition(*chains, 3, 0.2, key=key)


@pytest.mark.parametrize("move", [two_gibbs_steps, a_tempered_transition])
def test_moves_leave_the_exact_distribution_as_it_is(move):
    weights, biases = make_machines(machines=1, keys=4, units=3)
    frames, probabilities = exact_probabilities(weights, biases, 0)
    draws = 40_000
    start = np.random.default_rng(0).choice(len(frames), draws, p=probabilities)
    many = Biases(*(jnp.broadcast_to(bias, (draws, bias.shape[1])) for bias in biases))
    first = jnp.asarray(frames[start], jnp.float32)
    moved = jax.jit(lambda frames, key: move(weights, many, frames, key=key))(first, jax.random.key(0))
    assert np.mean(np.any(np.asarray(moved) != first, axis=1)) > 0.3
    frequencies = count_frames(moved) / draws
    assert np.all(np.abs(frequencies - probabilities) < 5 * np.sqrt(probabilities / draws) + 1e-6)


def test_a_tempered_transition_crosses_walls_that_gibbs_steps_do_not():
    """The lower half of the keys or the upper half, both as likely, and next to nothing between."""
    keys, units, chains = 6, 6, 2000
    signs = np.repeat([1.0, -1.0], keys // 2)
    weights = jnp.asarray(3 * np.outer(signs, signs), jnp.float32)
    biases = Biases(jnp.zeros((chains, keys)), jnp.zeros((chains, units)))
    lower = jnp.broadcast_to(jnp.asarray(signs > 0, jnp.float32), (chains, keys))

    def crossed(frames) -> float:
        return float(np.mean(np.asarray(frames) @ signs < 0))

    plain = jax.jit(lambda key: boltzmann.gibbs(weights, biases, lower, 40, key=key))(jax.random.key(0))
    tempered = jax.jit(lambda key: boltzmann.tempered_transition(weights, biases, lower, 20, 0.2, key=key))(
        jax.random.key(0)
    )
    assert crossed(plain) < 0.01
    assert crossed(tempered) > 0.1


def normal(seed, shape):
    return jnp.asarray(np.random.default_rng(seed).normal(size=shape), jnp.float32)


@eqx.filter_jit  # one compilation instead of one an operation
def make_output(keys=5, units=3, divergence_steps=2, scale=1.0, tempering=0) -> Rbm:
    key_weights, key_bias = jax.random.split(jax.random.key(0))
    visible_bias = jax.random.normal(key_bias, (keys,))
    return Rbm.initial(HIDDEN, units, visible_bias, scale, divergence_steps, tempering, key=key_weights)


@eqx.filter_jit
def build_model(chains: Chains = QUICK) -> SequenceModel:
    model = build(recipes.settings("rbm:sgd+c", "jsb"), 88, np.full(88, 0.05), key=jax.random.key(0))
    return SequenceModel(model.cell, with_chains(model.output, chains))


def machine_of(output: Rbm, hidden) -> Biases:
    return Biases(
        (hidden @ output.visible_weights + output.visible_bias)[None],
        (hidden @ output.hidden_weights + output.hidden_bias)[None],
    )


def test_sampling_frequencies_match_the_probabilities():
    output = make_output()
    hidden = normal(1, (HIDDEN,))
    _, probabilities = exact_probabilities(output.weights, machine_of(output, hidden), 0)
    draws = 10_000
    sample = jax.jit(lambda key: output.sample(jnp.broadcast_to(hidden, (draws, HIDDEN)), key=key))(jax.random.key(2))
    assert sample.dtype == jnp.uint8
    frequencies = count_frames(sample) / draws
    assert np.all(np.abs(frequencies - probabilities) < 5 * np.sqrt(probabilities / draws) + 2e-3)


def test_candidates_with_held_keys_follow_the_conditional_distribution():
    output = make_output()
    hidden, draws = normal(1, (1, HIDDEN)), 3000
    held = jnp.array([[FREE, ON, FREE, OFF, FREE]])
    found = jax.jit(lambda keys: output.candidates(hidden, draws, keys=keys, held=held))(
        jax.random.split(jax.random.key(2), 1)
    )
    frames, probabilities = exact_probabilities(output.weights, machine_of(output, hidden[0]), 0)
    fits = (frames[:, 1] == 1) & (frames[:, 3] == 0)
    expected = np.where(fits, probabilities, 0) / probabilities[fits].sum()
    frequencies = count_frames(found.steps[0]) / draws
    assert np.all(np.abs(frequencies - expected) < 5 * np.sqrt(expected / draws) + 5e-3)
    codes = np.asarray(found.steps[0], int) @ (1 << np.arange(5)[::-1])
    offsets = np.asarray(found.log_prob[0]) - np.log(probabilities[codes])
    np.testing.assert_allclose(offsets, offsets[0], atol=1e-4)
    assert not found.log_weight.any()


@pytest.mark.parametrize("tempering", [0, 4])
def test_contrastive_divergence_approaches_the_gradient_of_the_likelihood(tempering):
    """With chains long enough to forget their start, its mean gradient is that of -log p, by enumeration."""
    output = make_output(divergence_steps=60, tempering=tempering)
    lanes = 20_000
    hidden = normal(3, (1, 1, HIDDEN))
    target = jnp.array([[[1, 0, 1, 1, 0]]], jnp.uint8)

    @eqx.filter_jit
    @eqx.filter_grad
    def divergence(moving):
        output, hidden = moving
        repeated = jnp.broadcast_to(hidden, (1, lanes, HIDDEN)), jnp.broadcast_to(target, (1, lanes, 5))
        return jnp.mean(output.loss(*repeated, jnp.asarray(1), key=jax.random.key(4)))

    @eqx.filter_jit
    @eqx.filter_grad
    def likelihood(moving):
        output, hidden = moving
        machine = machine_of(output, hidden[0, 0])
        energy = boltzmann.free_energy(output.weights, machine, target[0].astype(jnp.float32))
        return jnp.sum(energy + boltzmann.log_partition(output.weights, machine))

    for one, other in zip(
        jax.tree.leaves(divergence((output, hidden))), jax.tree.leaves(likelihood((output, hidden))), strict=True
    ):
        assert np.abs(other).max() > 0.01
        np.testing.assert_allclose(one, other, atol=0.03 * max(1, float(np.abs(other).max())))


def test_gradient_reaches_the_recurrent_network():
    model = build_model()
    targets = (np.random.default_rng(0).random((4, 1, 88)) < 0.05).astype(np.uint8)
    resets = jnp.zeros((4, 1), bool).at[0].set(True)

    @jax.jit
    def gradient(recurrent):
        def loss(recurrent):
            moved = eqx.tree_at(lambda model: model.cell.recurrent, model, recurrent)
            _, hidden = moved.run(moved.start(1), jnp.asarray(targets), resets, jnp.asarray(4))
            return jnp.sum(moved.output.loss(hidden, jnp.asarray(targets), jnp.asarray(4), key=jax.random.key(0)))

        return jax.grad(loss)(recurrent)

    assert np.abs(gradient(model.cell.recurrent)).max() > 0


def test_log_prob_estimates_the_exact_likelihood():
    output = with_chains(make_output(keys=20, units=10, scale=0.4))
    hidden = normal(1, (30, 2, HIDDEN))
    targets = jnp.asarray(np.random.default_rng(2).random((30, 2, 20)) < 0.3, jnp.uint8)
    flat = hidden.reshape(-1, HIDDEN)
    biases = Biases(
        flat @ output.visible_weights + output.visible_bias[None],
        flat @ output.hidden_weights + output.hidden_bias[None],
    )
    energy = boltzmann.free_energy(output.weights, biases, targets.reshape(-1, 20).astype(jnp.float32))
    exact = np.asarray(-energy - jax.jit(boltzmann.log_partition)(output.weights, biases))
    rough = eqx.filter_jit(output.log_prob)(hidden, targets, jnp.asarray(30), key=jax.random.key(3))
    assert rough.shape == (30, 2)
    assert abs(float(rough.mean()) - exact.mean()) < 0.3
    frames = targets.reshape(-1, 20)
    accurate = eqx.filter_jit(output.estimated_log_prob)(flat[:8], frames[:8], "accurate", key=jax.random.key(4))
    np.testing.assert_allclose(accurate, exact[:8], atol=0.1)


def test_a_rough_estimate_flatters_strong_weights_and_more_effort_does_less():
    output = Rbm.initial(HIDDEN, 14, -jnp.ones(20), 6.0, 1, key=jax.random.key(0))
    hidden = jax.random.normal(jax.random.key(1), (64, HIDDEN))
    frames = output.sample(hidden, key=jax.random.key(2))
    biases = output._machines(hidden)
    log_partition = boltzmann.log_partition(output.weights, biases)
    exact = -boltzmann.free_energy(output.weights, biases, frames.astype(jnp.float32)) - log_partition
    estimates = [
        output.log_prob(hidden, frames, jnp.asarray(64), key=jax.random.key(3)),
        output.estimated_log_prob(hidden, frames, "comparable", key=jax.random.key(3)),
        output.estimated_log_prob(hidden, frames, "accurate", key=jax.random.key(3)),
    ]
    rough, comparable, accurate = (float(jnp.mean(estimate - exact)) for estimate in estimates)
    assert rough > 1
    assert abs(accurate) < comparable < rough / 2


def test_corrected_mean_is_right_as_often_as_its_error_says():
    rng = np.random.default_rng(0)
    truth = rng.normal(-6, 3, 5000)
    rough = truth + 0.4 + 0.3 * rng.normal(size=5000)
    misses = []
    for _ in range(400):
        chosen = rng.choice(5000, 100, replace=False)
        mean, error = corrected_mean(rough, truth[chosen] - rough[chosen])
        misses.append((mean - truth.mean()) / error)
    assert np.mean(misses) == pytest.approx(0, abs=0.2)
    assert np.std(misses) == pytest.approx(1, abs=0.15)


def two_songs() -> MusicData:
    rng = np.random.default_rng(0)
    songs = [(rng.random((length, 88)) < 0.05).astype(np.uint8) for length in (30, 25)]
    return MusicData("two songs", dict.fromkeys(SPLITS, songs), frames_per_beat=1)


def test_scores_of_an_estimate_carry_an_error_and_agree_with_the_exact_ones():
    """Without weights between the layers the machine is independent keys, whose likelihood any annealing finds."""
    model = build_model(QUICK._replace(crude=Annealing(2, 1), accurate=Annealing(3, 2)))
    model = eqx.tree_at(lambda model: model.output.weights, model, jnp.zeros_like(model.output.weights))
    twin = SequenceModel(model.cell, Bernoulli(model.output.visible_weights, model.output.visible_bias))
    evaluator = SplitEvaluator(two_songs(), "valid")
    estimated, exact = evaluator.scores(model), evaluator.scores(twin)
    assert exact.log_likelihood_error is None
    assert estimated.log_likelihood == pytest.approx(exact.log_likelihood, abs=1e-3)
    assert estimated.log_likelihood_error is not None
    assert 0 <= estimated.log_likelihood_error < 1e-3
    assert evaluator.log_likelihood(model) == evaluator.log_likelihood(model)
    assert evaluator.log_likelihood(model) == pytest.approx(exact.log_likelihood, abs=1e-3)
    assert not model.output.exact


def test_accuracy_of_some_chains_agrees_with_that_of_independent_keys_on_all_frames():
    """Some frames are easy and some impossible, so that it matters how often each is taken."""
    likely = np.arange(88) < 30
    frames = np.where(np.arange(70)[:, None] < 20, likely, ~likely).astype(np.uint8)
    model = build_model()
    bias = jnp.asarray(np.where(likely, 3.0, -3.0), jnp.float32)
    model = eqx.tree_at(lambda model: model.output.weights, model, jnp.zeros_like(model.output.weights))
    model = eqx.tree_at(lambda model: model.output.visible_bias, model, bias)
    twin = SequenceModel(model.cell, Bernoulli(model.output.visible_weights, bias))
    evaluator = SplitEvaluator(MusicData("half", {split: [frames] for split in SPLITS}, frames_per_beat=1), "valid")
    some, all_frames = evaluator.scores(model), evaluator.scores(twin)
    assert all_frames.accuracy is not None
    assert 0.2 < all_frames.accuracy < 0.4
    assert some.accuracy == pytest.approx(all_frames.accuracy, abs=0.005)
    assert some.accuracy_union == pytest.approx(all_frames.accuracy_union, abs=0.005)


@eqx.filter_jit
def mean_log_prob(model, song):
    inputs = jnp.concatenate([jnp.zeros_like(song[:1]), song[:-1]])[:, None]
    resets = jnp.zeros((len(song), 1), bool).at[0].set(True)
    _, hidden = model.run(model.start(1), inputs, resets, jnp.asarray(len(song)))
    return jnp.mean(model.output.log_prob(hidden, song[:, None], jnp.asarray(len(song))))


def test_pretraining_fits_each_part_and_repeats_itself():
    config = dataclasses.replace(
        recipes.settings("nade:sgd+c", "jsb"),
        pretrain_frames=2,
        pretrain_recurrent=2,
        hidden_size=8,
        nade_size=6,
        chunk_length=20,
        block=2,
        learning_rate=0.1,
    )
    song = np.zeros((20, 88), np.uint8)
    song[::2, 40], song[1::2, 45] = 1, 1  # one of two notes, in turn
    source = ChunkSource(config, MusicData("turns", {split: [song] * 10 for split in SPLITS}, 1))
    fresh = build(config, 88, np.full(88, 0.05), key=jax.random.key(0))
    told = []
    model = pretrain(config, fresh, source, told.append)
    assert told == [f"pretraining {what}, pass {n} of 2" for what in ("recurrent network", "frames") for n in (1, 2)]
    assert mean_log_prob(model, jnp.asarray(song)) > mean_log_prob(fresh, jnp.asarray(song)) + 1

    # Each pretraining alone moves its own part, to the same bytes as in the run of both, and nothing else.
    config = dataclasses.replace(config, pretrain_recurrent=0)
    only_frames = pretrain(config, fresh, source, told.append)
    np.testing.assert_array_equal(only_frames.cell.recurrent, fresh.cell.recurrent)
    np.testing.assert_array_equal(only_frames.output.visible_weights, fresh.output.visible_weights)
    np.testing.assert_array_equal(only_frames.output.weights, model.output.weights)
    assert np.abs(only_frames.output.weights - fresh.output.weights).max() > 1e-4
    config = dataclasses.replace(config, pretrain_recurrent=2, pretrain_frames=0)
    only_recurrent = pretrain(config, fresh, source, told.append)
    np.testing.assert_array_equal(only_recurrent.cell.recurrent, model.cell.recurrent)
    np.testing.assert_array_equal(only_recurrent.output.weights, fresh.output.weights)
    assert np.abs(only_recurrent.cell.recurrent - fresh.cell.recurrent).max() > 1e-4
