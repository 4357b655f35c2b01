"""Probes against slow NumPy twins, for states of any form, and on networks whose memory is known by design."""

import dataclasses
import itertools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from longspan.data.tasks import TaskData
from longspan.models.cells import LeakyCell
from longspan.models.model import SequenceModel, build
from longspan.models.parts import Cell
from longspan.probes.gradients import GradientByLag, excerpts, first_basis, gradient_by_lag, lyapunov
from longspan.probes.memory import History, history, match_lengths, reference_losses, repeats
from longspan.probes.steps import Steps, log_probs, steps_of, walk
from longspan.probes.units import Watch, dead_share, effective_rank, units
from tests.probes import twins
from tests.support.catalog import tiny_config, tiny_music, tiny_text


@pytest.fixture(scope="module")
def data():
    return tiny_music()


@pytest.fixture(scope="module")
def model(data):
    config = tiny_config("sgd+cl", output_scale=0.5, recurrent_scale=1.2, activation="tanh")
    return build(config, 88, data.base_rates(), key=jax.random.key(0))


def as_network(model: SequenceModel) -> dict:
    cell, output = model.cell, model.output
    assert isinstance(cell, LeakyCell)
    arrays = (cell.input_weights, cell.bias, cell.recurrent, cell.leak.value, output.weights, output.bias)
    names = ("input", "bias", "recurrent", "leak", "weights", "keys")
    return {name: np.asarray(array, float) for name, array in zip(names, arrays, strict=True)} | {
        "activation": cell.activation
    }


def some_steps(data, *, every: int = 1) -> Steps:
    """The validation songs, of whose steps only every n-th counts."""
    steps = steps_of(data, "valid", 10_000)
    return steps._replace(mask=np.arange(len(steps.mask)) % every == 0)


def as_songs(steps: Steps) -> list:
    return [tuple(part[begin:end] for part in steps[:3]) for begin, end in steps.bounds]


def test_steps_are_whole_sequences_without_padding(data):
    steps = steps_of(data, "valid", 10_000)
    songs = data.splits["valid"]
    assert [end - begin for begin, end in steps.bounds] == [len(song) for song in songs]
    np.testing.assert_array_equal(steps.targets, np.concatenate(songs))
    assert steps.mask.all()
    fewer = steps_of(data, "valid", 40)
    assert 0 < len(fewer.mask) <= 40
    for begin, end in fewer.bounds:
        assert any(np.array_equal(fewer.targets[begin:end], song) for song in songs)


def test_a_stream_is_cut_off():
    steps = steps_of(tiny_text(), "valid", 50)
    assert steps.bounds == [(0, 50)]


def test_scores_are_those_of_an_evaluation(data, model):
    steps = some_steps(data)
    hidden = np.asarray(walk(model, steps).hidden)
    network = as_network(model)
    expected = [
        twins.log_prob(network, state, target)
        for inputs, targets, _ in as_songs(steps)
        for state, target in zip(twins.states(network, inputs)[1:], targets, strict=True)
    ]
    np.testing.assert_allclose(log_probs(model, hidden, steps.targets), expected, rtol=1e-4)


@pytest.mark.parametrize("every", [1, 3])
def test_gradient_by_lag_equals_products_of_jacobians_over_counted_steps(every, data, model):
    steps = some_steps(data, every=every)
    found = gradient_by_lag(model, steps, walk(model, steps), lags=6)
    expected = twins.gradient_by_lag(as_network(model), as_songs(steps), 6)
    np.testing.assert_allclose(found.norms, expected, rtol=1e-4)
    assert found.steps == steps.mask.sum()


def test_gradients_far_beyond_single_precision_are_still_told(data, model):
    steps = some_steps(data)
    tiny = eqx.tree_at(lambda model: model.cell.recurrent, model, 1e-9 * model.cell.recurrent)
    tiny = eqx.tree_at(lambda model: model.cell.leak.value, tiny, 0 * model.cell.leak.value)
    norms = gradient_by_lag(tiny, steps, walk(tiny, steps), lags=8).norms
    assert 0 < norms[8] < 1e-60
    ratios = np.divide(norms[1:], norms[:-1])
    assert (ratios < 1e-8).all()


def test_lyapunov_exponents_equal_those_of_explicit_qr(data, model):
    steps = some_steps(data)
    found = lyapunov(model, steps, walk(model, steps), exponents=8, most=2)
    begins, length = excerpts(steps, 200, 2)
    songs = [steps.inputs[begin : begin + length] for begin in begins]
    basis = first_basis(8, 8).astype(float)
    each = [twins.lyapunov(as_network(model), song, basis, length // 4) for song in songs]
    np.testing.assert_allclose(found.exponents, np.sort(np.mean(each, axis=0))[::-1], rtol=1e-3, atol=1e-3)
    volumes = [
        np.log(np.abs(np.linalg.det(twins.jacobian(as_network(model), state, x))))
        for song in songs
        for state, x in list(zip(twins.states(as_network(model), song), song, strict=False))[length // 4 :]
    ]
    assert sum(found.exponents) == pytest.approx(np.mean(volumes), rel=1e-3)


def test_the_exponents_of_a_scaled_rotation_are_the_logarithm_of_its_scale(data, model):
    steps = some_steps(data)
    cell = dataclasses.replace(
        model.cell,
        recurrent=1.5 * jnp.asarray(first_basis(8, 8)),
        input_weights=jnp.zeros((88, 8)),
        leak=jax.tree.map(jnp.zeros_like, model.cell.leak),
    )
    found = lyapunov(SequenceModel(cell, model.output), steps, walk(SequenceModel(cell, model.output), steps))
    np.testing.assert_allclose(found.exponents, np.log(1.5), atol=1e-4)


@pytest.mark.parametrize("every", [1, 4])
def test_history_equals_walks_from_the_initial_state(every, data, model):
    steps = some_steps(data, every=every)
    found = history(model, steps, walk(model, steps))
    network, songs = as_network(model), as_songs(steps)
    for length, score in zip(found.lengths, found.scores, strict=True):
        assert score == pytest.approx(twins.history(network, songs, length), rel=1e-5)
    assert found.whole == pytest.approx(twins.history(network, songs, 10_000), rel=1e-5)
    assert found.lengths[0] == 1
    assert 2 * found.lengths[-1] > steps.past[steps.mask].max()


def test_the_history_used_is_the_shortest_that_is_nearly_enough():
    assert History([1, 2, 4], [-3.0, -2.5, -2.001], [0.1] * 3, -2.0, 10).used == 4
    assert History([1, 2, 4], [-3.0, -2.5, -2.1], [0.1] * 3, -2.0, 10).used is None
    assert History([1, 2], [-2.0, -2.0], [0.0] * 2, -2.0, 10).used == 1


def test_repeats_and_their_reference_are_those_of_enumeration(data, model):
    steps = some_steps(data)
    songs = data.splits["valid"]
    expected = [twins.match_length(song, time) for song in songs for time in range(len(song))]
    np.testing.assert_array_equal(match_lengths(steps), expected)
    song, train = songs[0], data.splits["train"]
    losses = [twins.markov_loss(train, before, now) for before, now in itertools.pairwise(song)]
    np.testing.assert_allclose(reference_losses(data, steps)[1 : len(song)], losses, rtol=1e-6)

    found = repeats(model, data, steps, walk(model, steps))
    assert found is not None
    loss = -log_probs(model, walk(model, steps).hidden, steps.targets)
    again = np.array(expected) > 0
    assert found.price == pytest.approx(loss[again].mean() / loss[~again].mean())
    assert found.share == pytest.approx(again.mean())
    assert sum(bucket.steps for bucket in found.buckets) == again.sum()
    third = next(bucket for bucket in found.buckets if bucket.shortest == 3)
    inside = np.isin(expected, (3, 4))
    assert (third.steps, third.loss) == (inside.sum(), pytest.approx(loss[inside].mean()))


def test_the_reference_for_text_is_a_proper_bigram():
    data = tiny_text(60)
    steps = steps_of(data, "valid", 1000)
    single = (np.bincount(data.splits["train"], minlength=5) + 1) / (60 + 5)
    for before in range(5):
        asked = [Steps(np.array([before]), np.array([now]), np.array([True]), np.zeros(1, int)) for now in range(5)]
        rates = [float(np.exp(-reference_losses(data, one)[0])) for one in asked]
        followers = data.splits["train"][1:][data.splits["train"][:-1] == before]
        kinds = len(set(followers.tolist()))
        counts = np.bincount(followers, minlength=5)
        expected = (counts + kinds * single) / (len(followers) + kinds)
        np.testing.assert_allclose(rates, expected, rtol=1e-6)
        assert sum(rates) == pytest.approx(1)
    assert len(reference_losses(data, steps)) == 60


class Halves(Cell):
    """A leaky cell whose state is a tuple of its halves, in a dictionary."""

    cell: LeakyCell

    def initial_state(self):
        return self._split(self.cell.initial_state())

    def step(self, state, inputs):
        return self._split(self.cell.step(self.output(state), inputs))

    def output(self, state):
        return jnp.concatenate([state["first"][0], state["second"]])

    @staticmethod
    def _split(vector):
        return {"first": (vector[:3],), "second": vector[3:]}


def test_states_may_be_any_tree(data, model):
    steps = some_steps(data)
    other = SequenceModel(Halves(model.cell), model.output)
    walked, plain = walk(other, steps), walk(model, steps)
    np.testing.assert_allclose(walked.hidden, plain.hidden, rtol=1e-5, atol=1e-6)
    found, expected = (gradient_by_lag(m, steps, w, lags=4).norms for m, w in ((other, walked), (model, plain)))
    np.testing.assert_allclose(found, expected, rtol=1e-4)
    assert history(other, steps, walked).scores == pytest.approx(history(model, steps, plain).scores, rel=1e-5)
    assert lyapunov(other, steps, walked).exponents[0] == pytest.approx(
        lyapunov(model, steps, plain).exponents[0], rel=1e-3
    )
    assert units(other, steps, walked).flat is None


def test_only_the_asked_step_of_a_task_counts():
    data = TaskData("temporal-order", span=10)
    config = tiny_config("sgd+c", output="softmax", hidden_size=6)
    model = build(config, 6, data.base_rates(), key=jax.random.key(0))
    steps = steps_of(data, "valid", 500)
    found = gradient_by_lag(model, steps, walk(model, steps), lags=50)
    assert found.steps == len(steps.bounds) == steps.mask.sum()
    assert len(found.norms) == 10


def test_dead_and_flat_units_are_counted(data, model):
    steps = some_steps(data)
    cell = dataclasses.replace(
        model.cell,
        bias=jnp.array([-1e3] * 2 + [1.0] * 6),
        activation="rectifier",
        leak=jax.tree.map(jnp.zeros_like, model.cell.leak),
    )
    dead = SequenceModel(cell, model.output)
    found = units(dead, steps, walk(dead, steps))
    assert found.dead == pytest.approx(2 / 8)
    assert found.flat is not None
    assert found.flat >= 2 / 8
    assert found.flat_means == "off"
    steep = SequenceModel(dataclasses.replace(model.cell, bias=jnp.full(8, 20.0)), model.output)
    found = units(steep, steps, walk(steep, steps))
    assert (found.flat, found.flat_means) == (1.0, "saturated")


def test_effective_rank_is_the_number_of_directions():
    random = np.random.default_rng(0)
    plane = random.standard_normal((1000, 2)) @ np.linalg.qr(random.standard_normal((6, 6)))[0][:2]
    assert effective_rank(plane) == pytest.approx(2, abs=0.05)
    assert effective_rank(np.ones((10, 6))) == 0
    assert dead_share(np.ones((10, 6))) == 1


def test_states_that_overflowed_are_left_out(data, model):
    steps = some_steps(data)
    walked = walk(model, steps)
    for wild in (slice(3, 5), slice(None)):
        hidden = walked.hidden.at[wild, 2].set(jnp.inf)
        found = units(model, steps, dataclasses.replace(walked, hidden=hidden))
        assert np.isfinite([found.effective_rank, found.typical_size, found.dead]).all()
    assert found.effective_rank == 0


def test_half_life_and_what_is_left():
    fading = GradientByLag([8.0, 6.0, 4.0, 1.0], 10)
    assert (fading.half_life, fading.left) == (2, 0.125)
    assert GradientByLag([1.0, 2.0], 10).half_life is None


def test_a_watch_records_lags_and_dead_units(data, model):
    record = Watch(data, 5)(model)
    steps = steps_of(data, "valid", 2000)
    norms = gradient_by_lag(model, steps, walk(model, steps), lags=5, most=128).norms
    assert record["gradient_by_lag"] == {str(lag): pytest.approx(norms[lag], rel=1e-5) for lag in (0, 1, 2, 4)}
    assert record["dead_units"] == 0
