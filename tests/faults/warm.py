"""A process with everything imported that forks one child for each `longspan` command.

What is killed is a real process, but it need not wait for its imports.

Nothing is computed before the fork, so that XLA starts in the child, with its threads. Commands are lines of JSON on
standard input, each answered by a line; a line may hold several commands, which then run at the same time. With
`strace`, a child waits until its system calls are traced, so that any of them can be made to fail.
"""

import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple


class Ended(NamedTuple):
    """How a command ended: like the fields of `subprocess.CompletedProcess`, and the lines of strace."""

    returncode: int
    stdout: str
    stderr: str
    trace: list[str]


class Warm:
    """A client of such a process."""

    def __init__(self, environment: dict[str, str]):
        command = [sys.executable, "-m", "tests.faults.warm"]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        self.server = subprocess.Popen(command, env=environment, **pipes)

    def run(self, *commands: list[str], environment: dict[str, str] | None = None, strace: str = "") -> list[Ended]:
        """Run commands of `longspan` at the same time; `strace` is more options of strace, if it is to be used."""
        assert self.server.stdin is not None
        assert self.server.stdout is not None
        order = {"commands": commands, "environment": environment or {}, "strace": strace}
        self.server.stdin.write(json.dumps(order) + "\n")
        self.server.stdin.flush()
        return [Ended(*ended) for ended in json.loads(self.server.stdout.readline())]

    def close(self) -> None:
        assert self.server.stdin is not None
        self.server.stdin.close()
        self.server.wait()


@contextmanager
def warm(environment: dict[str, str]) -> Iterator[Warm]:
    found = Warm(environment)
    try:
        yield found
    finally:
        found.close()


def serve() -> None:
    import_everything()
    answers = os.fdopen(os.dup(1), "w")
    for line in sys.stdin:
        order = json.loads(line)
        with tempfile.TemporaryDirectory() as folder:
            begun = [
                begin(command, order["environment"], order["strace"], Path(folder) / str(number))
                for number, command in enumerate(order["commands"])
            ]
            answers.write(json.dumps([ended(*child) for child in begun]) + "\n")
        answers.flush()


def import_everything() -> None:
    import longspan.cli.search
    import longspan.cli.train
    import longspan.progress
    import longspan.search.trial  # noqa: F401
    from longspan.training import loop, setup  # noqa: F401

    bridge = sys.modules["jax._src.xla_bridge"]
    assert not bridge.backends_are_initialized(), "a fork would share the threads of XLA"


def begin(command: list[str], environment: dict[str, str], strace: str, output: Path) -> tuple[int, Path]:
    """Fork a child for a command; its process number and what its output files begin with."""
    child = os.fork()
    if child == 0:
        be_longspan(command, environment, output, wait=bool(strace))
    if strace:
        attach(child, strace, output)
    return child, output


def be_longspan(command: list[str], environment: dict[str, str], output: Path, *, wait: bool) -> None:
    """The life of a child; does not return."""
    code = 1
    try:
        os.environ.update(environment)
        for stream, name in ((1, "out"), (2, "err")):
            os.dup2(os.open(f"{output}.{name}", os.O_WRONLY | os.O_CREAT | os.O_TRUNC), stream)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        if wait:
            signal.raise_signal(signal.SIGSTOP)
        from longspan.cli import run

        code = run(command)
    except SystemExit as left:
        code = left.code if isinstance(left.code, int) else 2
    except BaseException:
        traceback.print_exc()
    finally:
        try:
            sys.stdout.flush()
            sys.stderr.flush()
        finally:
            os._exit(code)


def attach(child: int, options: str, output: Path) -> None:
    os.waitpid(child, os.WUNTRACED)
    command = ["strace", "-y", "-qq", "-e", "signal=none", "-o", f"{output}.trace", *options.split(), "-p", str(child)]
    tracer = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    status = Path(f"/proc/{child}/status")
    while "TracerPid:\t0" in status.read_text():
        assert tracer.poll() is None, "strace ended before it was attached"
        select.select([], [], [], 0.01)
    os.kill(child, signal.SIGCONT)


def ended(child: int, output: Path) -> Ended:
    _, status = os.waitpid(child, 0)
    out, err = (Path(f"{output}.{name}").read_text(errors="replace") for name in ("out", "err"))
    trace = Path(f"{output}.trace")
    lines = trace.read_text(errors="replace").splitlines() if trace.exists() else []
    return Ended(os.waitstatus_to_exitcode(status), out, err, lines)


if __name__ == "__main__":
    serve()
