"""What a page says of a study, as plain values: how every trial went, and what each searched setting did to the score.

Read from the folder alone: run folders of trials, and result.json once the study is concluded.
"""

import itertools
from pathlib import Path
from typing import NamedTuple

import msgspec

from longspan.config import as_dict
from longspan.errors import InputError
from longspan.reporting.run_report import RunReport, run_report
from longspan.reporting.samples import MusicSample, TextSample
from longspan.search.result import StudyResult, Trial, contradiction_in
from longspan.training.runs import Run
from longspan.training.timing import seconds_trained

LOG_RATIO = 20
"""A searched setting whose values span more than this is drawn on a logarithmic axis."""


class TrialValue(msgspec.Struct, frozen=True):
    """How one slot went."""

    slot: int
    status: str
    valid: float | None
    """Its best validation score; None if it has none, or diverged."""
    epochs: int
    seconds: float
    settings: dict
    """All that are known of it, so far as trials differ in them."""
    curve: list[tuple[int, float]]
    """Epoch and validation score; empty where the run folder is on another machine."""


class Point(NamedTuple):
    """A trial's value of a setting, and its score."""

    slot: int
    value: float | str
    valid: float


class Scatter(msgspec.Struct, frozen=True):
    """What one setting did to the score."""

    setting: str
    points: list[Point]
    log: bool


class StudyReport(msgspec.Struct, frozen=True, tag="study", tag_field="report"):
    """All that is shown of a study."""

    name: str
    recipe: str
    data: str
    trials: list[TrialValue]
    winner: int | None
    """By validation; of a study that still runs, so far."""
    scatters: list[Scatter]
    best: RunReport | None
    """The winner's run, where it is on this machine."""


def study_report(folder: Path, samples: list[MusicSample] | list[TextSample] | None = None) -> StudyReport:
    """The values of the study in a folder; `samples` are those of its winner."""
    runs = trial_runs(folder)
    result = read_study_result(folder)
    if not runs and result is None:
        raise InputError(f"expected a study's folder with trials/ or a result.json, got {folder}")
    trials, winner = _trials(runs, result), winning_slot(folder)
    about = result or next(iter(runs.values())).config
    return StudyReport(
        name=result.study if result else folder.resolve().name,
        recipe=about.recipe,
        data=about.data,
        trials=trials,
        winner=winner,
        scatters=scatters(trials),
        best=run_report(runs[winner].path, samples) if winner in runs else None,
    )


def trial_runs(folder: Path) -> dict[int, Run]:
    """The run folders of a study's trials by slot."""
    numbered = {path.name.removeprefix("slot-"): path for path in sorted(folder.glob("trials/slot-*"))}
    return {
        int(number): Run.open(path)
        for number, path in numbered.items()
        if number.isdecimal() and (path / "config.json").exists()
    }


def read_study_result(folder: Path) -> StudyResult | None:
    file = folder / "result.json"
    if not file.exists():
        return None
    try:
        result = msgspec.json.decode(file.read_bytes(), type=StudyResult)
    except (msgspec.MsgspecError, OSError) as error:
        raise InputError(f"{file} cannot be read ({error}); restore it or remove it") from error
    contradiction = contradiction_in(result)
    if contradiction is not None:
        raise InputError(f"{file} contradicts itself: {contradiction}; restore it or remove it")
    return result


def winning_slot(folder: Path) -> int | None:
    """The winner of a concluded study, else the best trial so far that did not diverge."""
    result = read_study_result(folder)
    if result is not None:
        return result.winner
    best = {
        slot: max(record["valid_log_likelihood"] for record in run.metrics())
        for slot, run in trial_runs(folder).items()
        if run.status != "diverged" and run.metrics()
    }
    return max(best, key=lambda slot: (best[slot], -slot), default=None)


def scatters(trials: list[TrialValue]) -> list[Scatter]:
    """One for every setting in which trials with a score differ."""
    scored = [trial for trial in trials if trial.valid is not None]
    names = dict.fromkeys(itertools.chain.from_iterable(trial.settings for trial in scored))
    found = []
    for name in names:
        points = [
            Point(trial.slot, trial.settings[name], trial.valid)
            for trial in scored
            if name in trial.settings and trial.valid is not None
        ]
        if len({point.value for point in points}) > 1:
            found.append(Scatter(name, points, spans_decades([point.value for point in points])))
    return found


def spans_decades(values: list) -> bool:
    """Whether values belong on a logarithmic axis."""
    numbers = all(isinstance(value, int | float) and value > 0 for value in values)
    return numbers and max(values) > LOG_RATIO * min(values)


def _trials(runs: dict[int, Run], result: StudyResult | None) -> list[TrialValue]:
    concluded = {trial.slot: trial for trial in result.trials} if result else {}
    differing = _differing_settings(runs)
    return [
        _finished(concluded[slot], runs.get(slot), differing.get(slot, {}))
        if slot in concluded
        else _unfinished(slot, runs[slot], differing[slot])
        for slot in sorted(runs.keys() | concluded.keys())
    ]


def _differing_settings(runs: dict[int, Run]) -> dict[int, dict]:
    """Of each run the settings that are not the same in all."""
    configs = {slot: as_dict(run.config) for slot, run in runs.items()}
    first = next(iter(configs.values()), {})
    names = [name for name in first if any(config[name] != first[name] for config in configs.values())]
    return {slot: {name: config[name] for name in names} for slot, config in configs.items()}


def _finished(trial: Trial, run: Run | None, settings: dict) -> TrialValue:
    outcome, curve = trial.outcome, _curve(run) if run else []
    return TrialValue(
        trial.slot,
        outcome.status,
        outcome.valid_log_likelihood,
        outcome.epochs,
        outcome.seconds,
        trial.settings | settings,
        curve,
    )


def _unfinished(slot: int, run: Run, settings: dict) -> TrialValue:
    curve = _curve(run)
    best = None if run.status == "diverged" else max((score for _, score in curve), default=None)
    return TrialValue(slot, run.status, best, len(curve), seconds_trained(run), settings, curve)


def _curve(run: Run) -> list[tuple[int, float]]:
    return [(record["epoch"], record["valid_log_likelihood"]) for record in run.metrics()]
