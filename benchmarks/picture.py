"""Draws docs/speed.svg from the saved figures: how many times as long an update takes elsewhere.

    python -m benchmarks.picture

Plain SVG whose colors follow the reader's light or dark theme.
"""

import json
import math
from pathlib import Path

FIGURES, TARGET = Path("results/benchmarks/training_step.json"), Path("docs/speed.svg")
OTHERS = {"PyTorch eager": "a", "PyTorch by hand": "b", "JAX custom rule": "c"}
THREADS = {1: "one thread", 2: "two threads"}
WIDTH, LEFT, BAR, GAP, TOP = 760, 190, 13, 16, 64
STYLE = """
  text { font: 13px system-ui, sans-serif; fill: #24292f } .dim { fill: #57606a } .grid { stroke: #d0d7de }
  .a { fill: #d1495b } .b { fill: #edae49 } .c { fill: #66a182 }
  @media (prefers-color-scheme: dark) {
    text { fill: #e6edf3 } .dim { fill: #9198a1 } .grid { stroke: #3d444d }
  }
"""


def draw(figures: dict) -> str:
    """The picture as SVG: a group of bars a regime, on a logarithmic axis that starts at ours."""
    regimes = sorted(figures["regimes"], key=lambda regime: (regime["batch"], regime["units"]))
    others = {name: kind for name, kind in OTHERS.items() if name in regimes[0]["ratios"]}
    most = max(max(regime["ratios"][name] for name in others) for regime in regimes)
    room = WIDTH - LEFT - 60
    ticks = [tick for tick in (1, 2, 5, 10, 20, 50, 100) if tick < 1.3 * most]

    def x(ratio: float) -> float:
        return LEFT + room * max(0.0, math.log(ratio)) / math.log(1.15 * most)

    group = len(others) * BAR + GAP
    height = TOP + len(regimes) * group + 10
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img">']
    parts += ["<title>Time of one update, as a multiple of longspan's</title>", f"<style>{STYLE}</style>"]
    threads = THREADS[figures["machine"]["threads"]]
    heading = f"Time of one training update, as a multiple of longspan's (1x), {threads} each"
    parts.append(f'<text x="10" y="22">{heading}</text>')
    for number, (name, kind) in enumerate(others.items()):
        left = LEFT + 150 * number
        parts.append(f'<rect class="{kind}" x="{left}" y="34" width="12" height="12" rx="2"/>')
        parts.append(f'<text class="dim" x="{left + 18}" y="45">{name}</text>')
    for tick in ticks:
        parts.append(f'<line class="grid" x1="{x(tick):.1f}" x2="{x(tick):.1f}" y1="{TOP - 8}" y2="{height - 8}"/>')
        parts.append(f'<text class="dim" x="{x(tick) + 3:.1f}" y="{TOP + 2}" font-size="11">{tick}x</text>')
    for number, regime in enumerate(regimes):
        top = TOP + 10 + number * group
        label = f"batch {regime['batch']}, {regime['units']} units"
        middle = top + len(others) * BAR // 2 + 4
        parts.append(f'<text x="{LEFT - 10}" y="{middle}" text-anchor="end">{label}</text>')
        for place, (name, kind) in enumerate(others.items()):
            ratio, y = regime["ratios"][name], top + place * BAR
            length = max(1.0, x(ratio) - LEFT)
            parts.append(f'<rect class="{kind}" x="{LEFT}" y="{y}" width="{length:.1f}" height="{BAR - 2}" rx="2"/>')
            parts.append(
                f'<text class="dim" x="{LEFT + length + 5:.1f}" y="{y + 10}" font-size="11">{ratio:.1f}x</text>'
            )
    return "\n".join([*parts, "</svg>\n"])


def main() -> None:
    TARGET.parent.mkdir(exist_ok=True)
    TARGET.write_text(draw(json.loads(FIGURES.read_text())))
    print(f"{TARGET} drawn from {FIGURES}")


if __name__ == "__main__":
    main()
