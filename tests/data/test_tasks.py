"""Synthetic tasks as data sets: what is drawn, how it is judged, and runs that stop once a task is solved."""

import json
import subprocess
import sys
import tracemalloc

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

from longspan import data, recipes
from longspan.config import check_output
from longspan.data.benchmarks import TASK_DESCRIPTIONS
from longspan.data.synthetic import TASKS, TaskBatch
from longspan.data.tasks import TaskData
from longspan.errors import InputError
from longspan.evaluation import SplitEvaluator
from longspan.models.outputs import Gaussian
from longspan.training.loop import train
from longspan.training.objective import Objective
from longspan.training.setup import ChunkSource, initial_model
from tests.support import reference
from tests.support.catalog import tiny_music
from tests.support.runs import start

EASY = {"hidden_size": 8, "learning_rate": 0.3, "input_scale": 0.5, "max_epochs": 20}


def easy_config(name="permutation", recipe="sgd", **changes):
    config = recipes.settings(recipe, name, data.target_kind(name))
    return config.__class__(**{**config.__dict__, "span": 2, **EASY, **changes})


def test_every_task_can_be_named():
    assert set(TASK_DESCRIPTIONS) == set(TASKS)
    for name in TASKS:
        loaded = data.load(name, span=20)
        assert isinstance(loaded, TaskData)
        assert loaded.span == 20
        assert data.target_kind(name) == loaded.target_kind
    assert {entry.name for entry in data.catalog()} > set(TASKS)
    with pytest.raises(InputError, match=r"^span must be a whole number from 10 to 10000: got"):
        data.load("addition", span=9)


@pytest.mark.parametrize("name", sorted(TASKS))
def test_training_chunks_are_the_sequences_of_seed_and_epoch(name):
    chunks = TaskData(name, 20).training_chunks(lanes=300, seed=3, epoch=7)
    drawn = TASKS[name].batch(20, 1200, seed=3, step=7)
    assert len(chunks.lengths) == 4
    for sequence in (0, 299, 300, 1199):
        chunk, lane = divmod(sequence, 300)
        inputs = chunks.inputs[chunk, :, lane]
        if inputs.dtype == np.int32:
            inputs = np.eye(TASKS[name].input_size)[inputs]
        np.testing.assert_array_equal(inputs, drawn.inputs[:, sequence])
        np.testing.assert_array_equal(chunks.targets[chunk, :, lane], drawn.targets[:, sequence])
        np.testing.assert_array_equal(chunks.mask[chunk, :, lane], drawn.mask[:, sequence])
    np.testing.assert_array_equal(chunks.resets, np.arange(chunks.resets.shape[1])[:, None] == 0 * chunks.mask)
    for chunk, length in enumerate(chunks.lengths):
        assert chunks.mask[chunk, length - 1].any()
        assert not chunks.mask[chunk, length:].any()


def test_judged_sets_are_fixed_and_apart_from_training():
    task = TaskData("temporal-order", 20)
    first, again = (TaskData("temporal-order", 20).judged_chunks("test", lanes=100) for _ in range(2))
    np.testing.assert_array_equal(first.inputs, again.inputs)
    assert first.inputs.shape == (100, 20, 100)
    halves = np.split(first.inputs, 2)
    assert not np.array_equal(*halves)
    valid, training = task.judged_chunks("valid", lanes=1000), task.training_chunks(1000, seed=0, epoch=0)
    assert not np.array_equal(valid.inputs, training.inputs)
    prints = {TaskData(name, span).fingerprint for name in ("addition", "multiplication") for span in (20, 30)}
    assert len(prints) == 4


@pytest.mark.parametrize("name", ["temporal-order", "memorization", "addition"])
def test_errors_and_likelihood_equal_those_of_a_numpy_walk(name):
    content = TaskData(name, 12)
    config = easy_config(name, span=12, recurrent_scale=1.0, output_scale=1.0)
    model = initial_model(config, content.record, content.base_rates())
    scores = SplitEvaluator(content, "valid").scores(model)

    batch = TASKS[name].batch(12, 1000, seed=0, step=0, split="valid")
    cell, output = (jax.tree.map(lambda leaf: np.asarray(leaf, float), part) for part in (model.cell, model.output))
    answers = np.zeros((*batch.mask.shape, TASKS[name].output_size))
    for sequence in range(1000):
        drive = batch.inputs[:, [sequence]] @ cell.input_weights + cell.bias
        resets = np.zeros((len(drive), 1), bool)
        hidden = reference.leaky_states("tanh", drive, np.zeros((1, 8)), cell.recurrent, cell.leak.value, resets)
        answers[:, sequence] = hidden[:, 0] @ output.weights + output.bias
    assert scores.error_rate == pytest.approx(np.mean(TASKS[name].wrong_sequences(answers, batch)), abs=1.5e-3)
    assert scores.log_likelihood == pytest.approx(numpy_log_likelihood(name, answers, batch), rel=1e-4)
    if content.record.kind == "numbers":
        expected = np.square(answers - batch.targets)[batch.mask].mean()
        assert scores.squared_error == pytest.approx(expected, rel=1e-4)


def numpy_log_likelihood(name: str, answers: np.ndarray, batch: TaskBatch) -> float:
    asked, targets = answers[batch.mask], batch.targets[batch.mask]
    if TASKS[name].asks_for == "number":
        return float(scipy.stats.norm.logpdf(targets, loc=asked).mean())
    return float(np.mean([reference.softmax_log_prob(*pair) for pair in zip(asked, targets, strict=True)]))


def test_gaussian_draws_have_the_mean_and_spread_they_should():
    output = Gaussian(jnp.zeros((3, 2)), jnp.array([1.0, -2.0]))
    hidden = jnp.zeros((4000, 3))
    np.testing.assert_array_equal(output.likeliest(hidden)[0], [1.0, -2.0])
    drawn = np.asarray(output.sample(hidden, key=jax.random.key(0)))
    np.testing.assert_allclose(drawn.mean(axis=0), [1, -2], atol=0.1)
    np.testing.assert_allclose(drawn.std(axis=0), 1, atol=0.06)


def test_outputs_start_at_the_usual_answer():
    numbers = TaskData("addition", 20)
    assert numbers.base_rates() == pytest.approx(0.5, abs=0.03)
    assert numbers.counted_steps(100) == 1
    bits = TaskData("memorization", 5)
    np.testing.assert_allclose(bits.base_rates(), [0.5, 0.5], atol=0.03)
    assert bits.counted_steps(100) == ChunkSource(easy_config("memorization"), bits).counted_steps == 5
    assert Objective.of(easy_config("memorization", lanes=4), 5).scale == pytest.approx(1 / 20)


def test_constant_answers_are_the_baseline():
    order = data.summarize(TaskData("temporal-order", 20)).baselines
    assert order.error_rate == pytest.approx(0.75, abs=0.02)
    bits = data.summarize(TaskData("memorization", 5)).baselines
    assert bits.error_rate == pytest.approx(31 / 32, abs=0.01)
    mean = data.summarize(TaskData("addition", 20)).baselines
    assert mean.squared_error == pytest.approx(1 / 24, rel=0.05), "variance of the mean of two uniform numbers"


@pytest.mark.parametrize(("name", "output"), [("temporal-order", "gaussian"), ("addition", "softmax")])
def test_outputs_that_cannot_answer_are_refused(name, output):
    with pytest.raises(InputError, match=f"output {output} does not predict"):
        check_output(easy_config(name, output=output), TaskData(name).record.predicted)


def test_a_run_stops_once_the_task_is_solved(tmp_path):
    content = TaskData("permutation", 2)
    run = start(tmp_path / "run", content, easy_config())
    outcome = train(run, content)
    records = run.metrics()
    assert outcome.reason.startswith("solved")
    assert records[-1]["valid_error_rate"] < 0.01
    assert records[-1]["best"]
    assert all(record["valid_error_rate"] >= 0.01 for record in records[:-1])
    assert SplitEvaluator(content, "test").errors(outcome.model)["error_rate"] < 0.02


def test_music_has_no_errors():
    content = tiny_music()
    config = easy_config("bach")
    model = initial_model(config, content.record, content.base_rates())
    assert SplitEvaluator(content, "valid").errors(model) == {}


def test_the_command_line_trains_judges_and_refuses(tmp_path):
    def longspan(*words):
        command = [sys.executable, "-m", "longspan", *map(str, words)]
        return subprocess.run(command, capture_output=True, text=True)

    settings = [word for name, value in EASY.items() for word in (f"--{name.replace('_', '-')}", value)]
    run = tmp_path / "run"
    trained = longspan("train", "sgd", "--data", "permutation", "--span", 2, *settings, "--run-dir", run, "--json")
    assert trained.returncode == 0, trained.stderr
    assert json.loads(trained.stdout)["error_rate"] < 0.02
    judged = longspan("evaluate", run, "--split", "valid")
    assert "wrong sequences" in judged.stdout
    assert "always the same answer" in judged.stdout
    refused = longspan("sample", run)
    assert refused.returncode == 2
    assert "cannot be sampled" in refused.stderr
    short = longspan("train", "hf", "--data", "addition", "--span", 3)
    assert short.returncode == 2
    assert short.stderr.count("\n") == 1


@pytest.mark.slow
def test_hessian_free_bridges_thirty_steps(tmp_path):
    config = recipes.settings("hf", "temporal-order", "classes")
    content = TaskData("temporal-order", config.span)
    run = start(tmp_path / "run", content, config.__class__(**{**config.__dict__, "max_epochs": 60}))
    outcome = train(run, content)
    assert config.span == 30
    assert outcome.reason.startswith("solved")
    assert SplitEvaluator(content, "test").errors(outcome.model)["error_rate"] < 0.01
    assert all(record["objective_after"] <= record["objective"] for record in run.metrics())


@pytest.mark.parametrize("name", TASKS)
def test_a_span_of_any_run_takes_little_memory(name):
    """A run folder names its task and span: one number for each of a hundred symbols took 4 GB at the longest."""
    data = TaskData(name, 1000)
    tracemalloc.start()
    try:
        _ = data.fingerprint
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 50 * 1000 * 1000, "bytes for each of a million steps"


@pytest.mark.parametrize("name", [name for name, task in TASKS.items() if task.asks_for == "class"])
def test_symbols_are_those_of_their_vectors(name):
    task = TASKS[name]
    drawn, batch = (draw(30, 7, seed=2, step=5) for draw in (task.drawn, task.batch))
    assert batch.inputs.shape == (*drawn.inputs.shape, task.input_size)
    assert np.array_equal(batch.inputs.argmax(-1), drawn.inputs)
    assert np.array_equal(batch.inputs.sum(-1), np.ones(drawn.inputs.shape))
