"""The walk of a command: which files of the package are called on its way.

    python -m tests.support.walk train nade:sgd+crm --data jsb --max-epochs 1 --run-dir /tmp/walk

prints, as JSON on the last line, the exit code and the files of `longspan` of which at least one function was called.
"""

import inspect
import json
import sys
import threading
from pathlib import Path

import longspan

PACKAGE = Path(longspan.__file__).parent


def walk(arguments: list[str]) -> tuple[int, list[str]]:
    """Run a command of longspan; return its exit code and the files whose functions were called, sorted."""
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


if __name__ == "__main__":
    code, files = walk(sys.argv[1:])
    sys.stdout.write(json.dumps({"exit": code, "files": files}) + "\n")
