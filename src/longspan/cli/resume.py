"""`longspan resume`: go on with a run exactly where it stopped."""

import dataclasses
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import tyro

from longspan.cli import machine
from longspan.cli.loading import load_data_of
from longspan.cli.options import Watching, parse
from longspan.training.runs import Run


@dataclass(frozen=True)
class ResumeOptions:
    """Go on with a run exactly where it stopped."""

    path: Annotated[Path, tyro.conf.Positional]
    """Folder of the run."""
    max_epochs: int | None = None
    """Allow the run more epochs than it was started with."""
    data_dir: Path | None = None
    """Folder of data sets; by default $LONGSPAN_DATA, else the user's cache."""
    watching: Watching = field(default_factory=Watching)


def run(arguments: list[str]) -> int:
    options = parse(ResumeOptions, arguments, "longspan resume")
    resumed = Run.open(options.path)
    if options.max_epochs is not None:
        resumed.config = dataclasses.replace(resumed.config, max_epochs=options.max_epochs)
        resumed.write_config()
    content = load_data_of(resumed, options.data_dir, quiet=options.watching.json)
    machine.prepare(resumed.config.threads)
    from longspan.cli import session

    return session.run_to_end(resumed, content, options.watching)
