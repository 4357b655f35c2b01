"""Everything that is measured of a run, as one frozen structure."""

import msgspec

from longspan.bounds import Figure, Size, Text, Whole
from longspan.data.dataset import Dataset
from longspan.diagnostics.course import Course, course_of
from longspan.diagnostics.data_checks import DataChecks, check_data
from longspan.diagnostics.landscape import Landscape, Standing, landscape, standing
from longspan.errors import InputError
from longspan.evaluation import check_split
from longspan.models.model import SequenceModel, whole
from longspan.probes.gradients import GradientByLag, Lyapunov, gradient_by_lag, lyapunov
from longspan.probes.memory import History, Repeats, history, repeats
from longspan.probes.steps import Steps, Walk, log_probs, steps_of, walk
from longspan.probes.units import Units, units
from longspan.training.runs import Run
from longspan.training.setup import check_memory, model_shape, trained_model

STEPS = 12_000
"""Steps of a split that are examined, as whole sequences."""
LAGS = 100


class Standards(msgspec.Struct, frozen=True):
    """Mean log-likelihoods in nats per counted step.

    Attributes:
        train, valid: of the best weights, without dropout, on steps of both splits.
        rates: of the training frequencies alone, on the validation split.
        stake: what knowledge could save over the rates: all of their loss; for numbers, half the targets' variance.
    """

    train: Figure
    valid: Figure
    rates: Figure
    stake: Size


class Measures(msgspec.Struct, frozen=True):
    """Everything measured of a run; None where a measure has no meaning or nothing to measure."""

    run: Text
    recipe: Text
    data: Text
    kind: Text
    """What the data are: music, text, keys, classes or numbers."""
    split: Text
    steps: Whole
    sequences: Whole
    weights: Text
    """The weights examined: the best ones, or those of the last checkpoint where there are none."""
    gradient: GradientByLag
    lyapunov: Lyapunov
    history: History
    repeats: Repeats | None
    units: Units
    standards: Standards
    course: Course
    data_checks: DataChecks
    landscape: Landscape | None
    log_volume: Figure = 0.0
    """By how many nats a likelihood of normalized numbers, as all these are, exceeds that in the units of the data."""

    @property
    def about_units(self) -> str | None:
        """How these likelihoods compare with scores, if they differ."""
        if self.log_volume == 0:
            return None
        which = "lower" if self.log_volume > 0 else "higher"
        return (
            "All nats here are those of normalized numbers; the likelihoods of scores, in the units of the data, are "
            f"{abs(self.log_volume):.3f} {which}."
        )


def measure(run: Run, data: Dataset, *, split: str = "valid", lags: int = LAGS, steps: int = STEPS) -> Measures:
    """Examine a run on a split of its data.

    Args:
        run: the run; its folder is only read.
        data: the data it was trained on.
        split: the split on whose sequences the model is run.
        lags: how many steps back gradients are followed.
        steps: about how many steps are examined.
    """
    check_split(split)
    if lags < 1 or steps < 1:
        raise InputError(f"lags and steps must be at least 1: got {lags} and {steps}", fields=["lags", "steps"])
    check_memory(run.config, run.data, model_shape(run))  # its chunks are laid out, and an update is made
    here = standing(run, data)
    model, weights = _examined(run, here)
    led = steps_of(data, split, steps)
    walked = walk(model, led)
    return Measures(
        run=str(run.path),
        recipe=run.config.recipe,
        data=run.config.data,
        kind=data.record.kind,
        split=split,
        steps=int(led.mask.sum()),
        sequences=len(led.bounds),
        weights=weights,
        gradient=gradient_by_lag(model, led, walked, lags=lags),
        lyapunov=lyapunov(model, led, walked),
        history=history(model, led, walked),
        repeats=repeats(model, data, led, walked) if data.record.kind in ("music", "text") else None,
        units=units(model, led, walked),
        standards=_standards(model, data, split, led, walked, steps),
        course=course_of(run),
        data_checks=check_data(data, run.config),
        landscape=None if here is None else landscape(here),
        log_volume=data.record.log_volume,
    )


def _examined(run: Run, here: Standing | None) -> tuple[SequenceModel, str]:
    """The model to examine: with its best weights, or with those of the last checkpoint if it has no best ones yet."""
    if here is None or run.has_good_model:
        return trained_model(run), "best"
    return whole(here.state.params, here.context.constants), "last checkpoint"


def _standards(model, data: Dataset, split: str, led: Steps, walked: Walk, steps: int) -> Standards:
    def score(other: str) -> float:
        there, walked_there = (led, walked) if other == split else _led(model, data, other, steps)
        return float(log_probs(model, walked_there.hidden, there.targets)[there.mask].mean())

    # Those of any data set, also where one has better ones of its own.
    rates = Dataset.baselines(data, "valid").rows()[0][1]
    numbers = data.record.predicted == "numbers"
    stake = rates["squared_error"] / 2 if numbers else abs(rates["log_likelihood"])
    return Standards(score("train"), score("valid"), rates["log_likelihood"], stake)


def _led(model: SequenceModel, data: Dataset, split: str, steps: int) -> tuple[Steps, Walk]:
    led = steps_of(data, split, steps)
    return led, walk(model, led)
