"""Loading the data set of a command, with a progress bar; before JAX is imported, so that errors appear at once."""

from pathlib import Path

from longspan import data
from longspan.cli.output import progress_bar
from longspan.data.dataset import Dataset
from longspan.data.names import DEFAULT_SPAN
from longspan.training.runs import Run


def load_data(name: str, data_dir: Path | None, *, quiet: bool, span: int = DEFAULT_SPAN) -> Dataset:
    """Load a data set by name or path; `span` is the approximate sequence length of a synthetic task."""
    with progress_bar(quiet=quiet) as progress:
        return data.load(name, data_dir, span=span, progress=progress)


def load_data_of(run: Run, data_dir: Path | None, *, quiet: bool) -> Dataset:
    """Load the data set that a run was trained on; refused if it has changed since."""
    content = load_data(run.config.data, data_dir, quiet=quiet, span=run.config.span)
    run.check_data(content)
    return content
