"""The loop: it learns, stops, resumes to the same bytes, refuses damage and never keeps a diverged model."""

import errno
import os
import shutil
from concurrent.futures import ThreadPoolExecutor

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from longspan.data.own import Sequences
from longspan.errors import InputError
from longspan.evaluation import SplitEvaluator
from longspan.files import sync_folder
from longspan.models.parts import split_constants
from longspan.training.listeners import Listener
from longspan.training.loop import train
from longspan.training.objective import Context, Objective
from longspan.training.runs import Run, create_run
from longspan.training.setup import ChunkSource, average_norm, first_carry, initial_model, trained_model
from tests.support.catalog import tiny_config, tiny_music, tiny_text
from tests.support.runs import essence, start


class Silent(Listener):
    """A listener that counts."""

    def __init__(self):
        self.blocks = 0
        self.records = []

    def on_block(self, progress, info, count, total):
        self.blocks += 1

    def on_epoch(self, record, seconds):
        self.records.append(record)


@pytest.fixture(scope="module")
def music():
    return tiny_music()


@pytest.fixture(scope="module")
def uninterrupted(music, tmp_path_factory):
    run = start(tmp_path_factory.mktemp("whole") / "run", music, tiny_config())
    outcome = train(run, music)
    assert outcome.status == "done"
    return run.path


@pytest.mark.parametrize("make_data", [tiny_music, tiny_text])
def test_training_beats_the_base_rates(make_data, tmp_path):
    data = make_data()
    output = "bernoulli" if data.record.kind == "music" else "softmax"
    config = tiny_config("sgd+cm", output=output, max_epochs=30, learning_rate=0.1)
    run = start(tmp_path / "run", data, config)
    train(run, data)
    records = run.metrics()
    best = max(records, key=lambda record: record["valid_log_likelihood"])
    assert [record["epoch"] for record in records if record["best"]][-1] == best["epoch"]
    baseline = SplitEvaluator(data, "valid").log_likelihood(initial_model(config, run.data, data.base_rates()))
    assert best["valid_log_likelihood"] > baseline / 2


@pytest.mark.parametrize("stop_after", [1, 2, 3, 4, 5])
def test_resume_ends_in_the_same_bytes(stop_after, music, uninterrupted, tmp_path):
    run = start(tmp_path / "run", music, tiny_config())
    listener = Silent()
    outcome = train(run, music, listeners=[listener], interrupted=lambda: listener.blocks >= stop_after)
    assert outcome.status == run.status == "interrupted"
    outcome = train(Run.open(run.path), music)
    assert outcome.status == Run.open(run.path).status == "done"
    assert essence(run.path) == essence(uninterrupted)


def test_stopping_after_every_single_block_ends_in_the_same_bytes(music, uninterrupted, tmp_path):
    run = start(tmp_path / "run", music, tiny_config())
    while train(Run.open(run.path), music, interrupted=lambda: True).status == "interrupted":
        pass
    assert essence(run.path) == essence(uninterrupted)


@pytest.mark.parametrize("victim", ["arrays.safetensors", "progress.json", "manifest.json"])
def test_a_damaged_checkpoint_is_refused_and_the_one_before_it_used(victim, music, uninterrupted, tmp_path):
    path = tmp_path / "run"
    shutil.copytree(uninterrupted, path)
    file = max(path.glob("checkpoints/[0-9]*")) / victim
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)
    train(Run.open(path), music)
    assert essence(path) == essence(uninterrupted)


def test_only_damaged_checkpoints_are_an_error(music, uninterrupted, tmp_path):
    path = tmp_path / "run"
    shutil.copytree(uninterrupted, path)
    for file in path.glob("checkpoints/*/arrays.safetensors"):
        file.write_bytes(b"")
    with pytest.raises(InputError, match="all 2 checkpoints"):
        train(Run.open(path), music)


def test_a_finished_run_goes_on_only_when_allowed_more_epochs(music, uninterrupted, tmp_path):
    path = tmp_path / "run"
    shutil.copytree(uninterrupted, path)
    listener = Silent()
    train(Run.open(path), music, listeners=[listener])
    assert listener.blocks == 0
    run = Run.open(path)
    run.config = tiny_config(max_epochs=5)
    train(run, music, listeners=[listener])
    whole = start(tmp_path / "whole", music, tiny_config(max_epochs=5))
    train(whole, music)
    assert essence(path) == essence(whole.path)


def test_a_run_that_its_schedule_ended_stays_ended(music, tmp_path):
    """rnnlm ends training by the gain, long before epochs or patience do; resuming must not add an epoch."""
    config = tiny_config(learning_rate_schedule="rnnlm", learning_rate=1e-6, max_epochs=50, patience=40)
    run = start(tmp_path / "run", music, config)
    assert "0.03 %" in train(run, music).reason
    before = essence(run.path)
    assert "0.03 %" in train(Run.open(run.path), music).reason
    assert essence(run.path) == before


def test_a_diverging_run_stops_and_keeps_the_last_good_weights(music, tmp_path):
    config = tiny_config("sgd+r", learning_rate=1e30, max_epochs=5)
    run = start(tmp_path / "run", music, config)
    outcome = train(run, music)
    assert outcome.status == run.status == "diverged"
    assert "update" in outcome.reason
    assert "learning_rate" in outcome.reason
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(outcome.model))
    assert all(np.isfinite(record["valid_log_likelihood"]) for record in run.metrics())


def test_weights_survive_the_run_folder(music, uninterrupted):
    run = Run.open(uninterrupted)
    found = trained_model(run)
    outcome = train(run, music)
    for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(outcome.model), strict=True):
        np.testing.assert_array_equal(a, b)


def test_several_lanes_train_too(music, tmp_path):
    run = start(tmp_path / "run", music, tiny_config(lanes=3, max_epochs=8, learning_rate=0.1))
    train(run, music)
    records = run.metrics()
    assert records[-1]["valid_log_likelihood"] > records[0]["valid_log_likelihood"]


def test_a_second_process_cannot_train_the_same_run(uninterrupted):
    with (
        Run.open(uninterrupted).locked(),
        pytest.raises(InputError, match="another process"),
        Run.open(uninterrupted).locked(),
    ):
        pass


def test_auto_clip_is_the_average_norm_over_one_pass(music):
    config = tiny_config()
    model = initial_model(config, music.record, music.base_rates())
    params, constants = split_constants(model)
    context = Context(constants, jax.random.key(config.seed))
    source = ChunkSource(config, music)
    found = average_norm(params, first_carry(model, config), source, context)

    chunks, objective = source.epoch(0), Objective.of(config)
    carry = first_carry(model, config)
    gradient = jax.jit(jax.grad(objective, has_aux=True))
    norms = []
    for index in range(len(chunks.lengths)):
        slopes, (carry, _) = gradient(params, carry, jax.tree.map(lambda leaf, i=index: leaf[i], chunks), context)
        norms.append(np.sqrt(sum(float(jnp.sum(leaf**2)) for leaf in jax.tree.leaves(slopes))))
    assert found == pytest.approx(np.mean(norms), rel=1e-5)


@pytest.mark.parametrize(("loss", "scale"), [("mean", 1 / 10), ("sum", 1.0)])
def test_objective_is_the_scaled_sum_over_counted_steps_plus_l1(loss, scale, music):
    config = tiny_config(loss=loss, l1=0.01)
    model = initial_model(config, music.record, music.base_rates())
    params, constants = split_constants(model)
    chunk = jax.tree.map(lambda leaf: jnp.asarray(leaf[-1]), ChunkSource(config, music).epoch(0))
    carry = first_carry(model, config)
    value, (_, total) = Objective.of(config)(params, carry, chunk, Context(constants, jax.random.key(0)))

    _, hidden = model.run(model.start(1), chunk.inputs, chunk.resets, chunk.lengths)
    counted = np.asarray(chunk.mask)[:, 0]
    losses = -np.asarray(model.output.log_prob(hidden, chunk.targets, chunk.lengths))[counted, 0]
    penalty = 0.01 * np.abs(np.asarray(hidden))[counted].sum()
    assert float(total) == pytest.approx(losses.sum(), rel=1e-5)
    assert float(value) == pytest.approx(scale * (losses.sum() + penalty), rel=1e-5)


def test_dropout_hides_units_from_the_output_and_makes_the_others_louder(music):
    config = tiny_config(hidden_size=400, activation="tanh", dropout=0.3, chunk_length=1)
    model = initial_model(config, music.record, music.base_rates())
    params, constants = split_constants(model)
    chunk = jax.tree.map(lambda leaf: jnp.asarray(leaf[3]), ChunkSource(config, music).epoch(0))
    descend = jax.value_and_grad(Objective.of(config), has_aux=True)

    def at_step(number):
        carry = first_carry(model, config)._replace(step=jnp.int32(number))
        (_, (_, total)), slopes = descend(params, carry, chunk, Context(constants, jax.random.key(0)))
        return float(total), np.any(np.asarray(slopes.output.weights) != 0, axis=1)

    _, hidden = model.run(model.start(1), chunk.inputs, chunk.resets, chunk.lengths)
    total, seen = at_step(0)
    assert 0.6 < seen.mean() < 0.8
    logits = (np.asarray(hidden)[0, 0] * seen / 0.7) @ np.asarray(model.output.weights) + np.asarray(model.output.bias)
    losses = np.logaddexp(0, logits) - logits * np.asarray(chunk.targets)[0, 0]
    assert total == pytest.approx(losses.sum(), rel=1e-4)
    assert np.any(at_step(1)[1] != seen)


def test_leaks_are_saved_and_never_trained(music, tmp_path):
    config = tiny_config("sgd+clm", leaky_share=0.5, learning_rate=0.1)
    run = start(tmp_path / "run", music, config)
    before = initial_model(config, music.record, music.base_rates())
    outcome = train(run, music)
    np.testing.assert_array_equal(outcome.model.cell.leak.value, before.cell.leak.value)
    assert np.count_nonzero(outcome.model.cell.leak.value) == 4
    assert not eqx.tree_equal(outcome.model.cell.recurrent, before.cell.recurrent)


def test_many_processes_that_start_at_once_get_a_folder_each(music, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    config = tiny_config("sgd+c")
    with ThreadPoolExecutor(8) as starters:
        runs = list(starters.map(lambda _: create_run(None, config, music.record, {}), range(16)))
    assert len({run.path for run in runs}) == 16
    assert all(Run.open(run.path).config == config for run in runs)


def test_a_file_in_place_of_a_run_folder_is_one_error(music, tmp_path):
    (tmp_path / "run").touch()
    with pytest.raises(InputError, match="is a file"):
        create_run(tmp_path / "run", tiny_config("sgd+c"), music.record, {})


def test_a_score_far_below_coin_tosses_is_divergence_though_it_is_a_number(music, tmp_path):
    config = tiny_config("sgd", learning_rate=1e6, activation="rectifier")
    run = start(tmp_path / "run", music, config)
    outcome = train(run, music)
    assert outcome.status == "diverged"
    assert "validation score" in outcome.reason or "update" in outcome.reason
    finite = tiny_config("sgd", learning_rate=3e4, activation="sigmoid")
    outcome = train(start(tmp_path / "finite", music, finite), music)
    assert outcome.status == "diverged"
    assert "epoch 1: its validation score is -" in outcome.reason


def test_normalized_numbers_missed_by_a_thousand_deviations_are_divergence(tmp_path):
    wave = 50 + 10 * np.sin(np.arange(300) / 5)
    for rate, status in ((1e6, "diverged"), (1e-3, "done")):
        config = tiny_config("sgd+c", learning_rate=rate, output="gaussian", max_epochs=2)
        data = Sequences(wave, name="wave")
        assert train(start(tmp_path / str(rate), data, config), data).status == status


def test_a_folder_that_cannot_be_flushed_is_an_error_unless_the_system_has_no_such_thing(tmp_path, monkeypatch):
    def failing(number):
        def fsync(_):
            raise OSError(number, os.strerror(number))

        return fsync

    monkeypatch.setattr(os, "fsync", failing(errno.EINVAL))
    sync_folder(tmp_path)
    monkeypatch.setattr(os, "fsync", failing(errno.EIO))
    with pytest.raises(OSError, match=os.strerror(errno.EIO)):
        sync_folder(tmp_path)
