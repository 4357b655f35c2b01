"""The documentation site, built once for all tests of this folder."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def loose_ranks(as_users_write):
    """Tutorials are written as users write."""


@pytest.fixture(scope="session")
def site(tmp_path_factory) -> Path:
    """The folder of the built site; building it says nothing and reaches no network."""
    folder = tmp_path_factory.mktemp("site")
    nowhere = "http://127.0.0.1:9"  # whatever asks for something by HTTP fails
    environment = {
        **os.environ,
        "NO_MKDOCS_2_WARNING": "1",
        "PYTHONPATH": str(ROOT / "src"),
        **dict.fromkeys(("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"), nowhere),
    }
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder)]
    built = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert (built.returncode, built.stdout + built.stderr) == (0, "")
    return folder
