"""Loading the data set a command needs, with a bar where that takes time; before JAX, so that errors come at once."""

from pathlib import Path

from longspan import data
from longspan.cli.output import progress_bar
from longspan.data.music import MusicData
from longspan.data.text import TextData
from longspan.errors import InputError
from longspan.training.runs import Run


def load_data(name: str, data_dir: Path | None, *, quiet: bool) -> MusicData | TextData:
    """A data set by name or path."""
    with progress_bar(quiet=quiet) as progress:
        return data.load(name, data_dir, progress=progress)


def load_data_of(run: Run, data_dir: Path | None, *, quiet: bool) -> MusicData | TextData:
    """The data set a run was trained on; one that has changed since is refused."""
    content = load_data(run.config.data, data_dir, quiet=quiet)
    refuse_other_data(content, run.data.fingerprint, run.config.data)
    return content


def refuse_other_data(content: MusicData | TextData, fingerprint: str, name: str) -> None:
    """Raise if data are not those with the given fingerprint."""
    if content.fingerprint != fingerprint:
        raise InputError(f"the data of {name!r} have changed since they were first used; restore them or start anew")
