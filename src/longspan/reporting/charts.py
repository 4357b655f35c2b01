"""Charts as plain values, which `assets/charts.js` draws."""

import math
from typing import Literal

import msgspec

from longspan.metrics import LOG_LIKELIHOOD
from longspan.reporting.run_report import EpochValue, MemoryValue, RunReport
from longspan.reporting.study_report import Scatter, StudyReport, spans_decades

SCORE = LOG_LIKELIHOOD.heading
TAIL, FAR = 0.1, 10.0
"""Values farther from the middle 80 % than ten times its width are outliers."""
TONES = ("first", "second", "third", "fourth", "fifth", "sixth")


class Series(msgspec.Struct, frozen=True):
    """Points, joined by a line or not."""

    name: str
    points: list[tuple[float, float]]
    tone: str
    """One of `TONES`, or `quiet`; the style sheet defines their colors."""
    joined: bool = True
    labels: list[str] = []
    """Labels of the points, if their numbers are not enough."""
    band: list[tuple[float, float]] = []
    """Lower and upper ends of a band around a line, one pair per point; empty for none."""
    mark: Literal["dot", "cross"] = "dot"


class Rule(msgspec.Struct, frozen=True):
    """A straight line across the chart."""

    axis: str
    at: float
    label: str


class Chart(msgspec.Struct, frozen=True):
    """Numbers against numbers, or against names."""

    title: str
    x: str
    y: str
    series: list[Series]
    rules: list[Rule] = []
    x_log: bool = False
    y_log: bool = False
    x_names: list[str] = []
    """Names of the positions 0, 1, ... if the horizontal axis is not numeric."""
    y_range: tuple[float, float] | None = None
    """The visible range, if not everything is shown: one exploded update must not flatten the rest."""
    small: bool = False

    @property
    def beyond(self) -> int:
        """Number of points outside the visible range."""
        if self.y_range is None:
            return 0
        low, high = self.y_range
        return sum(not low <= y <= high for series in self.series for _, y in series.points)


def framed(chart: Chart) -> Chart:
    """The chart with a visible range that excludes outliers, if there are any."""
    values = sorted(y for series in chart.series for _, y in series.points)
    if not values:
        return chart
    warped = [math.log10(value) for value in values] if chart.y_log else values
    tail = max(math.floor(TAIL * len(warped)), int(len(warped) > 5))
    low, high = warped[tail], warped[-1 - tail]
    reach = FAR * (high - low)
    near = [value for value, at in zip(values, warped, strict=True) if low - reach <= at <= high + reach]
    if low == high or len(near) == len(values):  # what most values share, such as a rate, makes no other an outlier
        return chart
    bounds, marks = (near[0], near[-1]), [rule.at for rule in chart.rules if rule.axis == "y"]
    return msgspec.structs.replace(chart, y_range=(min(*bounds, *marks), max(*bounds, *marks)))


class Pair(msgspec.Struct, frozen=True):
    """Our number beside the paper's."""

    label: str
    paper: float
    ours: float | None
    spread: float | None
    verdict: str


class PairChart(msgspec.Struct, frozen=True):
    """Rows of two dots: the paper's number and ours, better to the right."""

    title: str
    x: str
    pairs: list[Pair]
    lower_is_better: bool


def run_charts(run: RunReport) -> list[Chart]:
    """Learning curves, gradient norms with the clip line, share of clipped updates, learning rate."""
    if not run.epochs:
        return []
    charts = [_learning_curves(run)]
    norms = _points(run.epochs, "gradient_norm")
    if norms:
        rules = [] if run.clip is None else [Rule("y", run.clip, f"clip {run.clip:.3g}")]
        values = [norm for _, norm in norms] + ([run.clip] if run.clip else [])
        series = [Series("mean gradient norm", norms, "third")]
        charts.append(
            Chart("Gradient norm", "epoch", "norm before clipping", series, rules, y_log=spans_decades(values))
        )
    clipped = [(epoch, 100 * share) for epoch, share in _points(run.epochs, "clipped")]
    if any(share > 0 for _, share in clipped):
        charts.append(Chart("Clipped updates", "epoch", "% of updates", [Series("clipped", clipped, "fourth")]))
    rates = _points(run.epochs, "learning_rate")
    if len({rate for _, rate in rates}) > 1:
        log = spans_decades([rate for _, rate in rates])
        charts.append(Chart("Learning rate", "epoch", "rate", [Series("learning rate", rates, "fourth")], y_log=log))
    return [framed(chart) for chart in charts]


def together_chart(runs: list[RunReport]) -> Chart:
    """The validation scores of several runs on the same data."""
    series = [
        Series(run.name, _points(run.epochs, "valid"), TONES[number % len(TONES)]) for number, run in enumerate(runs)
    ]
    return framed(Chart("Validation of all runs", "epoch", "log-likelihood, nats", series))


def memory_charts(memory: MemoryValue) -> list[Chart]:
    """For some pieces of the test split, from which earlier step each recalled step was copied."""
    return [
        Chart(
            f"Piece {trail.sequence + 1}: {len(trail.steps)} of {trail.length} steps recalled",
            "step",
            "copied from step",
            [
                Series(
                    "recalled",
                    [(float(a), float(b)) for a, b in zip(trail.steps, trail.places, strict=True)],
                    "second",
                    joined=False,
                )
            ],
        )
        for trail in memory.trails
        if trail.steps
    ]


def study_charts(study: StudyReport) -> list[Chart]:
    """All validation curves, the winner's last so that it is drawn on top, and a scatter plot per searched setting."""
    trials = sorted((trial for trial in study.trials if trial.curve), key=lambda trial: trial.slot == study.winner)
    curves = [
        Series(
            f"slot {trial.slot}" + (", best" if trial.slot == study.winner else ""),
            [(float(epoch), score) for epoch, score in trial.curve],
            "second" if trial.slot == study.winner else "quiet",
        )
        for trial in trials
    ]
    charts = [Chart("Validation of all trials", "epoch", SCORE, curves)] if curves else []
    return [framed(chart) for chart in (*charts, *(_scatter(scatter, study.winner) for scatter in study.scatters))]


def _learning_curves(run: RunReport) -> Chart:
    valid = Series("validation", [(float(each.epoch), each.valid) for each in run.epochs], "second")
    train = Series("training", _points(run.epochs, "train"), "first")
    rules = [] if run.best_epoch is None else [Rule("x", run.best_epoch, f"best, epoch {run.best_epoch}")]
    return Chart("Learning curves", "epoch", SCORE, [series for series in (train, valid) if series.points], rules)


def _points(epochs: list[EpochValue], name: str) -> list[tuple[float, float]]:
    pairs = [(float(each.epoch), getattr(each, name)) for each in epochs]
    return [(epoch, value) for epoch, value in pairs if value is not None]


def _scatter(scatter: Scatter, winner: int | None) -> Chart:
    names = [] if all(isinstance(point.value, int | float) for point in scatter.points) else _names(scatter)

    def series(name: str, tone: str, chosen: list) -> Series:
        places = [names.index(str(point.value)) if names else point.value for point in chosen]
        return Series(
            name,
            [(float(place), point.valid) for place, point in zip(places, chosen, strict=True)],
            tone,
            joined=False,
            labels=[f"slot {point.slot}" for point in chosen],
        )

    others = series("trials", "first", [point for point in scatter.points if point.slot != winner])
    best = series("best", "second", [point for point in scatter.points if point.slot == winner])
    title = scatter.setting.replace("_", " ")
    return Chart(title, title, "best validation", [others, best], x_log=scatter.log, x_names=names, small=True)


def _names(scatter: Scatter) -> list[str]:
    return sorted({str(point.value) for point in scatter.points})
