"""Linear maps over the steps of a chunk: dense products, sums of selected rows, and how JAX learns about such a map.

A `LinearMap` is given by two functions, each the other's transpose, and JAX transforms it like any operation. It is
what `jax.custom_derivatives.linear_call` offers, and more: several operands of which some may be constant or zero, and
`vmap`. The derivative rules of all operations are written with it.

`affine` is y_t = x_t W + b. `sum_rows` is the same where x is nearly all zeros: a frame of music has about four of 88
keys down and a symbol is one index, so a dense product would mostly multiply by zero. An index out of range means the
nearest row. A `RowGradient` takes a step of descent that touches only the rows in use, where a gradient as large as the
matrix would cost more than everything else.

Steps from `length` on are zero in every result and ignored in every argument; they cost nothing natively.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
from jax.core import ShapedArray
from jax.custom_derivatives import SymbolicZero
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir
from jax.typing import ArrayLike
from jaxtyping import Array, Float, Integer, Shaped, UInt8

from longspan.ops import backend
from longspan.ops.backend import operation, operation_on

Function = Callable[..., Any]


@dataclass(frozen=True)
class LinearMap:
    """`apply`, linear in its last `operands` arguments, with its transpose; call it like `apply`.

    A function returns one array, or several as a tuple. Derivatives in the other arguments, the residuals, are those
    that JAX finds in `apply`.

    Attributes:
        apply: from residuals and operands to results.
        transpose: from the same residuals and cotangents of the results to cotangents of all operands.
        operands: number of arguments in which `apply` is linear.
    """

    apply: Function
    transpose: Function
    operands: int

    def __call__(self, *arrays: jax.Array) -> Any:
        results = _linear_map.bind(*arrays, linear=self)
        return results[0] if len(results) == 1 else tuple(results)

    def evaluate(self, *arrays: ArrayLike) -> list[jax.Array]:
        """The results of `apply`, as a list of any length."""
        results = self.apply(*arrays)
        return list(results) if isinstance(results, (tuple, list)) else [results]

    def transposed(self, results: int) -> "LinearMap":
        """The map back from that many results."""
        return LinearMap(self.transpose, self.apply, results)


def linear_map(apply: Function, transpose: Function, operands: int = 1) -> LinearMap:
    """The map `apply(*residuals, *operands)` whose transpose is `transpose(*residuals, *cotangents)`."""
    return LinearMap(apply, transpose, operands)


def instantiate(tangent: Any, primal: jax.Array) -> jax.Array:
    """A tangent as an array, also where JAX passes a symbolic zero to a derivative rule."""
    return jnp.zeros_like(primal) if isinstance(tangent, SymbolicZero) else tangent


_linear_map = Primitive("linear_map")
_linear_map.multiple_results = True


@_linear_map.def_impl
def _evaluate(*arrays, linear: LinearMap):
    return linear.evaluate(*arrays)


@_linear_map.def_abstract_eval
def _infer_shapes(*shapes, linear: LinearMap):
    structs = [jax.ShapeDtypeStruct(shape.shape, shape.dtype) for shape in shapes]
    return [ShapedArray(result.shape, result.dtype) for result in jax.eval_shape(linear.evaluate, *structs)]


def _differentiate(primals, tangents, *, linear: LinearMap):
    residuals = len(primals) - linear.operands
    if any(not isinstance(tangent, ad.Zero) for tangent in tangents[:residuals]):
        return jax.jvp(linear.evaluate, primals, tuple(ad.instantiate_zeros(tangent) for tangent in tangents))
    moved = [ad.instantiate_zeros(tangent) for tangent in tangents[residuals:]]
    return _linear_map.bind(*primals, linear=linear), _linear_map.bind(*primals[:residuals], *moved, linear=linear)


def _transpose(cotangents, *arrays, linear: LinearMap):
    residuals = len(arrays) - linear.operands
    back = [ad.instantiate_zeros(cotangent) for cotangent in cotangents]
    results = _linear_map.bind(*arrays[:residuals], *back, linear=linear.transposed(len(back)))
    kept = [
        result if ad.is_undefined_primal(operand) else None
        for operand, result in zip(arrays[residuals:], results, strict=True)
    ]
    return [None] * residuals + kept


@dataclass(frozen=True)
class _Mapped:
    """One of the two functions over a batch: operands are batched, residuals where `batched` says so."""

    function: Function
    batched: tuple[bool, ...]

    def __call__(self, *arrays: jax.Array) -> Any:
        residuals = [0 if batched else None for batched in self.batched]
        axes = (*residuals, *(0 for _ in arrays[len(residuals) :]))
        return jax.vmap(self.function, in_axes=axes)(*arrays)


def _batch(arrays, axes, *, linear: LinearMap):
    residuals = len(arrays) - linear.operands
    size = next(array.shape[axis] for array, axis in zip(arrays, axes, strict=True) if axis is not None)
    moved = [array if axis is None else jnp.moveaxis(array, axis, 0) for array, axis in zip(arrays, axes, strict=True)]
    operands = [
        jnp.broadcast_to(array, (size, *array.shape)) if axis is None else array
        for array, axis in zip(moved[residuals:], axes[residuals:], strict=True)
    ]
    batched = tuple(axis is not None for axis in axes[:residuals])
    mapped = LinearMap(_Mapped(linear.apply, batched), _Mapped(linear.transpose, batched), linear.operands)
    results = _linear_map.bind(*moved[:residuals], *operands, linear=mapped)
    return results, [0] * len(results)


ad.primitive_jvps[_linear_map] = _differentiate
ad.primitive_transposes[_linear_map] = _transpose
batching.primitive_batchers[_linear_map] = _batch
mlir.register_lowering(_linear_map, mlir.lower_fun(_evaluate, multiple_results=True))


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
    return jnp.where(jnp.arange(rows.shape[0], dtype=jnp.int32)[:, None, None] < length, rows, 0)


def add_bias(
    rows: Float[Array, "*leading feature"], bias: Float[Array, " feature"]
) -> Float[Array, "*leading feature"]:
    """Rows with any leading axes, plus one bias for all of them.

    The package broadcasts nothing over missing axes by accident (tests forbid it to JAX), so this says it.
    """
    return rows + jnp.broadcast_to(bias, rows.shape)


def outer_twin(x, length, y):
    """`outer` in XLA."""
    return jnp.einsum("tbi,tbo->io", shorten(x, length), shorten(y, length))


push = linear_map(product, product_transposed)
"""`product` as a linear map of its inputs."""


@jax.custom_jvp
def _affine(x, weights, bias, length) -> Array:
    return _by_weights(x, length, weights, bias)


def _differentiate_affine(primals, tangents):
    x, weights, bias, length = primals
    x_dot, weights_dot, bias_dot, _ = tangents
    y = _affine(x, weights, bias, length)
    parts = []
    if not isinstance(x_dot, SymbolicZero):
        parts.append(push(weights, length, x_dot))
    if not (isinstance(weights_dot, SymbolicZero) and isinstance(bias_dot, SymbolicZero)):
        parts.append(_map_of_weights(x, length, instantiate(weights_dot, weights), instantiate(bias_dot, bias)))
    return y, sum(parts[1:], parts[0]) if parts else jnp.zeros_like(y)


_affine.defjvp(_differentiate_affine, symbolic_zeros=True)


def _by_weights(x, length, weights, bias):
    result = jax.ShapeDtypeStruct((*x.shape[:2], weights.shape[1]), x.dtype)
    return backend.run("affine", _affine_twin, [result], x, length, weights, bias)


def _by_weights_transposed(x, length, y):
    results = [jax.ShapeDtypeStruct(shape, x.dtype) for shape in ((x.shape[2], y.shape[2]), y.shape[2:])]
    return backend.run("affine_transposed", _affine_transposed_twin, results, x, length, y)


_map_of_weights = linear_map(_by_weights, _by_weights_transposed, operands=2)


def _affine_twin(x, length, weights, bias):
    return shorten(add_bias(x @ weights, bias), length)


def _affine_transposed_twin(x, length, y):
    return outer_twin(x, length, y), shorten(y, length).sum((0, 1))


def _product_twin(weights, length, x):
    return shorten(x @ weights, length)


def _product_transposed_twin(weights, length, y):
    return shorten(y @ weights.T, length)


Counts: TypeAlias = UInt8[Array, "time lane input"]
Indices: TypeAlias = Integer[Array, "time lane"]


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


@operation_on("input")
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
    return _map_of_rows(inputs, length, size, weights, bias)


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


_map_of_rows = linear_map(_sum, _scatter, operands=2)


def _sum_twin(inputs, length, weights, bias):
    return shorten(add_bias(_selected_twin(inputs, weights), bias), length)


def _selected_twin(inputs, weights):
    if inputs.dtype == jnp.uint8:
        return inputs.astype(weights.dtype) @ weights
    return weights[jnp.clip(inputs, 0, weights.shape[0] - 1)]


def _selected_squares_twin(parts, indices):
    same = indices[:, None] == indices[None]
    return jnp.sum(jnp.where(same, parts @ parts.T, 0))
