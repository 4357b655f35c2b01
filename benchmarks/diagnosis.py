"""Does the diagnosis name what is wrong? Faults injected into small runs, and healthy runs beside them.

A fault is a setting or a flaw of the data or of the cell; the diagnosis is told nothing. Data, sizes and seeds are none
on which thresholds were set. Then every run whose first remedy changes settings is trained again with it.

    python -m benchmarks.diagnosis                # all of it: results/diagnosis.json, and what remedies brought
    python -m benchmarks.diagnosis --only cliff   # some kinds, shown and not recorded
    python -m benchmarks.diagnosis --train-only   # how the healthy runs end, without a diagnosis
"""

import argparse
import dataclasses
import statistics
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import msgspec

import longspan
from benchmarks import diagnosis_data as given
from longspan import runtime
from longspan.config import TrainConfig
from longspan.data.dataset import Dataset
from longspan.diagnostics.case import Finding
from longspan.diagnostics.diagnosis import diagnose_run
from longspan.diagnostics.remedies import Brought
from longspan.errors import Diverged
from longspan.models.cells import LeakyCell
from longspan.models.model import SequenceModel, build
from longspan.training.runs import Given, Run

RESULT = Path("results/diagnosis.json")
BROUGHT = Path("src/longspan/diagnostics/brought.json")
LAGS, STEPS = 50, 3000

CHORALES = {
    "hidden_size": 50,
    "activation": "tanh",
    "learning_rate": 0.3,
    "recurrent_scale": 1.0,
    "input_scale": 0.1,
    "dropout": 0.2,
    "chunk_length": 60,
    "max_epochs": 150,
    "patience": 8,
}
PROSE = {
    "hidden_size": 50,
    "activation": "tanh",
    "learning_rate": 1.0,
    "recurrent_scale": 1.0,
    "input_scale": 0.3,
    "clip": 1.0,
    "chunk_length": 50,
    "max_epochs": 60,
    "patience": 6,
}
TASK = {
    "hidden_size": 40,
    "recurrent_init": "identity",
    "recurrent_scale": 1.0,
    "input_scale": 0.1,
    "learning_rate": 0.003,
    "clip": 1.0,
    "l1": 0.0,
    "max_epochs": 150,
}
PAIRS = {
    "hidden_size": 40,
    "activation": "tanh",
    "recurrent_init": "orthogonal",
    "recurrent_scale": 1.0,
    "learning_rate": 0.5,
    "learning_rate_schedule": "plateau",
    "clip": 1.0,
    "lanes": 4,
    "chunk_length": 50,
    "max_epochs": 150,
    "patience": 10,
}


@dataclasses.dataclass(frozen=True)
class Case:
    """A run to be made and diagnosed: `fault` is what should be found first, empty for a healthy run."""

    fault: str
    about: str
    recipe: str
    data: Callable[[int], Dataset]
    settings: dict[str, Any]
    forgetful: bool = False


def _chorales(
    fault: str, about: str, data: Callable[[int], Dataset] = given.chorales, recipe="sgd+c", **changes
) -> Case:
    return Case(fault, f"chorales: {about}", recipe, data, CHORALES | changes)


def _prose(fault: str, about: str, data: Callable[[int], Dataset] = given.prose, recipe="sgd+c", **changes) -> Case:
    return Case(fault, f"prose: {about}", recipe, data, PROSE | changes)


def _pairs(fault: str, about: str, data: Callable[[int], Dataset] = given.recurrences, **changes) -> Case:
    return Case(fault, f"recurrences: {about}", "sgd+c", data, PAIRS | changes)


def _task(fault: str, name: str, span: int, about: str, **changes) -> Case:
    return Case(
        fault, f"{name} {span}: {about}", "sgd+crm", lambda _: longspan.data.load(name, span=span), TASK | changes
    )


def _forgetful(case: Case) -> Case:
    return dataclasses.replace(case, forgetful=True)


DULL = {"activation": "tanh", "recurrent_init": "normal", "recurrent_scale": 0.05, "learning_rate": 0.01}
DYING = {"activation": "rectifier", "l1": 1.0, "momentum": 0.9, "learning_rate": 0.05}

FAULTS = (
    _chorales(
        "exploding",
        "rectifiers, recurrent scale 3, unclipped",
        activation="rectifier",
        recurrent_scale=3.0,
        clip="none",
        learning_rate=0.01,
    ),
    _prose("exploding", "recurrent scale 20", recurrent_scale=20.0),
    _chorales("rate too large", "rate 100", learning_rate=100.0),
    _prose("rate too large", "rate 60", learning_rate=60.0),
    _pairs("rate too large", "rate 30", learning_rate=30.0, learning_rate_schedule="constant"),
    _task("cliff", "temporal-order", 22, "identity rectifiers, unclipped", clip="none", learning_rate=0.002),
    _task("cliff", "memorization", 15, "identity rectifiers, unclipped", clip="none", learning_rate=0.003),
    _chorales("clipped throughout", "threshold 0.001", clip=0.001, max_epochs=40),
    _prose("clipped throughout", "threshold 0.004", clip=0.004, max_epochs=12),
    _chorales("rate too small", "rate 0.0003", learning_rate=0.0003, max_epochs=40),
    _pairs("rate too small", "rate 0.0005", learning_rate=0.0005, max_epochs=60),
    _chorales(
        "dead units",
        "NADE, L1 0.5",
        recipe="nade:sgd+crm",
        activation="rectifier",
        nade_size=40,
        l1=0.5,
        learning_rate=0.03,
    ),
    _prose("dead units", "rectifiers, L1 1", max_epochs=20, **DYING),
    _chorales("saturated", "input scale 15", input_scale=15.0),
    _prose("saturated", "input scale 15", input_scale=15.0, max_epochs=20),
    _task("vanishing", "addition", 30, "recurrent scale 0.05", max_epochs=60, **DULL),
    _task("vanishing", "memorization", 20, "recurrent scale 0.05", max_epochs=60, **DULL),
    _forgetful(_chorales("memory unused", "a cell that drops its state")),
    _forgetful(_prose("memory unused", "a cell that drops its state", max_epochs=30)),
    _chorales(
        "overfitting",
        "four songs",
        lambda seed: given.chorales(seed, 4),
        dropout=0.0,
        patience=150,
        learning_rate_schedule="constant",
    ),
    _prose(
        "overfitting",
        "1,500 characters",
        lambda seed: given.prose(seed, 1500),
        learning_rate=0.3,
        patience=150,
        max_epochs=150,
        learning_rate_schedule="constant",
    ),
    _chorales("under-trained", "three epochs", max_epochs=3),
    _prose("under-trained", "one epoch", max_epochs=1),
    _chorales(
        "state not carried",
        "reset at every chunk of 8",
        lambda seed: given.as_pairs(given.chorales(seed), kind=given.Forgotten),
        chunk_length=8,
    ),
    _pairs(
        "state not carried",
        "reset at every chunk of 5",
        lambda seed: given.recurrences(seed, kind=given.Forgotten),
        chunk_length=5,
    ),
    _chorales("misaligned", "inputs a step too old", lambda seed: given.as_pairs(given.chorales(seed), delay=2)),
    _pairs("misaligned", "answers a step too early", lambda seed: given.recurrences(seed, early=1)),
    _chorales(
        "splits overlap", "training songs in validation", lambda seed: given.overlapping_songs(given.chorales(seed))
    ),
    _prose(
        "splits overlap",
        "training text in validation",
        lambda seed: given.overlapping_text(given.prose(seed)),
        max_epochs=20,
    ),
)

HEALTHY = (
    _chorales("", "tanh"),
    _chorales("", "sigmoid", activation="sigmoid", learning_rate=0.6),
    _chorales("", "rectifiers", activation="rectifier", learning_rate=0.05, l1=1e-5),
    _chorales("", "leaky", leaky_share=0.5),
    _chorales("", "Adam", optimizer="adam", learning_rate=0.002, momentum=0.9, clip=5.0),
    _chorales("", "NADE", recipe="nade:sgd+c", nade_size=40, learning_rate=0.2, clip=1.0),
    _chorales("", "100 units, more dropout", hidden_size=100, dropout=0.4),
    _prose("", "tanh"),
    _prose("", "sigmoid", activation="sigmoid", learning_rate=3.0, max_epochs=120),
    _prose("", "rectifiers", activation="rectifier", learning_rate=0.2),
    _prose("", "Adam", optimizer="adam", learning_rate=0.003, momentum=0.9),
    _prose("", "100 units", hidden_size=100),
    _pairs("", "tanh"),
    _pairs("", "momentum", momentum=0.9, learning_rate=0.05),
    _pairs("", "lag 3", lambda seed: given.recurrences(seed, lag=3)),
    _task("", "addition", 15, "identity rectifiers"),
    _task("", "addition", 25, "identity rectifiers"),
    _task("", "multiplication", 15, "identity rectifiers"),
    _task("", "memorization", 5, "identity rectifiers", max_epochs=600),
    _task("", "memorization", 10, "identity rectifiers", max_epochs=600),
)
SEED = 500
"""Of the first case; the next ones follow."""


class Forgetful(LeakyCell):
    """A cell that forgets its state before every step."""

    def step(self, state, inputs):
        return super().step(jnp.zeros_like(state), inputs)

    def run(self, state, inputs, resets, length, keys=None):
        return super().run(jnp.zeros_like(state), inputs, jnp.ones_like(resets), length, keys)


class Outcome(msgspec.Struct, frozen=True):
    """What was found, and what the remedy brought."""

    about: str
    fault: str
    seed: int
    found: list[str]
    evidence: list[str]
    valid: float | None
    epochs: int
    ended: str
    remedy: dict[str, Any] = {}
    valid_with_remedy: float | None = None

    @property
    def right(self) -> bool:
        return self.found[:1] == ([self.fault] if self.fault else [])


def train(case: Case, seed: int, path: Path, **changes: Any) -> tuple[Run, Dataset]:
    """Train a case; one that diverges leaves its folder all the same."""
    content = case.data(seed)
    settings = case.settings | {"seed": seed} | changes
    config = dataclasses.replace(
        longspan.recipes.settings(case.recipe, content.name, content.target_kind),
        **settings,
        **content.implied_settings,
    )
    model = _forgetful_model(config, content) if case.forgetful else None
    with suppress(Diverged):
        longspan.train(data=content, config=config, model=model, run_dir=path)
    return Run.open(path, Given(model)), content


def _forgetful_model(config: TrainConfig, content: Dataset) -> SequenceModel:
    size = content.record.input_size or content.record.size
    model = build(config, size, content.base_rates(), key=jax.random.key(config.seed))
    assert isinstance(model.cell, LeakyCell)
    fields = {field.name: getattr(model.cell, field.name) for field in dataclasses.fields(model.cell)}
    return SequenceModel(Forgetful(**fields), model.output)


def judge(case: Case, seed: int, folder: Path) -> Outcome:
    """Train a case and diagnose it."""
    run, content = train(case, seed, folder / "run")
    findings = diagnose_run(run, content, lags=LAGS, steps=STEPS, in_python=True).findings
    valid = [record["valid_log_likelihood"] for record in run.metrics()]
    return Outcome(
        about=case.about,
        fault=case.fault,
        seed=seed,
        found=[finding.name for finding in findings],
        evidence=findings[0].evidence if findings else [],
        valid=max(valid, default=None),
        epochs=len(valid),
        ended=run.reason,
        remedy=_first_settings(findings),
    )


def treat(case: Case, outcome: Outcome, folder: Path) -> Outcome:
    """Train a case again with the first remedy of its diagnosis."""
    again, _ = train(case, outcome.seed, folder / "again", **outcome.remedy)
    healed = max((record["valid_log_likelihood"] for record in again.metrics()), default=None)
    return msgspec.structs.replace(outcome, valid_with_remedy=healed)


def _first_settings(findings: list[Finding]) -> dict[str, Any]:
    return next((remedy.settings for finding in findings[:1] for remedy in finding.remedies if remedy.settings), {})


def brought(outcomes: list[Outcome]) -> dict[str, Brought]:
    """What remedies brought, by fault that was found; a run that diverged before its first score has no gain."""
    gains: dict[str, list[float]] = {}
    for each in outcomes:
        if each.right and each.fault and each.valid is not None and each.valid_with_remedy is not None:
            gains.setdefault(each.fault, []).append(each.valid_with_remedy - each.valid)
    return {
        fault: Brought(len(found), sum(gain > 0 for gain in found), float(f"{statistics.median(found):.4g}"))
        for fault, found in gains.items()
    }


def _cases(only: str) -> list[tuple[int, Case]]:
    every = [(SEED + number, case) for number, case in enumerate((*FAULTS, *HEALTHY))]
    return [(seed, case) for seed, case in every if not only or only == (case.fault or "healthy")]


def _show_training(seed: int, case: Case, folder: Path) -> None:
    run, _ = train(case, seed, folder / "run")
    valid = [record["valid_log_likelihood"] for record in run.metrics()]
    print(
        f"{case.about:40} {len(valid):4} epochs, best {max(valid, default=float('nan')):.3f}; {run.reason}", flush=True
    )


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--only", default="", help="a fault, or healthy; nothing is recorded")
    options.add_argument("--train-only", action="store_true")
    chosen = options.parse_args()
    environment = runtime.prepare(1)
    began, cases = time.process_time(), _cases("healthy" if chosen.train_only else chosen.only)
    if chosen.train_only:
        for seed, case in cases:
            _in_folder(lambda folder, seed=seed, case=case: _show_training(seed, case, folder))
        return
    outcomes = [_in_folder(lambda folder, seed=seed, case=case: _judged(case, seed, folder)) for seed, case in cases]
    seconds = time.process_time() - began
    if chosen.only:
        return
    _record(outcomes, environment, seconds)
    for number, ((_, case), outcome) in enumerate(zip(cases, outcomes, strict=True)):
        if outcome.right and outcome.fault and outcome.remedy and not case.forgetful:
            outcomes[number] = _in_folder(lambda folder, case=case, outcome=outcome: treat(case, outcome, folder))
            print(f"{outcome.fault:20} {outcome.valid} -> {outcomes[number].valid_with_remedy}", flush=True)
    _record(outcomes, environment, seconds)


def _in_folder(work: Callable[[Path], Any]) -> Any:
    with tempfile.TemporaryDirectory() as folder:
        return work(Path(folder))


def _judged(case: Case, seed: int, folder: Path) -> Outcome:
    outcome = judge(case, seed, folder)
    shown = ", ".join(outcome.found) or "nothing"
    print(f"{'ok ' if outcome.right else 'NOT'} {case.fault or 'healthy':20} {case.about:45} {shown}", flush=True)
    return outcome


def _record(outcomes: list[Outcome], environment: dict, seconds: float) -> None:
    faulty, healthy = ([each for each in outcomes if bool(each.fault) == wanted] for wanted in (True, False))
    kinds = {each.fault for each in faulty}
    document = {
        "kinds": len(kinds),
        "kinds_always_named_first": len(kinds - {each.fault for each in faulty if not each.right}),
        "faults": len(faulty),
        "faults_named_first": sum(each.right for each in faulty),
        "healthy": len(healthy),
        "alarms_on_healthy": sum(not each.right for each in healthy),
        "processor_seconds": round(seconds, 1),
        "environment": environment,
        "outcomes": outcomes,
    }
    RESULT.write_bytes(msgspec.json.format(msgspec.json.encode(document), indent=1) + b"\n")
    BROUGHT.write_bytes(msgspec.json.format(msgspec.json.encode(brought(outcomes)), indent=1) + b"\n")


if __name__ == "__main__":
    main()
