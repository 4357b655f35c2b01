"""Sums of the few rows of a matrix that an input selects: W^T x where x is nearly all zeros.

A frame of music has about four of 88 keys down and a symbol is one index, so a dense product would mostly
multiply by zero. Steps from `length` on are zero in the result, and an index out of range means the nearest row. A
`RowGradient` takes a step of descent that touches only the rows in use, where a gradient as large as the matrix would
cost more than everything else.
"""

from typing import NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Integer, Shaped, UInt8

from longspan.ops import backend
from longspan.ops.contracts import operation
from longspan.ops.matmul import affine, shorten
from longspan.ops.transposable import linear_map

Counts: TypeAlias = UInt8[Array, "time lane input"]
Indices: TypeAlias = Integer[Array, "time lane"]
Weights: TypeAlias = Float[Array, "input output"]
Bias: TypeAlias = Float[Array, " output"]
Length: TypeAlias = Integer[Array, ""]


def project(
    inputs: Shaped[Array, "time lane ..."], weights: Weights, bias: Bias, length: Length
) -> Float[Array, "time lane output"]:
    """The affine map of inputs of any kind, by the operation that suits their dtype.

    Args:
        inputs: counts of each input (uint8 or bool), symbols (any other whole number, no input axis) or vectors.
        weights: one row for each input.
        bias: added to every step.
        length: steps that count.
    """
    inputs = inputs.astype(jnp.uint8) if inputs.dtype == jnp.bool else inputs
    if jnp.issubdtype(inputs.dtype, jnp.integer):
        return sum_rows(weights, inputs, length, bias)
    return affine(inputs.astype(weights.dtype), weights, bias, length)


@operation
def sum_rows(
    weights: Weights, inputs: Counts | Indices, length: Length, bias: Bias | None = None
) -> Float[Array, "time lane output"]:
    """For every step t < length, b + sum_i x_ti W_i, linear in the weights and the bias.

    Args:
        weights: W, one row for each input.
        inputs: either how often each input counts (uint8, the keys of a piano roll) or one index of any other integer
            dtype.
        length: steps that count.
        bias: b, or none.
    """
    bias = jnp.zeros_like(weights[0]) if bias is None else bias
    size = jnp.zeros((weights.shape[0], 0), jnp.bool)  # tells the transpose how many rows there are
    return _follow_weights(inputs, length, size, weights, bias)


class RowGradient(NamedTuple):
    """The gradient of a matrix: row `indices[s]` is the sum of the `parts[s]`, every other row zero."""

    indices: Integer[Array, " step"]
    parts: Float[Array, "step output"]

    def squares(self) -> Float[Array, ""]:
        """Its squared norm; parts of one row are added up first."""
        return selected_squares(self.parts, self.indices)

    def descend(self, leaves: tuple[Weights], rate: Float[Array, ""]) -> tuple[Weights]:
        """The matrix minus `rate` times the gradient; natively in place."""
        return (add_selected(*leaves, self.parts, self.indices, -rate),)


@operation
def selected_squares(parts: Float[Array, "step output"], indices: Integer[Array, " step"]) -> Float[Array, ""]:
    """The squared norm of a matrix whose row `indices[s]` is the sum of the `parts[s]`."""
    result = jax.ShapeDtypeStruct((), parts.dtype)
    return backend.run("selected_squares", _selected_squares_twin, [result], parts, indices)


@operation
def add_selected(
    weights: Weights, parts: Float[Array, "step output"], indices: Integer[Array, " step"], scale: Float[Array, ""]
) -> Weights:
    """The matrix with `scale * parts[s]` added to row `indices[s]`, natively in place; it has no derivative rule."""
    indices = jnp.clip(indices, 0, weights.shape[0] - 1)
    if not backend.fits(weights, parts):
        return weights.at[indices].add(scale * parts)
    return backend.call("add_selected", (weights,), weights, parts, indices, scale, aliases={0: 0})[0]


def _sum(inputs, length, size, weights, bias):
    del size
    result = jax.ShapeDtypeStruct((*inputs.shape[:2], bias.size), bias.dtype)
    operation = "sum_rows" if inputs.dtype == jnp.uint8 else "take_rows"
    return backend.run(operation, _sum_twin, [result], inputs, length, weights, bias)


def _scatter(inputs, length, size, y):
    shape = jax.ShapeDtypeStruct((size.shape[0], y.shape[2]), y.dtype)
    operation = "add_to_rows" if inputs.dtype == jnp.uint8 else "put_rows"

    def twin(inputs, length, y):
        y = shorten(y, length)
        return *jax.linear_transpose(lambda weights: _selected_twin(inputs, weights), shape)(y), y.sum((0, 1))

    return backend.run(operation, twin, [shape, jax.ShapeDtypeStruct(y.shape[2:], y.dtype)], inputs, length, y)


_follow_weights = linear_map(_sum, _scatter, operands=2)


def _sum_twin(inputs, length, weights, bias):
    return shorten(_selected_twin(inputs, weights) + bias, length)


def _selected_twin(inputs, weights):
    if inputs.dtype == jnp.uint8:
        return inputs.astype(weights.dtype) @ weights
    return weights[jnp.clip(inputs, 0, weights.shape[0] - 1)]


def _selected_squares_twin(parts, indices):
    same = indices[:, None] == indices
    return jnp.sum(jnp.where(same, parts @ parts.T, 0))
