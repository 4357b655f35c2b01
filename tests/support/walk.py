"""The walk of a command: which files of the package are called on its way.

    python -m tests.support.walk train nade:sgd+crm --data jsb --max-epochs 1 --run-dir /tmp/walk

prints, as JSON on the last line, the exit code and the files of `longspan` on the way: Python files of which at least
one function was called, and the C++ files behind those of `ops`.
"""

import inspect
import json
import re
import sys
import threading
from pathlib import Path

import longspan

PACKAGE = Path(longspan.__file__).parent
NATIVE = PACKAGE / "ops/native"


def walk(arguments: list[str]) -> tuple[int, list[str]]:
    """Run a command of longspan; return its exit code and the Python files whose functions were called, sorted."""
    called = set()

    def remember(frame, event, argument):
        # Bodies of modules and classes run when they are imported; only functions are compiled as optimized code.
        if event == "call" and frame.f_code.co_flags & inspect.CO_OPTIMIZED:
            called.add(frame.f_code.co_filename)

    threading.setprofile(remember)
    sys.setprofile(remember)
    try:
        from longspan.cli import run

        code = run(arguments)
    finally:
        sys.setprofile(None)
        threading.setprofile(None)  # type: ignore[arg-type]
    paths = [Path(name) for name in called]
    return code, sorted(str(path.relative_to(PACKAGE)) for path in paths if path.is_relative_to(PACKAGE))


def kernels_behind(files: list[str]) -> list[str]:
    """The C++ files that a call of these Python files passes: the bindings, the source of each family of operations
    (`linear.cc` for `linear.py`), and every header they include with its source.
    """
    families = [NATIVE / f"{Path(file).stem}.cc" for file in files if Path(file).parent == Path("ops")]
    found, waiting = set(), [NATIVE / "bindings.cc", *(path for path in families if path.exists())]
    while waiting:
        path = waiting.pop()
        if path not in found:
            found.add(path)
            included = [NATIVE / name for name in re.findall(r'#include "([a-z]+\.h)"', path.read_text())]
            waiting += included + [
                header.with_suffix(".cc") for header in included if header.with_suffix(".cc").exists()
            ]
    return sorted(str(path.relative_to(PACKAGE)) for path in found)


if __name__ == "__main__":
    code, files = walk(sys.argv[1:])
    sys.stdout.write(json.dumps({"exit": code, "files": files, "kernels": kernels_behind(files)}) + "\n")
