"""The paper's tables: what is computed next, what becomes of it, and what survives without the studies."""

import dataclasses
import math
import shutil
from pathlib import Path

import msgspec
import pytest

from longspan import cli, recipes
from longspan.cli.options import seconds_of
from longspan.cli.reproduce import choose_cells
from longspan.errors import InputError
from longspan.reproduction.agenda import Known, Plan, Task, next_task
from longspan.reproduction.cells import (
    Cell,
    behind,
    cell_result,
    paper_figures,
    reaches_paper,
    read_results,
    table_cells,
    write_result,
)
from longspan.reproduction.run import Reproduction, Settings, merge
from longspan.reproduction.tables import TABLES
from longspan.search.worker import Limits
from tests.reproduction.conftest import OUT_OF_REACH
from tests.support.reproduction_results import JSB, failed_study, make_result, study_result

MUSEDATA = Cell("table1", "sgd", "musedata")
WORDS = Cell("table2", "sgd", "ptb-words")
CHARACTERS = Cell("table2", "sgd+c", "ptb-chars")
PLAN = Plan(trials=4, seeds=3)


class Recorder:
    def __init__(self):
        self.tasks, self.results, self.failures = [], [], []

    def on_task(self, task, study):
        self.tasks.append(task)
        return lambda: None

    def on_result(self, result):
        self.results.append(result)

    def on_failure(self, cell, reason):
        self.failures.append(reason)


def known(cell: Cell, result=None) -> Known:
    return Known(cell, result, result.search.slots if result else 0)


def test_the_tables_have_all_cells():
    assert len(table_cells("table1")) == 44
    assert len(table_cells("table2")) == 8


def test_empty_cells_come_first_the_small_data_sets_before_the_large():
    good = make_result(JSB, -8.0)
    other = Cell("table1", "sgd+cl", "jsb")
    assert next_task([known(MUSEDATA), known(JSB, good), known(other)], PLAN) == Task(other, "search", 1)
    assert next_task([known(MUSEDATA), known(JSB, good)], PLAN) == Task(MUSEDATA, "search", 1)


def test_then_every_cell_gets_its_trials_whatever_it_reached():
    once, full = make_result(JSB, -8.0, slots=1), make_result(MUSEDATA, -9.0)
    for test in (-6.0, -9.0):  # better or worse than the paper's
        other = make_result(MUSEDATA, test, slots=1)
        assert next_task([known(MUSEDATA, other), known(JSB, once)], PLAN) == Task(JSB, "search", 4)
    assert next_task([known(JSB, once), known(MUSEDATA, full)], PLAN) == Task(JSB, "search", 4)
    assert next_task([Known(JSB, once, slots=0)], PLAN) == Task(JSB, "search", 3)  # the one was by another recipe


def test_cells_that_take_long_get_fewer_slots():
    for cell in [Cell("table1", row, "jsb") for row in ("hf", "nade:hf", "rbm:sgd+c")] + [CHARACTERS]:
        once = make_result(cell, 9.0 if cell == CHARACTERS else -9.0, slots=1)
        assert next_task([known(cell, once)], PLAN) == Task(cell, "seeds", 2)


def test_then_winners_get_their_seeds_and_no_cell_gets_more_for_being_behind():
    good, bad = make_result(JSB, -8.0), make_result(MUSEDATA, -9.0)
    assert next_task([known(MUSEDATA, bad), known(JSB, good)], PLAN) == Task(MUSEDATA, "seeds", 2)
    seeded = [make_result(cell, test, seeds=(test, test)) for cell, test in ((JSB, -8.0), (MUSEDATA, -9.0))]
    assert next_task([known(result.cell, result) for result in seeded], PLAN) is None
    hopeless = cell_result(JSB, failed_study(JSB, 4), None, {})
    assert next_task([known(JSB, hopeless)], PLAN) is None


def test_a_cell_is_run_by_a_changed_recipe_only_if_asked():
    good = make_result(JSB, -8.0, seeds=(-8.1, -7.9))
    changed = [Known(JSB, good, slots=0)]
    assert next_task(changed, PLAN) is None
    renewing = dataclasses.replace(PLAN, renew=True)
    assert next_task(changed, renewing) == Task(JSB, "search", 1)
    assert next_task([Known(JSB, good, slots=1)], renewing) is None


def test_a_diverged_repetition_is_not_asked_for_again():
    search = study_result(JSB, [-8.0] * 4)
    seeds = msgspec.structs.replace(failed_study(JSB, 2))
    result = cell_result(JSB, search, seeds, {})
    assert len(result.repetitions) == 1
    assert next_task([known(JSB, result)], PLAN) is None


def test_figures_beside_the_papers():
    result = make_result(JSB, -8.6, seeds=(-8.4, -8.8))
    assert result.paper == paper_figures(JSB)
    assert (result.paper.test, result.paper.accuracy) == (-8.65, pytest.approx(0.2998))
    assert (result.ours.test, result.ours.train, result.ours.accuracy) == (-8.6, pytest.approx(-8.1), 0.3)
    assert [repetition.seed for repetition in result.repetitions] == [0, 1, 2]
    assert result.spread.test == pytest.approx(0.2)
    assert result.spread.accuracy == 0.0
    assert make_result(JSB, -8.6).spread is None
    assert (result.tried, result.trials) == (4, {"done": 4, "diverged": 0, "lost": 0})


def test_reaching_the_paper_is_judged_at_its_two_decimals():
    assert reaches_paper(make_result(JSB, -8.6549))
    assert not reaches_paper(make_result(JSB, -8.656))
    assert reaches_paper(make_result(WORDS, 145.164))
    assert not reaches_paper(make_result(WORDS, 145.17))
    assert reaches_paper(make_result(CHARACTERS, 1.44))
    assert not reaches_paper(make_result(CHARACTERS, 1.45))
    assert not reaches_paper(cell_result(JSB, failed_study(JSB), None, {}))


def test_how_far_behind_is_a_share_of_the_papers_nats():
    assert behind(make_result(JSB, -8.65 * 1.1)) == pytest.approx(0.1)
    assert behind(make_result(WORDS, 145.16**1.1)) == pytest.approx(0.1)
    assert behind(make_result(CHARACTERS, 1.44 * 0.9)) == pytest.approx(-0.1)
    assert behind(cell_result(JSB, failed_study(JSB), None, {})) == math.inf


def test_the_better_study_by_validation_stays_and_all_trials_count():
    old = make_result(JSB, -8.0, slots=4, seeds=(-8.0, -8.0), valid=-5.0)
    longer = merge(JSB, old, study_result(JSB, [-8.0] * 8))
    assert (longer.search.slots, longer.seeds, longer.tried) == (8, old.seeds, 8)
    worse = study_result(JSB, [-7.0] * 3, valid=-6.0, identity="bbbb")  # better on test, which does not count
    kept = merge(JSB, old, worse)
    assert (kept.search, kept.seeds, kept.other_studies, kept.tried) == (old.search, old.seeds, {"bbbb": 3}, 7)
    better = study_result(JSB, [-9.0] * 5, valid=-4.0, identity="bbbb")
    replaced = merge(JSB, kept, better)
    assert (replaced.search, replaced.seeds, replaced.other_studies) == (better, None, {"aaaa": 4})
    assert replaced.tried == 9
    first = merge(JSB, None, better)
    assert (first.search, first.tried) == (better, 5)


BROKEN_RESULTS = {
    "a winner that is no slot": ({"search": {"winner": 7}}, "slot 7 of study"),
    "a winner without a score": (
        {"search": {"winner": 3, "trials": {3: {"outcome": {}}}}},
        "without a validation score",
    ),
    "a winner without a test": ({"search": {"trials": {0: {"tested": None}}}}, "no log_likelihood on the test split"),
    "fewer trials than slots": ({"search": {"slots": 9}}, "has 9 slots"),
    "numbers of nothing": ({"repetitions": []}, "or none of them"),
    "another format": ({"format": 2}, "expected format 1, got 2"),
    "another format of the study": ({"search": {"format": 2}}, "expected format 1 of study"),
    "an unknown row": ({"row": "sgd+x"}, "no row 'sgd+x'"),
    "another cell": ({"row": "sgd"}, "it is the result of table1/sgd--jsb.json"),
    "another metric": ({"metric": "perplexity"}, "expected log_likelihood, got perplexity"),
    "a better number than its trials": ({"ours": {"test": -1.0}}, "its 'ours' does not follow from"),
    "a worse paper": ({"paper": {"test": -9.99}}, "its 'paper' does not follow from"),
}


def replace_within(plain, changes):
    for key, value in changes.items():
        if isinstance(value, dict) and value:
            replace_within(plain[key], value)
        elif value == {}:
            plain[key] = {"status": "done", "reason": ""}
        else:
            plain[key] = value


@pytest.mark.parametrize("changes", [{"ours": {"test": 0.0}}, {"repetitions": {0: {"figures": {"test": -1.0}}}}])
def test_a_perplexity_that_none_can_be_is_refused(changes, tmp_path):
    file = write_result(tmp_path, make_result(WORDS, 120.0))
    plain = msgspec.json.decode(file.read_bytes())
    replace_within(plain, changes)
    file.write_bytes(msgspec.json.encode(plain))
    with pytest.raises(InputError, match="expected a perplexity above 0"):
        read_results(tmp_path)


@pytest.mark.parametrize("what", BROKEN_RESULTS)
def test_a_result_that_contradicts_itself_is_one_clear_line(what, tmp_path):
    changes, message = BROKEN_RESULTS[what]
    file = write_result(tmp_path, make_result(JSB, -8.6))
    plain = msgspec.json.decode(file.read_bytes())
    replace_within(plain, changes)
    file.write_bytes(msgspec.json.encode(plain))
    with pytest.raises(InputError) as error:
        read_results(tmp_path)
    assert message in str(error.value)
    assert str(file) in str(error.value)
    assert "\n" not in str(error.value)


def test_a_folder_in_place_of_a_result_is_one_clear_line(tmp_path):
    (tmp_path / "table1" / "sgd--jsb.json").mkdir(parents=True)
    with pytest.raises(InputError, match=r"cannot read .*sgd--jsb\.json: it is a folder"):
        read_results(tmp_path)


def test_the_results_of_this_project_can_be_read():
    results = read_results(Path(__file__).parents[2] / "results")
    assert results
    assert all(result.tried >= result.search.slots for result in results.values())


def test_results_survive_their_files(tmp_path):
    results = [make_result(JSB, -8.6, seeds=(-8.4,)), make_result(CHARACTERS, 1.5)]
    for result in results:
        write_result(tmp_path, result)
    assert read_results(tmp_path) == {result.cell: result for result in results}
    assert (tmp_path / "table1" / "sgd+c--jsb.json").exists()
    (tmp_path / "table1" / "sgd--jsb.json").write_text("{}")
    with pytest.raises(InputError, match=r"sgd--jsb\.json cannot be read"):
        read_results(tmp_path)


def test_rows_and_columns_are_chosen_or_refused():
    assert choose_cells("table1", ("hf", "sgd"), ("jsb",)) == [
        Cell("table1", "sgd", "jsb"),
        Cell("table1", "hf", "jsb"),
    ]
    assert len(choose_cells("table2", (), ())) == 8
    with pytest.raises(InputError, match=r"unknown row 'sgd\+clx'.*did you mean"):
        choose_cells("table1", ("sgd+clx",), ())
    with pytest.raises(InputError, match="unknown column 'bach'"):
        choose_cells("table1", (), ("bach",))
    with pytest.raises(InputError, match=r"gated has no lstm/sgd\+cm on musedata: choose other"):
        choose_cells("gated", ("lstm/sgd+cm",), ("musedata",))


@pytest.mark.parametrize(
    ("text", "seconds"), [("90s", 90), ("90m", 5400), ("2h", 7200), ("1.5 h", 5400), ("1d", 86400)]
)
def test_budgets(text, seconds):
    assert seconds_of(text, "--budget") == seconds


@pytest.mark.parametrize("text", ["2", "h", "two hours", "2x", "-1h"])
def test_bad_budgets_are_one_clear_line(text):
    with pytest.raises(InputError, match="--budget must be"):
        seconds_of(text, "--budget")


def test_rows_without_a_recipe_are_set_aside_with_the_reason(tmp_path, monkeypatch):
    parse = recipes.parse

    def parse_without_hf(recipe):
        if recipe in ("hf", "nade:hf"):
            raise InputError(f"unknown recipe {recipe!r}")
        return parse(recipe)

    monkeypatch.setattr(recipes, "parse", parse_without_hf)
    made = Reproduction(table_cells("table1"), PLAN, Settings(tmp_path, tmp_path, 1), lambda name: "fingerprint")
    assert {cell.row for cell in made.missing} == {"hf", "nade:hf"}
    assert len(made.cells) == 36
    assert "unknown recipe 'hf'" in made.missing[Cell("table1", "hf", "jsb")]


def test_bad_settings_are_not_taken_for_a_missing_recipe(tmp_path):
    with pytest.raises(InputError, match=r"max_epochs must be .* got -1"):
        Reproduction([JSB], PLAN, Settings(tmp_path, tmp_path, 1, None, -1), lambda name: "fingerprint")


def test_cells_whose_data_are_missing_are_left_out_with_or_without_a_result(tmp_path):
    def fingerprint(name):
        raise InputError(f"no data {name}")

    write_result(tmp_path / "results", make_result(JSB, -8.6))
    recorder = Recorder()
    made = Reproduction([JSB, MUSEDATA], PLAN, Settings(tmp_path / "results", tmp_path, 1), fingerprint)
    assert made.run(recorder, lambda: False)
    assert recorder.failures == ["no data jsb", "no data musedata"]


def test_every_available_cell_can_be_defined(tmp_path):
    for table in TABLES:
        made = Reproduction(table_cells(table), PLAN, Settings(tmp_path, tmp_path, 1, None, 7), lambda name: "print")
        for cell in made.cells:
            assert made._search_definition(cell).config_of(3).max_epochs == 7
        assert len({made._search_definition(cell).identity for cell in made.cells}) == len(made.cells)


def test_seeds_get_the_time_their_winner_had_and_no_other(tmp_path, tiny_cell):
    """The winner is cut after its first epoch; its seeds are too, though by now there is no limit."""
    assert tiny_cell(Plan(1, 1, 1), limits=Limits(trial_seconds=1e-9)).run(Recorder(), lambda: False)
    assert tiny_cell(Plan(1, 1, 2)).run(Recorder(), lambda: False)
    result = read_results(tmp_path / "results")[OUT_OF_REACH]
    outcomes = [result.search.winning.outcome, result.seeds.trials[0].outcome]
    assert [(outcome.epochs, outcome.time_limit) for outcome in outcomes] == [(1, 1e-9), (1, 1e-9)]


def test_a_study_whose_winner_is_gone_is_left_out_rather_than_tried_for_ever(tiny_cell):
    recorder = Recorder()
    elsewhere = tiny_cell(Plan(1, 1, 1), pool=lambda *arguments, **options: "elsewhere")
    assert elsewhere.run(recorder, lambda: False)
    (failure,) = recorder.failures
    assert "the winner's run is no longer in" in failure


def test_a_cell_from_nothing_and_on_from_its_result_alone(tmp_path, tiny_cell):
    first = Recorder()
    plan = Plan(trials=1, seeds=2)
    assert tiny_cell(plan).run(first, lambda: False)
    assert [(task.kind, task.slots) for task in first.tasks] == [("search", 1), ("seeds", 1)]
    assert not first.failures
    result = read_results(tmp_path / "results")[OUT_OF_REACH]
    assert result == first.results[-1]
    assert [repetition.seed for repetition in result.repetitions] == [0, 1]
    assert result.repetitions[0].figures.test != result.repetitions[1].figures.test
    assert result.frames_per_second is not None
    assert result.frames_per_second > 0
    assert result.search.environment["versions"]["jax"]

    shutil.rmtree(tmp_path / "work")
    second = Recorder()
    plan = Plan(trials=2, seeds=1)
    assert tiny_cell(plan).run(second, lambda: False)
    assert [(task.kind, task.slots) for task in second.tasks] == [("search", 2)]
    # Only the second slot was run; the outcome of the first was taken from the result.
    assert [path.name for path in tmp_path.glob("work/table1/*/trials/*")] == ["slot-0001"]
    grown = second.results[-1]
    assert grown.tried == 2
    assert grown.search.trials[0].outcome == result.search.winning.outcome
    assert grown.search.trials[1].settings.keys() == {"learning_rate"}
    assert tiny_cell(plan).run(Recorder(), lambda: False)


def test_the_page_is_written_from_the_command_line(tmp_path, capsys):
    write_result(tmp_path / "results", make_result(JSB, -8.6, seeds=(-8.4,)))
    where = ["--out", str(tmp_path / "results"), "--page", str(tmp_path / "page.md")]
    assert cli.run(["reproduce", "--render-only", "--json", *where]) == 0
    assert msgspec.json.decode(capsys.readouterr().out)["reaching_the_paper"] == 1
    assert "| sgd+c | -7.81 | -8.00" in (tmp_path / "page.md").read_text()
    assert cli.run(["reproduce", *where]) == 2
    assert "expected table1, table2 or gated" in capsys.readouterr().err


def test_without_results_the_page_stays_as_it_is(tmp_path, capsys):
    page = tmp_path / "page.md"
    page.write_text("what was there")
    where = ["--out", str(tmp_path / "typo"), "--page", str(page)]
    assert cli.run(["reproduce", "--render-only", *where]) == 2
    assert "expected a folder of results" in capsys.readouterr().err
    assert page.read_text() == "what was there"


def test_cells_that_fail_are_told_and_the_others_count(tmp_path, capsys, monkeypatch):
    def no_data(name, *arguments, **options):
        raise InputError(f"no data {name}")

    monkeypatch.setattr("longspan.cli.reproduce.load_data", no_data)
    write_result(tmp_path / "results", make_result(JSB, -8.6))
    where = ["--out", str(tmp_path / "results"), "--page", str(tmp_path / "page.md"), "--work-dir", str(tmp_path)]
    assert cli.run(["reproduce", "table1", "--rows", "sgd", "--columns", "jsb", "--json", *where]) == 2
    output = capsys.readouterr()
    assert msgspec.json.decode(output.out) == {
        "page": str(tmp_path / "page.md"),
        "cells": 1,
        "reaching_the_paper": 1,
        "failed": {"table1/sgd--jsb": "no data jsb"},
    }
    assert output.err == "longspan: could not compute sgd on jsb: no data jsb\n"


@pytest.mark.parametrize(
    ("flag", "value", "message"),
    [
        ("--workers", "0", "--workers must be at least 1: got 0"),
        ("--trials", "0", "--trials must be at least 1: got 0"),
        ("--trials", "-3", "--trials must be at least 1: got -3"),
        ("--slow-trials", "0", "--slow-trials must be at least 1"),
        ("--seeds", "0", "--seeds must be at least 1"),
        ("--max-epochs", "-1", "--max-epochs must be"),
        ("--trial-limit", "0s", "--trial-limit must be above 0"),
        ("--trial-limit", "nonsense", "--trial-limit must be a number and one of"),
        ("--trial-limit", "", "--trial-limit must be a number and one of"),
        ("--budget", "", "--budget must be a number and one of"),
    ],
)
def test_bad_options_are_one_line_and_leave_nothing_behind(flag, value, message, tmp_path, capsys):
    where = ["--out", str(tmp_path / "results"), "--page", str(tmp_path / "page.md"), "--work-dir", str(tmp_path / "w")]
    assert cli.run(["reproduce", "table1", *where, flag, value]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1
    assert not list(tmp_path.iterdir())
