"""Data sets for commands: loaded with a bar, and refused where they are not the ones that were asked for."""

from pathlib import Path

from longspan import data
from longspan.cli.output import progress_bar
from longspan.errors import InputError


def load_data(name: str, data_dir: Path | None, *, quiet: bool, expected: str | None = None):
    """Load a data set; with `expected`, refuse one that is not the one a run was trained on."""
    with progress_bar(quiet=quiet) as progress:
        content = data.load(name, data_dir, progress=progress)
    if expected is not None and content.fingerprint != expected:
        raise InputError(f"the data of {name!r} have changed since the run began; restore them or start a new run")
    return content
