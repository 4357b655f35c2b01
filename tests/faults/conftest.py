"""A run folder to be attacked, and readers of hostile files: what one did, took and said, in a process of its own."""

import json
import selectors
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest

FOLDERS = Path(__file__).parents[1] / "training" / "folders"
HANG = 300
"""Seconds after which a reader counts as hanging; a guard and no measure of speed."""


class Outcome(NamedTuple):
    """`accepted`, `refused` (an `InputError`) or the name of another exception; its message; what it took."""

    outcome: str
    message: str
    bytes: int
    seconds: float
    """Of processor time."""


@pytest.fixture
def run_path(tmp_path) -> Path:
    """A copy of the folder of a run that has ended."""
    return Path(shutil.copytree(FOLDERS / "format-2", tmp_path / "run"))


@pytest.fixture(scope="session")
def measured() -> Iterator[Callable[[str, Path], Outcome]]:
    """A function that runs a reader of `measure.py` on a file."""
    with reader_process() as measure:
        yield measure


@contextmanager
def reader_process() -> Iterator[Callable[[str, Path], Outcome]]:
    """Yield a function that runs a reader on a file in a process of its own and measures it."""
    if not Path("/proc/self/clear_refs").exists():
        pytest.skip("needs Linux to tell the memory a process took")
    command = [sys.executable, "-u", str(Path(__file__).with_name("measure.py"))]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as server:
        assert server.stdin is not None
        assert server.stdout is not None
        ready = selectors.DefaultSelector()
        ready.register(server.stdout, selectors.EVENT_READ)

        def measure(reader: str, path: Path) -> Outcome:
            server.stdin.write(json.dumps([reader, str(path)]).encode() + b"\n")
            server.stdin.flush()
            if not ready.select(HANG):
                server.kill()
                pytest.fail(f"reading {path} hangs")
            found = json.loads(server.stdout.readline())
            return Outcome(found["outcome"], found["message"], found["bytes"], found["seconds"])

        yield measure
        server.stdin.close()
