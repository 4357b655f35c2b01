"""The page of results, docs/results.md: the paper's tables, the paper's protocol and our best, as Markdown."""

from collections.abc import Sequence

from longspan.files import in_markdown
from longspan.metrics import number, setting
from longspan.reporting.markup import markdown_table
from longspan.reproduction import gated
from longspan.reproduction.past import REPEATS_HEADER, Repeating, repeats_cells, with_spread
from longspan.reproduction.tables import TableName
from longspan.reproduction.values import (
    CellValue,
    GatedCellValue,
    PaperCellValue,
    ResultsValues,
    protocol_of,
    test_of,
)

HEADING = """# Results

{cells} of the paper's two tables, computed by `longspan reproduce`, beside the paper's own numbers. This page is
generated from the files under `results/` by `longspan reproduce --render-only`; do not edit it.

Two columns of ours answer two questions:

- *Paper's protocol* is the paper's own regime: no dropout, no averaged weights, nothing tuned by hand. Every row has
  the same number of slots and of updates, validation chooses one slot, and its settings are trained again with fresh
  seeds and scored on the test split: mean ± standard deviation over seeds. It may be called a reproduction, better or
  worse than the paper. Where the column is empty, the [study](claims.md) has not come that far.
- *Our best* is how well these networks can be trained by this program: hand-tuned recipes, with dropout and averaged
  weights, which the paper used neither of. It says nothing about which of the paper's methods helps, and it reproduces
  nothing.

A cell of our best is one or more random searches over the paper's intervals and our additions to them (docs/search.md).
The first trial of each is the recipe as it was shipped at the time; {won}.
Recipes were tuned by hand on the validation split beforehand, in runs that were not counted. *Trials* counts the runs
of the searches alone, and cells differ in it. The winner is the trial with the best *validation* score; a search scores
its winner on the test split once, and of several searches the one with the best validation score counts. Dropout hides
some hidden units from the output layer in training, and averaging keeps the mean of the weights over recent updates
instead of the last weights.

Numbers of our best are means over seeds of the winning settings, ± standard deviation where there are several; after
"est." stands the standard error of a likelihood that can only be estimated (none is given on the training split, where
the estimate is rougher). A mean in bold equals or beats the paper's number, rounded to two decimals; accuracy is not
judged. *Seeds* says over how many runs a mean was taken.

*With memory* is the recipe with the letter W: the network and a memory of the same song or text, fitted on
validation. It is an exact likelihood of the past alone, but not what the rows of the paper do ([memory.md](memory.md)).
"""

CLAIMS = """Whether each method helps is judged by the paired comparison, not by these tables: [claims.md](claims.md).
"""

REPEATS = """A frame is a repeat if the song went on with it before, after the longest match of the frames just heard.
The price of a repeat is the mean loss there over that at all other frames: 0 for a network that remembers, 1 for one
that has no idea. A Markov chain per key, which remembers nothing, is below 1, since repeats are easier in themselves.
All figures are of networks alone, with nothing copied, on the whole test split, means over seeds ± standard deviation;
the letter T tells a network as an input what followed before ([memory.md](memory.md)). The last columns say what it
loses, in nats per frame, when its state is cut off.
"""

SETTINGS_SHOWN = {
    "hidden_size": "units",
    "activation": "activation",
    "learning_rate": "learning rate",
    "learning_rate_schedule": "schedule",
    "momentum": "momentum",
    "momentum_schedule": "momentum schedule",
    "clip": "clip",
    "l1": "L1",
    "dropout": "dropout",
    "averaging": "averaging",
    "leaky_share": "leaky share",
    "recurrent_scale": "recurrent scale",
    "input_scale": "input scale",
}
GATED_SETTINGS_SHOWN = {name: shown for name, shown in SETTINGS_SHOWN.items() if name not in ("l1", "leaky_share")}
GATED_SETTINGS_SHOWN |= {"layer_dropout": "dropout between layers", "lanes": "lanes", "chunk_length": "chunk"}


def render_page(values: ResultsValues) -> str:
    """The page as Markdown."""
    complete = all(cell.verdict != "missing" for cell in values.cells)
    heading = HEADING.format(cells="Every cell" if complete else "Cells", won=_won(values.cells))
    parts = [heading, _summary(values)]
    parts += ["## Table 1: music\n", *_table(values, "table1")]
    parts += ["## Table 2: text\n", *_table(values, "table2")]
    parts += ["## Gated networks\n", *_gated(values.gated)]
    parts += ["## What a repeat costs\n", _repeats(values.repeats)]
    parts += ["## The paper's claims\n", CLAIMS]
    parts += ["## Where our best is behind\n", _behind(values.cells)]
    parts += ["## Winning settings\n", _settings(values.cells, SETTINGS_SHOWN)]
    parts += ["## Computed with\n", _environments(values.environments)]
    return "\n".join(parts)


def _won(cells: list[PaperCellValue]) -> str:
    known = [cell for cell in cells if cell.ours is not None]
    first = sum(cell.slot == 0 for cell in known)
    return f"in {first} of {len(known)} cells that first trial won"


def _summary(values: ResultsValues) -> str:
    lines = []
    for what, cells in (("music", values.of("table1")), ("text", values.of("table2"))):
        reaching = sum(cell.verdict == "reaches" for cell in cells)
        known = sum(cell.verdict != "missing" for cell in cells)
        once = sum(cell.seeds == 1 for cell in cells)
        lines.append(
            f"Of {len(cells)} {what} cells {known} have a result of our best; by the mean over seeds {reaching} are "
            f"at or better than the paper. {once} have one seed only."
        )
    pairs = [(cell.ours.accuracy, cell.paper.accuracy) for cell in values.of("table1") if cell.ours]
    accurate = sum(ours is not None and theirs is not None and ours >= theirs for ours, theirs in pairs)
    lines.append(f"By accuracy, which was not used for selection, {accurate} of {len(pairs)} music cells are.")
    return "\n".join(f"- {line}" for line in lines) + "\n"


def _table(values: ResultsValues, table: TableName) -> list[str]:
    """One Markdown table per data set."""
    parts = []
    for data in dict.fromkeys(cell.data for cell in values.of(table)):
        cells = [cell for cell in values.of(table) if cell.data == data]
        parts.append(f"### {data}\n\n{cells[0].described_metric.capitalize()}.\n")
        music = table == "table1"
        header = ["", "train, paper", "train, our best", "test, paper", "test, paper's protocol", "test, our best"]
        header += ["test, with memory of the song" if music else "test, with memory of the text"]
        header += ["accuracy %, paper", "accuracy %, our best"] if music else []
        header += ["seeds", "trials", "frames/s" if music else "symbols/s"]
        rows = [_row(cell, music=music) for cell in cells]
        parts.append(markdown_table(header, rows))
    return parts


def _row(cell: PaperCellValue, *, music: bool) -> list[str]:
    ours, spread = cell.ours, cell.spread
    train = with_spread(ours.train if ours else None, spread.train if spread else None)
    test = "diverged" if cell.verdict == "diverged" else test_of(cell)
    test = f"**{test}**" if cell.verdict == "reaches" else test
    row = [cell.row, number(cell.paper.train), train, number(cell.paper.test), protocol_of(cell), test]
    row += [str(cell.remembering or "")]
    if music:
        accuracy = with_spread(_percent(ours.accuracy if ours else None), _percent(spread.accuracy if spread else None))
        row += [number(_percent(cell.paper.accuracy)), accuracy]
    speed = "" if cell.frames_per_second is None else f"{cell.frames_per_second:,.0f}"
    return [*row, str(cell.seeds or ""), str(cell.tried or ""), speed]


def _repeats(rows: list[Repeating]) -> str:
    if not rows:
        return "Not measured yet.\n"
    return f"{REPEATS}\n{markdown_table(REPEATS_HEADER, [repeats_cells(row) for row in rows])}"


def _behind(cells: list[PaperCellValue]) -> str:
    found = sorted(
        (cell for cell in cells if cell.verdict == "behind"), key=lambda cell: cell.behind or 0.0, reverse=True
    )
    lines = [
        f"- {cell.row} on {cell.data}: {number(cell.ours.test)} against {number(cell.paper.test)} "
        f"({100 * cell.behind:.1f} % of the paper's nats; trials: {cell.tried})."
        + (f" {in_markdown(cell.remark)}" if cell.remark else "")
        for cell in found
        if cell.ours is not None and cell.behind is not None
    ]
    lines += [
        f"- {cell.row} on {cell.data}: every trial diverged." + (f" {in_markdown(cell.remark)}" if cell.remark else "")
        for cell in cells
        if cell.verdict == "diverged"
    ]
    return "\n".join(lines or ["Nowhere, among the cells that have a result."]) + "\n"


def _gated(cells: list[GatedCellValue]) -> list[str]:
    """One Markdown table per data set, and the settings that won."""
    if not cells:
        return [f"{gated.NONE_YET}\n"]
    parts = [f"{gated.ABOUT}\n"]
    for data, alike in gated.by_data(cells).items():
        rows = [gated.gated_cells(cell) for cell in alike]
        for cell, row in zip(alike, rows, strict=True):
            row[gated.OURS] = f"**{row[gated.OURS]}**" if cell.gains else row[gated.OURS]
        parts.append(f"### {data}, gated\n\n{alike[0].described_metric.capitalize()}.\n")
        parts.append(markdown_table(gated.gated_header(alike[0]), rows))
    return [*parts, "### Winning settings, gated\n", _settings(cells, GATED_SETTINGS_SHOWN)]


def _settings(cells: Sequence[CellValue], shown: dict[str, str]) -> str:
    rows = [
        [cell.row, cell.data, *(setting(cell.settings.get(name)) for name in shown), _ended(cell)]
        for cell in cells
        if cell.ours is not None
    ]
    return markdown_table(["", "data", *shown.values(), "epochs"], rows) if rows else "None yet.\n"


def _ended(cell: CellValue) -> str:
    return f"{cell.epochs}" + ("" if cell.time_limit is None else f", cut at {cell.time_limit:g} s")


def _environments(environments: list[dict[str, str]]) -> str:
    lines = ["- " + in_markdown(", ".join(f"{name} {value}" for name, value in each.items())) for each in environments]
    return "\n".join(lines or ["Nothing yet."]) + "\n"


def _percent(value: float | None) -> float | None:
    return None if value is None else 100 * value
