"""Worker processes on this machine: one thread each, each on its own cores, started again when something kills them."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Literal

from longspan.errors import InputError
from longspan.files import explain_disk_errors
from longspan.search.cores import claimed_cores
from longspan.search.limits import Limits
from longspan.search.storage import URL_VARIABLE, explain_outage, patiently
from longspan.search.study import Study

Ending = Literal["finished", "interrupted", "elsewhere"]
"""Of a study; elsewhere: all slots are done, but the result is left to the machine that has the winner's run."""

TICK_SECONDS = 1.0
INTERRUPTED = 130


@dataclass(frozen=True)
class PoolOptions:
    """How many workers, and what each needs to know beyond the storage."""

    folder: Path
    workers: int = 1
    data_dir: Path | None = None
    limits: Limits = field(default_factory=Limits)


def run_pool(
    study: Study, options: PoolOptions, *, interrupted: Callable[[], bool], on_tick: Callable[[], None]
) -> Ending:
    """Keep workers at a study until it is concluded or `interrupted()`; then all are asked to save and stop.

    `on_tick` is called about once a second, for whoever shows the study.
    """
    with explain_outage(study.url):
        if patiently(lambda: study.concluded, unless=interrupted):
            return "finished"
        with claimed_cores(options.workers, study.definition.base.threads) as cores:
            pool = _Pool(study, options, cores)
            _keep_at_work(pool, interrupted, on_tick)
        if patiently(lambda: study.concluded, unless=interrupted):
            return "finished"
    if interrupted():
        return "interrupted"
    if pool.failures:
        raise InputError(pool.failures[0])
    return "elsewhere"


def _keep_at_work(pool: "_Pool", interrupted: Callable[[], bool], on_tick: Callable[[], None]) -> None:
    try:
        while not interrupted():
            patiently(on_tick, unless=interrupted)
            if pool.tend(interrupted) == 0:
                break
            time.sleep(TICK_SECONDS)
        pool.stop()
    except Exception:  # not KeyboardInterrupt: whoever asks twice does not want to wait
        pool.stop()
        raise
    finally:
        pool.kill()
    patiently(on_tick, unless=interrupted)


class _Pool:
    def __init__(self, study: Study, options: PoolOptions, cores: list[set[int]]):
        self.study = study
        self.options = options
        self.logs = options.folder / "workers"
        with explain_disk_errors(self.logs):
            self.logs.mkdir(parents=True, exist_ok=True)
        self.failures: list[str] = []
        self.cores = cores
        self.processes = {number: self._start(number, cores[number]) for number in range(options.workers)}

    def tend(self, interrupted: Callable[[], bool]) -> int:
        """Start killed workers again; returns how many are at work."""
        for number, process in list(self.processes.items()):
            code = process.poll()
            if code is None:
                continue
            del self.processes[number]
            if code == -signal.SIGKILL:
                if not patiently(lambda: self.study.concluded, unless=interrupted):
                    self.processes[number] = self._start(number, self.cores[number])
            elif code not in (0, INTERRUPTED):
                self.failures.append(self._explain(number, code))
        return len(self.processes)

    def stop(self) -> None:
        """Ask every worker to save and stop, and wait until it has."""
        for process in self.processes.values():
            process.terminate()
        for process in self.processes.values():
            process.wait()

    def kill(self) -> None:
        for process in self.processes.values():
            if process.poll() is None:
                process.kill()
                process.wait()

    def _start(self, number: int, cores: set[int]) -> subprocess.Popen:
        options = self.options
        command = [sys.executable, "-m", "longspan", "worker", "--study", self.study.definition.name]
        command += ["--study-dir", str(options.folder), "--checkpoint-seconds", str(options.limits.checkpoint_seconds)]
        if options.limits.trial_seconds is not None:
            command += ["--trial-limit", f"{Decimal(str(options.limits.trial_seconds)):f}s"]
        command += ["--attached", str(os.getpid()), "--quiet"]
        if options.data_dir is not None:
            command += ["--data-dir", str(options.data_dir)]
        if cores:
            command += ["--cores", *map(str, sorted(cores))]
        file = self.logs / f"{number + 1}.log"
        with explain_disk_errors(file):
            log = file.open("wb")
        with log:
            return subprocess.Popen(
                command,
                env={**os.environ, URL_VARIABLE: self.study.url},  # not an argument: those are seen by everyone
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=log,
                start_new_session=True,  # Ctrl-C is for the parent, which then asks the workers
            )

    def _explain(self, number: int, code: int) -> str:
        log = self.logs / f"{number + 1}.log"
        lines = log.read_text(errors="replace").strip().splitlines()
        last = lines[-1].removeprefix("longspan: ") if lines else f"exit code {code}"
        return f"worker {number + 1} failed: {last} (all it said is in {log})"
