"""Shape and dtype contracts: what an operation accepts, read from its signature and checked whenever it is traced.

A native kernel believes the shapes it is told, so nothing may reach it unchecked. The annotations of an operation are
its contract: axes of one name have one size, and all floating-point operands have one dtype. The check comes before
the path is chosen, so a mistake raises the same `InputError` natively and in XLA. It sees only shapes and dtypes:
inside `jit` it costs nothing at run time, and under `vmap` it applies to one example.
"""

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import wraps
from types import UnionType
from typing import Any, ParamSpec, TypeVar, get_args

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import AbstractArray, Float, Integer

from longspan.errors import InputError

P = ParamSpec("P")
R = TypeVar("R")

OPERATIONS: dict[str, Callable[..., Any]] = {}
"""Every operation with a contract, by module and name; each has it as the attribute `contract`."""


@dataclass(frozen=True)
class Form:
    """A dtype and axes that an operand may have."""

    kind: str
    dtypes: tuple[str, ...]
    axes: tuple[str, ...]

    @staticmethod
    def of(hint: Any) -> "Form":
        """The form that an annotation such as `Float[Array, "time lane"]` stands for."""
        return Form(hint.dtype.__name__, tuple(hint.dtypes), tuple(hint.dim_str.split()))

    @property
    def is_float(self) -> bool:
        return self.kind == Float.__name__

    def show(self, sizes: Mapping[str, int], dtype: Any) -> str:
        """What is expected, with the sizes and the dtype known so far."""
        axes = ", ".join(f"{axis}={sizes[axis]}" if axis in sizes else axis for axis in self.axes)
        return f"{dtype if self.is_float and dtype else self.kind.lower()}[{axes}]"


@dataclass(frozen=True)
class Contract:
    """The operands of an operation, by name, each with the forms that it may have."""

    name: str
    operands: dict[str, tuple[Form, ...]]
    results: tuple[Form, ...]

    @staticmethod
    def of(function: Callable[..., Any]) -> "Contract":
        """The contract in a function's annotations; parameters that are no arrays are left alone."""
        signature = inspect.signature(function)
        operands = {name: _forms(parameter.annotation) for name, parameter in signature.parameters.items()}
        return Contract(
            f"{function.__module__.rpartition('.')[2]}.{function.__name__}",
            {name: forms for name, forms in operands.items() if forms},
            _forms(signature.return_annotation),
        )

    def accept(self, arguments: dict[str, Any]) -> None:
        """Replace the operands among the arguments by arrays that fulfil the contract, or raise an `InputError`."""
        sizes: dict[str, int] = {}
        dtype = None
        for name, forms in self.operands.items():
            if arguments[name] is None:
                continue
            array, form = self._converted(name, forms, arguments[name], sizes, dtype)
            dtype = array.dtype if form.is_float and dtype is None else dtype
            sizes.update(zip(form.axes, array.shape, strict=True))
            arguments[name] = array

    def _converted(self, name, forms, value, sizes, dtype) -> tuple[jax.Array, Form]:
        form = _form_of(value, forms)
        if form is not None:
            if form.kind == Integer.__name__:
                array = saturated(value)
            else:
                array = jnp.asarray(value, dtype if form.is_float and isinstance(value, (int, float)) else None)
            if _fits(array, form, sizes) and not (form.is_float and dtype and array.dtype != dtype):
                return array, form
        expected = " or ".join(form.show(sizes, dtype) for form in ([form] if form else forms))
        raise InputError(f"{self.name}: expected {name} to be {expected}, got {describe(value)}.")


def operation(function: Callable[P, R]) -> Callable[P, R]:
    """Checks the operands of a function by its annotations, and converts whole numbers to int32.

    Numbers that int32 cannot hold become the nearest one that it can, as indices out of range become the nearest row.
    """
    signature, contract = inspect.signature(function), Contract.of(function)

    @wraps(function)
    def checked(*args: P.args, **kwargs: P.kwargs) -> R:
        bound = signature.bind(*args, **kwargs)
        bound.apply_defaults()
        contract.accept(bound.arguments)
        return function(*bound.args, **bound.kwargs)

    checked.contract = contract  # type: ignore[attr-defined]
    OPERATIONS[contract.name] = checked
    return checked


def check_alike(name: str, **groups: Sequence[Any]) -> None:
    """Raises an `InputError` unless all groups hold equally many float arrays of the same shapes and dtypes."""
    (first_name, first), *others = groups.items()
    for other_name, other in others:
        if len(other) != len(first):
            raise InputError(f"{name}: expected as many {other_name} as {first_name}, {len(first)}, got {len(other)}.")
    for number, leaf in enumerate(first):
        if not jnp.issubdtype(leaf.dtype, jnp.floating):
            raise InputError(f"{name}: expected {first_name}[{number}] to have a float dtype, got {leaf.dtype}.")
        for other_name, other in others:
            if other[number].shape != leaf.shape or other[number].dtype != leaf.dtype:
                got = describe(other[number])
                raise InputError(f"{name}: expected {other_name}[{number}] to be {describe(leaf)}, got {got}.")


def saturated(value: Any) -> jax.Array:
    """Whole numbers as int32; what int32 cannot hold becomes the nearest number that it can."""
    if getattr(value, "dtype", None) == jnp.int32:
        return jnp.asarray(value)
    library = jnp if isinstance(value, jax.Array) else np  # NumPy before JAX, which would cut off the upper half
    limits = np.iinfo(np.int32)
    least, most = (library.asarray(value).dtype.type(limit) for limit in _within(limits, _dtype_of(value)))
    return jnp.asarray(library.clip(value, least, most), jnp.int32)


def describe(value: Any) -> str:
    """Dtype and shape of an array in an error message, or the type of anything else."""
    if isinstance(value, (bool, int, float)):
        return f"the number {value}"
    dtype = _dtype_of(value)
    return type(value).__name__ if dtype is None else f"{dtype}[{', '.join(map(str, np.shape(value)))}]"


def _within(limits, dtype) -> tuple[int, int]:
    own = np.iinfo(dtype)
    return max(limits.min, own.min), min(limits.max, own.max)


def _forms(hint: Any) -> tuple[Form, ...]:
    """The arrays in an annotation: alternatives of a union, members of a tuple."""
    if isinstance(hint, type) and issubclass(hint, AbstractArray):
        return (Form.of(hint),)
    parts = get_args(hint) if isinstance(hint, UnionType) or getattr(hint, "__origin__", None) is tuple else ()
    return tuple(form for part in parts for form in _forms(part))


def _form_of(value: Any, forms: tuple[Form, ...]) -> Form | None:
    """The first form whose dtype a value has."""
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        kinds = {"Float"} if isinstance(value, float) else {"Float", "Integer"}
        return next((form for form in forms if form.kind in kinds), None)
    return next((form for form in forms if str(_dtype_of(value)) in form.dtypes), None)


def _dtype_of(value: Any) -> Any:
    if hasattr(value, "dtype"):
        return value.dtype
    array = np.asarray(value)
    return None if array.dtype == object or array.dtype.kind in "US" else array.dtype


def _fits(array: jax.Array, form: Form, sizes: Mapping[str, int]) -> bool:
    sizes = dict(sizes)
    return len(array.shape) == len(form.axes) and all(
        sizes.setdefault(axis, size) == size for axis, size in zip(form.axes, array.shape, strict=True)
    )
