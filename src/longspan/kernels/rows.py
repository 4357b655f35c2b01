"""Sums of the few rows of a matrix that an input selects: W^T x where x is nearly all zeros.

A frame of music has about four of 88 keys down and a symbol is one index, so a dense product would mostly
multiply by zero. Steps from `length` on are zero in the result. A `RowGradient` takes a step of descent that touches
only the rows in use, where a gradient as large as the matrix would cost more than everything else.
"""

from typing import NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, UInt8

from longspan.kernels import library
from longspan.kernels.linear import linear_map
from longspan.kernels.matmul import scalar, shorten

Counts: TypeAlias = UInt8[Array, "time lanes inputs"]
Indices: TypeAlias = Int[Array, "time lanes"]
Weights: TypeAlias = Float[Array, "inputs outputs"]
Bias: TypeAlias = Float[Array, " outputs"]
Length: TypeAlias = Int[Array, ""]


def sum_rows(
    weights: Weights, inputs: Counts | Indices, length: Length, bias: Bias | None = None
) -> Float[Array, "time lanes outputs"]:
    """For every step t < length, b + sum_i x_ti W_i, linear in the weights and the bias.

    Args:
        weights: W, one row for each input.
        inputs: either how often each input counts (uint8, the keys of a piano roll) or one index (int32).
        length: steps that count.
        bias: b, or none.
    """
    bias = jnp.zeros_like(weights[0]) if bias is None else bias
    inputs = inputs if inputs.dtype == jnp.uint8 else inputs.astype(jnp.int32)
    size = jnp.zeros((weights.shape[0], 0), weights.dtype)  # tells the transpose how many rows there are
    return linear_map(_sum, _scatter, (inputs, length, size), (weights, bias))[0]


class RowGradient(NamedTuple):
    """The gradient of a matrix: row `indices[s]` is the sum of the `parts[s]`, every other row zero."""

    indices: Int[Array, " step"]
    parts: Float[Array, "step outputs"]

    def squares(self) -> Float[Array, ""]:
        """Its squared norm; parts of one row are added up first."""
        indices, parts = self
        if not library.fits(parts):
            same = indices[:, None] == indices
            return jnp.sum(jnp.where(same, parts @ parts.T, 0))
        result = jax.ShapeDtypeStruct((), parts.dtype)
        return library.call("selected_squares", (result,), parts, indices.astype(jnp.int32))[0]

    def descend(self, leaves: tuple[Weights], rate: Float[Array, ""]) -> tuple[Weights]:
        """The matrix minus `rate` times the gradient; natively in place."""
        (weights,) = leaves
        indices = jnp.clip(self.indices, 0, weights.shape[0] - 1).astype(jnp.int32)
        if not library.fits(weights, self.parts):
            return (weights.at[indices].add(-rate * self.parts),)
        operands = (weights, self.parts, indices, jnp.asarray(-rate, jnp.float32))
        return (library.call("add_selected", (weights,), *operands, aliases={0: 0})[0],)


def _sum(residuals, operands):
    (inputs, length, _), (weights, bias) = residuals, operands
    if not library.fits(weights, bias):
        return [shorten(_sum_twin(weights, inputs) + bias, length)]
    result = jax.ShapeDtypeStruct((*inputs.shape[:2], bias.size), bias.dtype)
    operation = "sum_rows" if inputs.dtype == jnp.uint8 else "take_rows"
    return library.call(operation, (result,), weights, bias, inputs, scalar(length))


def _scatter(residuals, cotangents):
    (inputs, length, size), (y,) = residuals, cotangents
    shape = jax.ShapeDtypeStruct((size.shape[0], y.shape[2]), y.dtype)
    if not library.fits(y):
        y = shorten(y, length)
        return [*jax.linear_transpose(lambda weights: _sum_twin(weights, inputs), shape)(y), y.sum((0, 1))]
    operation = "add_to_rows" if inputs.dtype == jnp.uint8 else "put_rows"
    results = (shape, jax.ShapeDtypeStruct(y.shape[2:], y.dtype))
    return library.call(operation, results, inputs, y, scalar(length))


def _sum_twin(weights, inputs):
    if inputs.dtype == jnp.uint8:
        return inputs.astype(weights.dtype) @ weights
    return weights[jnp.clip(inputs, 0, weights.shape[0] - 1)]
