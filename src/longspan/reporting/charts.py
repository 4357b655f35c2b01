"""Charts as plain values: what is drawn, before anything is. `assets/charts.js` draws them."""

import math

import msgspec

from longspan import paper
from longspan.reporting.results_values import CellValue, ResultsValues, TrialPoint
from longspan.reporting.run_report import EpochValue, RunReport
from longspan.reporting.study_report import Scatter, StudyReport, spans_decades

SCORE = "log-likelihood, nats"
SETTINGS_DRAWN = ("learning_rate", "hidden_size", "recurrent_scale", "input_scale", "momentum", "l1")
TAIL, FAR = 0.1, 10.0
"""Values further from the middle 80 % than ten times its width are outliers."""
TONES = ("first", "second", "third", "fourth")


class Series(msgspec.Struct, frozen=True):
    """Points joined by a line, or left alone."""

    name: str
    points: list[tuple[float, float]]
    tone: str
    """`first`, `second`, `third`, `fourth` or `quiet`; the style sheet knows their colours."""
    joined: bool = True
    labels: list[str] = []
    """What each point is, where its numbers do not say it."""


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
    """Names of the places 0, 1, ... where the horizontal axis has no numbers."""
    y_range: tuple[float, float] | None = None
    """What the frame shows, if not everything: one exploded update must not flatten all the rest."""
    small: bool = False

    @property
    def beyond(self) -> int:
        """How many points lie outside the frame."""
        if self.y_range is None:
            return 0
        low, high = self.y_range
        return sum(not low <= y <= high for series in self.series for _, y in series.points)


def framed(chart: Chart) -> Chart:
    """A chart whose frame leaves out values far from the bulk, if it has such."""
    values = sorted(y for series in chart.series for _, y in series.points)
    warped = [math.log10(value) for value in values] if chart.y_log else values
    tail = max(math.floor(TAIL * len(warped)), int(len(warped) > 5))
    low, high = warped[tail], warped[-1 - tail]
    reach = FAR * (high - low)
    near = [value for value, at in zip(values, warped, strict=True) if low - reach <= at <= high + reach]
    if len(near) == len(values):
        return chart
    bounds, marks = (near[0], near[-1]), [rule.at for rule in chart.rules if rule.axis == "y"]
    return msgspec.structs.replace(chart, y_range=(min(*bounds, *marks), max(*bounds, *marks)))


class Pair(msgspec.Struct, frozen=True):
    """Ours beside the paper's."""

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


def study_charts(study: StudyReport) -> list[Chart]:
    """All validation curves, the winner's last so that it lies on top, and a scatter for every searched setting."""
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


def results_charts(values: ResultsValues) -> list[PairChart]:
    """One for every data set: each row of the table as the paper's number and ours."""
    charts = []
    for data in dict.fromkeys(cell.data for cell in values.cells):
        cells = [cell for cell in values.cells if cell.data == data]
        metric = cells[0].metric
        label = {"log_likelihood": "test " + SCORE, "perplexity": "test perplexity"}.get(
            metric, "test bits per character"
        )
        pairs = [_pair(cell) for cell in cells]
        charts.append(PairChart(data, label, pairs, lower_is_better=metric != "log_likelihood"))
    return charts


def trials_charts(trials: list[TrialPoint]) -> list[Chart]:
    """What a setting did to the score in all trials of the music cells."""
    charts = []
    for setting in SETTINGS_DRAWN:
        series = _trials_by_data(trials, setting)
        values = [x for each in series for x, _ in each.points]
        if len(set(values)) > 1:
            title, log = setting.replace("_", " "), spans_decades(values)
            charts.append(Chart(title, title, "below the cell's best, nats", series, x_log=log, small=True))
    return [framed(chart) for chart in charts]


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


def _pair(cell: CellValue) -> Pair:
    ours = cell.ours.test if cell.ours else None
    return Pair(cell.row, cell.paper.test, ours, cell.spread.test if cell.spread else None, cell.verdict)


def _trials_by_data(trials: list[TrialPoint], setting: str) -> list[Series]:
    series = []
    for tone, data in zip(TONES, paper.MUSIC_SETS, strict=True):
        known = [trial for trial in trials if trial.data == data and setting in trial.settings]
        if known:
            points = [(trial.settings[setting], trial.gap) for trial in known]
            labels = [f"{trial.row} on {data}, slot {trial.slot}" for trial in known]
            series.append(Series(data, points, tone, joined=False, labels=labels))
    return series
