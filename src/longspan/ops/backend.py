"""How an operation reaches its kernel: its contract is checked, a path is chosen, and the native library is called.

Contracts. A native kernel believes the shapes it is told, so nothing may reach it unchecked. The annotations of an
operation are its contract: axes of one name have one size, and all floating-point operands have one dtype. The check
comes before the path is chosen, so a mistake raises the same `InputError` natively and in XLA. It sees only shapes and
dtypes: inside `jit` it costs nothing at run time, and under `vmap` it applies to one example.

Libraries. They are built by setup.py, one per instruction set, and loaded when first needed. The portable one knows the
processor, so it is loaded first and asked which of the others may run. The environment decides, when a function is
traced: `LONGSPAN_KERNELS` (native | xla), `LONGSPAN_INSTRUCTION_SET` (avx512 | avx2 | portable) and `LONGSPAN_THREADS`
(threads of one native operation, 1 by default).
"""

import ctypes
import inspect
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, wraps
from pathlib import Path
from types import UnionType
from typing import Any, Literal, ParamSpec, TypeVar, get_args

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import AbstractArray, Float, Integer

from longspan.errors import InputError

P = ParamSpec("P")
R = TypeVar("R")

OPERATIONS: dict[str, Callable[..., Any]] = {}
"""Every operation, by module and name."""
CONTRACTS: "dict[str, Contract]" = {}
"""The contract of every operation."""


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
        known = {axis: f"{axis}={size}" for axis, size in sizes.items() if not axis.isdecimal()}
        axes = ", ".join(known.get(axis, axis) for axis in self.axes)
        return f"{dtype if self.is_float and dtype else self.kind.lower()}[{axes}]"


@dataclass(frozen=True)
class Contract:
    """The operands of an operation, by name, each with the forms that it may have."""

    name: str
    operands: dict[str, tuple[Form, ...]]
    results: tuple[Form, ...]
    filled: tuple[str, ...] = ()
    """Axes along which there has to be something."""

    @staticmethod
    def of(function: Callable[..., Any], filled: tuple[str, ...] = ()) -> "Contract":
        """The contract in a function's annotations; parameters that are no arrays are left alone."""
        signature = inspect.signature(function)
        operands = {name: _forms(parameter.annotation) for name, parameter in signature.parameters.items()}
        return Contract(
            f"{function.__module__.rpartition('.')[2]}.{function.__name__}",
            {name: forms for name, forms in operands.items() if forms},
            _forms(signature.return_annotation),
            filled,
        )

    def accept(self, arguments: dict[str, Any]) -> None:
        """Replace the operands among the arguments by arrays that fulfill the contract, or raise an `InputError`."""
        sizes: dict[str, int] = {}
        dtype = None
        for name, forms in self.operands.items():
            if arguments[name] is None:
                continue
            array, form = self._converted(name, forms, arguments[name], sizes, dtype)
            dtype = array.dtype if form.is_float and dtype is None else dtype
            sizes.update(zip(form.axes, array.shape, strict=True))
            arguments[name] = array
            for axis in self.filled:
                if axis in form.axes and sizes[axis] == 0:
                    raise InputError(f"{self.name}: expected {name} to have at least one {axis}, got none.")

    def _converted(self, name, forms, value, sizes, dtype) -> tuple[jax.Array, Form]:
        form = _form_of(value, forms)
        if form is not None:
            if form.kind == Integer.__name__:
                array = saturated(value)
            else:
                array = jnp.asarray(value, dtype if form.is_float and isinstance(value, (int, float)) else None)
            if _has_form(array, form, sizes) and not (form.is_float and dtype and array.dtype != dtype):
                return array, form
        expected = " or ".join(form.show(sizes, dtype) for form in ([form] if form else forms))
        raise InputError(f"{self.name}: expected {name} to be {expected}, got {describe_value(value)}.")


def operation(function: Callable[P, R]) -> Callable[P, R]:
    """Checks the operands of a function by its annotations, and converts whole numbers to int32.

    Numbers that int32 cannot hold become the nearest one that it can, as indices out of range become the nearest row.
    """
    return operation_on()(function)


def operation_on(*filled: str) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """An `operation` that also refuses operands without anything along one of these axes."""

    def decorated(function: Callable[P, R]) -> Callable[P, R]:
        signature, contract = inspect.signature(function), Contract.of(function, filled)

        @wraps(function)
        def checked(*args: P.args, **kwargs: P.kwargs) -> R:
            bound = signature.bind(*args, **kwargs)
            bound.apply_defaults()
            contract.accept(bound.arguments)
            return function(*bound.args, **bound.kwargs)

        OPERATIONS[contract.name], CONTRACTS[contract.name] = checked, contract
        return checked

    return decorated


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
                got = describe_value(other[number])
                raise InputError(f"{name}: expected {other_name}[{number}] to be {describe_value(leaf)}, got {got}.")


def saturated(value: Any) -> jax.Array:
    """Whole numbers as int32; what int32 cannot hold becomes the nearest number that it can."""
    if getattr(value, "dtype", None) == jnp.int32:
        return jnp.asarray(value)
    library = jnp if isinstance(value, jax.Array) else np  # NumPy before JAX, which would cut off the upper half
    limits = np.iinfo(np.int32)
    least, most = (library.asarray(value).dtype.type(limit) for limit in _within(limits, _dtype_of(value)))
    return jnp.asarray(library.clip(value, least, most), jnp.int32)


def describe_value(value: Any) -> str:
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


def _has_form(array: jax.Array, form: Form, sizes: Mapping[str, int]) -> bool:
    sizes = dict(sizes)
    return len(array.shape) == len(form.axes) and all(
        size == (int(axis) if axis.isdecimal() else sizes.setdefault(axis, size))
        for axis, size in zip(form.axes, array.shape, strict=True)
    )


INSTRUCTION_SETS = ("avx512", "avx2", "portable")


@dataclass(frozen=True)
class Library:
    """The outcome of a search: a loaded library, or the reason why XLA computes instead."""

    loaded: ctypes.CDLL | None
    path: Path | None
    instruction_set: str | None
    reason: str | None


def run(operation: str, twin: Callable[..., Any], results: Sequence[Any], *operands: jax.Array) -> Any:
    """A native operation where it serves these operands, and its XLA twin everywhere else.

    Where a derivative is asked for that no rule gives, such as a second one, it is the twin's.

    Args:
        operation: its name in the library, without the prefix `longspan_`.
        twin: the same function of the operands in JAX.
        results: an array or struct with the shape and dtype of each result; the only result is returned bare.
        operands: the arrays, in the order of the C++ handler. An operation that checks its contract makes sure of their
            shapes and dtypes.
    """
    if not fits(*operands):
        return twin(*operands)
    shapes = tuple(jax.ShapeDtypeStruct(result.shape, result.dtype) for result in results)

    @jax.custom_jvp
    def native(*operands):
        found = call(operation, shapes, *operands)
        return found[0] if len(shapes) == 1 else tuple(found)

    native.defjvp(lambda primals, tangents: jax.jvp(twin, primals, tangents))
    return native(*operands)


def call(operation: str, results: Sequence[Any], *operands: jax.Array, aliases: dict[int, int] | None = None) -> Any:
    """Traces one native operation.

    Args:
        operation: its name in the library, without the prefix `longspan_`.
        results: shape and dtype of each result.
        operands: the arrays, in the order of the C++ handler.
        aliases: operand index to result index, for results written over an operand.
    """
    found = find()
    if found.loaded is None:
        raise RuntimeError(f"No native kernels for {operation}: {found.reason}")
    found.loaded.longspan_set_threads(threads())
    target = _register(operation, found.instruction_set)
    return jax.ffi.ffi_call(target, tuple(results), vmap_method="sequential", input_output_aliases=aliases)(*operands)


def fits(*arrays: jax.Array) -> bool:
    """Whether the native path serves these arrays: floats are float32, nothing is empty, and a library is loaded."""
    floats = [array for array in arrays if jnp.issubdtype(array.dtype, jnp.floating)]
    small = all(array.dtype == jnp.float32 for array in floats) and all(array.size for array in arrays)
    return small and find().loaded is not None


def active() -> Literal["native", "xla"]:
    """Which implementation newly traced operations use: native where it loads and JAX runs on the CPU."""
    return "native" if find().loaded is not None else "xla"


def describe() -> dict[str, Any]:
    """What runs and why, for `longspan doctor`: kernels, library, instruction set, threads, reason."""
    found = find()
    return {
        "kernels": active(),
        "library": str(found.path) if found.path else None,
        "instruction_set": found.instruction_set,
        "threads": threads(),
        "reason": found.reason,
    }


def threads() -> int:
    """Threads that one native operation may use: `LONGSPAN_THREADS`, 1 by default."""
    text = os.environ.get("LONGSPAN_THREADS", "1")
    if not text.isdecimal() or int(text) < 1:
        raise InputError(f"LONGSPAN_THREADS must be a whole number of at least 1, got {text!r}.")
    return int(text)


def find() -> Library:
    """The library that the environment selects; cheap to call again."""
    kernels = os.environ.get("LONGSPAN_KERNELS", "")
    wanted = os.environ.get("LONGSPAN_INSTRUCTION_SET", "")
    if kernels not in {"", "native", "xla"}:
        raise InputError(f"LONGSPAN_KERNELS must be native or xla, got {kernels!r}.")
    if wanted and wanted not in INSTRUCTION_SETS:
        raise InputError(f"LONGSPAN_INSTRUCTION_SET must be one of {', '.join(INSTRUCTION_SETS)}, got {wanted!r}.")
    if kernels == "xla":
        return _no("LONGSPAN_KERNELS=xla")
    found = find_native(wanted)
    if kernels == "native" and found.loaded is None:
        raise InputError(f"LONGSPAN_KERNELS=native, but native kernels cannot run here: {found.reason}")
    return found


@cache
def find_native(wanted: str) -> Library:
    """The library of an instruction set, or with an empty name the best one that this processor understands."""
    if jax.default_backend() != "cpu":
        return _no(f"JAX runs on {jax.default_backend()}, native kernels on the CPU")
    portable = _path("portable")
    if portable is None:
        return _no("not built: the installation found no C++ compiler or no jaxlib headers")
    try:
        ask = ctypes.CDLL(str(portable)).longspan_instruction_set
        ask.restype = ctypes.c_char_p
        best = INSTRUCTION_SETS.index(ask().decode())
        for name in [wanted] if wanted else INSTRUCTION_SETS[best:]:
            path = _path(name)
            if INSTRUCTION_SETS.index(name) >= best and path is not None:
                return Library(ctypes.CDLL(str(path)), path, name, None)
    except OSError as error:
        return _no(f"not loadable: {error}")
    return _no(f"LONGSPAN_INSTRUCTION_SET={wanted} is not built, or this processor lacks it")


def _no(reason: str) -> Library:
    return Library(loaded=None, path=None, instruction_set=None, reason=reason)


def _path(instruction_set: str) -> Path | None:
    return next(iter(sorted(Path(__file__).parent.glob(f"_native_{instruction_set}.*"))), None)


@cache
def _register(operation: str, instruction_set: str | None) -> str:
    target = f"longspan_{operation}_{instruction_set}"
    handler = getattr(find().loaded, f"longspan_{operation}")
    jax.ffi.register_ffi_target(target, jax.ffi.pycapsule(handler), platform="cpu")
    return target
