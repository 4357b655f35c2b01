"""Where tests find the benchmark files; tests that need them skip, visibly, where there are none."""

import os
from pathlib import Path

import pytest

DATA = Path(os.environ.get("LONGSPAN_DATA", ""))

needs_benchmarks = pytest.mark.skipif(
    not (DATA / "JSB_Chorales.mat").is_file(),
    reason="needs the benchmark files: set LONGSPAN_DATA to a folder that has them",
)
