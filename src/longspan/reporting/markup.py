"""The HTML elements of a report, whose text all goes through `escape`, and tables of Markdown pages."""

from collections.abc import Sequence
from html import escape

from longspan import webpage
from longspan.files import in_markdown
from longspan.metrics import setting
from longspan.reporting.charts import Chart, PairChart

PLAY = '<svg viewBox="0 0 12 12" aria-hidden="true"><path d="M1 0l11 6l-11 6z"/></svg>'


def tile(what: str, value: str, beside: str = "") -> str:
    """A highlighted figure; `beside` is markup."""
    below = f'<span class="beside">{beside}</span>' if beside else ""
    named = f'<span class="what">{escape(what)}</span><span class="value">{escape(value)}</span>'
    return f'<li class="tile">{named}{below}</li>'


def tiles(items: Sequence[str]) -> str:
    return f'<ul class="tiles">{"".join(items)}</ul>'


def badge(text: str, kind: str = "") -> str:
    """A verdict; `kind` is `good`, `bad` or nothing."""
    return f'<span class="badge {kind}">{escape(text)}</span>'


def grid(figures: Sequence[str], kind: str = "") -> str:
    return f'<div class="grid {kind}">{"".join(figures)}</div>' if figures else ""


def chart_figure(chart: Chart) -> str:
    """A chart, drawn by the script from the values inside it."""
    beyond = f"{chart.beyond} far out of the frame" if chart.beyond else ""
    return _figure("chart", chart.title, chart, beyond)


def pairs_figure(chart: PairChart) -> str:
    """Our numbers beside the paper's, drawn by the script."""
    return _figure("pairs", chart.title, chart)


def _figure(kind: str, title: str, values: Chart | PairChart, note: str = "") -> str:
    small = f" <small>{escape(note)}</small>" if note else ""
    return (
        f'<figure class="{kind}"><figcaption>{escape(title)}{small}</figcaption>'
        f'<div class="plot"></div>{webpage.embedded(values)}</figure>'
    )


def legend(names: Sequence[tuple[str, str]]) -> str:
    """The meaning of the dots of each tone, once for several charts."""
    items = (f'<li><i class="dot tone-{tone}"></i>{escape(name)}</li>' for name, tone in names)
    return f'<ul class="legend">{"".join(items)}</ul>'


def table(title: str, header: Sequence[str], rows: Sequence[str], note: str = "", kind: str = "") -> str:
    """A table that scrolls sideways on a narrow screen; `rows` are made by `row`."""
    head = "".join(f'<th scope="col">{escape(name)}</th>' for name in header)
    small = f" <small>{escape(note)}</small>" if note else ""
    return (
        f'<div class="table {kind}"><p class="table-title">{escape(title)}{small}</p>'
        f'<div class="scroll" tabindex="0" role="region" aria-label="{escape(title)}">'
        f'<table aria-label="{escape(title)}"><thead><tr>{head}</tr></thead>'
        f"<tbody>{''.join(rows)}</tbody></table></div></div>"
    )


def row(name: str, cells: Sequence[str], kind: str = "") -> str:
    """A row of a table; `cells` are made by `cell`."""
    opening = f'<tr class="{kind}">' if kind else "<tr>"
    return f'{opening}<th scope="row">{escape(name)}</th>{"".join(cells)}</tr>'


def cell(text: str, kind: str = "") -> str:
    """A cell of text."""
    return marked_cell(escape(text), kind)


def marked_cell(markup: str, kind: str = "") -> str:
    """A cell of markup."""
    return f'<td class="{kind}">{markup}</td>' if kind else f"<td>{markup}</td>"


def details(summary: str, content: str) -> str:
    return f"<details><summary>{escape(summary)}</summary>{content}</details>"


def number_cell(text: str) -> str:
    """A cell with a formatted number."""
    return cell(true_minus(text))


def setting_cell(value: object) -> str:
    """A cell with the value of a setting."""
    return number_cell(setting(value)) if isinstance(value, int | float) else cell(setting(value))


def true_minus(text: str) -> str:
    """A formatted number with a minus sign instead of a hyphen."""
    return text.replace("-", "−")


def markdown_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table of a Markdown page; all columns but the first are right-aligned."""
    rule = ["---" if index == 0 else "---:" for index in range(len(header))]
    safe = [[in_markdown(cell).replace("|", "¦") for cell in row] for row in rows]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in (header, rule, *safe)) + "\n"
