"""The few characters of a piano roll's labels, as strokes: digits, C and minus.

Each glyph is a row of points (x to the right, y down) in a box `WIDTH` wide and 1 high; a row of NaN lifts the pen.
"""

import numpy as np
from jaxtyping import Float

WIDTH = 0.56
HEIGHT = 1.0
SPACING = 0.3
"""Between two glyphs; the width of a stroke comes off it."""

_MIDDLE = WIDTH / 2


def _points(*points: tuple[float, float]) -> Float[np.ndarray, "point 2"]:
    return np.array(points)


def _arc(
    x: float, y: float, radius_x: float, radius_y: float, start: float, stop: float
) -> Float[np.ndarray, "point 2"]:
    """Part of an ellipse around (x, y), in degrees clockwise from three o'clock."""
    angles = np.radians(np.linspace(start, stop, 25))
    return np.stack([x + radius_x * np.cos(angles), y + radius_y * np.sin(angles)], axis=1)


def _strokes(*lines: Float[np.ndarray, "_ 2"]) -> Float[np.ndarray, "point 2"]:
    lift = np.full((1, 2), np.nan)
    return np.concatenate([part for line in lines for part in (line, lift)][:-1])


GLYPHS: dict[str, Float[np.ndarray, "point 2"]] = {
    "0": _arc(_MIDDLE, 0.5, _MIDDLE, 0.5, 0, 360),
    "1": _points((0.10, 0.20), (0.34, 0.0), (0.34, 1.0)),
    "2": _strokes(np.concatenate([_arc(_MIDDLE, 0.27, _MIDDLE, 0.27, 190, 395), _points((0.0, 1.0), (WIDTH, 1.0))])),
    "3": _strokes(_arc(_MIDDLE, 0.24, 0.25, 0.24, 200, 450), _arc(_MIDDLE, 0.73, _MIDDLE, 0.27, 270, 520)),
    "4": _strokes(_points((0.42, 1.0), (0.42, 0.0), (0.0, 0.70), (WIDTH, 0.70))),
    "5": np.concatenate(
        [_points((0.50, 0.0), (0.10, 0.0), (0.05, 0.46)), _arc(_MIDDLE, 0.68, _MIDDLE, 0.32, 225, 515)]
    ),
    "6": _strokes(
        _arc(_MIDDLE, 0.69, _MIDDLE, 0.31, 0, 360),
        np.concatenate([_points((0.0, 0.69)), _arc(0.36, 0.55, 0.36, 0.55, 190, 290)]),
    ),
    "7": _points((0.0, 0.0), (WIDTH, 0.0), (0.18, 1.0)),
    "8": _strokes(_arc(_MIDDLE, 0.24, 0.25, 0.24, 0, 360), _arc(_MIDDLE, 0.74, _MIDDLE, 0.26, 0, 360)),
    "9": _strokes(
        _arc(_MIDDLE, 0.31, _MIDDLE, 0.31, 0, 360),
        np.concatenate([_points((WIDTH, 0.31)), _arc(0.20, 0.45, 0.36, 0.55, 10, 110)]),
    ),
    "C": _arc(0.34, 0.5, 0.34, 0.5, 310, 50),
    "-": _points((0.08, 0.55), (0.48, 0.55)),
}
