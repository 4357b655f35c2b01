"""The affine map y_t = x_t W + b over all steps of a chunk, and the products its derivatives are made of.

Steps from `length` on are zero in the result and ignored in every argument; they cost nothing natively.
"""

from typing import TypeAlias

import jax
import jax.numpy as jnp
from jax.custom_derivatives import SymbolicZero
from jaxtyping import Array, Float, Integer, Shaped

from longspan.ops import backend
from longspan.ops.contracts import operation
from longspan.ops.transposable import instantiate, linear_map

Inputs: TypeAlias = Float[Array, "time lane input"]
Outputs: TypeAlias = Float[Array, "time lane output"]
Weights: TypeAlias = Float[Array, "input output"]
Bias: TypeAlias = Float[Array, " output"]
Length: TypeAlias = Integer[Array, ""]


@operation
def affine(x: Inputs, weights: Weights, bias: Bias, length: Length) -> Outputs:
    """x_t W + b for every step t < length.

    Args:
        x: inputs of all steps.
        weights: W, applied from the right.
        bias: b.
        length: steps that count.
    """
    return _affine(x, weights, bias, length)


@operation
def product(weights: Weights, length: Length, x: Inputs) -> Outputs:
    """x_t W for every step t < length."""
    result = jax.ShapeDtypeStruct((*x.shape[:2], weights.shape[1]), x.dtype)
    return backend.run("product", _product_twin, [result], weights, length, x)


@operation
def product_transposed(weights: Weights, length: Length, y: Outputs) -> Inputs:
    """y_t W^T for every step t < length, the transpose of `product`."""
    result = jax.ShapeDtypeStruct((*y.shape[:2], weights.shape[0]), y.dtype)
    return backend.run("product_transposed", _product_transposed_twin, [result], weights, length, y)


@operation
def outer(x: Inputs, length: Length, y: Outputs) -> Weights:
    """The sum over steps t < length and lanes of the outer products x_t^T y_t."""
    result = jax.ShapeDtypeStruct((x.shape[2], y.shape[2]), x.dtype)
    return backend.run("outer", outer_twin, [result], x, length, y)


def shorten(rows: Shaped[Array, "time lane feature"], length: Length) -> Shaped[Array, "time lane feature"]:
    """The same rows with steps from `length` on set to zero."""
    return jnp.where(jnp.arange(rows.shape[0])[:, None, None] < length, rows, 0)


def outer_twin(x, length, y):
    """`outer` in XLA."""
    return jnp.einsum("tbi,tbo->io", shorten(x, length), shorten(y, length))


push = linear_map(product, product_transposed)
"""`product` as a linear map of its inputs."""


@jax.custom_jvp
def _affine(x, weights, bias, length) -> Array:
    return _by_weights(x, length, weights, bias)


def _differentiate(primals, tangents):
    x, weights, bias, length = primals
    x_dot, weights_dot, bias_dot, _ = tangents
    y = _affine(x, weights, bias, length)
    parts = []
    if not isinstance(x_dot, SymbolicZero):
        parts.append(push(weights, length, x_dot))
    if not (isinstance(weights_dot, SymbolicZero) and isinstance(bias_dot, SymbolicZero)):
        parts.append(_follow_weights(x, length, instantiate(weights_dot, weights), instantiate(bias_dot, bias)))
    return y, sum(parts[1:], parts[0]) if parts else jnp.zeros_like(y)


_affine.defjvp(_differentiate, symbolic_zeros=True)


def _by_weights(x, length, weights, bias):
    result = jax.ShapeDtypeStruct((*x.shape[:2], weights.shape[1]), x.dtype)
    return backend.run("affine", _affine_twin, [result], x, length, weights, bias)


def _by_weights_transposed(x, length, y):
    results = [jax.ShapeDtypeStruct(shape, x.dtype) for shape in ((x.shape[2], y.shape[2]), y.shape[2:])]
    return backend.run("affine_transposed", _affine_transposed_twin, results, x, length, y)


_follow_weights = linear_map(_by_weights, _by_weights_transposed, operands=2)


def _affine_twin(x, length, weights, bias):
    return shorten(x @ weights + bias, length)


def _affine_transposed_twin(x, length, y):
    return outer_twin(x, length, y), shorten(y, length).sum((0, 1))


def _product_twin(weights, length, x):
    return shorten(x @ weights, length)


def _product_transposed_twin(weights, length, y):
    return shorten(y @ weights.T, length)
