"""Runs side by side: what differs, what came of it, how long it took."""

import msgspec
import pytest
from rich.console import Console

from longspan import cli
from longspan.cli.compare import comparison_table
from longspan.errors import InputError
from longspan.reporting.run_report import RunValue, compare_runs
from longspan.training.runs import Run
from longspan.training.timing import seconds_trained, typical_epoch_seconds
from tests.support.catalog import tiny_config, tiny_music
from tests.support.report_folders import run_folder


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


@pytest.mark.parametrize(
    ("metric", "scores", "bold"),
    [
        ("log_likelihood", (-8.0, -9.0), "-8.000"),
        ("error_rate", (0.1, 0.9), "10.00"),
        ("perplexity", (120.0, 130.0), "120.000"),
    ],
)
def test_the_better_score_is_bold_whichever_way_it_counts(tmp_path, metric, scores, bold):
    values = [RunValue("run", "done", {}, 1, 1, None, None, {metric: score}, 1.0) for score in scores]
    column = [str(cell) for cells in comparison_table(values).columns for cell in cells.cells]
    assert [cell for cell in column if "bold" in cell] == [f"[bold]{bold}[/]"]


def test_scores_on_different_data_are_not_ranked(tmp_path):
    values = [RunValue(f"[{data}]", "done", {"data": data}, 1, 1, -1.0, -1.0, None, 1.0) for data in ("a", "b")]
    table = comparison_table(values)
    assert not [cell for cells in table.columns for cell in cells.cells if "bold" in str(cell)]
    console = Console(width=80, record=True)
    console.print(table)
    assert "[a]" in console.export_text()


def test_files_of_a_run_that_were_damaged(runs):
    paths = [run.path for run in runs]
    with (paths[0] / "metrics.jsonl").open("ab") as file:
        file.write(b'{"epoch": 4, "va')
    assert compare_runs(paths)[0].epochs == 3
    (paths[0] / "status.json").write_text('{"stat')
    with pytest.raises(InputError, match=r"status\.json does not have its checksum"):
        compare_runs(paths)


def test_bad_input(runs, tmp_path, capsys):
    with pytest.raises(InputError, match="at least two"):
        compare_runs([runs[0].path])
    assert cli.run(["compare", str(runs[0].path), str(tmp_path)]) == 2
    assert "expected a run folder" in capsys.readouterr().err


def test_time_is_that_of_all_processes(tmp_path):
    run = Run.create(tmp_path / "run", tiny_config(), tiny_music().record, {})
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
