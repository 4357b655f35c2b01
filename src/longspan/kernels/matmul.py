"""The affine map y_t = x_t W + b over all steps of a chunk, and the products its derivatives are made of.

Steps from `length` on are zero in the result and ignored in every argument; they cost nothing natively.
`affine` has forward and reverse derivatives and Gauss-Newton products; the plain products have none, they are
what derivative rules elsewhere are built from.
"""

from typing import TypeAlias

import jax
import jax.numpy as jnp
from jax.custom_derivatives import SymbolicZero
from jaxtyping import Array, Float, Int

from longspan.kernels import library
from longspan.kernels.linear import linear_map

Inputs: TypeAlias = Float[Array, "time lanes inputs"]
Outputs: TypeAlias = Float[Array, "time lanes outputs"]
Weights: TypeAlias = Float[Array, "inputs outputs"]
Bias: TypeAlias = Float[Array, " outputs"]
Length: TypeAlias = Int[Array, ""]


@jax.custom_jvp
def affine(x: Inputs, weights: Weights, bias: Bias, length: Length) -> Outputs:
    """x_t W + b for every step t < length.

    Args:
        x: inputs of all steps.
        weights: W, applied from the right.
        bias: b.
        length: steps that count.
    """
    return _affine((x, length), (weights, bias))[0]


def product(x: Inputs, weights: Weights, length: Length) -> Outputs:
    """x_t W for every step t < length, without derivative rules."""
    if not library.fits(x, weights):
        return shorten(x @ weights, length)
    result = jax.ShapeDtypeStruct((*x.shape[:2], weights.shape[1]), x.dtype)
    return library.call("product", (result,), x, weights, scalar(length))[0]


def product_transposed(y: Outputs, weights: Weights, length: Length) -> Inputs:
    """y_t W^T for every step t < length, without derivative rules."""
    if not library.fits(y, weights):
        return shorten(y @ weights.T, length)
    result = jax.ShapeDtypeStruct((*y.shape[:2], weights.shape[0]), y.dtype)
    return library.call("input_cotangent", (result,), y, weights, scalar(length))[0]


def outer(x: Inputs, y: Outputs, length: Length) -> Weights:
    """The sum over steps t < length and lanes of the outer products x_t^T y_t, without derivative rules."""
    if not library.fits(x, y):
        return jnp.einsum("tbi,tbo->io", shorten(x, length), shorten(y, length))
    result = jax.ShapeDtypeStruct((x.shape[2], y.shape[2]), x.dtype)
    return library.call("outer", (result,), x, y, scalar(length))[0]


def _differentiate(primals, tangents):
    x, weights, bias, length = primals
    x_dot, weights_dot, bias_dot, _ = tangents
    y = affine(x, weights, bias, length)
    parts = []
    if not isinstance(x_dot, SymbolicZero):
        parts += linear_map(_product, _product_transposed, (weights, length), (x_dot,))
    if not (isinstance(weights_dot, SymbolicZero) and isinstance(bias_dot, SymbolicZero)):
        operands = (_instantiate(weights_dot, weights), _instantiate(bias_dot, bias))
        parts += linear_map(_affine, _affine_transposed, (x, length), operands)
    return y, sum(parts[1:], parts[0]) if parts else jnp.zeros_like(y)


affine.defjvp(_differentiate, symbolic_zeros=True)


def _instantiate(tangent, primal):
    return jnp.zeros_like(primal) if isinstance(tangent, SymbolicZero) else tangent


def _product(residuals, operands):
    weights, length = residuals
    return [product(operands[0], weights, length)]


def _product_transposed(residuals, cotangents):
    weights, length = residuals
    return [product_transposed(cotangents[0], weights, length)]


def _affine(residuals, operands):
    (x, length), (weights, bias) = residuals, operands
    if not library.fits(x, weights, bias):
        return [shorten(x @ weights + bias, length)]
    result = jax.ShapeDtypeStruct((*x.shape[:2], bias.size), x.dtype)
    return library.call("affine", (result,), x, weights, bias, scalar(length))


def _affine_transposed(residuals, cotangents):
    (x, length), (y,) = residuals, cotangents
    if not library.fits(x, y):
        return [outer(x, y, length), shorten(y, length).sum((0, 1))]
    results = [jax.ShapeDtypeStruct(shape, x.dtype) for shape in ((x.shape[2], y.shape[2]), y.shape[2:])]
    return library.call("weight_cotangent", results, x, y, scalar(length))


def shorten(rows: Float[Array, "time lanes features"], length: Length) -> Float[Array, "time lanes features"]:
    """The same rows with steps from `length` on set to zero."""
    return jnp.where(jnp.arange(rows.shape[0])[:, None, None] < length, rows, 0)


def scalar(length: Length) -> Array:
    """A length as the native operations take it."""
    return jnp.asarray(length, jnp.int32)
