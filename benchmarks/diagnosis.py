"""Does the diagnosis name what is wrong? Faults injected into small runs, and healthy runs beside them.

A fault is a setting or a flaw of the data or of the cell; the diagnosis is told nothing. Data, sizes and seeds are none
on which thresholds were set (`diagnosis_cases.py`). Then every run whose first remedy changes settings is trained again
with it.

    python -m benchmarks.diagnosis                # all of it: results/diagnosis.json, and what remedies brought
    python -m benchmarks.diagnosis --only cliff   # some kinds, shown and not recorded
    python -m benchmarks.diagnosis --development  # the cases on which rules may be set, shown and not recorded
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
from benchmarks.diagnosis_cases import COUNTED, FIRST, SECOND, THIRD, Case
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
EARLIER = (Path("results/diagnosis-second.json"), Path("results/diagnosis-third.json"))
BROUGHT = Path("src/longspan/diagnostics/brought.json")
LAGS, STEPS = 50, 3000


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


def earlier_outcomes() -> list[Outcome]:
    """Those of the sets that were counted before, whose remedies were tried, too."""
    return [msgspec.convert(each, Outcome) for file in EARLIER for each in _read(file)["outcomes"]]


def _read(file: Path) -> dict[str, Any]:
    return msgspec.json.decode(file.read_bytes())


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


def _show_training(seed: int, case: Case, folder: Path) -> None:
    run, _ = train(case, seed, folder / "run")
    valid = [record["valid_log_likelihood"] for record in run.metrics()]
    print(
        f"{case.about:40} {len(valid):4} epochs, best {max(valid, default=float('nan')):.3f}; {run.reason}", flush=True
    )


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--only", default="", help="a fault, or healthy; nothing is recorded")
    options.add_argument(
        "--development", action="store_true", help="cases whose outcomes are known; nothing is recorded"
    )
    options.add_argument("--train-only", action="store_true")
    chosen = options.parse_args()
    environment = runtime.prepare(1)
    only = "healthy" if chosen.train_only else chosen.only
    every = [*FIRST.seeded, *SECOND.seeded, *THIRD.seeded] if chosen.development else COUNTED.seeded
    cases = [(seed, case) for seed, case in every if not only or only == (case.fault or "healthy")]
    began = time.process_time()
    if chosen.train_only:
        for seed, case in cases:
            _in_folder(lambda folder, seed=seed, case=case: _show_training(seed, case, folder))
        return
    outcomes = [_in_folder(lambda folder, seed=seed, case=case: _judged(case, seed, folder)) for seed, case in cases]
    seconds = time.process_time() - began
    if chosen.only or chosen.development:
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
    BROUGHT.write_bytes(
        msgspec.json.format(msgspec.json.encode(brought([*earlier_outcomes(), *outcomes])), indent=1) + b"\n"
    )


if __name__ == "__main__":
    main()
