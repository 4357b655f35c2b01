"""Workers: a slot is a normal run, pruning follows from curves alone, the test split is touched for the winner only."""

import dataclasses
import json
import os
import statistics
import subprocess
import sys
import tempfile
from typing import ClassVar

import jax
import msgspec
import pytest
from optuna.exceptions import StorageInternalError

from longspan import cli, runtime
from longspan.cli.search import definition_of, parse_search
from longspan.data.archive import write_set
from longspan.data.library import load
from longspan.errors import InputError
from longspan.evaluation import SplitEvaluator
from longspan.models import boltzmann
from longspan.models.model import SequenceModel
from longspan.models.parts import Output
from longspan.models.rbm import Rbm
from longspan.registry import child_command
from longspan.search import machine, pool, storage
from longspan.search import trial as trials
from longspan.search.result import StudyResult
from longspan.search.slots import REFERENCE_SLOTS, Outcome
from longspan.search.space import define, positions
from longspan.search.study import create_or_continue, open_study
from longspan.search.trial import WARM_UP_EPOCHS, pruning_epoch
from longspan.search.worker import Job, Limits, Place, work
from longspan.training.loop import train
from longspan.training.runs import Run
from longspan.training.setup import trained_model
from tests.support import quick_rbm  # noqa: F401, registers `glancing-rbm`
from tests.support.catalog import tiny_config, tiny_music, tiny_text

MUSIC = tiny_music()
SPACE = {"learning_rate": [0.01, 0.02, 0.05, 0.1]}


pytestmark = pytest.mark.usefixtures("compiled_once")


def make_study(folder, config, slots: int, space=None, **options):
    definition = define("tiny", config, SPACE if space is None else space, "fingerprint", **options)
    return create_or_continue(storage.default_url(folder), definition, slots)


def run_here(study, folder, data=MUSIC, interrupted=lambda: False) -> StudyResult:
    assert work(study, data, Place(folder, {}), worker="me", interrupted=interrupted) == "finished"
    return msgspec.convert(study.result, StudyResult)


class EnumeratedRbm(Output):
    """A small RBM whose likelihood is summed over all states of its hidden units."""

    machine: Rbm

    def log_prob(self, hidden, targets, length, *, key):
        biases = self.machine._machines(hidden)
        frames = targets.reshape(-1, targets.shape[-1]).astype(hidden.dtype)
        energy = boltzmann.free_energy(self.machine.weights, biases, frames)
        return (-energy - boltzmann.log_partition(self.machine.weights, biases)).reshape(targets.shape[:-1])

    def loss(self, *args, **kwargs):
        raise NotImplementedError

    def sample(self, *args, **kwargs):
        raise NotImplementedError


def test_runs_whose_likelihood_is_estimated_are_compared_by_all_steps(tmp_path):
    """While training one step is looked at, and what it says of a run is not what the others would."""
    sizes = {"rbm_size": 4, "pretrain_frames": 1, "pretrain_recurrent": 1}
    config = tiny_config("rbm:sgd+c", output="glancing-rbm", max_epochs=2, **sizes)
    result = run_here(make_study(tmp_path, config, 2), tmp_path)
    exact = []
    for trial in result.trials:
        run = Run.open(tmp_path / "trials" / f"slot-{trial.slot:04}")
        model = trained_model(run)
        enumerated = SequenceModel(model.cell, EnumeratedRbm(model.output))
        exact.append(SplitEvaluator(MUSIC, "valid").log_likelihood(enumerated))
        glance = max(record["valid_log_likelihood"] for record in run.metrics())
        assert trial.outcome.valid_log_likelihood == pytest.approx(exact[-1], abs=0.02)
        assert abs(glance - exact[-1]) > 0.05
    assert result.winner == exact.index(max(exact))


class Counting(SplitEvaluator):
    scored: ClassVar[list[str]] = []

    def __init__(self, data, split):
        self.scored.append(split)
        super().__init__(data, split)


def test_a_slot_is_a_normal_run_and_only_the_winner_is_tested_and_only_once(tmp_path, monkeypatch):
    monkeypatch.setattr(trials, "SplitEvaluator", Counting)
    Counting.scored.clear()
    study = make_study(tmp_path, tiny_config("sgd+cm", max_epochs=2, learning_rate=0.5), 2)
    result = run_here(study, tmp_path)

    trial = result.trials[1]
    alone = Run.create(tmp_path / "alone", study.definition.config_of(1), MUSIC.record, {})
    train(alone, MUSIC)
    found = Run.open(tmp_path / "trials" / "slot-0001")
    assert found.metrics() == alone.metrics()
    assert (found.path / "model.safetensors").read_bytes() == (alone.path / "model.safetensors").read_bytes()
    best = max(alone.metrics(), key=lambda record: record["valid_log_likelihood"])
    assert trial.outcome.valid_log_likelihood == best["valid_log_likelihood"]
    assert (trial.outcome.best_epoch, trial.outcome.epochs, trial.outcome.status) == (best["epoch"], 2, "done")
    assert trial.settings == {"learning_rate": study.definition.config_of(1).learning_rate}

    scores = [trial.outcome.valid_log_likelihood for trial in result.trials]
    assert result.winner == scores.index(max(scores))
    assert [trial.slot for trial in result.trials if trial.tested] == [result.winner]
    assert sorted(Counting.scored) == ["test", "train"]
    run = Run.open(tmp_path / "trials" / f"slot-{result.winner:04d}")
    expected = SplitEvaluator(MUSIC, "test").scores(trained_model(run))
    assert result.winning.tested.test["log_likelihood"] == expected.log_likelihood
    assert result.settings == dataclasses.asdict(run.config)
    study.adopt({2: Outcome("done", "", -1000.0, -1000.0, 1, 1)}, {})
    study.extend(3)
    assert not study.concluded
    assert run_here(study, tmp_path).winner == result.winner
    assert sorted(Counting.scored) == ["test", "train"]


def test_slots_of_the_same_shapes_share_compiled_programs_and_end_in_the_bytes_they_have_alone(tmp_path, caplog):
    config = tiny_config("sgd+crm", max_epochs=2, clip=1.0, dropout=0.3)
    space = {"learning_rate": [0.01, 0.02, 0.05], "l1": [0.001, 0.01], "dropout": [0.1, 0.5], "momentum": [0.5, 0.9]}
    study = make_study(tmp_path / "study", config, slots=3, space=space)
    configs = [study.definition.config_of(slot) for slot in range(3)]
    assert len({(each.learning_rate, each.l1, each.dropout, each.momentum) for each in configs}) == 3
    jax.clear_caches()
    with jax.log_compiles(), caplog.at_level("WARNING"):
        run_here(study, tmp_path / "study")
    compiled = [record.getMessage() for record in caplog.records if "Compiling jit(_advanced)" in record.getMessage()]
    assert len(compiled) == 1
    for slot, config in enumerate(configs):
        jax.clear_caches()
        alone = Run.create(tmp_path / f"alone-{slot}", config, MUSIC.record, {})
        train(alone, MUSIC)
        shared = tmp_path / "study" / "trials" / f"slot-{slot:04d}"
        assert (alone.path / "model.safetensors").read_bytes() == (shared / "model.safetensors").read_bytes()
        assert (alone.path / "metrics.jsonl").read_bytes() == (shared / "metrics.jsonl").read_bytes()


def test_a_trial_ends_with_the_epoch_that_passes_its_time_and_counts(tmp_path):
    study = make_study(tmp_path, tiny_config("sgd+cm", max_epochs=9), 1)
    limits = Limits(trial_seconds=1e-9)
    assert work(study, MUSIC, Place(tmp_path, {}), worker="me", interrupted=lambda: False, limits=limits) == "finished"
    (trial,) = msgspec.convert(study.result, StudyResult).trials
    assert (trial.outcome.status, trial.outcome.epochs) == ("done", 1)
    assert "a trial may take 1e-09 seconds" in trial.outcome.reason
    assert trial.outcome.time_limit == 1e-9
    assert trial.tested is not None


def test_of_seeds_every_one_is_tested(tmp_path):
    config = tiny_config("sgd+cm", output="softmax", max_epochs=1, seed=5)
    study = make_study(tmp_path, config, 2, {"seed": {"start": 5}}, tested="every")
    result = run_here(study, tmp_path, tiny_text())
    assert [trial.settings for trial in result.trials] == [{}, {"seed": 6}]
    tested = [trial.tested.test["bits_per_character"] for trial in result.trials]
    assert tested[0] != tested[1]
    assert all(trial.tested.train["bits_per_character"] > 0 for trial in result.trials)


def test_without_the_winners_run_the_conclusion_is_left_to_others(tmp_path):
    study = make_study(tmp_path, tiny_config("sgd+cm"), 1)
    study.record(study.claim("on-another-machine"), Outcome("done", "", -1.0, -1.0, 1, 1))
    assert work(study, MUSIC, Place(tmp_path, {}), worker="me", interrupted=lambda: False) == "finished"
    assert not study.concluded
    assert study.result is None


def test_a_result_that_another_machine_wrote_is_written_here_too(tmp_path):
    study = make_study(tmp_path / "there", tiny_config("sgd+c", max_epochs=1), 1)
    run_here(study, tmp_path / "there")
    trials.conclude(study, MUSIC, Place(tmp_path / "here", {}))
    assert (tmp_path / "here" / "result.json").read_bytes() == (tmp_path / "there" / "result.json").read_bytes()


def test_a_study_in_which_all_diverged_says_so(tmp_path):
    config = tiny_config("sgd+cm", clip="none", activation="rectifier", learning_rate=1e30)
    study = make_study(tmp_path, config, 1, {})
    result = run_here(study, tmp_path)
    assert (result.winner, result.settings, result.count("diverged")) == (None, {}, 1)
    assert "update" in result.trials[0].outcome.reason
    assert result.trials[0].outcome.valid_log_likelihood is None


def test_an_interrupted_worker_gives_its_slot_back(tmp_path):
    study = make_study(tmp_path, tiny_config("sgd+cm"), 1)
    asked = iter([False, False, True])
    assert work(study, MUSIC, Place(tmp_path, {}), worker="me", interrupted=lambda: next(asked, True)) == "interrupted"
    slot = study.slots()[0]
    assert (slot.status, slot.deaths) == ("waiting", 0)
    assert Run.open(tmp_path / "trials" / "slot-0000").status == "interrupted"


def test_an_error_frees_the_slot_and_ends_the_worker(tmp_path):
    study = make_study(tmp_path, tiny_config("sgd+cm"), 1)
    Run.create(tmp_path / "trials" / "slot-0000", tiny_config("sgd+cm", seed=3), MUSIC.record, {})
    with pytest.raises(InputError, match="holds a run with other settings"):
        work(study, MUSIC, Place(tmp_path, {}), worker="me", interrupted=lambda: False)
    assert study.slots()[0].status == "waiting"


def test_pruning_holds_the_best_so_far_against_the_median_of_the_references():
    references = [{1: -9.0, 5: -5.0, 6: -6.0}, {1: -8.0, 5: -4.0}, {1: -7.0, 5: -3.0, 6: -1.0}, {}]
    late = WARM_UP_EPOCHS + 1
    assert late == 5
    assert pruning_epoch({1: -50.0, 5: -4.1, 6: 0.0}, references) == 5
    assert pruning_epoch({1: -50.0, 5: -4.0, 6: -9.0}, references) is None  # the best so far, not the last
    assert pruning_epoch({1: -1.0, 5: -99.0}, references) is None
    assert pruning_epoch({1: -50.0, 5: -4.1}, [{5000: -1.0}]) is None  # a curve that no slot has
    assert pruning_epoch({1: -50.0, 5: -4.0, 6: -3.9}, [{1: -4.0}, {6: -2.0, 1: -5.0}]) == 6
    assert pruning_epoch({6: -99.0}, []) is None


def test_pruned_slots_follow_from_the_curves_alone(tmp_path):
    """A slot run alone and unpruned has the curve of which the study has kept the part up to the cut."""
    first = REFERENCE_SLOTS
    config = tiny_config("sgd+cm", max_epochs=WARM_UP_EPOCHS + 3, learning_rate=0.1)
    study = make_study(tmp_path, config, first + 3, {"learning_rate": [0.3, 0.3, 0.05, 1e-6]}, prune=True)
    assert study.definition.config_of(first + 2).learning_rate == 1e-6
    result = run_here(study, tmp_path)
    found = study.slots()
    assert {slot.status for slot in found[:first]} == {"done"}
    assert {slot.status for slot in found[first:]} == {"done", "pruned"}
    for slot in [slot for slot in found if slot.status == "pruned"]:
        run = Run.create(tmp_path / f"alone-{slot.number}", study.definition.config_of(slot.number), MUSIC.record, {})
        train(run, MUSIC)
        curve = [record["valid_log_likelihood"] for record in run.metrics()]
        behind = [
            max(curve[:epoch]) < statistics.median(max(list(rival.curve.values())[:epoch]) for rival in found[:first])
            for epoch in range(1, len(curve) + 1)
        ]
        cut = behind.index(True, WARM_UP_EPOCHS) + 1
        assert list(slot.curve.values()) == curve[:cut]
        assert slot.outcome.epochs == cut
        assert slot.outcome.valid_log_likelihood is None
        assert f"after epoch {cut}" in slot.outcome.reason
        assert result.winner != slot.number


@pytest.fixture
def four_cores(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {4, 1, 2, 7}, raising=False)


@pytest.mark.parametrize(
    ("workers", "threads", "expected"),
    [(4, 1, [{1}, {2}, {4}, {7}]), (2, 2, [{1, 2}, {4, 7}]), (5, 1, [set()] * 5)],
)
@pytest.mark.usefixtures("four_cores")
def test_workers_are_pinned_to_cores_of_their_own_while_there_are_enough(workers, threads, expected):
    assert runtime.available_cores() == 4
    with machine.claimed_cores(workers, threads) as claimed:
        assert claimed == expected


@pytest.mark.usefixtures("four_cores")
def test_a_search_beside_another_takes_other_cores():
    with machine.claimed_cores(2, 1) as first:
        assert first == [{1}, {2}]
        with machine.claimed_cores(3, 1) as too_many:
            assert too_many == [set()] * 3
        with machine.claimed_cores(1, 2) as second:
            assert second == [{4, 7}]
    with machine.claimed_cores(1, 1) as third:
        assert third == [{1}]


def test_settings_given_are_not_searched(tmp_path):
    toml = tmp_path / "more.toml"
    toml.write_text("input_scale = 0.123\n")
    options, fixed = parse_search(
        ["sgd+cl", "--data", "jsb", "--hidden-size", "120", "--learning-rate=0.05", "--toml", str(toml), "--seed", "3"]
    )
    definition = definition_of(options, fixed, "fingerprint")
    drawn = [definition.config_of(slot) for slot in range(10)]
    assert {config.hidden_size for config in drawn} == {120}
    assert {config.learning_rate for config in drawn} == {0.05}
    assert {config.input_scale for config in drawn} == {0.123}
    assert len({config.recurrent_scale for config in drawn}) == 10
    assert {config.seed for config in drawn} == {3}
    assert definition.name == "jsb-sgd+cl"


def test_sampling_is_chosen_on_the_command_line():
    options, fixed = parse_search(["sgd+c", "--data", "jsb", "--sampling", "sobol"])
    definition = definition_of(options, fixed, "fingerprint")
    assert definition.sampling == "sobol"
    places = positions(list(definition.space), 0, 3, "sobol")
    drawn = definition.config_of(3)
    assert drawn.hidden_size == 100 + int(places["hidden_size"] * 301)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["search", "sgd+x"], "unknown recipe"),
        (["search", "--trials", "0"], "--trials must be at least 1"),
        (["search", "--data", "nowhere"], "unknown data set"),
        (["worker", "sqlite:////nowhere/at/all.db", "--study", "x"], "there is no storage"),
        (["worker", "mysql://host/database"], "expected sqlite:///FILE or postgresql://"),
        (["worker", "sqlite:////nowhere/at/all.db", "--trial-limit", "nonsense"], "--trial-limit must be a number"),
        (["search", "--trial-limit", "nonsense"], "--trial-limit must be a number"),
        (["search", "--trial-limit", "0s"], "--trial-limit must be above 0"),
        (["search", "--checkpoint-seconds", "nan"], "--checkpoint-seconds must be at least 0 and finite: got nan"),
        (["search", "--checkpoint-seconds", "-3"], "--checkpoint-seconds must be at least 0 and finite: got -3"),
        (["search", "--trial-limit", f"{'9' * 400}d"], "--trial-limit must be above 0 and finite"),
    ],
)
def test_bad_input_is_one_line(arguments, message, capsys, monkeypatch):
    monkeypatch.delenv("LONGSPAN_STORAGE", raising=False)
    assert cli.run(arguments) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1


def test_slots_that_were_all_done_elsewhere_are_no_interruption(tiny, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    arguments = ["search", "sgd+c", "--data", tiny, "--trials", "1", "--max-epochs", "1", "--study-dir", "s"]
    monkeypatch.setattr("longspan.cli.search.run_pool", lambda *arguments, **options: "elsewhere")
    assert cli.run(arguments) == 0
    assert "All 1 slots are done, but the winning run is not in this folder" in capsys.readouterr().out


def test_a_pool_whose_workers_leave_the_result_to_others_says_elsewhere(tmp_path, monkeypatch):
    study = make_study(tmp_path, tiny_config("sgd+cm"), 1)
    study.record(study.claim("on-another-machine"), Outcome("done", "", -1.0, -1.0, 1, 1))
    monkeypatch.setattr(pool._Pool, "_start", lambda *arguments: subprocess.Popen(["true"], stdin=subprocess.PIPE))
    options = pool.PoolOptions(tmp_path, tick_seconds=0.01)
    assert pool.run_pool(study, options, interrupted=lambda: False, on_tick=lambda: None) == "elsewhere"


def test_a_study_that_a_worker_can_see_has_slots(tmp_path, monkeypatch):
    """Whoever made it may have been killed at any line."""

    def killed(*arguments):
        raise KeyboardInterrupt

    monkeypatch.setattr("longspan.search.study.Study.extend", killed)
    with pytest.raises(KeyboardInterrupt):
        make_study(tmp_path, tiny_config("sgd+cm"), 3)
    assert open_study(storage.default_url(tmp_path)).slot_count == 3


def test_a_definition_that_cannot_be_read_is_one_line(tmp_path):
    study = make_study(tmp_path, tiny_config("sgd+cm"), 1)
    study._attempts.tell("definition", {"name": 3})
    with pytest.raises(InputError, match="study 'tiny' cannot be read"):
        open_study(storage.default_url(tmp_path))


@pytest.fixture
def tiny(tmp_path) -> str:
    write_set(tmp_path / "tiny.npz", MUSIC)
    return str(tmp_path / "tiny.npz")


def refused(arguments: list[str], capsys) -> str:
    assert cli.run(arguments) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    return error


def test_a_study_that_cannot_be_stored_is_one_line(tiny, tmp_path, capsys, monkeypatch):
    monkeypatch.delenv("LONGSPAN_STORAGE", raising=False)
    (tmp_path / "file").touch()
    search = ["search", "sgd+c", "--data", tiny]
    for folder in ("/proc/xyz", str(tmp_path / "file")):
        assert f"cannot write {folder}" in refused([*search, "--study-dir", folder], capsys)
    to_nowhere = [*search, "--study-dir", str(tmp_path / "study")]
    bad_port = "postgresql://localhost:abc/db"
    assert "cannot use the URL of the storage" in refused([*to_nowhere, "--storage", bad_port], capsys)
    monkeypatch.setenv("LONGSPAN_STORAGE", "mysql://host/database")
    assert "cannot use storage mysql://host/database" in refused(to_nowhere, capsys)
    assert not (tmp_path / "study").exists()


def test_settings_that_do_not_go_together_are_refused_before_there_is_a_study(tiny, tmp_path, capsys):
    space = tmp_path / "space.toml"
    search = ["search", "nade:sgd+c", "--data", tiny, "--study-dir", str(tmp_path / "study"), "--space", str(space)]
    space.write_text('optimizer = "hf"\noutput = ["nade", "bernoulli", "rbm"]\n')
    assert "do not work: hf needs an output" in refused(search, capsys)
    space.write_text('output = "softmax"\n')
    assert "the settings of slot 1 do not work: --output softmax does not predict keys" in refused(search, capsys)
    assert not (tmp_path / "study").exists()


def test_a_worker_on_cores_that_are_not_there_is_refused(tiny, tmp_path, capsys, monkeypatch):
    monkeypatch.delenv("LONGSPAN_STORAGE", raising=False)
    options, fixed = parse_search(["sgd+c", "--data", tiny])
    url = storage.default_url(tmp_path)
    create_or_continue(url, definition_of(options, fixed, load(tiny).fingerprint), 1)
    for named in ("9999", "-1", "99999999999"):
        assert "--cores must be cores of this machine" in refused(["worker", url, "--cores", named], capsys)


def pool_without_processes(monkeypatch) -> list[str]:
    """Pools that only note what becomes of their workers."""
    noted = []
    monkeypatch.setattr(pool._Pool, "_start", lambda *arguments: None)
    monkeypatch.setattr(pool._Pool, "tend", lambda self, interrupted: 1)
    monkeypatch.setattr(pool._Pool, "stop", lambda self: noted.append("stop"))
    monkeypatch.setattr(pool._Pool, "kill", lambda self: noted.append("kill"))
    monkeypatch.setattr(storage.time, "sleep", lambda seconds: None)
    return noted


def test_a_search_survives_an_outage_of_its_storage(tmp_path, monkeypatch):
    noted = pool_without_processes(monkeypatch)
    ticks = iter([True, False, False, True, True])

    def on_tick():
        if not next(ticks):
            raise StorageInternalError("gone")

    study = make_study(tmp_path, tiny_config("sgd+c"), 1)
    asked = iter([False, False, False, False, True, True])
    options = pool.PoolOptions(tmp_path, tick_seconds=0.01)
    assert pool.run_pool(study, options, interrupted=lambda: next(asked), on_tick=on_tick) == "interrupted"
    assert noted == ["stop", "kill"]
    assert next(ticks, "all had") == "all had"


def test_a_storage_that_stays_away_is_one_line_and_the_workers_save(tmp_path, monkeypatch):
    noted = pool_without_processes(monkeypatch)
    options = pool.PoolOptions(tmp_path, tick_seconds=0.01, patience=storage.Patience(outage_seconds=-1))

    def on_tick():
        raise StorageInternalError("gone")

    study = make_study(tmp_path, tiny_config("sgd+c"), 1)
    with pytest.raises(InputError, match="stayed out of reach: gone; bring it back"):
        pool.run_pool(study, options, interrupted=lambda: False, on_tick=on_tick)
    assert noted == ["stop", "kill"]


def test_who_interrupts_does_not_wait_for_the_storage(tmp_path, monkeypatch):
    noted = pool_without_processes(monkeypatch)
    asked = iter([False, False, True])  # before the tick, after its first and after its second failure

    def on_tick():
        raise StorageInternalError("gone")

    study = make_study(tmp_path, tiny_config("sgd+c"), 1)
    with pytest.raises(InputError, match="stayed out of reach: gone"):
        pool.run_pool(
            study, pool.PoolOptions(tmp_path, tick_seconds=0.01), interrupted=lambda: next(asked), on_tick=on_tick
        )
    assert noted == ["stop", "kill"]


@pytest.mark.parametrize("seconds", [None, 1e-05, 1800.0, 0.1, 1e20])
def test_a_job_reaches_its_worker_as_it_is(seconds, tmp_path):
    job = Job("postgresql://user:secret@host/db", "tiny", tmp_path, cores=[1, 2], limits=Limits(0.25, seconds))
    line = job.to_line()
    assert line.count(b"\n") == 1
    assert json.loads(line)["limits"]["trial_seconds"] == seconds
    assert Job.from_line(line) == job


def test_nothing_of_a_job_is_an_argument(tmp_path, monkeypatch):
    """Arguments are seen by everyone on the machine; the job goes through a pipe that stays open."""
    commands = []

    def start(command, **options):
        commands.append(command)
        return subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    monkeypatch.setattr(pool, "Popen", start)
    started = pool._Pool(
        make_study(tmp_path, tiny_config("sgd+c"), 1), pool.PoolOptions(tmp_path, tick_seconds=0.01), [set()]
    )
    (process,) = started.processes.values()
    assert commands == [child_command("longspan.search")]
    assert Job.from_line(process.stdout.readline()).folder == tmp_path
    assert process.poll() is None
    started.stop()
    assert process.returncode == 0


def test_a_process_that_was_prepared_gets_the_job(tmp_path, monkeypatch):
    monkeypatch.setattr(pool, "child_command", lambda module: ["cat"])
    monkeypatch.setattr(pool, "DEVNULL", subprocess.PIPE)  # so that its output can be read
    study = make_study(tmp_path, tiny_config("sgd+c"), 1)
    with pool.prepared_workers(2) as prepared:
        first, second = prepared
        started = pool._Pool(study, pool.PoolOptions(tmp_path, prepared=prepared), [set()])
        assert list(started.processes.values()) == [second]
        assert Job.from_line(second.stdout.readline()).log == tmp_path / "workers" / "1.log"
    assert first.returncode == pool.KILLED  # nothing was left to do for it
    assert second.poll() is None
    started.stop()
    second.stdout.close()


def test_what_a_worker_imports_before_its_job_starts_no_xla(tmp_path):
    """Or its number of threads could not be pinned any more, on which the last bits depend."""
    program = """
import io, sys
from longspan.search import worker
worker.io.FileIO = lambda *_, **__: io.BytesIO()  # whose other end is closed: there is no job
print(worker.main())
from jax._src import xla_bridge
print("longspan.search.trial" in sys.modules, xla_bridge.backends_are_initialized())
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["130", "True", "False"]


def test_a_search_that_is_refused_leaves_no_process_behind(tiny, monkeypatch, capsys):
    monkeypatch.delenv("LONGSPAN_STORAGE", raising=False)
    started = []
    begin = pool._worker_process

    def noted():
        started.append(begin())
        return started[-1]

    monkeypatch.setattr(pool, "_worker_process", noted)
    arguments = ["search", "sgd+c", "--data", tiny, "--workers", "2", "--study-dir", "/proc/xyz"]
    assert "cannot write /proc/xyz" in refused(arguments, capsys)
    assert len(started) == 2
    assert all(process.returncode is not None for process in started)


def test_a_worker_that_fails_is_explained(tmp_path, monkeypatch, capsys):
    """Data that are not those of the study: every worker refuses, and the search says why."""
    data = tmp_path / "tiny.npz"
    write_set(data, MUSIC)
    options, fixed = parse_search(["sgd+c", "--data", str(data), "--max-epochs", "1", "--chunk-length", "10"])
    definition = definition_of(options, fixed, "another fingerprint")
    study = create_or_continue(storage.default_url(tmp_path), definition, 1)
    with pytest.raises(InputError, match=r"worker 1 failed: the data of .* have changed"):
        pool.run_pool(
            study, pool.PoolOptions(tmp_path, tick_seconds=0.01), interrupted=lambda: False, on_tick=lambda: None
        )


@pytest.mark.slow
def test_a_worker_does_not_grow_with_its_slots():
    """Every slot has another size and is compiled anew, so what one leaves behind would add up.

    In a process of its own, because checks of annotations, which tests ask for, keep what they have checked.
    """
    command = [sys.executable, "-m", "benchmarks.many_slots", "--slots", "60", "--sizes"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    sizes = [int(line) for line in done.stdout.split()]
    assert len(sizes) == 60
    assert max(sizes[10:]) - sizes[10] < 50e6, [size // 10**6 for size in sizes]
