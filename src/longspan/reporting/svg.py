"""Charts as a plain SVG picture for pages without a script; its colors follow the reader's light or dark theme."""

import math
from collections.abc import Callable, Sequence
from html import escape
from typing import NamedTuple

from longspan.reporting.charts import Chart, Series

STYLE = """
text { font: 12px system-ui, sans-serif; fill: #57606a } .title { font-weight: 600; font-size: 13px; fill: #24292f }
path { stroke-width: 2; fill: none; stroke: currentColor }
.grid { stroke: #d8dee4; stroke-width: 1 } .rule { stroke: #8c959f; stroke-width: 1; stroke-dasharray: 2 4 }
.band { stroke: none; fill: currentColor; opacity: .12 }
circle { fill: currentColor; opacity: .75 }
.first { color: #2f6fb3 } .second { color: #c2500f } .third { color: #7a4fa3 } .fourth { color: #2a7f62 }
.fifth { color: #a07a12 } .sixth { color: #b33a6d } .quiet { color: #8c959f }
@media (prefers-color-scheme: dark) {
  text { fill: #9198a1 } .title { fill: #e6edf3 } .grid { stroke: #30363d }
  .first { color: #74aee8 } .second { color: #f0975a } .third { color: #c19ce6 } .fourth { color: #6cc7a3 }
  .fifth { color: #ddc06a } .sixth { color: #ee8fb2 }
}
"""
WIDTH, GAP = 840, 24
TOP, BOTTOM, LEFT, RIGHT = 62, 40, 50, 8
SMALL_TOP = 40
"""Room above a chart without a legend of its own."""


class Scale(NamedTuple):
    """Maps values to pixels."""

    place: Callable[[float], float]
    ticks: list[float]


def picture(charts: Sequence[Chart], about: str) -> str:
    """Charts side by side, two to a row, or three if they are small."""
    columns = 3 if all(chart.small for chart in charts) else 2
    width = (WIDTH - GAP * (columns - 1)) / columns
    height = 200 if columns == 3 else 300
    rows = math.ceil(len(charts) / columns)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {rows * (height + GAP) - GAP}" role="img">',
        f"<title>{escape(about)}</title><style>{STYLE}</style>",
    ]
    for number, chart in enumerate(charts):
        x, y = (number % columns) * (width + GAP), (number // columns) * (height + GAP)
        parts.append(f'<g transform="translate({x:.1f} {y})">{_chart(chart, width, height)}</g>')
    return "\n".join([*parts, "</svg>\n"])


def _chart(chart: Chart, width: float, height: float) -> str:
    points = [point for series in chart.series for point in series.points]
    bands = [end for series in chart.series for ends in series.band for end in ends]
    rules = [rule.at for rule in chart.rules if rule.axis == "y"]
    heights = chart.y_range or [y for _, y in points] + bands + rules
    top = SMALL_TOP if chart.small else TOP
    x = _scale([x for x, _ in points], LEFT, width - RIGHT, log=chart.x_log)
    y = _scale(heights, height - BOTTOM, top, log=chart.y_log)
    parts = [f'<text class="title" x="0" y="13">{escape(chart.title)}</text>']
    parts += [] if chart.small else _legend(chart.series, width)
    parts.append(f'<text x="0" y="{top - 10}">{escape(chart.y)}</text>')
    parts.append(f'<text x="{width - RIGHT:.1f}" y="{height - 4}" text-anchor="end">{escape(chart.x)}</text>')
    for tick in y.ticks:
        at = y.place(tick)
        parts.append(f'<path class="grid" d="M{LEFT} {at:.1f}H{width - RIGHT:.1f}"/>')
        parts.append(f'<text x="{LEFT - 5}" y="{at + 4:.1f}" text-anchor="end">{_number(tick)}</text>')
    for tick in x.ticks:
        parts.append(f'<text x="{x.place(tick):.1f}" y="{height - 22}" text-anchor="middle">{_number(tick)}</text>')
    parts += [f'<path class="rule" d="M{LEFT} {y.place(at):.1f}H{width - RIGHT:.1f}"/>' for at in rules]
    parts += [_series(series, x, y) for series in chart.series if series.points]
    return "\n".join(parts)


def _series(series: Series, x: Scale, y: Scale) -> str:
    places = [(x.place(at), y.place(value)) for at, value in series.points]
    if not series.joined:
        marks = (
            f'<path d="M{left - 3:.1f} {top - 3:.1f}l6 6m0 -6l-6 6"/>'
            if series.mark == "cross"
            else f'<circle cx="{left:.1f}" cy="{top:.1f}" r="3.2"/>'
            for left, top in places
        )
        return f'<g class="{series.tone}">{"".join(marks)}</g>'
    band = ""
    if series.band:
        edges = [
            [(left, y.place(ends[end])) for (left, _), ends in zip(places, series.band, strict=True)] for end in (0, 1)
        ]
        band = f'<path class="band" d="{_path([*edges[0], *reversed(edges[1])])}Z"/>'
    return f'<g class="{series.tone}">{band}<path d="{_path(places)}"/></g>'


def _legend(series: Sequence[Series], width: float) -> list[str]:
    parts, left = [], 0.0
    for each in series:
        room = 34 + 6.6 * len(each.name)
        if left + room > width + 12:
            break
        parts.append(f'<path class="{each.tone}" d="M{left:.0f} 28h16"/>')
        parts.append(f'<text x="{left + 21:.0f}" y="32">{escape(each.name)}</text>')
        left += room
    return parts


def _path(places: Sequence[tuple[float, float]]) -> str:
    return "M" + "L".join(f"{left:.1f} {top:.1f}" for left, top in places)


def _scale(values: Sequence[float], start: float, end: float, *, log: bool) -> Scale:
    """A scale over some values, with a little room on both sides; values beyond it are drawn at its ends."""
    warped = [math.log10(value) if log else value for value in values]
    low, high = min(warped), max(warped)
    close = high - low <= CLOSE * max(abs(low), abs(high))
    room = max(0.5, CLOSE * abs(low)) if close else 0.04 * (high - low)
    low, high = low - room, high + room

    def place(value: float) -> float:
        share = ((math.log10(value) if log else value) - low) / (high - low)
        return start + min(1.0, max(0.0, share)) * (end - start)

    return Scale(place, _decades(low, high) if log else _ticks(low, high))


CLOSE = 1e-6
"""Share of two numbers below which their difference is not drawn: the ticks between them would all look alike."""
SMALLEST_POWER = -323
"""Of ten, that is not zero."""


def _decades(low: float, high: float) -> list[float]:
    low = max(low, SMALLEST_POWER)
    whole = range(math.ceil(low), math.floor(high) + 1)
    if len(whole) > 1:
        return [10.0**power for power in whole]
    return [
        f * 10.0**p
        for p in range(math.floor(low), math.ceil(high) + 1)
        for f in (1, 2, 5)
        if low <= math.log10(f) + p <= high
    ]


def _ticks(low: float, high: float) -> list[float]:
    rough = (high - low) / 5
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= 0.999 * rough)
    return [number * step for number in range(math.ceil(low / step), math.floor(high / step) + 1)]


def _number(value: float) -> str:
    text = f"{value:.3g}" if 1e-3 <= abs(value) < 1e5 or abs(value) < 1e-9 else f"{value:.0e}"
    return ("0" if abs(value) < 1e-9 else f"{value:,.0f}" if abs(value) >= 1000 else text).replace("-", "−")
