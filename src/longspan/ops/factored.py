"""Log-probability of a row among a contiguous range of rows: the inner softmax of a class-factored output.

The work follows the rows of the ranges that occur, whatever else the matrix holds. `log_prob` is an ordinary
differentiable function; its gradient with respect to the matrix is as large as the matrix. `log_prob_and_gradient`
gives a `RangeGradient` to take a step of descent that touches only rows in use: the gradient of a range is a sum of few
outer products, its norm comes from their inner products, and natively it is added in place without ever being formed.
"""

from collections.abc import Callable
from typing import NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
from jax.custom_derivatives import SymbolicZero
from jaxtyping import Array, Bool, Float, Int, Integer

from longspan.ops import backend
from longspan.ops.backend import operation_on
from longspan.ops.linear import instantiate, linear_map

Hidden: TypeAlias = Float[Array, "step hidden"]
Weights: TypeAlias = Float[Array, "row hidden"]
Bias: TypeAlias = Float[Array, " row"]
Rows: TypeAlias = Integer[Array, " step"]
Steps: TypeAlias = Float[Array, " step"]

STEPS_KEPT = 64
"""Steps whose softmax values are kept between the two passes of a descent, even if their ranges are whole matrices."""
LONGEST_VECTOR = 16
"""Rows are padded natively to whole vectors, of at most this many floats."""
TILE = 128
"""Rows of the twin's matrix products."""
GROUP = 4
"""Steps of one range that the twin computes together; reading a tile costs as much as the arithmetic for this many."""


@operation_on("row", "step")
def log_prob(hidden: Hidden, weights: Weights, bias: Bias, target: Rows, start: Rows, stop: Rows) -> Steps:
    r"""Log-softmax of row `target` among the rows from `start` to before `stop`, for every step.

    .. math:: \log p_t = w_y \cdot h_t + b_y - \log \sum_{start \le r < stop} e^{w_r \cdot h_t + b_r}

    It is zero where a range holds one row or none, or leaves the matrix; ranges that overlap must be equal.
    """
    return _log_prob(hidden, weights, bias, target, start, stop)


@operation_on("row", "step")
def log_prob_and_gradient(
    hidden: Hidden, weights: Weights, bias: Bias, target: Rows, start: Rows, stop: Rows, scale: Steps
) -> "tuple[Steps, RangeGradient]":
    """`log_prob`, differentiable in `hidden` alone, and the gradient of `-sum(scale * log_prob)` in the others."""
    weights, bias, scale = jax.lax.stop_gradient((weights, bias, scale))
    value, squares, kept = _log_prob_and_squares(hidden, weights, bias, target, start, stop, scale)
    hidden, squares, kept = jax.lax.stop_gradient((hidden, squares, kept))
    return value, RangeGradient(hidden, target, start, stop, scale, squares, kept)


class RangeGradient(NamedTuple):
    """The gradient of `-sum(scale * log_prob)` with respect to the matrix and the bias, in factored form."""

    hidden: Hidden
    target: Rows
    start: Rows
    stop: Rows
    scale: Steps
    norm_squared: Float[Array, ""]
    kept: Float[Array, " number"]
    """Values of the softmax, so that they need not be computed again; as many as fit."""

    def squares(self) -> Float[Array, ""]:
        """Its squared norm."""
        return self.norm_squared

    def descend(self, leaves: tuple[Weights, Bias], rate: Float[Array, ""]) -> tuple[Weights, Bias]:
        """The matrix and the bias at which it was taken, minus `rate` times the gradient; natively in place."""
        ranges = (self.target, self.start, self.stop)
        return add_range_gradient(self.hidden, *leaves, *ranges, rate * self.scale, self.kept)


@operation_on("row", "step")
def add_range_gradient(
    hidden: Hidden,
    weights: Weights,
    bias: Bias,
    target: Rows,
    start: Rows,
    stop: Rows,
    scale: Steps,
    kept: Float[Array, " number"],
) -> tuple[Weights, Bias]:
    """The matrix and the bias plus the gradient of `sum(scale * log_prob)`, natively in place; no derivative rule.

    `kept` holds the softmax values that `log_prob_and_gradient` kept at the same weights, or is empty.
    """
    operands = (hidden, weights, bias, target, start, stop, scale)
    if not backend.fits(*operands):
        by_weights, by_bias = _weights_gradient_twin(*operands)
        return weights + by_weights, bias + by_bias
    return tuple(backend.call("range_descend", (weights, bias), *operands, kept, aliases={1: 0, 2: 1}))


@jax.custom_jvp
def _log_prob(hidden, *others) -> Array:
    return backend.run("range_log_prob", _log_prob_twin, [_numbers(hidden)], hidden, *others)


def _differentiate(primals, tangents):
    hidden, weights, bias, *_ = primals
    hidden_dot, weights_dot, bias_dot, *_ = tangents
    value, gradient = backend.run("range_gradient", _gradient_twin, [_numbers(hidden), hidden], *primals)
    tangent = jnp.zeros_like(value)
    if not isinstance(hidden_dot, SymbolicZero):
        tangent = (gradient * hidden_dot).sum(-1)
    if not (isinstance(weights_dot, SymbolicZero) and isinstance(bias_dot, SymbolicZero)):
        changes = (instantiate(weights_dot, weights), instantiate(bias_dot, bias))
        tangent = tangent + _follow_weights(*primals, *changes)
    return value, tangent


_log_prob.defjvp(_differentiate, symbolic_zeros=True)


def _tangent(*arrays):
    return backend.run("range_tangent", _tangent_twin, [_numbers(arrays[0])], *arrays)


def _adjoint(*arrays):
    return backend.run("range_weights_gradient", _weights_gradient_twin, arrays[1:3], *arrays)


_follow_weights = linear_map(_tangent, _adjoint, operands=2)


@jax.custom_jvp
def _log_prob_and_squares(*arrays):
    value, _, squares, kept = _gradient_and_squares(*arrays)
    return value, squares, kept


@_log_prob_and_squares.defjvp
def _differentiate_hidden(primals, tangents):
    value, gradient, squares, kept = _gradient_and_squares(*primals)
    change = (gradient * tangents[0]).sum(-1)
    return (value, squares, kept), (change, jnp.zeros_like(squares), jnp.zeros_like(kept))


def _gradient_and_squares(hidden, weights, *others):
    room = min(len(hidden), STEPS_KEPT) * (len(weights) + LONGEST_VECTOR)
    results = [jax.ShapeDtypeStruct(shape, hidden.dtype) for shape in (hidden.shape[:1], hidden.shape, (), (room,))]
    return backend.run("range_squares", _squares_twin, results, hidden, weights, *others)


def _numbers(hidden) -> jax.ShapeDtypeStruct:
    """One number for each step."""
    return jax.ShapeDtypeStruct(hidden.shape[:1], hidden.dtype)


# The XLA twin: steps that share a range are taken together, a few at a time, against tiles of its rows; as many tiles
# as the range needs and no more.


class Tile(NamedTuple):
    """Some steps of one range against some of its rows."""

    steps: Int[Array, " group"]
    """Numbers of the steps; past the last one where the group is not full."""
    first: Int[Array, ""]
    """Number of the first row."""
    inside: Bool[Array, "group tile"]
    """Whether a row belongs to the range and was not part of an earlier tile."""
    is_target: Bool[Array, "group tile"]


def _log_prob_twin(*arrays):
    picked, normalizer = _forward(*arrays)
    return picked - normalizer


def _gradient_twin(hidden, weights, bias, target, start, stop):
    """The log-probabilities and their gradients with respect to the hidden vectors."""
    picked, normalizer = _forward(hidden, weights, bias, target, start, stop)

    def add_tile(total, tile: Tile):
        change = _logit_gradient(hidden, weights, bias, normalizer, tile)
        return total.at[tile.steps].add(change @ _rows(weights, tile), mode="drop")

    gradient = _over_tiles(add_tile, jnp.zeros_like(hidden), len(weights), target, start, stop)
    return picked - normalizer, gradient


def _tangent_twin(hidden, weights, bias, target, start, stop, weights_change, bias_change):
    _, normalizer = _forward(hidden, weights, bias, target, start, stop)

    def add_tile(total, tile: Tile):
        change = _logit_gradient(hidden, weights, bias, normalizer, tile)
        moved = _logits(hidden, weights_change, bias_change, tile)
        return total.at[tile.steps].add(jnp.sum(change * moved, axis=1), mode="drop")

    return _over_tiles(add_tile, jnp.zeros(len(hidden), hidden.dtype), len(weights), target, start, stop)


def _weights_gradient_twin(hidden, weights, bias, target, start, stop, cotangent):
    _, normalizer = _forward(hidden, weights, bias, target, start, stop)

    def add_tile(totals, tile: Tile):
        weights_total, bias_total = totals
        change = _logit_gradient(hidden, weights, bias, normalizer, tile)
        change = change * cotangent.at[tile.steps].get(mode="fill", fill_value=0)[:, None]
        return (
            _add_to_rows(weights_total, tile, change.T @ hidden[tile.steps]),
            _add_to_rows(bias_total, tile, jnp.sum(change, axis=0)),
        )

    totals = (jnp.zeros_like(weights), jnp.zeros_like(bias))
    return _over_tiles(add_tile, totals, len(weights), target, start, stop)


def _squares_twin(hidden, weights, bias, target, start, stop, scale):
    operands = (hidden, weights, bias, target, start, stop)
    by_weights, by_bias = _weights_gradient_twin(*operands, scale)
    return *_gradient_twin(*operands), jnp.sum(by_weights**2) + jnp.sum(by_bias**2), jnp.zeros(0, scale.dtype)


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
    totals = tuple(jnp.full(steps, value, hidden.dtype) for value in (0, jnp.finfo(hidden.dtype).min, 0))
    picked, largest, total = _over_tiles(add_tile, totals, len(weights), target, start, stop)
    alone = _lengths(start, stop, len(weights)) == 0
    return jnp.where(alone, 0, picked), jnp.where(alone, 0, largest + jnp.log(jnp.where(alone, 1, total)))


def _over_tiles(add_tile: Callable, totals, rows: int, target, start, stop):
    """Fold `add_tile` over all groups of steps and all tiles of their ranges."""
    steps = len(start)
    size = min(TILE, rows)
    order = jnp.argsort(start)
    ranked = start[order]
    place_in_range = jnp.arange(steps) - jnp.searchsorted(ranked, ranked)
    is_first = place_in_range % GROUP == 0
    firsts = jnp.nonzero(is_first, size=steps, fill_value=0)[0]
    lengths = _lengths(start, stop, rows)

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
            inside = counted[:, None] & ((numbers >= wanted) & (numbers < begin + length))[None]
            return add_tile(totals, Tile(group, first, inside, inside & (target[group][:, None] == numbers[None])))

        return jax.lax.fori_loop(0, (length + size - 1) // size, add, totals)

    return jax.lax.fori_loop(0, jnp.sum(is_first), add_group, totals)


def _lengths(start, stop, rows: int):
    """Rows of each range; none where there is nothing to decide, or where the integers are no range of these rows."""
    is_range = (start >= 0) & (start < stop) & (stop <= rows)
    return jnp.where(is_range & (stop - start > 1), stop - start, 0)


def _logit_gradient(hidden, weights, bias, normalizer, tile: Tile):
    """The gradient of the log-probability with respect to the logits of a tile."""
    logits = _logits(hidden, weights, bias, tile)
    probabilities = jnp.exp(logits - normalizer.at[tile.steps].get(mode="fill", fill_value=0)[:, None])
    return tile.is_target.astype(logits.dtype) - jnp.where(tile.inside, probabilities, 0)


def _rows(weights, tile: Tile):
    return jax.lax.dynamic_slice_in_dim(weights, tile.first, tile.inside.shape[1])


def _logits(hidden, weights, bias, tile: Tile):
    return hidden[tile.steps] @ _rows(weights, tile).T + _rows(bias, tile)[None]


def _add_to_rows(total, tile: Tile, change):
    return jax.lax.dynamic_update_slice_in_dim(total, _rows(total, tile) + change, tile.first, 0)
