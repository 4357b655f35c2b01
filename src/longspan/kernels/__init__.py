"""Operations of a training step that XLA computes slowly on a CPU: native kernels, each beside its XLA twin.

Every module holds one family. Its functions take the native path where `active()` says so and the arrays are
float32, and their twin everywhere else; both give the same numbers to rounding. The environment decides, when
a function is traced: `LONGSPAN_KERNELS` (native | xla), `LONGSPAN_INSTRUCTION_SET` (avx512 | avx2 | portable)
and `LONGSPAN_THREADS` (threads of one kernel call, 1 by default). Nothing is loaded before it is asked for.
"""

from typing import Any, Literal


def active() -> Literal["native", "xla"]:
    """Which implementation newly traced operations use: native where it loads and JAX runs on the CPU."""
    from longspan.kernels import library

    return "native" if library.find().loaded is not None else "xla"


def describe() -> dict[str, Any]:
    """What runs and why, for `longspan doctor`: kernels, library, instruction set, threads, reason."""
    from longspan.kernels import library

    found = library.find()
    return {
        "kernels": active(),
        "library": str(found.path) if found.path else None,
        "instruction_set": found.instruction_set,
        "threads": library.threads(),
        "reason": found.reason,
    }
