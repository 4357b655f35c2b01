"""The page of results: values by an independent count, then that the page shows them."""

import json

import msgspec
import pytest

from longspan.errors import InputError
from longspan.reporting.markup import markdown_table
from longspan.reproduction.cells import Cell, cell_result, paper_figures, table_cells
from longspan.reproduction.html_page import results_content
from longspan.reproduction.markdown_page import render_page
from longspan.reproduction.past import read_past
from longspan.reproduction.values import read_remarks, results_values
from tests.support.reproduction_results import failed_study, make_result, study_result


def test_the_page_shows_every_cell_beside_the_papers():
    jsb, words = Cell("table1", "sgd+c", "jsb"), Cell("table2", "sgd", "ptb-words")
    hopeless = Cell("table1", "sgd", "jsb")
    results = {
        jsb: make_result(jsb, -8.61, seeds=(-8.41, -8.81)),
        words: make_result(words, 150.0),
        hopeless: cell_result(hopeless, failed_study(hopeless), None, {}),
    }
    values = results_values(results, {"sgd--ptb-words": "Too few epochs."})
    assert len(values.cells) == 52
    assert {cell.verdict for cell in values.cells} == {"reaches", "behind", "diverged", "missing"}
    page = render_page(values)
    row = "| sgd+c | -7.81 | -8.11 ± 0.20 | -8.65 |  | **-8.61 ± 0.20** |  | 29.98 | 30.00 ± 0.00 | 3 | 4 | 1,000 |"
    assert row in page
    assert "| sgd | 112.11 | 150.50 | 145.16 |  | 150.00 |  | 1 | 4 | 1,000 |" in page
    assert "| sgd | -7.88 |  | -8.65 |  | diverged |  | 29.97 |" in page
    assert "- sgd on ptb-words: 150.00 against 145.16 (0.7 % of the paper's nats; trials: 4). Too few epochs." in page
    assert "Of 44 music cells 2 have a result of our best; by the mean over seeds 1 are at or better" in page
    assert "Of 8 text cells 1 have a result of our best; by the mean over seeds 0 are at or better" in page
    assert "By accuracy, which was not used for selection, 1 of 1 music cells are." in page
    assert "in 2 of 2 cells that first trial won" in page
    assert "jax 1.2.3" in page
    for cell in [cell for table in ("table1", "table2") for cell in table_cells(table)]:
        assert f"{paper_figures(cell).test:.2f}" in page


def test_a_cell_is_judged_by_its_mean_and_not_by_its_winning_run():
    jsb = Cell("table1", "sgd+c", "jsb")
    lucky, unlucky = make_result(jsb, -8.60, seeds=(-8.80, -8.70)), make_result(jsb, -8.80, seeds=(-8.50, -8.60))
    (value,) = [cell for cell in results_values({jsb: lucky}).cells if cell.seeds]
    assert (value.verdict, value.seeds) == ("behind", 3)
    assert value.ours.test == pytest.approx((-8.60 - 8.80 - 8.70) / 3)
    (value,) = [cell for cell in results_values({jsb: unlucky}).cells if cell.seeds]
    assert value.verdict == "reaches"


def test_the_page_says_which_winner_was_cut_and_which_likelihood_is_an_estimate():
    cell = Cell("table1", "rbm:sgd+c", "jsb")
    search = study_result(cell, [-6.3])
    (trial,) = search.trials
    tested = msgspec.structs.replace(trial.tested, test=trial.tested.test | {"log_likelihood_error": 0.02})
    outcome = msgspec.structs.replace(trial.outcome, time_limit=90.0)
    cut = msgspec.structs.replace(trial, outcome=outcome, tested=tested)
    result = cell_result(cell, msgspec.structs.replace(search, trials=[cut]), study_result(cell, [-6.5], seed=1), {})
    page = render_page(results_values({cell: result}))
    assert "| -6.40 ± 0.14 |" in page  # not all of its figures are estimates
    alone = cell_result(cell, msgspec.structs.replace(search, trials=[cut]), None, {})
    assert "| -6.30 (est. ± 0.02) |" in render_page(results_values({cell: alone}))
    assert "| 4, cut at 90 s |" in page


def test_tables_of_the_page_are_well_formed():
    """Every line of a Markdown table has as many cells as its heading."""
    jsb = Cell("table1", "sgd+c", "jsb")
    page = render_page(results_values({jsb: make_result(jsb, -8.61)}))
    width = None
    for line in page.splitlines():
        if not line.startswith("|"):
            width = None
            continue
        width = width or line.count("|")
        assert line.count("|") == width, line


def test_the_page_speaks_of_every_cell_only_where_all_are_there():
    cells = [cell for table in ("table1", "table2") for cell in table_cells(table)]
    results = {cell: make_result(cell, paper_figures(cell).test) for cell in cells}
    assert "Every cell of the paper's two tables" in render_page(results_values(results))
    del results[cells[0]]
    assert "\nCells of the paper's two tables" in render_page(results_values(results))


def test_an_empty_page_is_a_page():
    page = render_page(results_values({}))
    assert "Of 44 music cells 0 have a result" in page
    assert "[claims.md](claims.md)" in page
    assert "Nowhere" in page


def test_remarks_are_read_or_refused(tmp_path):
    assert read_remarks(tmp_path) == {}
    (tmp_path / "remarks.toml").write_text('"sgd+c--jsb" = "Needs more."\n')
    assert read_remarks(tmp_path) == {"sgd+c--jsb": "Needs more."}
    (tmp_path / "remarks.toml").write_text('"sgd+c--bach" = "No such cell."\n')
    with pytest.raises(InputError, match=r"speaks of sgd\+c--bach"):
        read_remarks(tmp_path)
    (tmp_path / "remarks.toml").write_text("= 3")
    with pytest.raises(InputError, match="is not TOML"):
        read_remarks(tmp_path)


def test_figures_with_memory_stand_beside_the_row_without_it(tmp_path):
    folder = tmp_path / "memory"
    folder.mkdir()
    seeds = [{"recipe": "nade:sgd+w", "test_with_memory": {"log_likelihood": value}} for value in (-4.25, -4.75)]
    (folder / "jsb.json").write_text(json.dumps({"data": "jsb", "seeds": seeds}))
    words = [{"recipe": "sgd+clw", "test_with_memory": {"log_likelihood": -4.7, "perplexity": 107.5}}]
    (folder / "ptb-words.json").write_text(json.dumps({"data": "ptb-words", "seeds": words}))
    values = results_values({}, past=read_past(tmp_path))
    shown = {(cell.row, cell.data): str(cell.remembering) for cell in values.cells if cell.remembering}
    assert shown == {("nade:sgd", "jsb"): "-4.50 ± 0.35", ("sgd+cl", "ptb-words"): "107.50 (1 seed)"}
    assert "| -4.50 ± 0.35 |" in render_page(values)


def test_what_a_repeat_costs_is_shown_by_network_over_seeds(tmp_path):
    folder = tmp_path / "repeats"
    folder.mkdir()
    told = {"network": "nade:sgd+t", "changes": {}, "without_memory": 0.9, "lost_without_past": 2.0}
    leaky = {"network": "nade:sgd", "changes": {"leaky_share": 0.5}, "seed": 1, "without_memory": 0.9}
    runs = [
        told | {"seed": 1, "test": -4.7, "price_of_a_repeat": 0.5, "lost_beyond_8": 0.01},
        told | {"seed": 2, "test": -4.9, "price_of_a_repeat": 0.6, "lost_beyond_8": 0.03},
        leaky | {"test": -5.0, "price_of_a_repeat": 0.75, "lost_without_past": 1.5, "lost_beyond_8": 0.25},
    ]
    (folder / "jsb.json").write_text(json.dumps({"data": "jsb", "runs": runs}))
    values = results_values({}, past=read_past(tmp_path))
    page = render_page(values)
    assert "| jsb | nade:sgd+t | -4.800 ± 0.141 | 0.55 ± 0.07 | 0.90 | 2.000 | 0.020 | 2 |" in page
    assert "| jsb | nade:sgd --leaky-share 0.5 | -5.000 | 0.75 | 0.90 | 1.500 | 0.250 | 1 |" in page
    assert "nade:sgd --leaky-share 0.5" in results_content(values)
    assert "What a repeat costs" not in results_content(results_values({}))


HOSTILE = "net <script>alert(1)</script>\n\n# h\n![](http://example.com) | x"


def test_texts_of_a_folder_of_results_are_no_markup():
    page = markdown_table(["", "value"], [[HOSTILE, "**-8.5**"]])
    assert page.splitlines()[2:] == [
        r"| net ‹script>alert(1)‹/script>\n\n# h\n![] (http: //example.com) ¦ x | **-8.5** |"
    ]
