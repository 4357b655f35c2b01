"""`kernels.factored` in XLA: log-probability of a row among a contiguous range of rows.

Steps that share a range are taken together, a few at a time, against tiles of its rows; as many tiles as the range
needs and no more. So the work follows the rows of the ranges that occur, whatever else the matrix holds.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

TILE = 128
"""Rows of a matrix product."""
GROUP = 4
"""Steps of one range taken together: about what reading a tile costs, so that they come nearly for free."""


@jax.custom_vjp
def log_prob(
    hidden: Float[Array, "step hidden"],
    weights: Float[Array, "row hidden"],
    bias: Float[Array, " row"],
    target: Int[Array, " step"],
    start: Int[Array, " step"],
    stop: Int[Array, " step"],
) -> Float[Array, " step"]:
    r"""Log-softmax of row `target` among the rows from `start` to before `stop`, for every step.

    .. math:: \log p_t = w_y \cdot h_t + b_y - \log \sum_{start \le r < stop} e^{w_r \cdot h_t + b_r}

    It is zero where a range holds one row or none; ranges that overlap must be equal.
    """
    picked, normalizer = _forward(hidden, weights, bias, target, start, stop)
    return picked - normalizer


def _forward_rule(hidden, weights, bias, target, start, stop):
    picked, normalizer = _forward(hidden, weights, bias, target, start, stop)
    return picked - normalizer, (hidden, weights, bias, target, start, stop, normalizer)


def _backward_rule(residuals, cotangent):
    hidden, weights, bias, target, start, stop, normalizer = residuals
    pulled = _adjoint(hidden, weights, bias, target, start, stop, normalizer, cotangent)
    return *pulled, None, None, None


log_prob.defvjp(_forward_rule, _backward_rule)


class Tile(NamedTuple):
    """Some steps of one range against some of its rows."""

    steps: Int[Array, " group"]
    """Numbers of the steps; past the last one where the group is not full."""
    first: Int[Array, ""]
    """Number of the first row."""
    inside: Bool[Array, "group tile"]
    """Whether a row belongs to the range and was not part of an earlier tile."""
    is_target: Bool[Array, "group tile"]


def _forward(hidden, weights, bias, target, start, stop):
    """Logit of each step's target, and the logarithm of the sum over its range."""

    def add_tile(totals, tile: Tile):
        picked, largest, total = totals
        logits = _logits(hidden, weights, bias, tile)
        before = largest[tile.steps]
        now = jnp.maximum(before, jnp.max(jnp.where(tile.inside, logits, -jnp.inf), axis=1))
        terms = jnp.where(tile.inside, jnp.exp(logits - now[:, None]), 0)
        rescaled = total[tile.steps] * jnp.exp(before - now) + jnp.sum(terms, axis=1)
        return (
            picked.at[tile.steps].add(jnp.sum(jnp.where(tile.is_target, logits, 0), axis=1), mode="drop"),
            largest.at[tile.steps].set(now, mode="drop"),
            total.at[tile.steps].set(rescaled, mode="drop"),
        )

    steps = len(hidden)
    # A finite start keeps the difference of two maxima from being infinity minus infinity.
    totals = (jnp.zeros(steps), jnp.full(steps, jnp.finfo(hidden.dtype).min), jnp.zeros(steps))
    picked, largest, total = _over_tiles(add_tile, totals, len(weights), target, start, stop)
    alone = stop - start <= 1
    return jnp.where(alone, 0, picked), jnp.where(alone, 0, largest + jnp.log(jnp.where(alone, 1, total)))


def _adjoint(hidden, weights, bias, target, start, stop, normalizer, cotangent):
    def add_tile(totals, tile: Tile):
        hidden_total, weights_total, bias_total = totals
        logits = _logits(hidden, weights, bias, tile)
        probabilities = jnp.exp(logits - normalizer.at[tile.steps].get(mode="fill", fill_value=0)[:, None])
        change = tile.is_target - jnp.where(tile.inside, probabilities, 0)
        change = change * cotangent.at[tile.steps].get(mode="fill", fill_value=0)[:, None]
        return (
            hidden_total.at[tile.steps].add(change @ _rows(weights, tile), mode="drop"),
            _add_to_rows(weights_total, tile, change.T @ hidden[tile.steps]),
            _add_to_rows(bias_total, tile, jnp.sum(change, axis=0)),
        )

    totals = (jnp.zeros_like(hidden), jnp.zeros_like(weights), jnp.zeros_like(bias))
    return _over_tiles(add_tile, totals, len(weights), target, start, stop)


def _over_tiles(add_tile: Callable, totals, rows: int, target, start, stop):
    """Fold `add_tile` over all groups of steps and all tiles of their ranges."""
    steps = len(start)
    size = min(TILE, rows)
    order = jnp.argsort(start)
    ranked = start[order]
    place_in_range = jnp.arange(steps) - jnp.searchsorted(ranked, ranked)
    is_first = place_in_range % GROUP == 0
    firsts = jnp.nonzero(is_first, size=steps, fill_value=0)[0]
    lengths = jnp.where(stop - start > 1, stop - start, 0)

    def add_group(number, totals):
        places = firsts[number] + jnp.arange(GROUP)
        begin = ranked[firsts[number]]
        member = (places < steps) & (ranked[places] == begin)
        group = jnp.where(member, order[places], steps)
        # Padding has an empty range, wherever it starts, so a group takes the longest of its lengths.
        length = jnp.max(jnp.where(member, lengths[order[places]], 0))

        def add(number, totals):
            wanted = begin + number * size
            first = jnp.minimum(wanted, rows - size)
            numbers = first + jnp.arange(size)
            counted = member & (lengths[order[places]] > 0)
            inside = counted[:, None] & (numbers >= wanted) & (numbers < begin + length)
            return add_tile(totals, Tile(group, first, inside, inside & (target[group][:, None] == numbers)))

        return jax.lax.fori_loop(0, (length + size - 1) // size, add, totals)

    return jax.lax.fori_loop(0, jnp.sum(is_first), add_group, totals)


def _rows(weights, tile: Tile):
    return jax.lax.dynamic_slice_in_dim(weights, tile.first, tile.inside.shape[1])


def _logits(hidden, weights, bias, tile: Tile):
    return hidden[tile.steps] @ _rows(weights, tile).T + _rows(bias, tile)


def _add_to_rows(total, tile: Tile, change):
    return jax.lax.dynamic_update_slice_in_dim(total, _rows(total, tile) + change, tile.first, 0)
