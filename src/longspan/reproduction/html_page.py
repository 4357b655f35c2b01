"""The section of a page about the paper's tables: our numbers beside the paper's, the claims, all trials."""

from html import escape

from longspan.metrics import METRICS, number
from longspan.reporting import markup
from longspan.reporting.charts import TONES, Chart, Pair, PairChart, Series, framed
from longspan.reporting.study_report import spans_decades
from longspan.reproduction.cells import Figures, TableName
from longspan.reproduction.claims import RULE, ClaimValue
from longspan.reproduction.tables import MUSIC_SETS
from longspan.reproduction.values import CellValue, ResultsValues, TrialPoint, beside_test, with_spread

INTRODUCTION = (
    "Every cell of the two tables of <cite>Advances in Optimizing Recurrent Networks</cite>, beside the paper's. "
    "A cell is one or more random searches around a recipe; each chooses its winner on the validation split and scores "
    "that one on the test split, once. In brackets: mean and standard deviation over seeds, and after “est.” the "
    "standard error of a likelihood that can only be estimated."
)
LEGEND = (
    '<ul class="legend"><li><i class="ring"></i>paper</li>'
    '<li class="good-text"><i class="dot"></i>ours, at or better</li><li class="bad-text">◆ ours, behind</li></ul>'
)
SETTINGS_DRAWN = ("learning_rate", "hidden_size", "recurrent_scale", "input_scale", "momentum", "l1")
VERDICTS = {"supported": "good", "not supported": "bad", "undecided": ""}


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
        "<h3>The paper’s claims, tested</h3>",
        _claims(values.claims),
        markup.details("How a claim is judged", f"<p>{escape(RULE.replace('*', ''))}</p>"),
    ]
    if scatters:
        about = "Trials of each music cell's best search: how far their validation scores are below that of the winner."
        tones = markup.legend(list(zip(MUSIC_SETS, TONES, strict=True)))
        parts += ["<h3>What each setting did</h3>", f"<p>{about}</p>", tones, markup.grid(scatters, "small")]
    return "".join(parts)


def _tiles(values: ResultsValues) -> list[str]:
    made = []
    for what, cells in (("Music cells", values.of("table1")), ("Text cells", values.of("table2"))):
        reaching = sum(cell.verdict == "reaches" for cell in cells)
        missing = sum(cell.verdict == "missing" for cell in cells)
        beside = "at or better than the paper" + (f"; {missing} without a result" if missing else "")
        made.append(markup.tile(what, f"{reaching} of {len(cells)}", beside))
    verdicts = [value.verdict for value in values.claims]
    beside = f"{verdicts.count('not supported')} not supported, {verdicts.count('undecided')} undecided"
    made.append(markup.tile("Claims supported", f"{verdicts.count('supported')} of {len(verdicts)}", beside))
    return [*made, markup.tile("Trials", f"{sum(cell.tried for cell in values.cells):,}")]


def _tables(values: ResultsValues, name: TableName) -> list[str]:
    music = name == "table1"
    header = ["", "test, paper", "test, ours", "train, paper", "train, ours"]
    header += ["accuracy %, paper", "accuracy %, ours"] if music else []
    header += ["trials", "seeds"]
    made = []
    for data in dict.fromkeys(cell.data for cell in values.of(name)):
        cells = [cell for cell in values.of(name) if cell.data == data]
        rows = [_row(cell, music=music) for cell in cells]
        made.append(markup.table(data, header, rows, cells[0].described_metric))
    return made


def _row(cell: CellValue, *, music: bool) -> str:
    paper, ours, spread = cell.paper, cell.ours, cell.spread
    cells = [markup.number_cell(number(paper.test)), _ours(cell)]
    cells += [markup.number_cell(number(paper.train)), markup.number_cell(_spread_of("train", ours, spread))]
    if music:
        cells += [
            markup.number_cell(_spread_of("accuracy", paper, None, 100.0)),
            markup.number_cell(_spread_of("accuracy", ours, spread, 100.0)),
        ]
    cells += [markup.cell(str(cell.tried or "")), markup.cell(str(cell.seeds or ""))]
    return markup.row(cell.row, cells)


def _spread_of(name: str, figures: Figures | None, spread: Figures | None, scale: float = 1.0) -> str:
    value, error = getattr(figures, name, None), getattr(spread, name, None)
    return with_spread(None if value is None else scale * value, None if error is None else scale * error)


def _ours(cell: CellValue) -> str:
    if cell.ours is None:
        return markup.marked_cell(markup.badge("diverged", "bad") if cell.verdict == "diverged" else "")
    shown = markup.true_minus(number(cell.ours.test) + beside_test(cell))
    kind = "good" if cell.verdict == "reaches" else "bad"
    return markup.marked_cell(f'<span class="{kind}-text">{shown}{" ✓" if kind == "good" else ""}</span>', "ours")


def _claims(claims: list[ClaimValue]) -> str:
    rows = []
    for value in claims:
        claim = value.claim
        mean = "" if value.mean is None else f"{number(value.mean, 3)} ± {number(value.error, 3)}"
        rows.append(
            markup.row(
                claim.statement,
                [
                    markup.marked_cell(markup.badge(value.verdict, VERDICTS[value.verdict])),
                    markup.number_cell(mean),
                    markup.number_cell(number(value.paper_mean, 3)),
                    markup.cell(f"{' / '.join(claim.better)} over {claim.worse}, {claim.split}", "words"),
                    markup.cell(value.details, "words"),
                ],
            )
        )
    header = ["claim", "verdict", "difference, ours", "paper's", "rows, split", "by data set"]
    return markup.table("Claims", header, rows, "differences in nats, positive where the claim says so", "prose")


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


def _pair(cell: CellValue) -> Pair:
    ours = cell.ours.test if cell.ours else None
    return Pair(cell.row, cell.paper.test, ours, cell.spread.test if cell.spread else None, cell.verdict)


def _trials_by_data(trials: list[TrialPoint], setting: str) -> list[Series]:
    series = []
    for tone, data in zip(TONES, MUSIC_SETS, strict=True):
        known = [trial for trial in trials if trial.data == data and setting in trial.settings]
        if known:
            points = [(trial.settings[setting], trial.gap) for trial in known]
            labels = [f"{trial.row} on {data}, slot {trial.slot}" for trial in known]
            series.append(Series(data, points, tone, joined=False, labels=labels))
    return series
