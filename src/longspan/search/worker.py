"""A worker: joins a study, claims its slots one after the other and runs them until none is left.

`python -m longspan.search` reads one line of JSON, a `Job`, from its standard input. When the other end of that pipe
closes, because its parent wants the worker to stop or has died, the worker saves and stops. A job is not passed as
arguments, because everyone on the machine can see those and a URL may contain a password.
"""

import importlib
import io
import math
import os
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import msgspec

from longspan import data, runtime
from longspan.data.dataset import Dataset
from longspan.errors import InputError
from longspan.registry import load_plugin, plugins_of_environment
from longspan.runtime import check_checkpoint_seconds
from longspan.search import machine, storage
from longspan.search.artifacts import SlotArtifacts
from longspan.search.result import check_parts
from longspan.search.storage import patiently
from longspan.search.study import Study, open_study
from longspan.terminal import escape_errors
from longspan.training.runs import refuse_other_data

Ending = Literal["finished", "interrupted"]

IDLE_SECONDS = 2.0
"""Time until the second check for a free slot while other workers, which may still die, run the last ones."""
LONGEST_IDLE_SECONDS = 5.0
"""Each further check waits longer, up to this: many workers that wait should not keep a server busy."""
INTERRUPTED = 130
"""Exit code of a worker that was stopped before the study was finished."""


@dataclass(frozen=True)
class Limits:
    """Time limits of a worker, in seconds; they are not part of the definition of a study."""

    checkpoint_seconds: float = 60.0
    """Longest time between two checkpoints of a run; 0 for one after every block."""
    trial_seconds: float | None = None
    """Processor time: a trial ends with the first epoch beyond this limit, and its best weights so far count.

    Only without a limit, the default, does a slot give the same result on every machine.
    """

    def __post_init__(self) -> None:
        check_checkpoint_seconds(self.checkpoint_seconds)
        if self.trial_seconds is not None and not 0 < self.trial_seconds < math.inf:
            raise InputError(
                f"trial_limit must be above 0 and finite, such as 30m: got {self.trial_seconds:g}s",
                fields=["trial_limit"],
            )


@dataclass(frozen=True)
class Place:
    """The folder of a worker's runs, and what they record about the machine."""

    folder: Path
    environment: dict
    artifacts: SlotArtifacts | None = None
    """Where checkpoints are kept for other machines."""


@dataclass(frozen=True)
class Job:
    """Everything a worker needs to know."""

    url: str
    """Storage of the study."""
    study: str | None = None
    """Name of the study; not needed if the storage has only one."""
    folder: Path | None = None
    """Folder for this machine's runs; by default studies/NAME."""
    data: str | None = None
    """Path of the data on this machine, if the path that the study names does not exist here."""
    artifacts: str | None = None
    """Where checkpoints are kept for other machines, a URL of fsspec; by default the storage if it is a server."""
    data_dir: Path | None = None
    cores: list[int] = field(default_factory=list)
    """The cores to run on; empty for any."""
    limits: Limits = field(default_factory=Limits)
    log: Path | None = None
    """The file, made by who gives the job, that gets the messages of this process."""

    def to_line(self) -> bytes:
        """The job as a line of JSON."""
        return msgspec.json.encode(self, enc_hook=str) + b"\n"

    @staticmethod
    def from_line(line: bytes) -> "Job":
        """Inverse of `to_line`."""
        return msgspec.json.decode(line, type=Job, dec_hook=lambda kind, text: kind(text))


def join(
    job: Job,
    *,
    interrupted: Callable[[], bool],
    progress: Callable[[str, int, int], None] | None = None,
    on_start: Callable[[Study, str, Path], None] = lambda study, name, folder: None,
    pause: Callable[[float], object] = time.sleep,
) -> tuple[Study, Ending]:
    """Work on a study until all of its slots are finished or `interrupted()`.

    Args:
        job: what to do.
        interrupted: called often; returns whether to save and stop.
        progress: called with the progress of loading the data.
        on_start: called with the study, the worker's name and the folder of its runs.
        pause: waits so many seconds, or fewer if the worker is to stop.
    """
    study = open_study(job.url, job.study)
    base = study.definition.base
    content = data.load(job.data or base.data, job.data_dir, span=base.span, progress=progress)
    refuse_other_data(content, study.definition.fingerprint, base.data)
    content = content.with_cues(base.cues, base.cue_dropout)
    machine.pin_to(job.cores)
    folder = job.folder or Path("studies") / study.definition.name
    environment = runtime.prepare(base.threads, base.replicas)
    check_parts(folder)
    with storage.explain_outage(study.url), machine.present() as name:
        place = Place(folder, environment, patiently(lambda: study.artifacts(job.artifacts), unless=interrupted))
        on_start(study, name, place.folder)
        return study, work(study, content, place, worker=name, interrupted=interrupted, limits=job.limits, pause=pause)


def work(
    study: Study,
    content: Dataset,
    place: Place,
    *,
    worker: str,
    interrupted: Callable[[], bool],
    limits: Limits | None = None,
    idle_seconds: float = IDLE_SECONDS,
    trial: Any = None,
    pause: Callable[[float], object] = time.sleep,
) -> Ending:
    """Run slots until all are finished, here or elsewhere, or until `interrupted()`.

    `trial` has the functions `attempt` and `conclude` that run a slot and end a study, by default those of a search.
    """
    if trial is None:
        from longspan.search import trial  # imported late, because it imports JAX

    limits, idle = limits or Limits(), idle_seconds
    while not interrupted():
        claim = patiently(lambda: study.claim(worker), unless=interrupted)
        if claim is not None:
            idle = idle_seconds
            trial.attempt(study, claim, content, place, interrupted, limits)
        elif study.ended:
            patiently(lambda: trial.conclude(study, content, place), unless=interrupted)
            return "finished"
        else:
            _wait(idle, interrupted, pause)
            idle = min(1.5 * idle, LONGEST_IDLE_SECONDS)
    return "interrupted"


def _wait(seconds: float, interrupted: Callable[[], bool], pause: Callable[[float], object]) -> None:
    """Wait, but look once a second whether to stop."""
    until = time.monotonic() + seconds
    while (left := until - time.monotonic()) > 0 and not interrupted():
        pause(min(left, 1.0))


def main() -> int:
    """Do the job given on standard input; return the exit code.

    Who starts a worker may still have to find out what the job is: meanwhile the worker imports what it needs.
    """
    escape_errors()
    runtime.prepare_imports()
    for module in ("longspan.search.attempts", "longspan.search.trial"):
        importlib.import_module(module)
    # Unbuffered: a thread waiting in a buffered reader would hold its lock while the interpreter exits.
    lifeline = io.FileIO(0, closefd=False)
    line = lifeline.readline()
    if not line:
        return INTERRUPTED  # there is nothing to do after all
    job = Job.from_line(line)
    if job.log is not None:
        log = os.open(job.log, os.O_WRONLY | os.O_APPEND | getattr(os, "O_NOFOLLOW", 0))
        os.dup2(log, 2)
        os.close(log)
    for plugin in plugins_of_environment():
        load_plugin(plugin)
    released = threading.Event()

    def wait_for_release() -> None:
        lifeline.read(1)
        released.set()

    threading.Thread(target=wait_for_release, daemon=True).start()
    with runtime.first_interrupt(lambda: os._exit(INTERRUPTED)) as signalled:
        _, ending = join(job, interrupted=lambda: released.is_set() or signalled(), pause=released.wait)
    return INTERRUPTED if ending == "interrupted" else 0
