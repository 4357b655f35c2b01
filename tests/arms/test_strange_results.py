"""Results and definitions that no study has: refused in one line, or shown for what they are."""

import json
import math

import msgspec
import numpy as np
import pytest

from longspan.arms.analysis import best_of_weights
from longspan.arms.bridging import read_attempts
from longspan.arms.records import read_studies
from longspan.cli import run as command
from longspan.errors import InputError
from longspan.reporting.methods_pages import methods_markdown
from longspan.reporting.methods_report import _winner_value, methods_report
from tests.support.methods_results import JSB, methods_folder


@pytest.fixture
def folder(tmp_path):
    return methods_folder(tmp_path / "methods", slots=4)


def report(folder):
    return command(["report", str(folder), "-o", str(folder / "page.html")])


@pytest.mark.parametrize(
    "change",
    [
        {"arms": []},
        {"arms": ["sgd+t"]},
        {"arms": ["sgd", "<b>x"]},
        {"arms": ["sgd"] * 500_000, "budget": {"slots": 1000, "updates": 1}},
        {"floor": 1e308},
        {"budget": {"slots": 200_000_000, "updates": 1}},
        {"budget": {"slots": -4, "updates": 1}},
        {"kind": "classes"},
    ],
)
def test_a_definition_that_no_study_has_is_refused(folder, capfd, change):
    document = json.loads(msgspec.json.encode(JSB)) | change
    (folder / "jsb.definition.json").write_text(json.dumps(document))
    assert report(folder) == 2
    assert capfd.readouterr().err.count("\n") == 1


@pytest.mark.parametrize(
    "settings",
    [
        {"learning_rate": "x"},
        {"learning_rate": None},
        {"learning_rate": -1.0},
        {"learning_rate": 0},
        {"learning_rate": 0.1, "momentum": 1},
        {"learning_rate": 0.1, "momentum": "x"},
    ],
)
def test_a_rate_that_is_none_is_left_out_of_the_report(folder, settings):
    lines = [json.loads(line) for line in (folder / "jsb.jsonl").read_text().splitlines()]
    (folder / "jsb.jsonl").write_text("".join(json.dumps(line | {"settings": settings}) + "\n" for line in lines))
    assert report(folder) == 0
    text, pictures = methods_markdown(methods_report(read_studies(folder)), None, "claims")
    assert "sgd+c over sgd" in text
    assert "jsb-rates.svg" not in pictures


def test_the_slots_of_an_arm_without_rates_are_left_out_of_the_pictures(tmp_path):
    """On a logarithmic axis their place was that of zero."""
    folder = methods_folder(tmp_path / "methods", slots=12)
    lines = [json.loads(line) for line in (folder / "jsb.jsonl").read_text().splitlines()]
    for line in lines:
        line["settings"] = {} if line["arm"] == "sgd" else line["settings"]
    (folder / "jsb.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    drawn = methods_markdown(methods_report(read_studies(folder)), None, "claims")[1]["jsb-pairs.svg"]
    assert "sgd+clr over sgd+cl" in drawn
    assert "sgd+c over sgd<" not in drawn


def test_winners_are_compared_by_the_scores_that_all_of_them_have(tmp_path):
    folder = methods_folder(tmp_path, slots=40)
    before = _winner_value(read_studies(folder)["jsb"], "sgd+c")
    lines = [json.loads(line) for line in (folder / "jsb.winners.jsonl").read_text().splitlines()]
    lines[0]["test"]["accuracy"] = 0.5
    (folder / "jsb.winners.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    after = _winner_value(read_studies(folder)["jsb"], "sgd+c")
    assert before is not None
    assert after == before


@pytest.mark.parametrize("slot", [-2, 1000, 10**18])
def test_a_slot_that_no_arm_has_is_refused(folder, capfd, slot):
    lines = (folder / "jsb.jsonl").read_text().splitlines()
    (folder / "jsb.jsonl").write_text(
        "".join(f"{line}\n" for line in lines[1:]) + json.dumps(json.loads(lines[0]) | {"slot": slot}) + "\n"
    )
    assert report(folder) == 2
    assert capfd.readouterr().err.count("\n") == 1


@pytest.mark.parametrize(("slots", "n"), [(1, 1), (7, 3), (40, 20), (1000, 500)])
def test_the_weights_of_ranks_are_the_quotients_of_binomials(slots, n):
    expected = [math.comb(rank - 1, n - 1) / math.comb(slots, n) for rank in range(1, slots + 1)]
    np.testing.assert_allclose(best_of_weights(slots, n), expected, rtol=1e-12)


ATTEMPT = {
    "task": "addition",
    "span": 10,
    "method": "sgd",
    "stage": "seed",
    "number": 0,
    "solved": True,
    "error_rate": 0.0,
    "seconds": 1.0,
    "epochs": 1,
    "status": "done",
    "settings": {},
    "version": "1",
    "processor": "cpu",
}


@pytest.mark.parametrize("what", ["task", "method", "span"])
def test_results_of_more_methods_tasks_or_spans_than_a_table_has_are_refused(tmp_path, what):
    """Each was a row, a column or a table of its own: 800 KB of results became 800 MB of a picture."""
    lines = [ATTEMPT | {what: number + 1 if what == "span" else f"x{number}"} for number in range(101)]
    for count in (100, 101):
        (tmp_path / "bridging-1of1.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines[:count]))
        if count == 100:
            assert len(read_attempts(tmp_path)) == 100
            continue
        with pytest.raises(InputError, match=f"{what}s"):
            read_attempts(tmp_path)


def test_all_files_of_a_folder_of_results_together_are_as_large_as_one_may_be(tmp_path, monkeypatch):
    content = json.dumps(ATTEMPT) + "\n"
    monkeypatch.setattr("longspan.arms.records.RESULTS_BYTES", 3 * len(content))
    for number in range(3):
        (tmp_path / f"bridging-{number}of9.jsonl").write_text(content)
    assert len(read_attempts(tmp_path)) == 1
    (tmp_path / "bridging-9of9.jsonl").write_text(content)
    with pytest.raises(InputError, match="4 files of results"):
        read_attempts(tmp_path)


@pytest.mark.parametrize("span", [0, -10, 10**9])
def test_a_span_that_no_task_has_is_refused(tmp_path, span):
    (tmp_path / "bridging-1of1.jsonl").write_text(json.dumps(ATTEMPT | {"span": span}) + "\n")
    with pytest.raises(InputError, match=r"line 1 of .* is not a result"):
        read_attempts(tmp_path)
