"""Loading the data set a command needs, with a bar where that takes time; before JAX, so that errors come at once."""

from pathlib import Path

from longspan import data
from longspan.cli.output import progress_bar
from longspan.data.kinds import Data
from longspan.data.names import DEFAULT_SPAN
from longspan.errors import InputError
from longspan.training.runs import Run


def load_data(name: str, data_dir: Path | None, *, quiet: bool, span: int = DEFAULT_SPAN) -> Data:
    """A data set by name or path; `span` is how long the sequences of a synthetic task are."""
    with progress_bar(quiet=quiet) as progress:
        return data.load(name, data_dir, span=span, progress=progress)


def load_data_of(run: Run, data_dir: Path | None, *, quiet: bool) -> Data:
    """The data set a run was trained on; one that has changed since is refused."""
    content = load_data(run.config.data, data_dir, quiet=quiet, span=run.config.span)
    refuse_other_data(content, run.data.fingerprint, run.config.data)
    return content


def refuse_other_data(content: Data, fingerprint: str, name: str) -> None:
    """Raise if data are not those with the given fingerprint."""
    if content.fingerprint != fingerprint:
        raise InputError(f"the data of {name!r} have changed since they were first used; restore them or start anew")
