"""The table of gated networks: its rows, what is held in their searches, and what the pages show beside them."""

import json
import re
import statistics
from pathlib import Path

import msgspec
import pytest

from longspan import cli, recipes
from longspan.config import check_output
from longspan.errors import InputError
from longspan.files import check_plain_name
from longspan.reproduction.agenda import Plan
from longspan.reproduction.cells import (
    Cell,
    cell_result,
    paper_figures,
    reaches_paper,
    read_results,
    table_cells,
    write_result,
)
from longspan.reproduction.html_page import results_content
from longspan.reproduction.markdown_page import render_page
from longspan.reproduction.run import Reproduction, Settings
from longspan.reproduction.values import read_remarks, results_values
from tests.support.reproduction_results import failed_study, make_result, study_result

RESULTS = Path(__file__).parents[2] / "results"
MUSIC = ("piano-midi", "nottingham", "musedata", "jsb")
LSTM = Cell("gated", "lstm/nade:sgd+cm", "jsb")
DRY_LSTM = Cell("gated", "lstm/nade:sgd+cm without dropout", "jsb")
KEYS = Cell("gated", "lstm/sgd+cm", "jsb")
WORDS = Cell("gated", "embedding+lstm/sgd+c", "ptb-words")


class Silent:
    """An observer that keeps the tasks and the reasons of failures."""

    def __init__(self):
        self.tasks, self.failures = [], []

    def on_task(self, task, study):
        self.tasks.append(task)
        return lambda: None

    def on_result(self, result):
        pass

    def on_failure(self, cell, reason):
        self.failures.append(reason)


def test_the_rows_are_those_that_were_asked_for():
    expected = {(f"{cell}/sgd+cm", data) for cell in ("lstm", "gru") for data in ("nottingham", "jsb")}
    for suffix in ("", " without dropout"):
        expected |= {(f"{cell}/nade:sgd+cm{suffix}", data) for cell in ("lstm", "gru") for data in MUSIC}
        expected |= {(f"embedding+{cell}/sgd+c{suffix}", "ptb-words") for cell in ("lstm", "gru")}
    expected.add(("lstm/sgd+c", "ptb-chars"))
    assert {(cell.row, cell.data) for cell in table_cells("gated")} == expected
    assert len(table_cells("gated")) == len(expected) == 25


def test_every_row_is_a_recipe_for_its_data_with_a_file_of_its_own_and_no_number_of_the_paper():
    cells = table_cells("gated")
    for cell in cells:
        check_output(recipes.settings(cell.how.recipe, cell.data), "keys" if cell.data in MUSIC else "symbols")
        check_plain_name(cell.name, "study")
        assert paper_figures(cell) is None
        assert not reaches_paper(make_result(cell, 100.0 if cell.data == "ptb-words" else -0.1))
    everywhere = [cell.name for table in ("table1", "table2") for cell in table_cells(table)]
    names = [cell.name for cell in cells]
    assert len({*names, *everywhere}) == len(names) + len(everywhere)
    assert DRY_LSTM.name == "lstm-nade-sgd+cm-without-dropout--jsb"


def test_rows_without_dropout_have_none_in_any_slot_and_the_others_search_it(tmp_path):
    made = Reproduction(table_cells("gated"), Plan(), Settings(tmp_path, tmp_path, 1), lambda name: "print")
    assert not made.missing
    for cell in made.cells:
        definition = made._search_definition(cell)
        drawn = {definition.config_of(slot).dropout for slot in range(20)}
        between = {definition.config_of(slot).layer_dropout for slot in range(20)}
        dry = cell.row.endswith("without dropout")
        assert (drawn == {0.0}) if dry else (len(drawn) == 20)
        assert (len(between) == 20) == (cell.data == "ptb-words" and not dry)
        assert dry == (between == {0.0} == drawn)


def test_a_row_may_be_named_by_its_recipe_or_by_a_choice_of_its_cell():
    chosen = recipes.settings("lstm/sgd+c", "ptb-words", cell="embedding+lstm")
    assert chosen == recipes.settings(WORDS.row, "ptb-words")
    assert chosen != recipes.settings("lstm/sgd+c", "ptb-words")


@pytest.fixture(scope="module")
def papers():
    """The results of the paper's tables in this repository."""
    return {cell: result for cell, result in read_results(RESULTS).items() if cell.table != "gated"}


def mean_of_file(path: Path) -> float:
    """The mean test figure of a cell's file, read without the package."""
    return statistics.mean(each["figures"]["test"] for each in json.loads(path.read_text())["repetitions"])


@pytest.mark.parametrize(
    ("cell", "files", "best"),
    [
        (LSTM, "table1/nade-*--jsb.json", max),
        (DRY_LSTM, "table1/nade-*--jsb.json", max),
        (KEYS, "table1/[sh]*--jsb.json", max),  # sgd+..., hf
        (Cell("gated", "gru/nade:sgd+cm", "musedata"), "table1/nade-*--musedata.json", max),
        (WORDS, "table2/*--ptb-words.json", min),
        (Cell("gated", "lstm/sgd+c", "ptb-chars"), "table2/*--ptb-chars.json", min),
    ],
)
def test_the_best_plain_row_stands_beside_a_gated_one(papers, cell, files, best):
    means = {file.stem.partition("--")[0]: mean_of_file(file) for file in RESULTS.glob(files)}
    assert len(means) >= 4
    name = best(means, key=means.get)
    for shift in (0.02, -0.02):
        test = means[name] + shift
        (value,) = results_values(papers | {cell: make_result(cell, test)}).gated
        assert value.plain.row.replace(":", "-") == name
        assert value.plain.ours.test == pytest.approx(means[name])
        assert value.gains == (best(test, means[name]) == test)


def row_of(page: str, label: str) -> list[str]:
    """The cells of a line of a Markdown page that begins with a label."""
    (line,) = [line for line in page.splitlines() if line.startswith(f"| {label} | -") or f"| {label} |  |" in line]
    return [cell.strip() for cell in line.strip("|").split("|")]


def test_a_gated_row_is_shown_beside_what_is_published_and_the_papers_tables_stay(papers):
    before = render_page(results_values(papers))
    assert "No row has a result yet; `longspan reproduce gated`" in before
    assert "## Winning settings\n" in before
    plain = {paper.row: paper for paper in results_values(papers).cells if paper.data == "jsb"}
    here = make_result(KEYS, -8.0).search.environment
    results = papers | {
        KEYS: make_result(KEYS, -8.0, seeds=(-8.2, -8.1)),
        LSTM: make_result(LSTM, -5.5),
        DRY_LSTM: cell_result(DRY_LSTM, msgspec.structs.replace(failed_study(DRY_LSTM), environment=here), None, {}),
        WORDS: make_result(WORDS, 99.0, seeds=(101.0,)),
    }
    page = render_page(results_values(results))
    start, end = page.index("## Gated networks"), page.index("## What a repeat costs")
    empty = slice(before.index("## Gated networks"), before.index("## What a repeat costs"))
    assert page[:start] == before[: empty.start]
    added = "- jax 1.2.3, python 3.11, platform Linux\n"  # where these results were made up
    assert page[end:].replace(added, "") == before[empty.stop :]

    gated = page[start:end]
    assert "Bai, Kolter and Koltun (2018)" in gated
    best = plain["sgd+cl"].ours.test
    assert f"| lstm/sgd+cm | -7.60 ± 0.10 | -8.45 | {best:.2f} ± 0.01 (sgd+cl) | **-8.10 ± 0.10** | 30.00" in gated
    assert row_of(gated, "lstm/nade:sgd+cm")[2:5] == ["", "-4.95 ± 0.02 (nade:sgd)", "-5.50"]
    assert row_of(gated, "lstm/nade:sgd+cm without dropout")[4:] == ["diverged", "", "", "2", ""]
    assert (
        "| embedding+lstm/sgd+c | 100.50 ± 1.41 | 78.90 | 124.63 (sgd+cl) | **100.00 ± 1.41** | 2 | 4 | 1,000 |"
        in gated
    )
    assert re.search(r"\| lstm/sgd\+cm \| jsb \| 200 \|", gated)  # its settings
    assert "ptb-chars" not in gated


def test_the_report_shows_gated_networks_once_there_are_any(papers):
    assert "Gated networks" not in results_content(results_values(papers))
    values = results_values(papers | {KEYS: make_result(KEYS, -8.0), WORDS: make_result(WORDS, 140.0)})
    content = results_content(values)
    assert "Gated networks" in content
    assert '<td class="ours good-text">−8.00</td>' in content
    assert '<td class="ours">140.00</td>' in content
    assert "<td>−8.45</td>" in content


def test_a_gated_result_survives_its_file_and_has_no_number_of_the_paper(tmp_path):
    result = make_result(DRY_LSTM, -5.0, seeds=(-5.1,))
    file = write_result(tmp_path, result)
    assert file == tmp_path / "gated" / "lstm-nade-sgd+cm-without-dropout--jsb.json"
    assert read_results(tmp_path) == {DRY_LSTM: result}
    plain = json.loads(file.read_text())
    file.write_text(json.dumps(plain | {"paper": {"train": -1.0, "test": -5.2}}))
    with pytest.raises(InputError, match="its 'paper' does not follow from"):
        read_results(tmp_path)
    file.write_text(json.dumps(plain | {"row": "lstm/nade:sgd+cx"}))
    with pytest.raises(InputError, match=r"gated has no row 'lstm/nade:sgd\+cx' on 'jsb'"):
        read_results(tmp_path)


def test_remarks_may_speak_of_gated_cells(tmp_path):
    (tmp_path / "remarks.toml").write_text(f'"{DRY_LSTM.name}" = "Overfits."\n')
    assert read_remarks(tmp_path) == {DRY_LSTM.name: "Overfits."}


def test_a_gated_cell_from_nothing(tmp_path, tiny_cell):
    """A tiny LSTM whose recipe and space have dropout, in a row that has none."""
    observer, space = Silent(), {"dropout": {"low": 0.1, "high": 0.6}, "learning_rate": {"low": 0.01, "high": 0.1}}
    changes = {"cell": "lstm", "dropout": 0.5}
    for cell in (LSTM, DRY_LSTM):
        assert tiny_cell(Plan(2, 1, 2), cell=cell, changes=changes, space=space).run(observer, lambda: False)
    assert not observer.failures
    assert [(task.kind, task.slots) for task in observer.tasks] == 2 * [("search", 1), ("search", 2), ("seeds", 1)]
    results = read_results(tmp_path / "results")
    wet, dry = results[LSTM], results[DRY_LSTM]
    assert {"dropout", "learning_rate"} == wet.search.trials[1].settings.keys() | wet.search.trials[0].settings.keys()
    assert {"learning_rate"} == dry.search.trials[1].settings.keys() | dry.search.trials[0].settings.keys()
    assert (dry.settings["dropout"], dry.settings["cell"], dry.paper) == (0.0, "lstm", None)
    assert dry.seeds.settings["dropout"] == 0.0
    assert [repetition.seed for repetition in dry.repetitions] == [0, 1]
    assert dry.search.trials[0].outcome.valid_log_likelihood != wet.search.trials[0].outcome.valid_log_likelihood


def test_from_the_command_line(tmp_path, capsys, monkeypatch):
    def no_data(name, *arguments, **options):
        raise InputError(f"no data {name}")

    monkeypatch.setattr("longspan.cli.reproduce.load_data", no_data)
    write_result(tmp_path / "results", make_result(LSTM, -5.0))
    where = ["--out", str(tmp_path / "results"), "--page", str(tmp_path / "page.md"), "--work-dir", str(tmp_path)]
    chosen = ["--rows", DRY_LSTM.row, "--columns", "jsb"]
    assert cli.run(["reproduce", "gated", *chosen, "--json", *where]) == 2
    assert msgspec.json.decode(capsys.readouterr().out) == {
        "page": str(tmp_path / "page.md"),
        "cells": 1,
        "reaching_the_paper": 0,
        "failed": {f"gated/{DRY_LSTM.name}": "no data jsb"},
    }
    assert cli.run(["reproduce", "--render-only", *where]) == 0
    assert "Cells with a result: 0, of which at or better than the paper: 0. Gated cells with a result: 1." in (
        capsys.readouterr().out.replace("\n", " ")
    )
    assert "| lstm/nade:sgd+cm | -4.50 |" in (tmp_path / "page.md").read_text()


def test_what_becomes_of_a_gated_cell_is_said_without_a_paper(capsys):
    from longspan.cli.reproduce import ReproductionDisplay

    with ReproductionDisplay(quiet=False) as display:
        display.on_result(cell_result(LSTM, study_result(LSTM, [-5.0]), None, {}))
    assert "lstm/nade:sgd+cm on jsb: test -5.000 (trials: 1)" in capsys.readouterr().out
