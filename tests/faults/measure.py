"""Run readers on files, each in a process of its own, and print what came of it and what it took.

Every line of standard input, a reader and a path in JSON, is answered by a line of JSON. The processes are forked from
this one, which has everything imported. The memory is the growth of the resident set's high-water mark, which
`getrusage` would not tell: there a child begins with the mark of its parent.
"""

import json
import os
import resource
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from longspan.arms.records import SlotResult, read_lines
from longspan.data import import_path
from longspan.data.musicxml import read_score
from longspan.errors import InputError
from longspan.files import read_json
from longspan.recipes import read_settings
from longspan.training.runs import Run
from longspan.training.setup import trained_model

ADDRESS_SPACE = 6 * 2**30
"""A bomb that goes off must not take the machine with it."""


def import_and_describe(path: Path, **options) -> str:
    """What `longspan data import` does."""
    with tempfile.TemporaryDirectory() as folder:
        report = import_path(path, name="x", data_dir=folder, **options)
        _ = report.summary
    return "; ".join(f"skipped {file}: {reason}" for file, reason in report.skipped)


def numpy_arrays(path: Path) -> None:
    """The control: all arrays of an archive, as NumPy reads them."""
    with np.load(path) as arrays:
        for array in [arrays[name] for name in arrays]:
            array.sum()


def model(path: Path) -> None:
    """The weights of a run, in the shapes that its settings and its data ask for."""
    trained_model(Run.open(path))


READERS = {
    "import": import_and_describe,
    "words": lambda path: import_and_describe(path, unit="word"),
    "score": read_score,
    "model": model,
    "settings": read_settings,
    "results": lambda path: read_lines(path, SlotResult),
    "json": lambda path: read_json(path, dict, "restore it"),
    "numpy": numpy_arrays,
}


def high_water() -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) * 1024


def measure(reader: str, path: str) -> dict:
    resource.setrlimit(resource.RLIMIT_AS, (ADDRESS_SPACE, ADDRESS_SPACE))
    Path("/proc/self/clear_refs").write_text("5")  # the high-water mark begins anew
    before, start = high_water(), time.process_time()
    try:
        outcome, message = "accepted", str(READERS[reader](Path(path)) or "")
    except InputError as error:
        outcome, message = "refused", str(error)
    except BaseException as error:
        outcome, message = type(error).__name__, str(error)
    spent = os.times()
    seconds, grown = time.process_time() - start + spent.children_user + spent.children_system, high_water() - before
    return {"outcome": outcome, "message": message[:500], "bytes": grown, "seconds": seconds}


def main() -> None:
    for line in sys.stdin:
        child = os.fork()
        if child == 0:
            os.write(1, json.dumps(measure(*json.loads(line))).encode() + b"\n")
            os._exit(0)
        _, status = os.waitpid(child, 0)
        if status != 0:
            os.write(
                1,
                json.dumps({"outcome": f"died of {status}", "message": "", "bytes": 0, "seconds": 0}).encode() + b"\n",
            )


if __name__ == "__main__":
    main()
