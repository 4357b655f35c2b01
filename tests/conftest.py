"""One thread and the CPU for every test; shapes and dtypes are what the annotations say, and JAX changes neither.

Nearly all the time of the suite is XLA compiling tiny programs: it optimizes them little here, and what one process has
compiled, the others (and the next run) read from a cache. Subprocesses inherit all of it.
"""

import os
from importlib.metadata import version
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, settings
from jaxtyping import config, install_import_hook

from tests.support.browser import launched_browser

QUICK_TO_COMPILE = ["--xla_backend_optimization_level=0", "--xla_llvm_disable_expensive_passes=true"]
if version("jaxlib").startswith("0.10."):  # later ones know no other way, and end a process that names the flag
    QUICK_TO_COMPILE.append("--xla_cpu_use_fusion_emitters=false")
CACHE = Path(__file__).parent.parent / ".pytest_cache" / "compiled"

os.environ.setdefault("NPROC", "1")
os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("XLA_FLAGS", " ".join(QUICK_TO_COMPILE))
os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(CACHE))
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")

import jax  # noqa: E402 - reads the environment

# How long an example takes says nothing on a machine that does other things as well.
settings.register_profile("longspan", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("longspan")

ARRAY_ROOMS = ["longspan.ops", "longspan.layers", "longspan.models", "longspan.optim", "longspan.evaluation"]
"""Where annotations speak of axes; `LONGSPAN_CHECKED=all` checks those of the whole package."""
if os.environ.get("LONGSPAN_CHECKED") != "none":
    rooms = ["longspan"] if os.environ.get("LONGSPAN_CHECKED") == "all" else ARRAY_ROOMS
    install_import_hook(rooms, "beartype.beartype(conf=beartype.BeartypeConf(is_pep484_tower=True))")


@pytest.fixture(autouse=True)
def strict_promotion():
    """JAX broadcasts nothing over missing axes and mixes no dtypes unless the code says so."""
    with jax.numpy_rank_promotion("raise"), jax.numpy_dtype_promotion("strict"):
        yield


def pytest_addoption(parser):
    group = parser.getgroup("longspan")
    group.addoption("--grid-sample", type=int, help="with -m slow: run this many combinations of the contracts' grid")
    group.addoption("--grid-seed", type=int, default=0, help="seed of that choice")


MOST_MAPPINGS = 6000
"""Of compiled programs, before they are let go: XLA takes a few for each, Linux allows a process 65,530, and this many
come with some two gigabytes of memory."""


@pytest.fixture(autouse=True, scope="module")
def few_compiled_programs():
    yield
    mappings = Path("/proc/self/maps")
    if mappings.exists() and len(mappings.read_bytes().splitlines()) > MOST_MAPPINGS:
        from longspan.runtime import return_memory  # not before the hook above is installed

        jax.clear_caches()
        return_memory()


@pytest.fixture
def random():
    return np.random.default_rng(0)


@pytest.fixture
def unchecked():
    """Nobody checks annotations, as outside of tests: for mistakes that the package refuses by itself."""
    config.update("jaxtyping_disable", True)
    yield
    config.update("jaxtyping_disable", False)


@pytest.fixture(scope="session")
def browser():
    """The installed Chromium; see `tests.support.browser`."""
    with launched_browser() as launched:
        yield launched


@pytest.fixture
def as_users_write(strict_promotion):
    """Users add a bias to rows as in NumPy, `hidden @ weights + bias`: their parts may."""
    with jax.numpy_rank_promotion("allow"):
        yield
