"""A linear map given by two functions, each the other's transpose, that JAX transforms like any operation.

It is what `jax.custom_derivatives.linear_call` offers, and more: several operands of which some may be
constant or zero, and `vmap`. Derivative rules of the native kernels are written with it.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from jax.core import ShapedArray
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir

Arrays = Sequence[Any]


def linear_map(
    apply: Callable[..., Arrays], transpose: Callable[..., Arrays], residuals: Arrays, operands: Arrays
) -> list[jax.Array]:
    """Computes `apply(residuals, operands)`, which must be linear in the operands.

    Args:
        apply: from residuals and operands to a sequence of results; a module-level function.
        transpose: from residuals and cotangents of the results to cotangents of all operands.
        residuals: arrays on which both depend in any way; they are not differentiated.
        operands: arrays in which `apply` is linear.
    """
    return _linear_map.bind(*residuals, *operands, apply=apply, transpose=transpose, residuals=len(residuals))


_linear_map = Primitive("linear_map")
_linear_map.multiple_results = True


@_linear_map.def_impl
def _evaluate(*arrays, apply, transpose, residuals):
    del transpose
    return list(apply(arrays[:residuals], arrays[residuals:]))


@_linear_map.def_abstract_eval
def _infer_shapes(*shapes, apply, transpose, residuals):
    structs = [jax.ShapeDtypeStruct(shape.shape, shape.dtype) for shape in shapes]
    results = jax.eval_shape(
        lambda *arrays: _evaluate(*arrays, apply=apply, transpose=transpose, residuals=residuals), *structs
    )
    return [ShapedArray(result.shape, result.dtype) for result in results]


def _differentiate(primals, tangents, *, apply, transpose, residuals):
    if any(not isinstance(tangent, ad.Zero) for tangent in tangents[:residuals]):
        raise NotImplementedError(
            "Native kernels have first derivatives and Gauss-Newton products only; "
            "set LONGSPAN_KERNELS=xla to differentiate further."
        )

    def bind(operands):
        return linear_map(apply, transpose, primals[:residuals], operands)

    tangents = [ad.instantiate_zeros(tangent) for tangent in tangents[residuals:]]
    return bind(primals[residuals:]), bind(tangents)


def _transpose(cotangents, *arrays, apply, transpose, residuals):
    fixed, operands = arrays[:residuals], arrays[residuals:]
    cotangents = [ad.instantiate_zeros(cotangent) for cotangent in cotangents]
    results = linear_map(transpose, apply, fixed, cotangents)
    kept = [
        result if ad.is_undefined_primal(operand) else None for operand, result in zip(operands, results, strict=True)
    ]
    return [None] * residuals + kept


@dataclass(frozen=True)
class _Mapped:
    """One of the two functions over a batch: operands are batched, residuals where `batched` says so."""

    function: Callable[..., Arrays]
    batched: tuple[bool, ...]

    def __call__(self, residuals: Arrays, operands: Arrays) -> Arrays:
        axes = [0 if batched else None for batched in self.batched]
        return jax.vmap(self.function, in_axes=(axes, 0))(list(residuals), list(operands))


def _batch(arrays, axes, *, apply, transpose, residuals):
    size = next(array.shape[axis] for array, axis in zip(arrays, axes, strict=True) if axis is not None)
    moved = [array if axis is None else jnp.moveaxis(array, axis, 0) for array, axis in zip(arrays, axes, strict=True)]
    operands = [
        jnp.broadcast_to(array, (size, *array.shape)) if axis is None else array
        for array, axis in zip(moved[residuals:], axes[residuals:], strict=True)
    ]
    batched = tuple(axis is not None for axis in axes[:residuals])
    results = linear_map(_Mapped(apply, batched), _Mapped(transpose, batched), moved[:residuals], operands)
    return results, [0] * len(results)


ad.primitive_jvps[_linear_map] = _differentiate
ad.primitive_transposes[_linear_map] = _transpose
batching.primitive_batchers[_linear_map] = _batch
mlir.register_lowering(_linear_map, mlir.lower_fun(_evaluate, multiple_results=True))
