"""The process environment: threads, the cache of compiled programs, versions and signals.

XLA sizes its thread pool once, at its first computation, and the last bits of a result depend on that size. So the
number of threads is pinned before that; if XLA has already computed in this process, the record says how many threads
were found instead.
"""

import os
import platform
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import metadata
from pathlib import Path

from longspan import __version__
from longspan.data.storage import cache_directory

RECORDED_PACKAGES = ("jax", "jaxlib", "equinox", "optax", "numpy")


def prepare(threads: int) -> dict:
    """Pin the number of threads and cache compiled programs; return the record of `describe`."""
    pinned = not _xla_runs()
    if pinned:
        os.environ["NPROC"] = str(threads)  # XLA sizes its thread pool by this
        os.environ["LONGSPAN_THREADS"] = str(threads)
        os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0.3")
        os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(cache_directory() / "compiled"))
        if "jax" in sys.modules:  # it has read its environment already
            _set_compilation_cache()
    return describe(threads, pinned=pinned)


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


def _raise_interrupt() -> None:
    raise KeyboardInterrupt


@contextmanager
def first_interrupt(second: Callable[[], None] = _raise_interrupt) -> Iterator[Callable[[], bool]]:
    """Yield a function that tells whether Ctrl-C or a termination signal has arrived.

    `second` is called when another one arrives. Where JAX computes it should end the process: an exception might be
    raised in a callback of a compiled program, where nothing can catch it.
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


def _set_compilation_cache() -> None:
    import jax

    if jax.config.values["jax_compilation_cache_dir"] is None:
        jax.config.update("jax_compilation_cache_dir", os.environ["JAX_COMPILATION_CACHE_DIR"])
        least = float(os.environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"])
        jax.config.update("jax_persistent_cache_min_compile_time_secs", least)


def _threads_found() -> int:
    asked = os.environ.get("NPROC", "")
    return int(asked) if asked.isdecimal() else available_cores()
