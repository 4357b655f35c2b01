"""What a report says of compared methods: values by an independent count, pages that show them, pictures that parse."""

import math
from xml.etree import ElementTree

import msgspec
import numpy as np
import pytest

from longspan import cli
from longspan.arms.protocol import RECIPE_SLOT, define
from longspan.arms.records import DEFINITION, RESULTS, StudyResults, read_studies, write_lines
from longspan.arms.verdicts import CLAIMS
from longspan.errors import InputError
from longspan.report import find_all, read_report, render_report
from longspan.reporting.methods_charts import curve_charts, pair_charts, rate_charts
from longspan.reporting.methods_pages import claim_cells, methods_markdown, progress_of
from longspan.reporting.methods_report import methods_report, outlook, paper_difference
from longspan.reproduction.values import methods_beside
from tests.support.methods_results import JSB, methods_folder, score, slot_results
from tests.support.report_folders import results_folder

LETTERS = define("jsb", "frames", "print", {100: 243}, -12.0, ablations=True)


@pytest.fixture
def partial(tmp_path):
    return read_report(methods_folder(tmp_path / "claims"))


def test_values_of_a_study_that_is_under_way(partial):
    (jsb,) = partial.sets
    arms = {arm.arm: arm for arm in jsb.arms}
    assert (jsb.trained, jsb.used, jsb.wanted) == (120, 120, 8 * 40 + 2 * 12)
    assert (arms["sgd"].failed, arms["sgd+c"].failed, arms["hf"].basin) == (1, 0, None)
    assert arms["sgd+c"].best == max(score("sgd+c", slot) for slot in range(12))
    assert len(arms["sgd+c"].curve.value) == 6
    assert arms["sgd+c"].winner is None  # its slots are not all there, whatever lines of winners there are
    (pair,) = [pair for pair in jsb.pairs if pair.better == "sgd+c"]
    expected = [score("sgd+c", slot) - (score("sgd", slot) if slot != 1 else JSB.floor) for slot in range(12)]
    assert pair.differences == pytest.approx(expected)
    assert (pair.improvement, pair.fewer_failures) == (1.0, pytest.approx(1 / 12))
    assert progress_of(partial).startswith("jsb 120 of 344 slots; not begun: piano-midi")


def test_a_recipe_is_shown_and_never_counted(tmp_path):
    folder = methods_folder(tmp_path)
    slots = read_studies(folder)["jsb"].slots
    recipe = msgspec.structs.replace(slots[0], arm="sgd+c", slot=RECIPE_SLOT, status="done", valid=-1.0)
    write_lines(folder / f"jsb{RESULTS}", [recipe, *slots])
    (jsb,) = read_report(folder).sets
    (arm,) = [arm for arm in jsb.arms if arm.arm == "sgd+c"]
    assert (arm.recipe, len(arm.slots), jsb.trained) == (-1.0, 12, 120)
    assert arm.best < -1.0


def test_every_claim_says_what_would_decide_it(partial):
    assert [judgment.claim for judgment in partial.judgments] == list(CLAIMS)
    by_claim = {each.claim.statement: outlook(each, partial.sets) for each in partial.judgments}
    music = "slots per arm: jsb 40 (has 12), nottingham 24 (has 0), musedata 12 (has 0), piano-midi 24 (has 0)"
    assert by_claim["Clipping helps, on music"] == music
    assert by_claim["Enhanced SGD rivals Hessian-free"] == "slots per arm: piano-midi 12 (has 0)"
    assert all(by_claim.values())


def test_the_papers_own_differences():
    by_claim = {claim.statement: paper_difference(claim) for claim in CLAIMS}
    gains = [-7.59 + 7.86, -3.67 + 3.75, -7.04 + 7.2, -8.65 + 8.65]
    assert by_claim["Clipping helps, on music"] == pytest.approx(np.mean(gains))
    text = [math.log(145.16 / 136.63), (1.76 - 1.44) * math.log(2)]
    assert by_claim["Clipping helps, on text"] == pytest.approx(np.mean(text))
    fits = [-6.4 + 7.04, -2.99 + 3.31, -6.7 + 6.47, -7.67 + 7.78]
    assert by_claim["Rectifiers with L1 help to fit, on music"] == pytest.approx(np.mean(fits))
    rivals = [-7.57 + 7.58, -8.63 + 8.58]
    assert by_claim["Enhanced SGD rivals Hessian-free"] == pytest.approx(np.mean(rivals))


def test_charts_hold_every_slot_and_mark_what_failed(partial):
    (jsb,) = partial.sets
    curves = {chart.title: chart for chart in curve_charts(jsb)}
    assert [series.name for series in curves["NADE: best of n slots"].series] == JSB_NADE
    seconds = {series.name: series for series in curves["NADE: best by time"].series}
    assert seconds["nade:sgd"].points[2][0] == pytest.approx(30.0)  # three slots of ten seconds
    assert all(len(series.band) == len(series.points) == 6 for chart in curves.values() for series in chart.series)
    rates = {chart.title: chart for chart in rate_charts(jsb)}
    assert "hf" not in rates
    done, failed = rates["sgd"].series
    assert (len(done.points), failed.points, failed.mark) == (11, [(0.01, -12.0)], "cross")
    pairs = {chart.title: chart for chart in pair_charts(jsb)}
    assert [len(series.points) for series in pairs["sgd+c over sgd"].series] == [11, 1]


JSB_NADE = ["nade:sgd", "nade:sgd+cr", "nade:sgd+crm", "nade:hf"]


def test_a_complete_data_set_has_winners_and_the_tables_show_them(tmp_path):
    results = results_folder(tmp_path / "results")
    methods_folder(results / "claims", slots=40)
    tables, methods = find_all(results)
    (winner,) = [arm.winner for arm in methods.sets[0].arms if arm.winner]
    assert (winner.seeds, winner.diverged) == (3, 0)
    assert winner.test["log_likelihood"] == pytest.approx(-8.6)
    (cell,) = [cell for cell in tables.cells if cell.protocol]
    assert (cell.row, cell.data) == ("sgd+c", "jsb")
    page = render_report([tables, methods])
    assert "<td>−8.65</td><td>−8.60 ± 0.10</td>" in page
    where = ["--out", str(results), "--page", str(tmp_path / "r.md"), "--claims-page", str(tmp_path / "claims.md")]
    assert cli.run(["reproduce", "--render-only", *where]) == 0
    assert "| -8.65 | -8.60 ± 0.10 | **-8.57 ± 0.15** |" in (tmp_path / "r.md").read_text()
    written = (tmp_path / "claims.md").read_text()
    pictures = sorted((tmp_path / "claims").glob("*.svg"))
    assert [picture.name for picture in pictures] == ["jsb-best.svg", "jsb-pairs.svg", "jsb-rates.svg"]
    assert all(f"](claims/{picture.name})" in written for picture in pictures)
    assert all(claim.statement in written for claim in CLAIMS)


def test_the_pictures_are_well_formed_and_hold_all_points(partial):
    _, pictures = methods_markdown(partial, None, "claims")
    name = "{http://www.w3.org/2000/svg}"
    rates = ElementTree.fromstring(pictures["jsb-rates.svg"])
    arms = [arm for arm in partial.sets[0].arms if not arm.arm.endswith("hf")]
    assert len(list(rates.iter(f"{name}circle"))) == sum(len(arm.slots) - arm.failed for arm in arms)
    for circle in rates.iter(f"{name}circle"):
        assert 0 <= float(circle.get("cx", -1)) <= 840
    best = ElementTree.fromstring(pictures["jsb-best.svg"])
    assert sum(path.get("class") == "band" for path in best.iter(f"{name}path")) == 2 * len(JSB.arms)


def test_tables_of_the_page_are_well_formed(partial):
    text, _ = methods_markdown(partial, None, "claims")
    width = None
    for line in text.splitlines():
        width = (width or line.count("|")) if line.startswith("|") else None
        assert width is None or line.count("|") == width, line


def test_letters_are_described_apart(tmp_path, partial):
    letters = read_report(methods_folder(tmp_path / "letters", LETTERS))
    (of,) = letters.sets
    assert letters.judgments == []
    gaps = {each.letter: (each.added, each.kept) for each in of.letters}
    assert gaps["l"] == (pytest.approx(0.0), pytest.approx(0.0))
    assert gaps["r"] == (pytest.approx(-0.1), pytest.approx(-0.1))
    text, _ = methods_markdown(partial, letters, "claims")
    assert "| R, rectifiers with L1 | -0.10 (-0.10 to -0.10) |" in text
    assert "What each letter does" in render_report([letters])


def test_a_verdict_is_shown_with_its_interval():
    studies = {}
    for data in ("jsb", "nottingham", "musedata", "piano-midi"):
        definition = define(data, "frames", "print", {100: 243}, -12.0)
        slots = slot_results(definition, 40, ("sgd", "sgd+c"))
        studies[data] = StudyResults(definition, slots, [], [])
    report = methods_report(studies)
    (clipping,) = [each for each in report.judgments if each.claim.statement == "Clipping helps, on music"]
    verdict, gap, *_ = claim_cells(report, clipping)
    assert verdict == "helps"
    assert gap.startswith(f"{clipping.mean:+.3f} (")


def test_results_without_their_definition_are_refused(tmp_path):
    folder = methods_folder(tmp_path / "claims")
    (folder / f"jsb{DEFINITION}").unlink()
    with pytest.raises(InputError, match="but no definition that has this digest"):
        read_studies(folder)
    assert methods_beside(tmp_path, "nothing") is None
