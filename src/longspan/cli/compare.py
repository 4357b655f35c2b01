"""`longspan compare`: settings and scores of several runs side by side."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import msgspec
import tyro
from rich.console import Console
from rich.table import Table

from longspan import cli
from longspan.cli.figures import SHOWN, duration, format_figure
from longspan.cli.options import parse
from longspan.cli.output import print_json
from longspan.reporting.comparison import RunValue, compare_runs


@dataclass(frozen=True)
class CompareOptions:
    """Settings that differ between runs, and what came of them."""

    paths: Annotated[tuple[Path, ...], tyro.conf.Positional]
    """Folders of the runs."""
    json: bool = False
    """Print only the comparison, as JSON."""


def run(arguments: list[str]) -> int:
    options = parse(CompareOptions, arguments, "longspan compare")
    values = compare_runs(list(options.paths))
    if options.json:
        print_json(msgspec.to_builtins(values))
    else:
        Console(highlight=False).print(comparison_table(values))
    return cli.DONE


def comparison_table(values: list[RunValue]) -> Table:
    """Runs as columns; the best score of a row is bold."""
    table = Table(show_header=True)
    table.add_column("")
    for value in values:
        table.add_column(value.run, justify="right", overflow="fold")
    for name in values[0].settings:
        table.add_row(name.replace("_", " "), *(f"{value.settings[name]}" for value in values))
    table.add_section()
    table.add_row("status", *(value.status for value in values))
    table.add_row("epochs", *(str(value.epochs) for value in values))
    table.add_row("best epoch", *(str(value.best_epoch or "") for value in values))
    table.add_row("time", *(duration(value.seconds) for value in values))
    table.add_section()
    table.add_row("train, nats", *_marked("log_likelihood", [value.train_log_likelihood for value in values]))
    table.add_row("valid, nats", *_marked("log_likelihood", [value.valid_log_likelihood for value in values]))
    for name, label in SHOWN.items():
        scores = [(value.test or {}).get(name) for value in values]
        if any(score is not None for score in scores):
            table.add_row(f"test {label}", *_marked(name, scores))
    return table


def _marked(name: str, scores: list[float | None]) -> list[str]:
    known = [score for score in scores if score is not None]
    lower_is_better = name in ("perplexity", "bits_per_character")
    best = (min if lower_is_better else max)(known, default=None)
    return [
        f"[bold]{format_figure(name, score)}[/]" if score == best else format_figure(name, score) for score in scores
    ]
