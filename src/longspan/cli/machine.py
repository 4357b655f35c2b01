"""Settings of the machine that must stand before JAX is imported: threads and the compilation cache."""

import os
import platform
import sys
from importlib import metadata

from longspan.data.storage import cache_directory


def prepare(threads: int) -> None:
    """Pin the number of threads (the last bits of a result depend on it) and cache compiled programs."""
    if "jax" in sys.modules:
        raise RuntimeError("prepare() must run before JAX is imported")
    os.environ["NPROC"] = str(threads)  # XLA sizes its thread pool by this
    os.environ["LONGSPAN_THREADS"] = str(threads)
    os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(cache_directory() / "compiled"))
    os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0.3")


def describe(threads: int) -> dict:
    """Versions and machine, as a run records them."""
    packages = ("longspan", "jax", "jaxlib", "equinox", "optax", "numpy")
    return {
        "python": platform.python_version(),
        "platform": platform.platform(),
        "machine": platform.machine(),
        "cores": os.cpu_count(),
        "threads": threads,
        "versions": {name: version(name) for name in packages},
    }


def version(package: str) -> str | None:
    """Installed version of a package, None if it is not installed."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None
