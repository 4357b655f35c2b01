"""Several runs on one page: a common table and chart where the data are the same, and what the data are."""

from pathlib import Path

import pytest

from longspan.cli import run
from longspan.data.archive import write_set
from longspan.report import read_report, render_report
from longspan.reporting.charts import together_chart
from longspan.reporting.run_report import RunReport
from tests.support.catalog import tiny_music

SMALL = ["--hidden-size", "8", "--chunk-length", "10", "--max-epochs", "2"]


@pytest.fixture(scope="module")
def folders(tmp_path_factory) -> list[Path]:
    home = tmp_path_factory.mktemp("runs")
    write_set(home / "tiny.npz", tiny_music())
    for name, rate in (("slow", "0.01"), ("fast", "0.1")):
        arguments = ["train", "sgd+c", "--data", str(home / "tiny.npz"), "--run-dir", str(home / name)]
        assert run([*arguments, *SMALL, "--learning-rate", rate, "--json"]) == 0
    return [home / "slow", home / "fast"]


def reports_of(folders: list[Path]) -> list[RunReport]:
    found = [read_report(path) for path in folders]
    assert all(isinstance(report, RunReport) for report in found)
    return [report for report in found if isinstance(report, RunReport)]


def test_one_chart_has_all_runs(folders):
    reports = reports_of(folders)
    chart = together_chart(reports)
    assert [series.name for series in chart.series] == ["slow", "fast"]
    for series, report in zip(chart.series, reports, strict=True):
        assert [y for _, y in series.points] == [epoch.valid for epoch in report.epochs]


def test_the_page_has_a_common_table_and_the_sizes_of_the_data(folders):
    page = render_report(list(reports_of(folders)))
    assert "2 runs" in page
    assert "side by side" in page
    songs = sum(len(song) for song in tiny_music().splits["train"])
    assert "1 frame per quarter note" in page
    assert f">{songs}<" in page or f">{songs:,}<" in page


def test_a_single_run_has_no_comparison(folders):
    assert "side by side" not in render_report(list(reports_of(folders[:1])))
