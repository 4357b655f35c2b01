"""`longspan seal`: write checksums of the files of a run folder as they are now."""

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from longspan import cli
from longspan.cli.options import parse
from longspan.training.runs import Run


@dataclass(frozen=True)
class SealOptions:
    """Write checksums of a run's files as they are now, so that later damage is noticed.

    Runs of this version have them from the start. Use it on runs of older versions, or after editing a file yourself.
    """

    path: Annotated[Path, tyro.conf.Positional]
    """Folder of the run."""


def run(arguments: list[str]) -> int:
    options = parse(SealOptions, arguments, "longspan seal")
    names = Run.seal(options.path)
    sys.stdout.write(f"Sealed {', '.join(names)} of {options.path}.\n")
    return cli.DONE
