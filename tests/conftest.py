"""One thread and the CPU for every test; data-dependent tests skip visibly where the data are not."""

import os

os.environ.setdefault("NPROC", "1")
os.environ.setdefault("JAX_PLATFORMS", "cpu")

from pathlib import Path

import numpy as np
import pytest


@pytest.fixture
def random():
    return np.random.default_rng(0)


@pytest.fixture(scope="session")
def benchmark_data() -> Path:
    """The folder of the paper's data sets."""
    folder = os.environ.get("LONGSPAN_DATA")
    if not folder or not (Path(folder) / "JSB_Chorales.mat").exists():
        pytest.skip("LONGSPAN_DATA does not name a folder with the benchmark files")
    return Path(folder)
