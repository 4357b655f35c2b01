"""Hessian-free training of sequence models: objective and states against slow NumPy ones, and runs that resume."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from longspan import recipes
from longspan.errors import InputError
from longspan.models.model import SequenceModel
from longspan.models.parts import Cell, Output, split_constants
from longspan.training.loop import train
from longspan.training.objective import Context, Objective
from longspan.training.runs import Given, Run
from longspan.training.seals import newest_checkpoint
from longspan.training.second_order import SecondOrder, draw
from longspan.training.setup import ChunkSource, first_carry, initial_model
from longspan.training.state import Progress
from tests.support import reference
from tests.support.catalog import tiny_config, tiny_music, tiny_text
from tests.support.runs import essence, start

WHOLE = {"block": 100, "curvature_sequences": 100, "slice_size": 100}  # one batch, which compiles fastest
SMALL = {"hidden_size": 4, "chunk_length": 6, "block": 8, "curvature_sequences": 5, "slice_size": 3, "max_epochs": 3}


def small_config(recipe="hf+lr", **changes):
    return tiny_config(recipe, **{**SMALL, "l1": 0.01, **changes})


class Problem:
    """A model, its optimizer and the first block of an epoch that is not full."""

    def __init__(self, config, data):
        self.config = config
        self.source = ChunkSource(config, data)
        self.model = initial_model(config, data.record, data.base_rates())
        self.params, constants = split_constants(self.model)
        self.context = Context(constants, jax.random.key(config.seed))
        self.optimizer = SecondOrder.of(config, Objective.of(config), lambda: False)
        self.chunks = self.source.epoch(0)

    def blocks(self):
        for position in range(0, len(self.chunks.lengths), self.config.block):
            yield self.source.block(self.chunks, position)

    def walk(self):
        """All blocks in turn, one update each; yields what was there before it and what came out."""
        params, state = self.params, self.optimizer.init(self.params)
        carry = first_carry(self.model, self.config)
        for block, count in self.blocks():
            before = (params, carry, block, count)
            params, state, carry, info = self.optimizer.advance(params, state, carry, block, count, self.context)
            yield before, (params, carry, info)


@pytest.fixture(scope="module")
def walked():
    problem = Problem(small_config(), tiny_music())
    return problem, list(problem.walk())


def numpy_walk(model, first, chunk):
    """Hidden states of one chunk by the twin, as (time, lane, hidden) up to its length."""
    cell, length = model.cell, int(chunk.lengths)
    drive = np.asarray(chunk.inputs[:length], float) @ np.asarray(cell.input_weights, float)
    drive += np.asarray(cell.bias, float)
    recurrent, leak = np.asarray(cell.recurrent, float), np.asarray(cell.leak.value, float)
    return reference.leaky_states(cell.activation, drive, first, recurrent, leak, chunk.resets[:length])


def numpy_block(model, first, chunks, count, l1):
    """Mean over the counted frames of loss and penalty, the states chunks are entered with, and the last state."""
    total, frames, entered = 0.0, 0, []
    state = np.asarray(first, float)
    for index in range(count):
        chunk = jax.tree.map(lambda leaf, i=index: leaf[i], chunks)
        entered.append(state)
        hidden = numpy_walk(model, state, chunk)
        logits = hidden @ np.asarray(model.output.weights, float) + np.asarray(model.output.bias, float)
        losses = -reference.bernoulli_log_prob(logits, chunk.targets[: len(hidden)])
        counted = chunk.mask[: len(hidden)]
        total += (losses + l1 * np.abs(hidden).sum(axis=-1))[counted].sum()
        frames += counted.sum()
        full = len(hidden) == len(chunk.mask)
        state = hidden[-1] if full else np.zeros_like(state)
    return total / frames, entered, state


def test_objective_and_carry_equal_a_walk_by_numpy(walked):
    problem, steps = walked
    assert steps[-1][0][3] < problem.config.block, "the last block must hold filler"
    for (params, carry, block, count), (_, carry_after, info) in steps:
        model = eqx.combine(params, problem.context.constants)
        expected, _, state = numpy_block(model, carry.state, block, count, problem.config.l1)
        assert info.figures["objective"][0] == pytest.approx(expected, rel=1e-5)
        np.testing.assert_allclose(carry_after.state, state, rtol=1e-4, atol=1e-6)
        assert int(carry_after.step) == int(carry.step) + count


def test_dropout_stays_the_same_for_an_update_and_is_drawn_anew_for_the_next():
    problem = Problem(small_config(dropout=0.5), tiny_music())
    first, again = (list(problem.walk()) for _ in range(2))
    for (_, (params, _, info)), (_, (same, _, _)) in zip(first, again, strict=True):
        assert info.figures["objective_after"][0] <= info.figures["objective"][0]
        assert eqx.tree_equal(params, same)
    problem.context = problem.context._replace(key=jax.random.key(1))
    assert next(problem.walk())[1][2].figures["objective"][0] != first[0][1][2].figures["objective"][0]


def test_objective_after_an_update_is_lower_with_the_states_of_before_it(walked):
    problem, steps = walked
    for (params, carry, block, count), (after, _, info) in steps:
        old, new = (eqx.combine(tree, problem.context.constants) for tree in (params, after))
        _, entered, _ = numpy_block(old, carry.state, block, count, 0.0)
        total = frames = 0
        for index in range(count):
            chunk = jax.tree.map(lambda leaf, i=index: leaf[i : i + 1], block)
            frames_here = int(chunk.mask.sum())
            total += frames_here * numpy_block(new, entered[index], chunk, 1, problem.config.l1)[0]
            frames += frames_here
        assert info.figures["objective_after"][0] == pytest.approx(total / frames, rel=1e-5)
        assert info.figures["objective_after"][0] < info.figures["objective"][0]


def test_filler_is_drawn_only_where_nothing_else_is_left_and_the_draw_depends_on_seed_and_update():
    steps = np.array([3, 0, 5, 1, 0, 2])
    assert set(draw(steps, 4, seed=0, update=0)) == {0, 2, 3, 5}
    assert set(draw(steps, 5, seed=0, update=0)) > {0, 2, 3, 5}
    draws = {tuple(draw(np.ones(20), 5, seed, update)) for seed in range(3) for update in range(3)}
    assert len(draws) == 9
    np.testing.assert_array_equal(draw(steps, 3, 1, 2), draw(steps, 3, 1, 2))


class Gated(Cell):
    """A cell that is not ours and knows nothing but its step: a leak that depends on the input."""

    weights: jax.Array
    gate: jax.Array

    def initial_state(self):
        return {"memory": jnp.zeros(4)}

    def step(self, state, inputs):
        inputs = inputs.astype(jnp.float32)
        kept = jax.nn.sigmoid(inputs @ self.gate)
        return {"memory": kept * state["memory"] + (1 - kept) * jnp.tanh(state["memory"] + inputs @ self.weights)}

    def output(self, state):
        return state["memory"]


def test_any_cell_learns_and_is_entered_with_its_own_state():
    problem = Problem(small_config("hf", l1=0.0, **WHOLE), tiny_music())
    keys = jax.random.split(jax.random.key(0))
    cell = Gated(*(0.3 * jax.random.normal(key, (88, 4)) for key in keys))
    problem.model = SequenceModel(cell, problem.model.output)
    problem.params, constants = split_constants(problem.model)
    problem.context = problem.context._replace(constants=constants)
    ((_, carry, block, count), (_, _, info)) = next(problem.walk())
    assert info.figures["objective_after"][0] < info.figures["objective"][0] - 0.01

    state, total = carry.state, 0.0
    for index in range(count):
        walked = (jnp.asarray(leaf[index]) for leaf in (block.inputs, block.resets, block.lengths))
        state, hidden = Cell.run(cell, state, *walked)
        logits = np.asarray(hidden @ problem.model.output.weights + problem.model.output.bias[None, None])
        total -= reference.bernoulli_log_prob(logits, block.targets[index])[block.mask[index]].sum()
    assert info.figures["objective"][0] == pytest.approx(total / block.mask[:count].sum(), rel=1e-5)


class Guessed(Output):
    """An output with an estimated likelihood."""

    exact = False
    bias: jax.Array

    def log_prob(self, hidden, targets, length, *, key=None):
        return hidden[..., 0]

    def loss(self, hidden, targets, length, *, key):
        return hidden[..., 0]

    def sample(self, hidden, *, key):
        return hidden


def test_an_estimated_likelihood_is_refused():
    problem = Problem(small_config(), tiny_music())
    with pytest.raises(InputError, match="exact"):
        problem.optimizer.init(SequenceModel(problem.params.cell, Guessed(jnp.zeros(3))))


@pytest.mark.parametrize("changes", [{"recipe": "rbm:hf"}, {"recipe": "rbm:sgd+c", "optimizer": "hf"}])
def test_an_rbm_is_refused_before_any_data_are_read(changes):
    recipe = changes.pop("recipe")
    with pytest.raises(InputError, match="likelihood is exact: got rbm") as refusal:
        dataclasses.replace(recipes.settings(recipe, "no such data", "frames"), **changes)
    assert "\n" not in str(refusal.value)


@pytest.fixture(scope="module")
def music():
    return tiny_music()


@pytest.fixture(scope="module")
def uninterrupted(music, tmp_path_factory):
    run = start(tmp_path_factory.mktemp("whole") / "run", music, small_config())
    assert train(run, music).status == "done"
    return run


def test_the_figures_of_every_epoch_are_recorded_and_the_objective_never_rises(uninterrupted):
    records = uninterrupted.metrics()
    assert len(records) == 3
    for record in records:
        assert record["objective_after"] < record["objective"]
        assert record["cg_iterations"] >= 1
        assert 0 < record["step_share"] <= 1
        assert {"ratio", "damping", "backtracks", "gradient_norm"} <= set(record)
    assert records[-1]["valid_log_likelihood"] > records[0]["valid_log_likelihood"]
    assert records[-1]["damping"] != records[0]["damping"]
    assert [record["step"] for record in records] == [3, 6, 9], "two full blocks and the rest"


def test_warm_start_and_damping_are_saved(uninterrupted):
    newest = newest_checkpoint(uninterrupted.path / "checkpoints", Progress)
    assert newest is not None
    assert np.abs(newest.arrays["optimizer.direction.cell.recurrent"]).max() > 0
    assert newest.arrays["optimizer.step"] == 9
    assert newest.arrays["optimizer.damping"] != small_config().initial_damping


def test_stopping_inside_and_between_updates_ends_in_the_same_bytes(music, uninterrupted, tmp_path):
    """Stop wherever the run asks whether to stop: within conjugate gradient and after every block."""
    run = start(tmp_path / "run", music, small_config())
    stops = 0
    while True:
        asked = 0

        def interrupted(patience=3 + stops):
            nonlocal asked
            asked += 1
            return asked > patience

        outcome = train(Run.open(run.path), music, interrupted=interrupted)
        if outcome.status != "interrupted":
            break
        stops += 1
    assert outcome.status == "done"
    assert stops >= 3
    assert essence(run.path) == essence(uninterrupted.path)


def test_stopping_inside_an_update_saves_the_state_before_it(music, tmp_path):
    run = start(tmp_path / "run", music, small_config())
    assert train(run, music, interrupted=lambda: True).status == "interrupted"
    newest = newest_checkpoint(run.path / "checkpoints", Progress)
    assert newest is not None
    assert newest.progress.step == newest.progress.position == 0
    first = initial_model(run.config, run.data, music.base_rates())
    np.testing.assert_array_equal(newest.arrays["params.cell.recurrent"], first.cell.recurrent)
    assert not newest.arrays["optimizer.direction.cell.recurrent"].any()


def test_weights_that_are_not_numbers_end_the_run_as_diverged(music, tmp_path):
    broken = initial_model(small_config(), music.record, music.base_rates())
    broken = eqx.tree_at(lambda model: model.cell.bias, broken, jnp.full(4, jnp.nan))
    run = Run.create(tmp_path / "run", small_config(), music.record, {}, Given(model=broken))
    outcome = train(run, music)
    assert outcome.status == "diverged"
    assert "objective nan" in outcome.reason
    assert "initial_damping" in outcome.reason


@pytest.mark.parametrize(("recipe", "output"), [("nade:hf", "nade"), ("hf", "softmax")])
def test_every_exact_output_learns(recipe, output, music, tmp_path):
    data = music if output == "nade" else tiny_text()
    config = small_config(recipe, output=output, nade_size=3, l1=0.0, pretrain_frames=0, **WHOLE)
    run = start(tmp_path / "run", data, config)
    train(run, data)
    records = run.metrics()
    assert records[-1]["valid_log_likelihood"] > records[0]["valid_log_likelihood"]
    assert all(record["objective_after"] < record["objective"] for record in records)


def test_recipes_name_the_method_and_its_letters():
    config = recipes.settings("NADE:hf+rl", "jsb", "frames")
    assert (config.recipe, config.optimizer, config.output) == ("nade:hf+lr", "hf", "nade")
    assert config.activation == "rectifier"
    assert config.leaky_share > 0
    assert recipes.settings("bernoulli:hf", "jsb", "frames").recipe == "hf"
    assert recipes.settings("sgd+c", "jsb", "frames").optimizer == "sgd"
    for wrong in ("hf+c", "hf+m", "hf+", "hff", "hf+ll", "rnn:hf"):
        with pytest.raises(InputError, match="unknown recipe"):
            recipes.parse(wrong)
