"""Folders of runs, studies and results as training and searching leave them, written by hand for the report's tests."""

import dataclasses
from pathlib import Path

import msgspec

from longspan import recipes
from longspan.reproduction.cells import Cell, write_result
from longspan.search.result import StudyResult, Trial
from longspan.search.slots import Outcome
from longspan.training.runs import Run
from tests.support.catalog import tiny_music
from tests.support.reproduction_results import make_result

ENVIRONMENT = {"versions": {"jax": "1.2.3", "longspan": None}}


def run_folder(path: Path, valid: list[float], *, data=None, status: str = "done", **changes) -> Run:
    """A run of sgd+c on jsb whose validation scores were these; its gradients grew and were clipped more and more."""
    config = dataclasses.replace(recipes.settings("sgd+c", "jsb"), **changes)
    run = Run.create(path, config, data or tiny_music().record, ENVIRONMENT)
    for epoch, score in enumerate(valid, 1):
        run.append_metrics(
            {
                "epoch": epoch,
                "valid_log_likelihood": score,
                "train_log_likelihood": score + 0.1 * epoch,
                "gradient_norm": 2.0 * epoch,
                "clipped": 0.1 * (epoch - 1),
                "learning_rate": 0.1 / 2**epoch,
            }
        )
        run.append_timing({"epoch": epoch, "seconds": 3.0 * epoch, "processor_seconds": 2.0 * epoch})
    run.set_status(status, "no better validation score")
    if status == "done":
        run.write_result({"test": {"log_likelihood": -8.6, "accuracy": 0.29}})
    return run


def study_folder(path: Path, *, concluded: bool = True) -> Path:
    """Four slots: the third one is the best, the fourth diverged."""
    rates, hidden = [0.1, 0.001, 0.01, 1.0], [100, 200, 300, 400]
    activations = ["tanh", "sigmoid", "tanh", "tanh"]
    scores = [[-9.0, -8.9], [-10.0, -9.5, -9.4], [-9.2, -8.5], [-12.0]]
    runs = [
        run_folder(
            path / "trials" / f"slot-{slot:04d}",
            scores[slot],
            status="diverged" if slot == 3 else "done",
            learning_rate=rates[slot],
            hidden_size=hidden[slot],
            activation=activations[slot],
        )
        for slot in range(4)
    ]
    if concluded:
        trials = [
            Trial(
                slot,
                {} if slot == 0 else {"learning_rate": rates[slot]},
                Outcome("diverged", "update 3", epochs=1)
                if slot == 3
                else Outcome("done", "", max(scores[slot]), -8.0, 2, len(scores[slot]), 10.0),
            )
            for slot in range(4)
        ]
        settings = msgspec.to_builtins(runs[2].config)
        result = StudyResult("tiny", "aaaa", "sgd+c", "jsb", 4, 2, settings, trials, ENVIRONMENT)
        (path / "result.json").write_bytes(msgspec.json.encode(result))
    return path


def results_folder(path: Path) -> Path:
    """Three cells: one reaches the paper, with seeds; one is behind; one of text reaches."""
    write_result(path, make_result(Cell("table1", "sgd+c", "jsb"), -8.6, seeds=(-8.4, -8.7)))
    write_result(path, make_result(Cell("table1", "sgd", "jsb"), -8.9))
    write_result(path, make_result(Cell("table2", "sgd+c", "ptb-words"), 130.0))
    return path
