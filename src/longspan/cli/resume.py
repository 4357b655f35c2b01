"""`longspan resume`: continue a run exactly where it stopped."""

import dataclasses
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import tyro

from longspan import runtime
from longspan.cli.loading import load_data_of
from longspan.cli.options import Watching, parse
from longspan.training.runs import Run


@dataclass(frozen=True)
class ResumeOptions:
    """Continue a run exactly where it stopped."""

    path: Annotated[Path, tyro.conf.Positional]
    """Folder of the run."""
    max_epochs: int | None = None
    """New maximum number of epochs; a larger one continues a run that reached its last epoch."""
    accept_environment: bool = False
    """Continue even if versions, kernels or threads differ from those of the run so far, so that bits may differ."""
    data_dir: Path | None = None
    """Folder of data sets; by default $LONGSPAN_DATA, else the user's cache."""
    watching: Watching = field(default_factory=Watching)


def run(arguments: list[str]) -> int:
    options = parse(ResumeOptions, arguments, "longspan resume")
    resumed = Run.open(options.path)
    if options.max_epochs is not None:
        resumed.config = dataclasses.replace(resumed.config, max_epochs=options.max_epochs)
    content = load_data_of(resumed, options.data_dir, quiet=options.watching.json)
    environment = runtime.prepare(resumed.config.threads)
    from longspan.cli import session

    def prepare() -> None:
        resumed.continue_in(environment, accept=options.accept_environment)
        if options.max_epochs is not None:
            resumed.write_config()

    return session.run_to_end(resumed, content, options.watching, prepare)
