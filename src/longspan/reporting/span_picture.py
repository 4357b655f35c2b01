"""Which seeds solve a task over which span, by method: a dot for every seed, as SVG.

The picture stands alone, follows the reader's light or dark theme, and needs no script.
"""

from collections.abc import Sequence
from html import escape
from typing import Protocol, runtime_checkable

MARGIN, NAMES, GAP, HEAD, ROW = 10, 168, 28, 78, 26
RADIUS, DOT, BETWEEN = 4.5, 12, 18
"""Radius of a dot, distance between dots, and space between columns."""
STYLE = """
  text { font: 13px system-ui, sans-serif; fill: #24292f } .dim { fill: #57606a } .line { stroke: #d0d7de }
  circle { stroke: #2f6fb5; stroke-width: 1.3; fill: none } .solved { fill: #2f6fb5 }
  @media (prefers-color-scheme: dark) {
    text { fill: #e6edf3 } .dim { fill: #9198a1 } .line { stroke: #3d444d }
    circle { stroke: #6cb0ff } .solved { fill: #6cb0ff }
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
    """A row per method, a column per span, the tasks side by side; filled dots are seeds that solved the task."""
    tasks = sorted({point.task for point in points})
    spans = sorted({point.span for point in points})
    methods = list(dict.fromkeys(point.method for point in points))
    column = DOT * max((point.seeds for point in points), default=1) + BETWEEN
    panel = column * len(spans) + GAP
    width, height = MARGIN + NAMES + panel * len(tasks), HEAD + ROW * len(methods) + MARGIN
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img">',
        "<title>Which seeds solve a task, by span and method</title>",
        f"<style>{STYLE}</style>",
        f'<text x="{MARGIN}" y="22">Seeds that solve the task (filled), by its span in steps</text>',
    ]
    for row, method in enumerate(methods):
        y = HEAD + ROW * row
        parts.append(f'<line class="line" x1="{MARGIN}" x2="{width - MARGIN}" y1="{y}" y2="{y}"/>')
        parts.append(f'<text x="{MARGIN}" y="{y + 18}">{escape(method)}</text>')
    for number, task in enumerate(tasks):
        left = MARGIN + NAMES + panel * number
        parts.append(f'<text x="{left}" y="48">{escape(task)}</text>')
        parts += [f'<text class="dim" x="{left + column * at}" y="68">{span}</text>' for at, span in enumerate(spans)]
        for point in points:
            if point.task == task:
                x = left + column * spans.index(point.span) + RADIUS
                parts += _dots(point, x, HEAD + ROW * methods.index(point.method) + ROW / 2)
    return "\n".join([*parts, "</svg>\n"])


def _dots(point: Point, x: float, y: float) -> list[str]:
    solved = [' class="solved"' if seed < point.solved else "" for seed in range(point.seeds)]
    return [f'<circle{kind} cx="{x + DOT * seed:g}" cy="{y:g}" r="{RADIUS}"/>' for seed, kind in enumerate(solved)]
