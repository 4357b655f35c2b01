"""The part of a page that is about the paper's tables: ours beside the paper's, the claims, all trials."""

from html import escape

from longspan.paper import MUSIC_SETS
from longspan.reporting import markup
from longspan.reporting.charts import TONES, results_charts, trials_charts
from longspan.reporting.paper_claims import RULE, ClaimValue
from longspan.reporting.results_values import METRIC_NAMES, CellValue, ResultsValues, beside_test
from longspan.search.cells import Figures, TableName

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
VERDICTS = {"supported": "good", "not supported": "bad", "undecided": ""}


def results_content(values: ResultsValues) -> str:
    """All of the tables but their heading."""
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
        about = (
            "Trials of each music cell's best search: how far their validation scores stayed below that of the winner."
        )
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
        made.append(markup.table(data, header, rows, METRIC_NAMES[cells[0].metric]))
    return made


def _row(cell: CellValue, *, music: bool) -> str:
    paper, ours, spread = cell.paper, cell.ours, cell.spread
    cells = [markup.cell(markup.number(paper.test)), _ours(cell)]
    cells += [markup.cell(markup.number(paper.train)), markup.cell(_with_spread(ours, spread, "train"))]
    if music:
        cells += [
            markup.cell(markup.number(100 * paper.accuracy if paper.accuracy is not None else None)),
            markup.cell(_with_spread(ours, spread, "accuracy", 100.0)),
        ]
    cells += [markup.cell(str(cell.tried or "")), markup.cell(str(cell.seeds or ""))]
    return markup.row(cell.row, cells)


def _ours(cell: CellValue) -> str:
    if cell.ours is None:
        return markup.marked_cell(markup.badge("diverged", "bad") if cell.verdict == "diverged" else "")
    shown = markup.number(cell.ours.test) + beside_test(cell).replace("-", "−")
    kind = "good" if cell.verdict == "reaches" else "bad"
    return markup.marked_cell(f'<span class="{kind}-text">{shown}{" ✓" if kind == "good" else ""}</span>', "ours")


def _with_spread(ours: Figures | None, spread: Figures | None, name: str, scale: float = 1.0) -> str:
    value = getattr(ours, name, None)
    if value is None:
        return ""
    error = getattr(spread, name, None)
    return markup.number(scale * value) + ("" if error is None else f" ± {scale * error:.2f}")


def _claims(claims: list[ClaimValue]) -> str:
    rows = []
    for value in claims:
        claim = value.claim
        mean = "" if value.mean is None else f"{markup.number(value.mean, 3)} ± {markup.number(value.error, 3)}"
        rows.append(
            markup.row(
                claim.statement,
                [
                    markup.marked_cell(markup.badge(value.verdict, VERDICTS[value.verdict])),
                    markup.cell(mean),
                    markup.cell(markup.number(value.paper_mean, 3)),
                    markup.cell(f"{' / '.join(claim.better)} over {claim.worse}, {claim.split}", "words"),
                    markup.cell(value.details, "words"),
                ],
            )
        )
    header = ["claim", "verdict", "difference, ours", "paper's", "rows, split", "by data set"]
    return markup.table("Claims", header, rows, "differences in nats, positive where the claim says so", "prose")
