"""A linear map given by two functions, each the other's transpose, that JAX transforms like any operation.

It is what `jax.custom_derivatives.linear_call` offers, and more: several operands of which some may be constant or
zero, and `vmap`. The derivative rules of the operations are written with it.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from jax.core import ShapedArray
from jax.custom_derivatives import SymbolicZero
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir
from jax.typing import ArrayLike

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
    """A tangent as an array, also where a derivative rule is told that it is zero."""
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
