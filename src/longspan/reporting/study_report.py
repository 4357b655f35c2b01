"""The report of a study as plain values: every trial, and the effect of each searched setting on the score.

It is read from the study's folder alone: the run folders of trials, and result.json once the study is concluded.
"""

import itertools
from typing import NamedTuple

import msgspec

from longspan.config import FIELDS, as_dict
from longspan.reporting.run_report import RunReport, run_report
from longspan.reporting.samples import MusicSample, TextSample
from longspan.search.result import SlotRun, StudyFolder, Trial
from longspan.training.timing import seconds_trained

LOG_RATIO = 20
"""A searched setting whose values span more than this ratio is drawn on a logarithmic axis."""


class TrialValue(msgspec.Struct, frozen=True):
    """One slot of a study."""

    slot: int
    status: str
    valid: float | None
    """The best validation score; None if there is none or the run diverged."""
    epochs: int
    seconds: float
    settings: dict
    """The known settings in which trials differ."""
    curve: list[tuple[int, float]]
    """Epoch and validation score; empty if the run folder is on another machine."""


class Point(NamedTuple):
    """A trial's value of a setting, and its score."""

    slot: int
    value: float | str
    valid: float


class Scatter(msgspec.Struct, frozen=True):
    """The effect of one setting on the score."""

    setting: str
    points: list[Point]
    log: bool


class StudyReport(msgspec.Struct, frozen=True, tag="study", tag_field="report"):
    """Everything shown about a study."""

    name: str
    recipe: str
    data: str
    trials: list[TrialValue]
    winner: int | None
    """The best slot by validation; for an unfinished study, the best so far."""
    scatters: list[Scatter]
    best: RunReport | None
    """The winner's run, if it is on this machine."""


def study_report(folder: StudyFolder, samples: list[MusicSample] | list[TextSample] | None = None) -> StudyReport:
    """Make the report of a study; `samples` are those of its winner."""
    result, winning, trials = folder.result, folder.winning, _trials(folder)
    about = result or next(iter(folder.slots.values())).run.config
    return StudyReport(
        name=result.study if result else folder.path.resolve().name,
        recipe=about.recipe,
        data=about.data,
        trials=trials,
        winner=folder.winner,
        scatters=scatters(trials),
        best=run_report(winning.run, samples) if winning else None,
    )


def scatters(trials: list[TrialValue]) -> list[Scatter]:
    """One scatter plot for every setting in which trials with a score differ."""
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


def _trials(folder: StudyFolder) -> list[TrialValue]:
    concluded = {trial.slot: trial for trial in folder.result.trials} if folder.result else {}
    differing = _differing_settings(folder.slots)
    return [
        _finished(concluded[slot], folder.slots.get(slot), differing.get(slot, {}))
        if slot in concluded
        else _unfinished(slot, folder.slots[slot], differing[slot])
        for slot in sorted(folder.slots.keys() | concluded.keys())
    ]


def _differing_settings(slots: dict[int, SlotRun]) -> dict[int, dict]:
    """For each run, the settings that are not the same in all runs."""
    configs = {number: as_dict(slot.run.config) for number, slot in slots.items()}
    first = next(iter(configs.values()), {})
    names = [name for name in first if any(config[name] != first[name] for config in configs.values())]
    return {number: {name: config[name] for name in names} for number, config in configs.items()}


def _finished(trial: Trial, found: SlotRun | None, settings: dict) -> TrialValue:
    outcome = trial.outcome
    return TrialValue(
        trial.slot,
        outcome.status,
        outcome.valid_log_likelihood,
        outcome.epochs,
        outcome.seconds,
        {name: value for name, value in trial.settings.items() if name in FIELDS} | settings,
        found.curve if found else [],
    )


def _unfinished(number: int, slot: SlotRun, settings: dict) -> TrialValue:
    seconds = seconds_trained(slot.run)
    return TrialValue(number, slot.status, slot.best, len(slot.curve), seconds, settings, slot.curve)
