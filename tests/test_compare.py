"""Runs side by side: what differs, what came of it, how long it took."""

import msgspec
import pytest
from catalog import tiny_config, tiny_music
from report_folders import run_folder

from longspan import cli
from longspan.errors import InputError
from longspan.reporting.comparison import compare_runs
from longspan.training.runs import DataRecord, Run
from longspan.training.timing import seconds_trained, typical_epoch_seconds


@pytest.fixture
def runs(tmp_path):
    one = run_folder(tmp_path / "one", [-9.0, -8.0, -8.5], hidden_size=8)
    two = run_folder(tmp_path / "two", [-9.0, -8.5], status="interrupted", hidden_size=6, momentum=0.5)
    return [one, two]


def test_values(runs):
    one, two = compare_runs([run.path for run in runs])
    assert one.settings == {"hidden_size": 8, "momentum": 0.0}
    assert two.settings == {"hidden_size": 6, "momentum": 0.5}
    assert (one.best_epoch, one.valid_log_likelihood, one.train_log_likelihood) == (2, -8.0, -7.8)
    assert (one.epochs, one.status, one.seconds) == (3, "done", 9.0)
    assert (two.best_epoch, two.valid_log_likelihood, two.epochs, two.status) == (2, -8.5, 2, "interrupted")
    assert one.test == {"log_likelihood": -8.6, "accuracy": 0.29}
    assert two.test is None


def test_the_terminal_and_json(runs, capsys):
    paths = [str(run.path) for run in runs]
    assert cli.run(["compare", *paths, "--json"]) == 0
    values = msgspec.json.decode(capsys.readouterr().out)
    assert [value["run"] for value in values] == paths
    assert cli.run(["compare", *paths]) == 0
    shown = capsys.readouterr().out
    for part in ("hidden size", "best epoch", "-8.600", "29.00", "0.5", "valid, nats"):
        assert part in shown
    assert "learning rate" not in shown


def test_bad_input(runs, tmp_path, capsys):
    with pytest.raises(InputError, match="at least two"):
        compare_runs([runs[0].path])
    assert cli.run(["compare", str(runs[0].path), str(tmp_path)]) == 2
    assert "expected a run folder" in capsys.readouterr().err


def test_time_is_that_of_all_processes(tmp_path):
    run = Run.create(tmp_path / "run", tiny_config(), DataRecord.of(tiny_music()), {})
    assert seconds_trained(run) == 0
    assert typical_epoch_seconds(run) is None
    lines = [(1, 10.0), (2, 12.0), (3, 15.0), (3, 4.0), (4, 6.0), (5, 8.0)]  # killed after epoch 3 was written
    for epoch, seconds in lines:
        run.append_timing({"epoch": epoch, "seconds": seconds, "processor_seconds": seconds / 2})
    assert seconds_trained(run) == 10 + 2 + 4 + 2 + 2
    assert seconds_trained(run, "processor_seconds") == 10
    assert typical_epoch_seconds(run) == 1
    with (run.path / "timing.jsonl").open("ab") as file:
        file.write(b'{"epoch": 6, "sec')
    assert seconds_trained(run) == 20
