"""A picture as PNG, without an imaging library: smooth boxes and labels on a NumPy canvas, packed by zlib.

The edge of every shape is blended by its signed distance to each pixel's centre, which rounds corners and smooths
strokes alike.
"""

import itertools
import math
import struct
import zlib

import numpy as np
from jaxtyping import Float, UInt8

from longspan.sampling.glyphs import GLYPHS, HEIGHT, SPACING, WIDTH
from longspan.sampling.picture import INK, Box, Colour, Label, Picture

SCALE = 2
"""Pixels for each unit of the picture, so that it is sharp on dense screens."""
GLYPH_SIZE = 8.0
STROKE = 1.1


def to_png(picture: Picture) -> bytes:
    """The bytes of a PNG file."""
    return encode(rasterize(picture))


def rasterize(picture: Picture) -> UInt8[np.ndarray, "height width 3"]:
    """The pixels of a picture, `SCALE` for each of its units."""
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
    # Each row is stored as its difference to the one above (filter 2): rows of a piano roll are mostly alike.
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
    centre_x, centre_y = SCALE * box.x + half_width, SCALE * box.y + half_height
    rows, columns, y, x = _window(canvas, centre_x, centre_y, half_width, half_height)
    if not radius:
        # The share of each pixel that lies inside is then a product, exact for edges between pixels.
        coverage = _overlap(y - centre_y, half_height) * _overlap(x - centre_x, half_width)
    else:
        beyond_x = np.abs(x - centre_x) - (half_width - radius)
        beyond_y = np.abs(y - centre_y) - (half_height - radius)
        corner = np.hypot(np.maximum(beyond_x, 0), np.maximum(beyond_y, 0))
        inside = np.minimum(np.maximum(beyond_x, beyond_y), 0)
        coverage = np.clip(0.5 + radius - (corner + inside), 0, 1)
    _blend(canvas[rows, columns], box.colour, coverage)


def _overlap(offset: Float[np.ndarray, "..."], half: float) -> Float[np.ndarray, "..."]:
    """How much of a pixel `offset` from the centre of an interval of `2 half` lies within the interval."""
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
    (centre_x, centre_y), (half_width, half_height) = (low + high) / 2, (high - low) / 2
    rows, columns, y, x = _window(canvas, centre_x, centre_y, half_width, half_height)
    distance = np.full(np.broadcast_shapes(x.shape, y.shape), np.inf)
    for (start_x, start_y), (end_x, end_y) in itertools.pairwise(points):
        step_x, step_y = end_x - start_x, end_y - start_y
        if np.isnan(step_x):
            continue
        along = ((x - start_x) * step_x + (y - start_y) * step_y) / max(step_x**2 + step_y**2, 1e-9)
        along = np.clip(along, 0, 1)
        distance = np.minimum(distance, np.hypot(x - start_x - along * step_x, y - start_y - along * step_y))
    _blend(canvas[rows, columns], INK, np.clip(0.5 + radius - distance, 0, 1))


def _window(canvas, centre_x: float, centre_y: float, half_width: float, half_height: float):
    """The pixels a shape can touch, as slices, and the coordinates of their centres, which broadcast."""
    height, width, _ = canvas.shape
    top, bottom = max(math.floor(centre_y - half_height), 0), min(math.ceil(centre_y + half_height), height)
    left, right = max(math.floor(centre_x - half_width), 0), min(math.ceil(centre_x + half_width), width)
    y, x = np.arange(top, bottom)[:, None] + 0.5, np.arange(left, right)[None, :] + 0.5
    return slice(top, bottom), slice(left, right), y, x


def _blend(region: UInt8[np.ndarray, "height width 3"], colour: Colour, coverage: Float[np.ndarray, "..."]) -> None:
    if coverage.min(initial=1) == 1:  # backgrounds and lines, which are most of a picture
        region[...] = colour
        return
    share = np.broadcast_to(coverage, region.shape[:2])[..., None]
    region[...] = np.rint(region + share * (np.array(colour) - region)).astype(np.uint8)
