"""The process environment: threads, the cache of compiled programs, versions, signals and time limits.

XLA sizes its thread pool once, at its first computation, and the last bits of a result depend on that size. So the
number of threads is pinned before that; if XLA has already computed in this process, the record says how many threads
were found instead.

A run that is interrupted and resumed ends in the same bytes only where everything that rounds stays the same: the
compiler (jaxlib), the kernels and the instruction set they use, the number of threads, and the versions of the packages
whose arithmetic or random numbers enter. A change of any of these is refused unless it is accepted; any other change is
mentioned.
"""

import ctypes
import gc
import math
import os
import platform
import signal
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from importlib import metadata
from pathlib import Path

from longspan import __version__
from longspan.errors import InputError, shortened
from longspan.files import cache_directory

RECORDED_PACKAGES = ("jax", "jaxlib", "equinox", "optax", "numpy")


def prepare(threads: int, replicas: int = 1) -> dict:
    """Pin the number of threads and cache compiled programs; return the record of `describe`.

    Args:
        threads: threads of one operation.
        replicas: programs that run at once.
    """
    pinned = not _xla_runs()
    if pinned:
        os.environ["NPROC"] = str(threads * replicas)  # XLA sizes its thread pool by this
        os.environ["LONGSPAN_THREADS"] = str(threads)
        prepare_imports()
        _set_up_jax()
    return describe(threads, pinned=pinned)


def prepare_imports() -> None:
    """Set what SciPy and JAX read when they are imported; importing them does not start XLA."""
    os.environ["OPENBLAS_NUM_THREADS"] = "1"  # orthogonal matrices round otherwise with more
    os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0.1")
    os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(cache_directory() / "compiled"))


def describe(threads: int, *, pinned: bool = True) -> dict:
    """Versions and machine, as recorded in a run; unless `pinned`, also the number of threads there may really be."""
    found = {} if pinned else {"threads_found": _threads_found()}
    from longspan.ops import backend  # after the threads are set, because it starts XLA

    kernels = backend.describe()
    return {
        "python": platform.python_version(),
        "platform": platform.platform(),
        "machine": platform.machine(),
        "cores": os.cpu_count(),
        "kernels": kernels["kernels"],
        "instruction_set": kernels["instruction_set"] or _instruction_set(),
        "threads": threads,
        **found,
        "versions": {"longspan": __version__, **{name: version(name) for name in RECORDED_PACKAGES}},
    }


def version(package: str) -> str | None:
    """Installed version of a package; None if it is not installed."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def available_cores() -> int:
    """Number of cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def return_memory() -> None:
    """Give memory that is no longer used back to the system: compiled programs leave the heap full of holes."""
    gc.collect()
    with suppress(OSError, AttributeError):  # only the C library of GNU can
        ctypes.CDLL("libc.so.6").malloc_trim(0)


def _raise_interrupt() -> None:
    raise KeyboardInterrupt


@contextmanager
def first_interrupt(second: Callable[[], None] = _raise_interrupt) -> Iterator[Callable[[], bool]]:
    """Yield a function that tells whether Ctrl-C or a termination signal has arrived.

    `second` is called when another one arrives, also after the block. Where JAX was used it should end the process: an
    exception might be raised in a callback of a compiled program or while the interpreter exits, where nothing can
    catch it.
    """
    seen = []

    def remember(number, frame):
        if seen:
            second()
        seen.append(number)

    previous = {number: signal.signal(number, remember) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield lambda: bool(seen)
    finally:
        if not seen:
            for number, handler in previous.items():
                signal.signal(number, handler)


def _instruction_set() -> str | None:
    """What XLA may use where there are no native kernels; None where the system does not tell."""
    try:
        flags = Path("/proc/cpuinfo").read_text().split()
    except OSError:
        return None
    return "avx512" if "avx512f" in flags else "avx2" if "avx2" in flags else "portable"


def _xla_runs() -> bool:
    """Whether XLA has already computed in this process; JAX has no public way to ask without starting it."""
    bridge = sys.modules.get("jax._src.xla_bridge")
    return bridge is not None and bool(getattr(bridge, "backends_are_initialized", lambda: True)())


def _set_up_jax() -> None:
    import jax

    # Programs run in the thread that calls them, so that those of replicas run at once; in XLA's own they take turns.
    jax.config.update("jax_cpu_enable_async_dispatch", False)
    if jax.config.values["jax_compilation_cache_dir"] is None:  # it has read its environment before
        jax.config.update("jax_compilation_cache_dir", os.environ["JAX_COMPILATION_CACHE_DIR"])
        least = float(os.environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"])
        jax.config.update("jax_persistent_cache_min_compile_time_secs", least)


def _threads_found() -> int:
    asked = os.environ.get("NPROC", "")
    return int(asked) if asked.isdecimal() else available_cores()


def check_checkpoint_seconds(seconds: float) -> None:
    """Refuse an invalid time between checkpoints."""
    if not 0 <= seconds < math.inf:
        raise InputError(
            f"checkpoint_seconds must be at least 0 and finite: got {seconds:g}", fields=["checkpoint_seconds"]
        )


def time_limit(seconds: float | None, name: str = "max_seconds") -> Callable[[], bool]:
    """A function that tells whether `seconds` have passed since this call; always False without a limit.

    `name` is what messages call the limit.
    """
    if seconds is None:
        return lambda: False
    if not isinstance(seconds, int | float) or not 0 < seconds < math.inf:
        raise InputError(f"{name} must be a number above 0 and finite: got {seconds!r}", fields=[name])
    deadline = time.monotonic() + seconds
    return lambda: time.monotonic() > deadline


DECISIVE = ("machine", "kernels", "instruction_set", "threads")
"""Besides the versions of all recorded packages."""
LONGEST_VALUE = 200
"""Characters of a value that is shown: what was recorded may be somebody else's, and anything."""
MENTIONED = ("python", "platform", "cores")


class EnvironmentChanged(UserWarning):
    """A run is continued by another program or on another machine, which may not matter."""


def environment_changes(before: dict, now: dict) -> tuple[list[str], list[str]]:
    """What differs between two environments, as phrases: what decides bytes, and the rest.

    Values that one of them does not record, such as those of an older version, are not compared.

    Example:
        >>> environment_changes({"threads": 1, "python": "3.11.2"}, {"threads": 2, "python": "3.12.0"})
        (['threads 1, now 2'], ['python 3.11.2, now 3.12.0'])
    """
    before, now = _flat(before), _flat(now)
    decisive, rest = [], []
    for name in before:
        if before[name] is None or now.get(name) is None or before[name] == now[name]:
            continue
        was, is_now = (shortened(str(each[name]), LONGEST_VALUE) for each in (before, now))
        (rest if name in MENTIONED else decisive).append(f"{name} {was}, now {is_now}")
    return decisive, rest


def check_same_environment(path: Path, before: dict, now: dict, *, accept: bool) -> bool:
    """Refuse to continue a run where it would not end in the same bytes; return whether a change was accepted."""
    decisive, rest = environment_changes(before, now)
    if decisive and not accept:
        raise InputError(
            f"{path} was trained with {'; '.join(decisive)}: it would not end in the same bytes. Restore what it was "
            "trained with, or continue all the same with accept_environment",
            fields=["accept_environment"],
        )
    if decisive or rest:
        warnings.warn(EnvironmentChanged(f"{path} was trained with {'; '.join([*decisive, *rest])}"), stacklevel=3)
    return bool(decisive)


def succeeding_environment(before: dict, now: dict) -> dict:
    """The record of a run that was continued in another environment: the new one, and all earlier ones."""
    earlier = [*before.get("earlier", []), {name: value for name, value in before.items() if name != "earlier"}]
    return {**now, "earlier": earlier}


def _flat(environment: dict) -> dict:
    named = {name: environment.get(name) for name in (*DECISIVE, *MENTIONED)}
    named["threads"] = environment.get("threads_found", named["threads"])
    versions = environment.get("versions")
    return named | (versions if isinstance(versions, dict) else {})
