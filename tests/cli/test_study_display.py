"""What a person sees of a study: slots as they stand, and the winner beside the paper's number."""

import pytest
from rich.console import Console

from longspan.cli import study_display
from longspan.cli.study_display import StudyDisplay, show_result
from longspan.config import TrainConfig
from longspan.reproduction.cells import Cell
from longspan.search import storage
from longspan.search.slots import Outcome
from longspan.search.space import define
from longspan.search.study import create_or_continue
from tests.support.reproduction_results import failed_study, study_result

JSB = Cell("table1", "sgd+c", "jsb")


@pytest.fixture
def study(tmp_path):
    definition = define(
        "tiny", TrainConfig(recipe="sgd+c", data="jsb"), {"chunk_length": {"low": 5, "high": 9}}, "print"
    )
    made = create_or_continue(storage.default_url(tmp_path), definition, 5)
    # By its epochs the first looks better than it is, as it may where a likelihood can only be estimated.
    for score, best_epoch in ((-3.0, -2.0), (-2.5, -2.5)):
        claim = made.claim("me")
        curve = {1: best_epoch - 1, 2: best_epoch}
        claim.report([{"epoch": epoch, "valid_log_likelihood": value} for epoch, value in curve.items()])
        made.record(claim, Outcome("done", "", score, score, 2, 2))
    made.record(made.claim("me"), Outcome("diverged", "update 7: loss nan"))
    made.claim("me").report([{"epoch": 1, "valid_log_likelihood": -9.125}])
    return made


def text(renderable, width: int = 120) -> str:
    console = Console(width=width)
    with console.capture() as captured:
        console.print(renderable)
    return captured.get()


def test_the_live_table_shows_every_slot_that_was_begun_and_counts_the_rest(study):
    shown = text(study_display._table(study, study.slots())).splitlines()
    assert [line.split()[:4] for line in shown[1:5]] == [
        ["0", "done", "2", "-3.000"],
        ["1", "best", "2", "-2.500"],
        ["2", "diverged", "0", "chunk_length"],
        ["3", "running", "1", "-9.125"],
    ]
    assert "the recipe unchanged" in shown[1]
    assert f"chunk_length {study.definition.config_of(1).chunk_length}" in shown[2]
    assert shown[5].startswith("2 done, 1 running, 1 waiting, 1 diverged")


@pytest.mark.parametrize("width", [80, 120])
def test_slot_epoch_and_score_are_whole_at_any_width(study, width, monkeypatch):
    monkeypatch.setattr(study_display, "describe_settings", lambda settings: "learning_rate 0.123  " * 20)
    lines = text(study_display._table(study, study.slots()), width).splitlines()
    heading = next(line for line in lines if "slot" in line)
    assert all(name in heading for name in ("slot", "epoch", "valid", "settings"))
    assert all(len(line) <= width for line in lines)
    assert not any("…" in line[: heading.index("settings")] for line in lines)


def test_a_small_terminal_keeps_the_running_and_the_best(study, monkeypatch):
    for _ in range(20):
        study.claim("me")
    monkeypatch.setenv("LINES", "10")
    shown = text(study_display._table(study, study.slots()))
    assert len(shown.splitlines()) < 10
    assert "running" in shown
    assert "best" in shown


def test_without_a_terminal_each_finished_slot_is_one_line_once(study, capsys):
    with StudyDisplay(study, quiet=False) as display:
        display.refresh()
        display.refresh()
    lines = capsys.readouterr().out.splitlines()
    assert "5 slots, searching chunk_length" in lines[0]
    assert [line.split()[1:5] for line in lines[1:]] == [
        ["0", "done", "valid", "-3.000"],
        ["1", "done", "valid", "-2.500"],
        ["2", "diverged", "valid", "-"],
    ]


def test_brackets_in_a_name_are_not_markup(tmp_path, capsys):
    config = TrainConfig(recipe="sgd+c", data="songs[/old]/mine.npz")
    definition = define("tiny-v2", config, {"chunk_length": {"low": 5, "high": 9}}, "print")
    with StudyDisplay(create_or_continue(storage.default_url(tmp_path), definition, 1), quiet=False):
        pass
    assert "sgd+c on songs[/old]/mine.npz: study tiny-v2, 1 slots" in capsys.readouterr().out


def test_quiet_is_quiet(study, capsys):
    with StudyDisplay(study, quiet=True) as display:
        display.refresh()
    assert capsys.readouterr() == ("", "")


def test_the_result_stands_beside_the_papers(tmp_path, capsys):
    show_result(study_result(JSB, [-8.5, -8.9]), tmp_path)
    shown = capsys.readouterr().out
    for part in ("2 slots: 2 done", "slot 0", "-8.500", "paper", "-8.650", "29.98"):
        assert part in shown


def test_an_estimate_is_shown_as_one(tmp_path, capsys):
    result = study_result(Cell("table1", "rbm:sgd+c", "jsb"), [-6.3])
    result.trials[0].tested.test["log_likelihood_error"] = 0.04
    show_result(result, tmp_path)
    assert "-6.30 ± 0.04 (estimate)" in capsys.readouterr().out


def test_a_study_without_a_winner_says_why(tmp_path, capsys):
    show_result(failed_study(JSB), tmp_path)
    shown = capsys.readouterr().out
    assert "2 slots: 2 diverged" in shown
    assert "slot 1: update 3" in shown
