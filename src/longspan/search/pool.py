"""Worker processes on this machine, each on its own cores, restarted when they are killed."""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from subprocess import DEVNULL, PIPE, Popen
from typing import Literal

from longspan.errors import InputError
from longspan.files import explain_disk_errors, folder_inside
from longspan.registry import child_command
from longspan.search.machine import claimed_cores
from longspan.search.storage import USUAL_PATIENCE, Patience, explain_outage, patiently
from longspan.search.study import Study
from longspan.search.worker import INTERRUPTED, Job, Limits

Ending = Literal["finished", "interrupted", "elsewhere"]
"""How work on a study ended; elsewhere: all slots are done, but the machine that has the winner's run writes the
result."""

KILLED = -getattr(signal, "SIGKILL", 9)
"""Exit code of a process that was killed without warning, for example because memory ran out."""


@dataclass(frozen=True)
class PoolOptions:
    """The number of workers, and what each needs to know besides the storage."""

    folder: Path
    workers: int = 1
    data_dir: Path | None = None
    limits: Limits = field(default_factory=Limits)
    tick_seconds: float = 1.0
    """Longest time between two checks of the workers; one that ends is noticed at once."""
    artifacts: str | None = None
    """Where checkpoints are kept for other machines."""
    patience: Patience = USUAL_PATIENCE
    """How long an unreachable storage is waited for."""
    prepared: list[Popen] = field(default_factory=list)
    """Processes that wait for a job, which are used first."""


@contextmanager
def prepared_workers(workers: int) -> Iterator[list[Popen]]:
    """Start processes that import what a worker needs while their job is still being found out.

    Those that are still in the list when the block ends have got none and are ended.
    """
    processes = [_worker_process() for _ in range(workers)]
    try:
        yield processes
    finally:
        for process in processes:
            process.kill()
            process.communicate()


def _worker_process() -> Popen:
    return Popen(
        child_command("longspan.search"),
        stdin=PIPE,
        stdout=DEVNULL,
        start_new_session=True,  # Ctrl-C goes to the parent, which then stops the workers
    )


def run_pool(
    study: Study, options: PoolOptions, *, interrupted: Callable[[], bool], on_tick: Callable[[], None]
) -> Ending:
    """Keep workers running on a study until it is concluded or `interrupted()`; then all are asked to save and stop.

    `on_tick` is called about once a second, for example to update a display.
    """
    with explain_outage(study.url):
        if patiently(lambda: study.concluded, interrupted, options.patience):
            return "finished"
        with claimed_cores(options.workers, study.definition.base.cores) as cores:
            pool = _Pool(study, options, cores)
            _keep_at_work(pool, interrupted, on_tick)
        if patiently(lambda: study.concluded, interrupted, options.patience):
            return "finished"
    if interrupted():
        return "interrupted"
    if pool.failures:
        raise InputError(pool.failures[0], fields=["study_dir"])
    return "elsewhere"


def _keep_at_work(pool: "_Pool", interrupted: Callable[[], bool], on_tick: Callable[[], None]) -> None:
    try:
        while not interrupted():
            patiently(on_tick, interrupted, pool.options.patience)
            if pool.tend(interrupted) == 0:
                break
            pool.wait()
        pool.stop()
    except Exception:  # not KeyboardInterrupt: a user who presses Ctrl-C twice does not want to wait
        pool.stop()
        raise
    finally:
        pool.kill()
    patiently(on_tick, interrupted, pool.options.patience)


class _Pool:
    def __init__(self, study: Study, options: PoolOptions, cores: list[set[int]]):
        self.study = study
        self.options = options
        self.logs = folder_inside(options.folder, "workers")
        self.failures: list[str] = []
        self.cores = cores
        self.ended = threading.Event()
        """Whether a worker has ended since the last check."""
        self.all_done = False
        """Whether a worker has ended because all slots had."""
        self.processes = {number: self._start(number, cores[number]) for number in range(options.workers)}

    def tend(self, interrupted: Callable[[], bool]) -> int:
        """Restart killed workers, release idle ones at the end; return the number of running workers."""
        self.ended.clear()
        for number, process in list(self.processes.items()):
            code = process.poll()
            if code is None:
                continue
            del self.processes[number]
            if code == KILLED:
                if not patiently(lambda: self.study.concluded, interrupted, self.options.patience):
                    self.processes[number] = self._start(number, self.cores[number])
            elif code not in (0, INTERRUPTED):
                self.failures.append(self._explain(number, code))
            self.all_done = self.all_done or code == 0
        if (
            self.all_done
            and self.processes
            and patiently(lambda: self.study.concluded, interrupted, self.options.patience)
        ):
            self._release()  # or those that wait for a slot to become free would wait on
        return len(self.processes)

    def wait(self) -> None:
        """Wait until a worker ends or it is time to check them."""
        self.ended.wait(self.options.tick_seconds)

    def stop(self) -> None:
        """Ask every worker to save and stop, and wait until all have."""
        self._release()
        for process in self.processes.values():
            process.wait()

    def _release(self) -> None:
        for process in self.processes.values():
            assert process.stdin is not None
            process.stdin.close()

    def kill(self) -> None:
        for process in self.processes.values():
            if process.poll() is None:
                process.kill()
                process.wait()

    def _start(self, number: int, cores: set[int]) -> Popen:
        options, log = self.options, self.logs / f"{number + 1}.log"
        with explain_disk_errors(log):
            log.unlink(missing_ok=True)  # it may be a link in a folder from somebody else
            log.open("xb").close()
        job = Job(
            url=self.study.url,
            study=self.study.definition.name,
            folder=options.folder,
            artifacts=options.artifacts,
            data_dir=options.data_dir,
            cores=sorted(cores),
            limits=options.limits,
            log=log,
        )
        process = options.prepared.pop() if options.prepared else _worker_process()
        assert process.stdin is not None
        with suppress(BrokenPipeError):  # the worker died at once; its exit code and log say why
            process.stdin.write(job.to_line())
            process.stdin.flush()  # and kept open: the worker stops when it closes
        threading.Thread(target=self._watch, args=(process,), daemon=True).start()
        return process

    def _watch(self, process: Popen) -> None:
        process.wait()
        self.ended.set()

    def _explain(self, number: int, code: int) -> str:
        log = self.logs / f"{number + 1}.log"
        lines = log.read_text(errors="replace").strip().splitlines()
        last = lines[-1].removeprefix(f"{InputError.__module__}.InputError: ") if lines else f"exit code {code}"
        return f"worker {number + 1} failed: {last} (its full output is in {log})"
