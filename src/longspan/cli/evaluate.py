"""`longspan evaluate`: score the best weights of a run on a split."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro

from longspan import runtime
from longspan.cli.loading import load_data_of
from longspan.cli.options import parse
from longspan.training.runs import Run


@dataclass(frozen=True)
class EvaluateOptions:
    """Score the best weights of a run on a split, as the paper does."""

    path: Annotated[Path, tyro.conf.Positional]
    """Folder of the run."""
    split: Literal["train", "valid", "test"] = "test"
    """Split of the data set."""
    data_dir: Path | None = None
    """Folder of data sets; by default $LONGSPAN_DATA, else the user's cache."""
    json: bool = False
    """Print only the scores, as JSON."""


def run(arguments: list[str]) -> int:
    options = parse(EvaluateOptions, arguments, "longspan evaluate")
    evaluated = Run.open(options.path)
    content = load_data_of(evaluated, options.data_dir, quiet=options.json)
    runtime.prepare(evaluated.config.threads)
    from longspan.cli import session

    return session.evaluate(evaluated, content, options.split, as_json=options.json)
