"""Draws docs/gradient-by-lag.svg: how long the gradient of a step's loss still is, lag by lag, in trained models.

    longspan diagnose RUN --json > one.json
    python -m benchmarks.gradient_picture "chorales=one.json" "temporal order=two.json"

Plain SVG whose colors follow the reader's light or dark theme.
"""

import json
import math
import sys
from pathlib import Path

TARGET = Path("docs/gradient-by-lag.svg")
WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 760, 300, 70, 20, 70, 40
LAGS, DECADES = 50, 6
STYLE = """
  text { font: 13px system-ui, sans-serif; fill: #24292f } .dim { fill: #57606a } .grid { stroke: #d0d7de }
  path { fill: none; stroke-width: 2.5 } .a { stroke: #2f6fb5 } .b { stroke: #d1495b } .c { stroke: #66a182 }
  @media (prefers-color-scheme: dark) {
    text { fill: #e6edf3 } .dim { fill: #9198a1 } .grid { stroke: #3d444d }
  }
"""


def draw(profiles: dict[str, list[float]]) -> str:
    """The picture as SVG: one line per model, relative to lag 0, on a logarithmic axis."""
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img">']
    parts += ["<title>Length of the gradient by lag, relative to lag 0</title>", f"<style>{STYLE}</style>"]
    parts.append('<text x="10" y="22">Length of the gradient that a step\'s loss sends back, relative to lag 0</text>')
    parts += _grid()
    for number, (kind, (label, profile)) in enumerate(zip("abc", profiles.items(), strict=False)):
        left = LEFT + 330 * number
        parts.append(f'<path class="{kind}" d="M{left} 42h22"/>')
        parts.append(f'<text class="dim" x="{left + 30}" y="46">{label}</text>')
        parts.append(f'<path class="{kind}" d="{_line(profile)}"/>')
    return "\n".join([*parts, "</svg>\n"])


def _x(lag: float) -> float:
    return LEFT + (WIDTH - LEFT - RIGHT) * lag / LAGS


def _y(share: float) -> float:
    """From ten times the length at lag 0, at the top, down to `DECADES` powers of ten below it."""
    return TOP + (HEIGHT - TOP - BOTTOM) * (1 - math.log10(share)) / (DECADES + 1)


def _grid() -> list[str]:
    parts = []
    for power in range(1, -DECADES - 1, -1):
        y = _y(10.0**power)
        parts.append(f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>')
        label = {1: "10", 0: "1"}.get(power, f'10<tspan dy="-5" font-size="9">{power}</tspan>')
        parts.append(f'<text class="dim" x="{LEFT - 34}" y="{y + 4:.1f}" font-size="12">{label}</text>')
    for lag in range(0, LAGS + 1, 10):
        text = f"{lag} steps back" if lag == LAGS else str(lag)
        anchor = "end" if lag == LAGS else "middle"
        parts.append(f'<text class="dim" x="{_x(lag):.1f}" y="{HEIGHT - 14}" text-anchor="{anchor}">{text}</text>')
    return parts


def _line(profile: list[float]) -> str:
    """The path of a profile, as far as it is on the picture."""
    shares = [value / profile[0] for value in profile[: LAGS + 1]]
    shown = [share for share in shares if share > 10.0**-DECADES]
    return "M" + "L".join(f"{_x(lag):.1f} {_y(share):.1f}" for lag, share in enumerate(shown))


def main() -> None:
    files = dict(argument.split("=", 1) for argument in sys.argv[1:])
    TARGET.write_text(
        draw(
            {
                label: json.loads(Path(file).read_text())["measures"]["gradient"]["norms"]
                for label, file in files.items()
            }
        )
    )
    print(f"{TARGET} drawn from {', '.join(files.values())}")


if __name__ == "__main__":
    main()
