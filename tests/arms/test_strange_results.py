"""Results and definitions that no study has: refused in one line, or shown for what they are."""

import json
import math

import msgspec
import numpy as np
import pytest

from longspan.arms.analysis import best_of_weights
from longspan.arms.bridging import read_attempts
from longspan.cli import run as command
from longspan.errors import InputError
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
        {"budget": {"slots": 200_000_000, "updates": 1}},
        {"budget": {"slots": -4, "updates": 1}},
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


@pytest.mark.parametrize("span", [0, -10, 10**9])
def test_a_span_that_no_task_has_is_refused(tmp_path, span):
    line = {
        "task": "addition",
        "span": span,
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
    (tmp_path / "bridging-1of1.jsonl").write_text(json.dumps(line) + "\n")
    with pytest.raises(InputError, match=r"line 1 of .* is not a result"):
        read_attempts(tmp_path)
