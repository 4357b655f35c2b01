"""The share of seeds that solve a task against its span, one line per method, as SVG.

The picture stands alone, follows the reader's light or dark theme, and needs no script.
"""

import math
from collections.abc import Sequence
from html import escape
from typing import Protocol, runtime_checkable

PANEL_WIDTH, PANEL_HEIGHT, LEFT, TOP, BOTTOM, GAP = 330, 200, 56, 60, 44, 40
LEGEND_ROW = 20
COLORS = ("#2f6fb5", "#d1495b", "#66a182", "#b8860b", "#7b5ea7", "#3a9ea5", "#8c564b", "#e377a2", "#7f7f7f", "#4c8f2f")
STYLE = """
  text { font: 13px system-ui, sans-serif; fill: #24292f } .dim { fill: #57606a } .grid { stroke: #d0d7de }
  path { fill: none; stroke-width: 2.5 }
  @media (prefers-color-scheme: dark) {
    text { fill: #e6edf3 } .dim { fill: #9198a1 } .grid { stroke: #3d444d }
  }
"""


@runtime_checkable
class Point(Protocol):
    """What is drawn: seeds that solved a task at a span with a method."""

    @property
    def task(self) -> str: ...
    @property
    def span(self) -> int: ...
    @property
    def method(self) -> str: ...
    @property
    def solved(self) -> int: ...
    @property
    def seeds(self) -> int: ...


def draw(points: Sequence[Point]) -> str:
    """One panel per task, spans on a logarithmic axis; lines that coincide are drawn a little apart."""
    tasks = sorted({point.task for point in points})
    methods = list(dict.fromkeys(point.method for point in points))
    width = LEFT + len(tasks) * (PANEL_WIDTH + GAP)
    rows = -(-len(methods) // 3)
    height = TOP + PANEL_HEIGHT + BOTTOM + rows * LEGEND_ROW + 10
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img">',
        "<title>Share of seeds that solve a task, by span and method</title>",
        f"<style>{STYLE}</style>",
        '<text x="10" y="22">Share of seeds that solve the task, against its span in steps</text>',
    ]
    for number, task in enumerate(tasks):
        own = [point for point in points if point.task == task]
        parts += _panel(task, own, methods, LEFT + number * (PANEL_WIDTH + GAP))
    parts += _legend(methods, TOP + PANEL_HEIGHT + BOTTOM + 10, width)
    return "\n".join([*parts, "</svg>\n"])


def _panel(task: str, points: Sequence[Point], methods: list[str], left: float) -> list[str]:
    spans = sorted({point.span for point in points})
    parts = [f'<text x="{left}" y="{TOP - 12}">{escape(task)}</text>']
    for share in (0, 0.5, 1):
        y = _y(share)
        parts.append(f'<line class="grid" x1="{left}" x2="{left + PANEL_WIDTH}" y1="{y}" y2="{y}"/>')
        parts.append(f'<text class="dim" x="{left - 8}" y="{y + 4}" text-anchor="end">{share:.0%}</text>')
    for span in spans:
        x = left + _x(span, spans)
        parts.append(f'<text class="dim" x="{x:.1f}" y="{TOP + PANEL_HEIGHT + 22}" text-anchor="middle">{span}</text>')
    for number, method in enumerate(methods):
        own = sorted((point for point in points if point.method == method), key=lambda point: point.span)
        apart = 1.6 * (number - (len(methods) - 1) / 2)
        places = [(left + _x(point.span, spans), _y(point.solved / point.seeds) + apart) for point in own]
        color = COLORS[number % len(COLORS)]
        parts.append(f'<path stroke="{color}" d="M{"L".join(f"{x:.1f} {y:.1f}" for x, y in places)}"/>')
        parts += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3.5" fill="{color}"/>' for x, y in places]
    return parts


def _legend(methods: list[str], top: float, width: float) -> list[str]:
    parts, column = [], (width - LEFT) / 3
    for number, method in enumerate(methods):
        x, y = LEFT + column * (number % 3), top + LEGEND_ROW * (number // 3)
        parts.append(f'<path stroke="{COLORS[number % len(COLORS)]}" d="M{x:.0f} {y}h22"/>')
        parts.append(f'<text class="dim" x="{x + 30:.0f}" y="{y + 4}">{escape(method)}</text>')
    return parts


def _x(span: int, spans: list[int]) -> float:
    """The place of a span between the shortest and the longest, by its logarithm."""
    if len(spans) == 1:
        return PANEL_WIDTH / 2
    low, high = math.log(spans[0]), math.log(spans[-1])
    return 14 + (PANEL_WIDTH - 28) * (math.log(span) - low) / (high - low)


def _y(share: float) -> float:
    return round(TOP + PANEL_HEIGHT * (1 - share), 1)
