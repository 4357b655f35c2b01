"""The section of a page about the tables: the paper's numbers, its protocol, our best, and all trials."""

from longspan.metrics import METRICS, number
from longspan.reporting import markup
from longspan.reporting.charts import TONES, Chart, Pair, PairChart, Series, framed
from longspan.reporting.study_report import spans_decades
from longspan.reproduction import gated
from longspan.reproduction.cells import Figures
from longspan.reproduction.past import REPEATS_HEADER, repeats_cells, with_spread
from longspan.reproduction.tables import MUSIC_SETS, TableName
from longspan.reproduction.values import (
    GatedCellValue,
    PaperCellValue,
    ResultsValues,
    TrialPoint,
    protocol_of,
    test_of,
)

INTRODUCTION = (
    "The two tables of <cite>Advances in Optimizing Recurrent Networks</cite>. “Paper’s protocol” is the paper’s own "
    "regime with equal budgets: validation chooses one of a row’s slots, which is trained again with fresh seeds and "
    "scored on the test split. “Our best” is something else: hand-tuned recipes with dropout and averaged weights, "
    "which the paper did not use. They show how well these networks can be trained, not which method helps, and "
    "reproduce nothing. Numbers are means over seeds ± standard deviation; after “est.” stands the standard error of a "
    "likelihood that can only be estimated."
)
LEGEND = (
    '<ul class="legend"><li><i class="ring"></i>paper</li>'
    '<li class="good-text"><i class="dot"></i>our best, at or better</li>'
    '<li class="bad-text">◆ our best, behind</li></ul>'
)
ABOUT_REPEATS = (
    "Mean loss at frames with which the song went on before, after the longest match of the frames just heard, over "
    "that at all other frames: 0 for a network that remembers, 1 for one that has no idea. Networks alone, nothing "
    "copied; the letter T tells a network as an input what followed before. Beside it what a network loses when its "
    "state is cut off."
)
SETTINGS_DRAWN = ("learning_rate", "hidden_size", "recurrent_scale", "input_scale", "momentum", "l1")


def results_content(values: ResultsValues) -> str:
    """The content of the section, without its heading."""
    pairs = [markup.pairs_figure(chart) for chart in results_charts(values)]
    scatters = [markup.chart_figure(chart) for chart in trials_charts(values.trials)]
    parts = [
        f"<p>{INTRODUCTION}</p>",
        markup.tiles(_tiles(values)),
        f"<h3>At a glance</h3>{LEGEND}",
        markup.grid(pairs),
        "<h3>Table 1: music</h3>",
        *_tables(values, "table1"),
        "<h3>Table 2: text</h3>",
        *_tables(values, "table2"),
        *_gated(values.gated),
        *_repeats(values),
    ]
    if scatters:
        about = "Trials of each music cell's best search: how far their validation scores are below that of the winner."
        tones = markup.legend(list(zip(MUSIC_SETS, TONES, strict=False)))
        parts += ["<h3>What each setting did</h3>", f"<p>{about}</p>", tones, markup.grid(scatters, "small")]
    return "".join(parts)


def _tiles(values: ResultsValues) -> list[str]:
    made = []
    for what, cells in (("Music cells", values.of("table1")), ("Text cells", values.of("table2"))):
        reaching = sum(cell.verdict == "reaches" for cell in cells)
        missing = sum(cell.verdict == "missing" for cell in cells)
        once = sum(cell.seeds == 1 for cell in cells)
        beside = f"our best at or better than the paper by the mean over seeds; {once} have one seed"
        made.append(
            markup.tile(what, f"{reaching} of {len(cells)}", beside + f"; {missing} without a result" * bool(missing))
        )
    there = sum(cell.protocol is not None for cell in values.cells)
    made.append(markup.tile("Paper’s protocol", str(there), "cells with winners on fresh seeds so far"))
    return [*made, markup.tile("Trials", f"{sum(cell.tried for cell in values.cells):,}")]


def _tables(values: ResultsValues, name: TableName) -> list[str]:
    music = name == "table1"
    header = ["", "test, paper", "test, paper’s protocol", "test, our best"]
    header += [f"test, with memory of the {'song' if music else 'text'}", "train, paper", "train, our best"]
    header += ["accuracy %, paper", "accuracy %, our best"] if music else []
    header += ["trials", "seeds"]
    made = []
    for data in dict.fromkeys(cell.data for cell in values.of(name)):
        cells = [cell for cell in values.of(name) if cell.data == data]
        rows = [_row(cell, music=music) for cell in cells]
        made.append(markup.table(data, header, rows, cells[0].described_metric))
    return made


def _row(cell: PaperCellValue, *, music: bool) -> str:
    paper, ours, spread = cell.paper, cell.ours, cell.spread
    cells = [markup.number_cell(number(paper.test)), markup.number_cell(protocol_of(cell)), _ours(cell)]
    cells += [markup.number_cell(str(cell.remembering or "")), markup.number_cell(number(paper.train))]
    cells += [markup.number_cell(_spread_of("train", ours, spread))]
    if music:
        cells += [
            markup.number_cell(_spread_of("accuracy", paper, None, 100.0)),
            markup.number_cell(_spread_of("accuracy", ours, spread, 100.0)),
        ]
    cells += [markup.cell(str(cell.tried or "")), markup.cell(str(cell.seeds or ""))]
    return markup.row(cell.row, cells)


def _gated(cells: list[GatedCellValue]) -> list[str]:
    """Gated networks, a table per data set; nothing without results."""
    if not cells:
        return []
    made = ["<h3>Gated networks</h3>", f"<p>{gated.ABOUT}</p>"]
    for data, alike in gated.by_data(cells).items():
        rows = [_gated_row(cell) for cell in alike]
        made.append(markup.table(f"{data}, gated", gated.gated_header(alike[0]), rows, alike[0].described_metric))
    return made


def _gated_row(cell: GatedCellValue) -> str:
    name, *texts = gated.gated_cells(cell)
    kinds = {gated.OURS - 1: "ours good-text" if cell.gains else "ours"}
    shown = [markup.cell(markup.true_minus(text), kinds.get(place, "")) for place, text in enumerate(texts)]
    return markup.row(name, shown)


def _repeats(values: ResultsValues) -> list[str]:
    """What a repeat costs networks alone, a table per data set."""
    if not values.repeats:
        return []
    made = ["<h3>What a repeat costs</h3>", f"<p>{ABOUT_REPEATS}</p>"]
    by_data: dict[str, list[list[str]]] = {}
    for row in values.repeats:
        by_data.setdefault(row.data, []).append(repeats_cells(row))
    for data, shown in by_data.items():
        rows = [markup.row(network, [markup.number_cell(text) for text in texts]) for _, network, *texts in shown]
        made.append(markup.table(data, ["", *REPEATS_HEADER[2:]], rows, "nats per frame, test split"))
    return made


def _spread_of(name: str, figures: Figures | None, spread: Figures | None, scale: float = 1.0) -> str:
    value, error = getattr(figures, name, None), getattr(spread, name, None)
    return with_spread(None if value is None else scale * value, None if error is None else scale * error)


def _ours(cell: PaperCellValue) -> str:
    if cell.ours is None:
        return markup.marked_cell(markup.badge("diverged", "bad") if cell.verdict == "diverged" else "")
    shown = markup.true_minus(test_of(cell))
    kind = "good" if cell.verdict == "reaches" else "bad"
    return markup.marked_cell(f'<span class="{kind}-text">{shown}{" ✓" if kind == "good" else ""}</span>', "ours")


def results_charts(values: ResultsValues) -> list[PairChart]:
    """One chart per data set, with the paper's number and ours for each row of the table."""
    charts = []
    for data in dict.fromkeys(cell.data for cell in values.cells):
        cells = [cell for cell in values.cells if cell.data == data]
        metric = METRICS[cells[0].metric]
        pairs = [_pair(cell) for cell in cells]
        charts.append(PairChart(data, f"test {metric.heading}", pairs, lower_is_better=metric.lower_is_better))
    return charts


def trials_charts(trials: list[TrialPoint]) -> list[Chart]:
    """The effect of each setting on the score, over all trials of the music cells."""
    charts = []
    for setting in SETTINGS_DRAWN:
        series = _trials_by_data(trials, setting)
        values = [x for each in series for x, _ in each.points]
        if len(set(values)) > 1:
            title, log = setting.replace("_", " "), spans_decades(values)
            charts.append(Chart(title, title, "below the cell's best, nats", series, x_log=log, small=True))
    return [framed(chart) for chart in charts]


def _pair(cell: PaperCellValue) -> Pair:
    ours = cell.ours.test if cell.ours else None
    return Pair(cell.row, cell.paper.test, ours, cell.spread.test if cell.spread else None, cell.verdict)


def _trials_by_data(trials: list[TrialPoint], setting: str) -> list[Series]:
    series = []
    for tone, data in zip(TONES, MUSIC_SETS, strict=False):
        known = [trial for trial in trials if trial.data == data and setting in trial.settings]
        if known:
            points = [(trial.settings[setting], trial.gap) for trial in known]
            labels = [f"{trial.row} on {data}, slot {trial.slot}" for trial in known]
            series.append(Series(data, points, tone, joined=False, labels=labels))
    return series
