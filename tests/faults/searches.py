"""Searches that meet faults of six kinds while they run and must end with the slots and bytes of an undisturbed one."""

import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from longspan.data.archive import write_set
from tests.search.test_kill_workers import SPACE, arguments, children, essence, trained
from tests.support.catalog import tiny_music
from tests.support.postgresql import Server

HEARTBEAT = 1
GRACE = 4 * HEARTBEAT
FAKETIME = shutil.which("faketime")
KINDS = ("kill", "stop", "disk", "outage", "interrupt", *(["clock"] if FAKETIME else []))
PATIENCE = 600
"""Seconds in which something must move; a guard and no measure of speed."""


@dataclass
class Search:
    """A search of a tiny study on a server, started again whenever a fault has ended it."""

    inputs: Path
    folder: Path
    server: Server
    environment: dict[str, str]
    process: subprocess.Popen | None = None
    guests: list[subprocess.Popen] = field(default_factory=list)

    def command(self) -> list[str]:
        more = ["--workers", "2", "--storage", self.server.url, "--heartbeat-seconds", str(HEARTBEAT)]
        return [sys.executable, "-m", "longspan", "search", *arguments(self.inputs, self.folder, *more)]

    def go_on(self) -> None:
        """Start the command, unless it runs."""
        if self.process is None or self.process.poll() is not None:
            with (self.folder.parent / "search.log").open("ab") as log:
                self.process = subprocess.Popen(
                    self.command(), env=self.environment, stdout=subprocess.DEVNULL, stderr=log
                )

    def wait_for_progress(self) -> bool:
        """Wait until something was trained or the command ended well; False if it has."""
        before, since = trained(self.folder), time.monotonic()
        while trained(self.folder) == before:
            assert self.process is not None
            if self.process.poll() == 0:
                return False
            self.go_on()
            assert time.monotonic() - since < PATIENCE, "nothing moves any more"
            time.sleep(0.1)
        return True

    def worker(self) -> int | None:
        assert self.process is not None
        return next(iter(random.sample(found := children(self.process), len(found))), None)

    def end(self) -> int:
        """Let the search end, starting it again if a fault stopped it; the exit code."""
        for _ in range(5):
            self.go_on()
            assert self.process is not None
            if self.process.wait(PATIENCE) == 0:
                break
        for guest in self.guests:
            guest.kill()
            guest.wait()
        return self.process.returncode


def kill(search: Search) -> bool:
    """Kill a worker; False if there was none, which is no try."""
    with suppress(ProcessLookupError):
        if worker := search.worker():
            os.kill(worker, signal.SIGKILL)
            return True
    return False


def stop(search: Search) -> bool:
    """Stop a worker until others believe it dead, and let it go on; False if there was none."""
    with suppress(ProcessLookupError):
        if worker := search.worker():
            os.kill(worker, signal.SIGSTOP)
            time.sleep(GRACE + 2)
            os.kill(worker, signal.SIGCONT)
            return True
    return False


def disk(search: Search) -> None:
    """Fill the disk of the study for a while."""
    ballast = search.folder / "ballast"
    with suppress(OSError), ballast.open("wb", buffering=0) as file:
        while True:
            file.write(bytes(65536))
    time.sleep(2)
    ballast.unlink()


def outage(search: Search) -> None:
    search.server.stop()
    time.sleep(2)
    search.server.start()


def interrupt(search: Search) -> None:
    assert search.process is not None
    search.process.send_signal(signal.SIGINT)
    search.process.wait(PATIENCE)
    search.go_on()


def clock(search: Search) -> None:
    """Let a worker join whose clock is two hours ahead of everybody else's."""
    assert FAKETIME is not None
    join = [sys.executable, "-m", "longspan", "worker", search.server.url, "--study", "tiny", "--quiet"]
    where = ["--study-dir", str(search.folder), "--checkpoint-seconds", "0"]
    search.guests.append(
        subprocess.Popen([FAKETIME, "-f", "+2h", *join, *where], env=search.environment, stderr=subprocess.DEVNULL)
    )


FAULTS = {"kill": kill, "stop": stop, "disk": disk, "outage": outage, "interrupt": interrupt, "clock": clock}


@contextmanager
def small_disk(path: Path) -> Iterator[Path]:
    """A disk of its own for a folder, so that filling it hurts nobody else; needs root."""
    path.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=24m", "tmpfs", str(path)], check=True)
    try:
        yield path
    finally:
        subprocess.run(["umount", "-l", str(path)], check=True)


def write_inputs(folder: Path) -> Path:
    folder.mkdir(exist_ok=True)
    write_set(folder / "tiny.npz", tiny_music())
    (folder / "space.toml").write_text(SPACE)
    return folder


def disturb(search: Search, faults: list[str]) -> int:
    """Hit a search by faults, one after the other, while it makes progress; how many it met before its end."""
    search.go_on()
    met = 0
    for fault in faults:
        if not search.wait_for_progress():
            break
        met += FAULTS[fault](search) is not False
    return met


def difference(quiet: Path, search: Search) -> str:
    """What is different from an undisturbed study; empty if nothing is."""
    if (code := search.end()) != 0:
        return f"exit {code}: {(search.folder.parent / 'search.log').read_text(errors='replace')[-400:]}"
    from longspan.search import storage

    expected, found = essence(quiet), essence(search.folder, storage.normalized(search.server.url))
    return ", ".join(name for name in expected if expected[name] != found[name])
