"""`longspan worker`: join a study from anywhere its storage can be reached."""

import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from longspan import cli
from longspan.cli import machine
from longspan.cli.durations import limits_from
from longspan.cli.loading import load_data, refuse_other_data
from longspan.cli.options import parse
from longspan.cli.signals import first_interrupt
from longspan.data.kinds import Data
from longspan.errors import InputError
from longspan.search import presence, storage
from longspan.search.limits import Limits
from longspan.search.study import Study, open_study


@dataclass(frozen=True)
class WorkerOptions:
    """Join a study: run its free slots, one after the other, until all are done.

    Start as many as there are cores, on as many machines as there are; each may be killed at any time.
    """

    url: Annotated[str | None, tyro.conf.Positional] = None
    """Storage of the study, such as postgresql://host/database; by default $LONGSPAN_STORAGE."""
    study: str | None = None
    """Name of the study; not needed where the storage holds only one."""
    study_dir: Path | None = None
    """Folder for this machine's runs; by default studies/NAME."""
    data: str | None = None
    """Where the data are on this machine, if the study names a path that is not here."""
    data_dir: Path | None = None
    """Folder of data sets; by default $LONGSPAN_DATA, else the user's cache."""
    cores: tuple[int, ...] = ()
    """Run on these cores only."""
    checkpoint_seconds: float = 60.0
    """Longest time between two checkpoints."""
    trial_limit: str | None = None
    """Processor time, such as 30m, after which a trial ends with its epoch; its best weights by then count."""
    attached: int | None = None
    """Stop when this process, which started the worker, is gone."""
    quiet: bool = False
    """Print nothing but errors."""


def run(arguments: list[str]) -> int:
    options = parse(WorkerOptions, arguments, "longspan worker")
    limits = limits_from(options.checkpoint_seconds, options.trial_limit)
    study = open_study(storage.url_from(options.url), options.study)
    base = study.definition.base
    content = load_data(options.data or base.data, options.data_dir, quiet=options.quiet, span=base.span)
    refuse_other_data(content, study.definition.fingerprint, base.data)
    _pin_to(options.cores)
    machine.prepare(base.threads)
    with storage.explain_outage(study.url):
        return _work(study, content, options, limits)


def _pin_to(cores: tuple[int, ...]) -> None:
    if not cores or not hasattr(os, "sched_setaffinity"):
        return
    try:
        os.sched_setaffinity(0, cores)
    except (OSError, ValueError, OverflowError) as error:
        usable = sorted(os.sched_getaffinity(0))
        raise InputError(f"--cores must be cores of this machine, some of {usable}: got {list(cores)}") from error


def _work(study: Study, content: Data, options: WorkerOptions, limits: Limits) -> int:
    from longspan.search.place import Place
    from longspan.search.worker import work

    base = study.definition.base
    place = Place(options.study_dir or Path("studies") / study.definition.name, machine.describe(base.threads))
    with first_interrupt() as signalled, presence.present() as name:
        if not options.quiet:
            sys.stdout.write(f"Working on {study.definition.name} as {name}; runs are in {place.folder}\n")
        outcome = work(
            study,
            content,
            place,
            worker=name,
            interrupted=lambda: signalled() or options.attached not in (None, os.getppid()),
            limits=limits,
        )
    if outcome == "interrupted":
        return cli.INTERRUPTED
    if not options.quiet:
        sys.stdout.write(f"All {study.slot_count} slots are done.\n" + ("" if study.concluded else _ELSEWHERE))
    return cli.DONE


_ELSEWHERE = "The winning run is on another machine: `longspan worker` there once more writes the result.\n"
