"""A picture as PNG, without an imaging library: antialiased boxes and labels on a NumPy canvas, compressed by zlib.

The edge of every shape is blended by its signed distance to each pixel's center, which rounds corners and smooths
strokes.
"""

import itertools
import math
import struct
import zlib

import numpy as np
from jaxtyping import Float, UInt8

from longspan.sampling.picture import INK, Box, Color, Label, Picture

SCALE = 2
"""Pixels per unit of the picture, so that it is sharp on high-resolution screens."""
GLYPH_SIZE = 8.0
STROKE = 1.1


def to_png(picture: Picture) -> bytes:
    """The bytes of a PNG file."""
    return encode(rasterize(picture))


def rasterize(picture: Picture) -> UInt8[np.ndarray, "height width 3"]:
    """The pixels of a picture, `SCALE` per unit."""
    canvas = np.full((round(picture.height * SCALE), round(picture.width * SCALE), 3), 255, np.uint8)
    for box in picture.boxes:
        _fill_box(canvas, box)
    for label in picture.labels:
        _write(canvas, label)
    return canvas


def encode(pixels: UInt8[np.ndarray, "height width 3"]) -> bytes:
    """Pack pixels as an 8-bit RGB PNG."""
    height, width, _ = pixels.shape
    rows = pixels.reshape(height, -1)
    # Each row is stored as its difference from the one above (filter 2): rows of a piano roll are mostly alike.
    differences = rows - np.concatenate([np.zeros_like(rows[:1]), rows[:-1]])
    filtered = np.concatenate([np.full((height, 1), 2, np.uint8), differences], axis=1)
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return b"".join(
        [
            b"\x89PNG\r\n\x1a\n",
            _chunk(b"IHDR", header),
            _chunk(b"IDAT", zlib.compress(filtered.tobytes())),
            _chunk(b"IEND", b""),
        ]
    )


def _chunk(kind: bytes, content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))


def _fill_box(canvas: UInt8[np.ndarray, "height width 3"], box: Box) -> None:
    half_width, half_height, radius = (SCALE * size for size in (box.width / 2, box.height / 2, box.radius))
    radius = min(radius, half_width, half_height)
    center_x, center_y = SCALE * box.x + half_width, SCALE * box.y + half_height
    rows, columns, y, x = _window(canvas, center_x, center_y, half_width, half_height)
    if not radius:
        # The covered fraction of each pixel is then a product, exact for edges between pixels.
        coverage = _overlap(y - center_y, half_height) * _overlap(x - center_x, half_width)
    else:
        beyond_x = np.abs(x - center_x) - (half_width - radius)
        beyond_y = np.abs(y - center_y) - (half_height - radius)
        corner = np.hypot(np.maximum(beyond_x, 0), np.maximum(beyond_y, 0))
        inside = np.minimum(np.maximum(beyond_x, beyond_y), 0)
        coverage = np.clip(0.5 + radius - (corner + inside), 0, 1)
    _blend(canvas[rows, columns], box.color, coverage)


def _overlap(offset: Float[np.ndarray, "..."], half: float) -> Float[np.ndarray, "..."]:
    """The fraction of a pixel, `offset` from the center of an interval of length `2 half`, within the interval."""
    return np.clip(np.minimum(offset + 0.5, half) - np.maximum(offset - 0.5, -half), 0, 1)


def _write(canvas: UInt8[np.ndarray, "height width 3"], label: Label) -> None:
    size = GLYPH_SIZE * SCALE
    advance = (WIDTH + SPACING) * size
    length = advance * len(label.text) - SPACING * size
    left = SCALE * label.x - (length if label.anchor == "end" else length / 2)
    top = SCALE * label.y - HEIGHT * size / 2
    for number, character in enumerate(label.text):
        strokes = GLYPHS[character] * size + (left + number * advance, top)
        _trace(canvas, strokes, STROKE * SCALE / 2)


def _trace(canvas: UInt8[np.ndarray, "height width 3"], points: Float[np.ndarray, "point 2"], radius: float) -> None:
    """Draw a line through points; a row of NaN lifts the pen."""
    low, high = np.nanmin(points, axis=0) - radius, np.nanmax(points, axis=0) + radius
    (center_x, center_y), (half_width, half_height) = (low + high) / 2, (high - low) / 2
    rows, columns, y, x = _window(canvas, center_x, center_y, half_width, half_height)
    distance = np.full(np.broadcast_shapes(x.shape, y.shape), np.inf)
    for (start_x, start_y), (end_x, end_y) in itertools.pairwise(points):
        step_x, step_y = end_x - start_x, end_y - start_y
        if np.isnan(step_x):
            continue
        along = ((x - start_x) * step_x + (y - start_y) * step_y) / max(step_x**2 + step_y**2, 1e-9)
        along = np.clip(along, 0, 1)
        distance = np.minimum(distance, np.hypot(x - start_x - along * step_x, y - start_y - along * step_y))
    _blend(canvas[rows, columns], INK, np.clip(0.5 + radius - distance, 0, 1))


def _window(canvas, center_x: float, center_y: float, half_width: float, half_height: float):
    """The pixels that a shape can touch, as slices, and the coordinates of their centers, which broadcast."""
    height, width, _ = canvas.shape
    top, bottom = max(math.floor(center_y - half_height), 0), min(math.ceil(center_y + half_height), height)
    left, right = max(math.floor(center_x - half_width), 0), min(math.ceil(center_x + half_width), width)
    y, x = np.arange(top, bottom)[:, None] + 0.5, np.arange(left, right)[None, :] + 0.5
    return slice(top, bottom), slice(left, right), y, x


def _blend(region: UInt8[np.ndarray, "height width 3"], color: Color, coverage: Float[np.ndarray, "..."]) -> None:
    if coverage.min(initial=1) == 1:  # backgrounds and lines, which are most of a picture
        region[...] = color
        return
    share = np.broadcast_to(coverage, region.shape[:2])[..., None]
    region[...] = np.rint(region + share * (np.array(color) - region)).astype(np.uint8)


WIDTH = 0.56
HEIGHT = 1.0
SPACING = 0.3
"""Space between two glyphs, including the width of a stroke."""

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
