"""Logits of a conditional NADE over on/off keys, by the few hidden vectors that piano rolls need.

The hidden pre-activation changes only after a key that is on, so a frame of n notes has n + 1 distinct hidden
vectors instead of one a key. All those of a chunk, one *row* each, are gone through in blocks of fixed size and as many
blocks as it takes: the cost follows the notes, and a frame with every key on is merely more rows.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.custom_derivatives import SymbolicZero, linear_call
from jaxtyping import Array, Bool, Float, Int, Shaped

BLOCK = 128
"""Rows of a matrix product: enough to be fast, few enough that the last block wastes little."""

Residuals = tuple[Array, Array, Array, Array, Array]
"""Hidden bias, weights, readout, targets and length: what a derivative is taken at."""


@jax.custom_jvp
def logits(
    visible_bias: Float[Array, "time lane key"],
    hidden_bias: Float[Array, "time lane unit"],
    weights: Float[Array, "key unit"],
    readout: Float[Array, "unit key"],
    targets: Shaped[Array, "time lane key"],
    length: Int[Array, ""],
) -> Float[Array, "time lane key"]:
    r"""Log-odds of each key being on, given the keys below it.

    .. math:: l_i = b_i + \sigma\Big(c + \sum_{j < i} x_j W_j\Big) \cdot V_{\cdot i}

    Args:
        visible_bias: `b` of each frame.
        hidden_bias: `c` of each frame.
        weights: `W`, what a key that is on adds to the hidden pre-activation.
        readout: `V`, from the hidden units to the log-odds.
        targets: `x`, the frames, 0 or 1.
        length: steps from here on are padding; their logits mean nothing.
    """
    return visible_bias + forward(hidden_bias, weights, readout, targets, length)


def _logits_tangent(primals, tangents):
    _, hidden_bias, weights, readout, targets, length = primals
    visible_change, *changes, _, _ = tangents
    value = logits(*primals)
    change = jnp.zeros_like(value)
    moving = tuple(None if isinstance(one, SymbolicZero) else one for one in changes)
    if any(one is not None for one in moving):
        change = _push((hidden_bias, weights, readout, targets, length), moving)
    if not isinstance(visible_change, SymbolicZero):
        change = change + visible_change
    return value, change


logits.defjvp(_logits_tangent, symbolic_zeros=True)


def _push(residuals: Residuals, changes):
    def push(residuals: Residuals, changes):
        return tangent(*residuals, changes)

    def pull(residuals: Residuals, cotangent):
        pulled = adjoint(*residuals, cotangent)
        return tuple(None if change is None else one for change, one in zip(changes, pulled, strict=True))

    return linear_call(push, pull, residuals, changes)


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
    """Push changes of hidden bias, weights and readout (None for no change) forward to the logits."""
    bias = _frames(hidden_bias)
    bias_change, weights_change, readout_change = changes
    bias_change = None if bias_change is None else _frames(bias_change)

    def add_block(total, rows: Rows):
        hidden = _hidden(rows, bias, weights)
        change = jnp.zeros_like(hidden)
        if bias_change is not None:
            change = change + bias_change[rows.frame]
        if weights_change is not None:
            change = change + rows.feeds @ weights_change
        row_change = (hidden * (1 - hidden) * change) @ readout
        if readout_change is not None:
            row_change = row_change + hidden @ readout_change
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
    frames = _frames(jnp.asarray(targets))
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
