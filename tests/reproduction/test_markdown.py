"""The page of results and the paper's claims: values by an independent count, then that the page shows them."""

import math

import msgspec
import numpy as np
import pytest

from longspan.errors import InputError
from longspan.reproduction import tables
from longspan.reproduction.cells import Cell, cell_result, paper_figures, table_cells
from longspan.reproduction.claims import CLAIMS, PaperClaim, judge
from longspan.reproduction.markdown_page import render_page
from longspan.reproduction.values import read_remarks, results_values
from tests.support.reproduction_results import failed_study, make_result, study_result

CLIPPING = PaperClaim("Clipping helps", "table1", ("sgd+c",), "sgd")
RIVALS = PaperClaim("SGD rivals", "table1", ("sgd+c", "sgd+cl"), "hf", kind="rivals")
ON_TEXT = PaperClaim("Clipping helps", "table2", ("sgd+c",), "sgd")


def table_of(rows: dict[str, list[float]], table="table1", valid: dict[str, float] | None = None) -> dict:
    """The same repetitions on every data set of a table."""
    sets = tables.MUSIC_SETS if table == "table1" else tables.TEXT_SETS
    cells = [Cell(table, row, data) for row in rows for data in sets]
    return {
        cell: make_result(
            cell, rows[cell.row][0], seeds=tuple(rows[cell.row][1:]), valid=(valid or {}).get(cell.row, -5.0)
        )
        for cell in cells
    }


def test_a_difference_is_that_of_means_and_its_error_that_of_the_spread():
    better, worse = [-6.0, -6.1, -6.2], [-6.5, -6.3, -6.55]
    value = judge(CLIPPING, table_of({"sgd+c": better, "sgd": worse}))
    assert value.mean == pytest.approx(np.mean(better) - np.mean(worse))
    one = math.sqrt(np.var(better, ddof=1) / 3 + np.var(worse, ddof=1) / 3)
    assert value.differences[0].error == pytest.approx(one)
    assert value.error == pytest.approx(one / 2)  # the mean of four independent differences
    assert value.verdict == "supported"
    assert value.details == "piano-midi +0.35; nottingham +0.35; musedata +0.35; jsb +0.35"


def test_verdicts_of_what_helps():
    def verdict(better, worse):
        return judge(CLIPPING, table_of({"sgd+c": better, "sgd": worse})).verdict

    assert verdict([-6.0, -6.1], [-7.0, -7.1]) == "supported"
    assert verdict([-7.0, -7.1], [-6.0, -6.1]) == "not supported"
    assert verdict([-6.0, -7.0], [-6.1, -7.1]) == "undecided"


def test_a_gain_on_one_data_set_alone_does_not_support_a_claim():
    results = table_of({"sgd+c": [-6.0, -6.001], "sgd": [-5.99, -5.991]})
    cell = Cell("table1", "sgd+c", "jsb")
    results[cell] = make_result(cell, -3.0, seeds=(-3.001,))
    value = judge(CLIPPING, results)
    assert value.mean > 2 * value.error
    assert value.verdict == "undecided"


def test_rivals_are_the_ones_validation_picks_and_need_not_win():
    rows = {"sgd+c": [-6.0, -6.2], "sgd+cl": [-5.0, -5.2], "hf": [-6.05, -6.1]}
    picked = judge(RIVALS, table_of(rows, valid={"sgd+c": -4.0, "sgd+cl": -4.5}))
    assert {difference.row for difference in picked.differences} == {"sgd+c"}
    assert picked.mean < 0
    assert picked.verdict == "supported"
    beaten = judge(RIVALS, table_of(rows | {"hf": [-4.0, -4.1]}, valid={"sgd+c": -4.0, "sgd+cl": -4.5}))
    assert beaten.verdict == "not supported"


def test_claims_are_undecided_while_something_is_missing():
    results = table_of({"sgd+c": [-6.0, -6.1], "sgd": [-7.0, -7.1]})
    del results[Cell("table1", "sgd", "jsb")]
    value = judge(CLIPPING, results)
    assert (value.verdict, value.mean, value.wanting) == ("undecided", None, ["a result of sgd on jsb"])
    plain, clipped = Cell("table1", "sgd", "jsb"), Cell("table1", "sgd+c", "jsb")
    results |= {cell: make_result(cell, -7.0) for cell in (plain, clipped)}
    value = judge(CLIPPING, results)
    assert value.wanting == ["a second seed of sgd+c on jsb", "a second seed of sgd on jsb"]
    assert "musedata +1.00; wanting: a second seed of sgd+c on jsb, a second seed of sgd on jsb" in value.details
    results[plain] = cell_result(plain, failed_study(plain), None, {})
    assert "a result of sgd on jsb" in judge(CLIPPING, results).wanting


def test_text_is_compared_in_nats_whatever_it_is_printed_in():
    results = table_of({"sgd+c": [1.4, 1.41], "sgd": [1.7, 1.72]}, "table2")
    words = {row: Cell("table2", row, "ptb-words") for row in ("sgd", "sgd+c")}
    results[words["sgd+c"]] = make_result(words["sgd+c"], 130.0, seeds=(131.0,))
    results[words["sgd"]] = make_result(words["sgd"], 150.0, seeds=(151.0,))
    value = judge(ON_TEXT, results)
    by_set = {difference.data: difference.mean for difference in value.differences}
    assert by_set["ptb-words"] == pytest.approx(np.mean(np.log([150, 151])) - np.mean(np.log([130, 131])))
    assert by_set["ptb-chars"] == pytest.approx((1.71 - 1.405) * math.log(2))
    assert value.verdict == "supported"


def test_the_papers_own_differences():
    gains = [-7.59 + 7.86, -3.67 + 3.75, -7.04 + 7.2, -8.65 + 8.65]
    assert judge(CLIPPING, {}).paper_mean == pytest.approx(np.mean(gains))
    text = [math.log(145.16 / 136.63), (1.76 - 1.44) * math.log(2)]
    assert judge(ON_TEXT, {}).paper_mean == pytest.approx(np.mean(text))


def test_every_claim_speaks_of_rows_the_paper_has():
    for claim in CLAIMS:
        for row in (*claim.better, claim.worse):
            for data in claim.data_sets:
                assert Cell(claim.table, row, data) in table_cells(claim.table)
        assert judge(claim, {}).verdict == "undecided"


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
    row = "| sgd+c | -7.81 | -8.11 ± 0.20 | -8.65 | **-8.61** (-8.61 ± 0.20) | 29.98 | 30.00 ± 0.00 | 3 | 4 | 1,000 |"
    assert row in page
    assert "| sgd | 112.11 | 150.50 | 145.16 | 150.00 | 1 | 4 | 1,000 |" in page
    assert "| sgd | -7.88 |  | -8.65 | diverged | 29.97 |" in page
    assert "- sgd on ptb-words: 150.00 against 145.16 (0.7 % of the paper's nats; trials: 4). Too few epochs." in page
    assert "Of 44 music cells 2 have a result and 1 are at or better than the paper." in page
    assert "By accuracy, which was not used for selection, 1 of 1 music cells are." in page
    assert "in 2 of 2 cells that first trial won" in page
    assert "jax 1.2.3" in page
    for cell in [cell for table in ("table1", "table2") for cell in table_cells(table)]:
        assert f"{paper_figures(cell).test:.2f}" in page
    for claim in CLAIMS:
        assert claim.statement in page


def test_the_page_says_which_winner_was_cut_and_which_likelihood_is_an_estimate():
    cell = Cell("table1", "rbm:sgd+c", "jsb")
    search = study_result(cell, [-6.3])
    (trial,) = search.trials
    tested = msgspec.structs.replace(trial.tested, test=trial.tested.test | {"log_likelihood_error": 0.02})
    outcome = msgspec.structs.replace(trial.outcome, time_limit=90.0)
    cut = msgspec.structs.replace(trial, outcome=outcome, tested=tested)
    result = cell_result(cell, msgspec.structs.replace(search, trials=[cut]), study_result(cell, [-6.5], seed=1), {})
    page = render_page(results_values({cell: result}))
    assert "| -6.30 (est. ± 0.02; -6.40 ± 0.14) |" in page
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
