"""Documents of folders with every value replaced: each command succeeds with sensible output or refuses in one line.

A checksum says that a file is as it was written, not by whom, so the changed files have right ones.
"""

import json
import os
import random
import shutil
from pathlib import Path

import pytest

from longspan import pretrained
from longspan.cli import run as command
from tests.faults import values
from tests.faults.values import VALUES, Case, Subject, cases, replace_value, troubles
from tests.support.methods_results import methods_folder
from tests.support.report_folders import results_folder, study_folder

RUN = Path(__file__).parents[1] / "training" / "folders" / "format-2"
PAGE = ["-o", "page.html", "--samples", "0"]
SMALL = ["--steps", "300", "--lags", "8"]
WITH_MEMORY = {
    "memory": "recall",
    "recalled": 0.5,
    "test": {"log_likelihood": -1.2},
    "trails": [{"sequence": 0, "length": 9, "steps": [5, 6], "places": [1, 2]}],
}
SHORT = {
    "run": 80,
    "used": 40,
    "continued": 6,
    "diagnosed": 80,
    "text": 10,
    "music": 5,
    "study": 40,
    "results": 120,
    "methods": 10,
}
"""Cases of each folder in CI, chosen at random; the long form takes `LONG` of each."""
LONG = 1500


@pytest.fixture(scope="module", autouse=True)
def work(tmp_path_factory):
    """A folder for this module, which is also the current one, as pages are written there."""
    before, folder = os.getcwd(), tmp_path_factory.mktemp("values")
    os.chdir(folder)
    yield folder
    os.chdir(before)


@pytest.fixture(scope="module")
def subjects(work) -> dict[str, Subject]:
    run = Path(shutil.copytree(RUN, work / "run"))
    result = json.loads((run / "result.json").read_text())
    (run / "result.json").write_text(json.dumps(result | _further_results()))
    command(["seal", str(run)])
    diagnosed = Path(shutil.copytree(run, work / "diagnosed"))
    assert command(["diagnose", str(diagnosed), *SMALL]) == 0
    results = _results(work / "results")
    shipped = pretrained.HOME
    every = ("*.json", "*.jsonl")
    return {
        "run": Subject(run, every, lambda path: [["report", str(path), *PAGE], ["compare", str(path), str(run)]]),
        "used": Subject(run, ("config.json", "result.json"), lambda path: [["evaluate", str(path)]]),
        "continued": Subject(run, ("checkpoints/*/progress.json", *every), _continue),
        "diagnosed": Subject(diagnosed, ("diagnosis.json",), lambda path: [["report", str(path), *PAGE]]),
        "text": Subject(shipped / "austen", ("config.json", "metrics.jsonl"), _sample),
        "music": Subject(shipped / "bach", ("config.json", "memory.json"), _sample),
        "study": Subject(study_folder(work / "study"), ("result.json", "trials/slot-0001/*.json*"), _report),
        "results": Subject(results, ("*/*.json",), _report),
        "methods": Subject(methods_folder(work / "methods", slots=3), every, _report),
    }


def _further_results() -> dict:
    return {
        "baselines": {"one rate per key": {"log_likelihood": -1.39, "error_rate": 0.75}},
        "splits": {"train": {"sequences": 100, "steps": 1000}},
        "with_memory": WITH_MEMORY,
    }


def _results(folder: Path) -> Path:
    """Cells of the tables, and what the past is worth."""
    results_folder(folder)
    repeat = dict.fromkeys(("test", "price_of_a_repeat", "without_memory", "lost_without_past", "lost_beyond_8"), 0.5)
    documents = {
        "memory": {"data": "jsb", "seeds": [{"recipe": "sgd+cw", "test_with_memory": {"log_likelihood": -8.0}}] * 2},
        "repeats": {"data": "jsb", "runs": [{"network": "nade:sgd", "changes": {"segment": 100}, **repeat}] * 2},
    }
    for name, document in documents.items():
        (folder / name).mkdir()
        (folder / name / "jsb.json").write_text(json.dumps(document))
    return folder


def _report(path: Path) -> list[list[str]]:
    return [["report", str(path), *PAGE]]


def _continue(path: Path) -> list[list[str]]:
    further = ["resume", str(path), "--accept-environment", "--max-epochs", "4"]
    return [further, ["diagnose", str(path), *SMALL]]


def _sample(path: Path) -> list[list[str]]:
    return [
        [
            "sample",
            str(path),
            "--length",
            "3",
            "-o",
            "sample.mid" if path.joinpath("memory.json").exists() else "s.txt",
        ],
        ["report", str(path), "-o", "page.html", "--samples", "1", "--no-player"],
    ]


@pytest.mark.parametrize("name", SHORT)
def test_every_value_may_be_anything(subjects, work, name):
    assert _troubles(subjects[name], SHORT[name], work) == []


@pytest.mark.slow
@pytest.mark.parametrize("name", SHORT)
def test_every_value_may_be_anything_at_length(subjects, work, name):
    assert _troubles(subjects[name], LONG, work) == []


def _troubles(subject: Subject, count: int, work: Path) -> list[str]:
    every = list(cases(subject))
    chosen = random.Random(0).sample(every, min(count, len(every)))
    return [trouble for case in chosen for trouble in troubles(subject, case, work)]


def test_the_folders_are_used_as_they_are(subjects, work):
    """Otherwise every case would be refused for a reason of its own."""
    for subject in subjects.values():
        shutil.copytree(subject.folder, work / "same", dirs_exist_ok=True)
        for words in subject.commands(work / "same"):
            assert command(words) == 0, words
        shutil.rmtree(work / "same")


@pytest.mark.parametrize(
    "does",
    [
        pytest.param(lambda _: 1 / 0, id="raises"),
        pytest.param(lambda _: print("a score of nan"), id="prints no number"),
        pytest.param(lambda _: print("x" * 100_000), id="prints without end"),
        pytest.param(lambda _: 2, id="refuses without a word"),
    ],
)
def test_control_other_outcomes_are_found(subjects, work, monkeypatch, does):
    monkeypatch.setattr(values, "command", lambda words: does(words) or 0)
    assert len(troubles(subjects["run"], Case("status.json", 0, ("status",), "text"), work)) == 2


def test_a_value_is_replaced_under_right_checksums(subjects, work):
    changed = Path(shutil.copytree(RUN, work / "changed"))
    replace_value(changed, Case("metrics.jsonl", 1, ("epoch",), "null"))
    lines = [json.loads(line) for line in (changed / "metrics.jsonl").read_text().splitlines()]
    assert [line["epoch"] for line in lines] == [1, None, 3]
    assert len(VALUES) == 11
