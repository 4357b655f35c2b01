"""`longspan worker`: join a study from any machine that can reach its storage."""

from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from longspan import cli
from longspan.cli import leave_at_once
from longspan.cli.options import limits_from, parse, progress_bar
from longspan.runtime import first_interrupt
from longspan.search import storage
from longspan.search.study import Study
from longspan.search.worker import Job, join
from longspan.terminal import say


@dataclass(frozen=True)
class WorkerOptions:
    """Join a study: run its free slots, one after the other, until all are done.

    Start as many workers as you have cores, on any number of machines; each may be killed at any time.
    """

    url: Annotated[str | None, tyro.conf.Positional] = None
    """Storage of the study, such as postgresql://host/database; by default $LONGSPAN_STORAGE."""
    study: str | None = None
    """Name of the study; not needed if the storage has only one."""
    study_dir: Path | None = None
    """Folder for this machine's runs; by default studies/NAME."""
    artifacts: str | None = None
    """Where checkpoints are kept for other machines, as given to `longspan search`; by default the storage."""
    data: str | None = None
    """Path of the data on this machine, if the path that the study names does not exist here."""
    data_dir: Path | None = None
    """Folder of data sets; by default $LONGSPAN_DATA, else the user's cache."""
    cores: tuple[int, ...] = ()
    """Run on these cores only."""
    checkpoint_seconds: float = 60.0
    """Longest time between two checkpoints, in seconds."""
    trial_limit: str | None = None
    """Processor time, such as 30m, after which a trial ends with its current epoch; its best weights so far count."""
    quiet: bool = False
    """Print nothing but errors."""


def run(arguments: list[str]) -> int:
    options = parse(WorkerOptions, arguments, "longspan worker")
    job = Job(
        url=storage.url_from(options.url),
        study=options.study,
        folder=options.study_dir,
        data=options.data,
        artifacts=options.artifacts,
        data_dir=options.data_dir,
        cores=list(options.cores),
        limits=limits_from(options.checkpoint_seconds, options.trial_limit),
    )
    with ExitStack() as loading, first_interrupt(leave_at_once) as interrupted:
        progress = loading.enter_context(progress_bar(quiet=options.quiet))

        def on_start(study: Study, name: str, folder: Path) -> None:
            loading.close()
            if not options.quiet:
                say(f"Working on {study.definition.name} as {name}; runs are in {folder}\n")

        study, ending = join(job, interrupted=interrupted, progress=progress, on_start=on_start)
    if ending == "interrupted":
        return cli.INTERRUPTED
    if not options.quiet:
        say(f"All {study.slot_count} slots are done.\n" + ("" if study.concluded else _ELSEWHERE))
    return cli.DONE


_ELSEWHERE = "The winning run is on another machine: run `longspan worker` there again to write the result.\n"
