"""`kernels.nade` in XLA: hidden vectors of all frames of a chunk in blocks of rows, as many as there are notes.

All distinct hidden vectors of a chunk, one *row* each, are gone through in blocks of fixed size and as many blocks as
it takes: the cost follows the notes, and a frame with every key on is merely more rows.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Shaped

BLOCK = 128
"""Rows of a matrix product: enough to be fast, few enough that the last block wastes little."""


class Rows(NamedTuple):
    """A block of hidden vectors: whose they are, which keys feed them and which keys read them."""

    frame: Int[Array, " row"]
    """Number of the frame; past the last one where the block is not full."""
    feeds: Float[Array, "row key"]
    reads: Bool[Array, "row key"]


def forward(hidden_bias, weights, readout, targets, length):
    """The part of the logits that the hidden units give."""
    bias = _frames(hidden_bias)

    def add_block(total, rows: Rows):
        hidden = _hidden(rows, bias, weights)
        return _add_rows(total, rows, jnp.where(rows.reads, hidden @ readout, 0))

    total = jnp.zeros((len(bias), len(weights)), bias.dtype)
    return _over_blocks(add_block, total, targets, length, bias.dtype).reshape(targets.shape)


def tangent(hidden_bias, weights, readout, targets, length, changes):
    """Push changes of hidden bias, weights and readout forward to the logits."""
    bias = _frames(hidden_bias)
    bias_change, weights_change, readout_change = changes
    bias_change = _frames(bias_change)

    def add_block(total, rows: Rows):
        hidden = _hidden(rows, bias, weights)
        change = bias_change[rows.frame] + rows.feeds @ weights_change
        row_change = (hidden * (1 - hidden) * change) @ readout + hidden @ readout_change
        return _add_rows(total, rows, jnp.where(rows.reads, row_change, 0))

    total = jnp.zeros((len(bias), len(weights)), bias.dtype)
    return _over_blocks(add_block, total, targets, length, bias.dtype).reshape(targets.shape)


def adjoint(hidden_bias, weights, readout, targets, length, cotangent):
    """The exact transpose of `tangent`: pull a cotangent of the logits back to hidden bias, weights and readout."""
    bias, cotangent = _frames(hidden_bias), _frames(cotangent)

    def add_block(totals, rows: Rows):
        bias_total, weights_total, readout_total = totals
        hidden = _hidden(rows, bias, weights)
        pulled = jnp.where(rows.reads, cotangent[rows.frame], 0)
        change = hidden * (1 - hidden) * (pulled @ readout.T)
        return (
            _add_rows(bias_total, rows, change),
            weights_total + rows.feeds.T @ change,
            readout_total + hidden.T @ pulled,
        )

    totals = (jnp.zeros_like(bias), jnp.zeros_like(weights), jnp.zeros_like(readout))
    bias_total, *others = _over_blocks(add_block, totals, targets, length, bias.dtype)
    return bias_total.reshape(hidden_bias.shape), *others


def _over_blocks(add_block: Callable, total, targets, length, dtype):
    """Fold `add_block` over the rows of all frames before `length`."""
    inside = jnp.repeat(jnp.arange(targets.shape[0]) < length, targets.shape[1])
    frames = _frames(targets)
    upto = jnp.cumsum(frames, axis=1, dtype=jnp.int32)
    notes_below = upto - frames
    counts = jnp.where(inside, upto[:, -1] + 1, 0)
    ends = jnp.cumsum(counts)
    starts = ends - counts

    def add(block, total):
        row = block * BLOCK + jnp.arange(BLOCK)
        frame = jnp.searchsorted(ends, row, side="right")
        notes_before = (row - starts[frame])[:, None]
        used = (frame < len(frames))[:, None]
        below = notes_below[frame]
        feeds = (used & (below < notes_before) & (frames[frame] > 0)).astype(dtype)
        return add_block(total, Rows(frame, feeds, used & (below == notes_before)))

    return jax.lax.fori_loop(0, (ends[-1] + BLOCK - 1) // BLOCK, add, total)


def _hidden(rows: Rows, bias, weights):
    return jax.nn.sigmoid(bias[rows.frame] + rows.feeds @ weights)


def _add_rows(total, rows: Rows, values):
    return total.at[rows.frame].add(values, mode="drop", indices_are_sorted=True)


def _frames(array: Shaped[Array, "time lane key"]) -> Shaped[Array, "frame key"]:
    return array.reshape(-1, *array.shape[2:])
