"""Finds the native library for this processor, loads it when first needed, and runs its operations or their twins.

The libraries are built by setup.py, one per instruction set. The portable one knows the processor, so it is loaded
first and asked which of the others may run. The environment decides, when a function is traced: `LONGSPAN_KERNELS`
(native | xla), `LONGSPAN_INSTRUCTION_SET` (avx512 | avx2 | portable) and `LONGSPAN_THREADS` (threads of one native
operation, 1 by default).
"""

import ctypes
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal

import jax
import jax.numpy as jnp

from longspan.errors import InputError

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
