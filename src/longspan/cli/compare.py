"""`longspan compare`: settings and scores of several runs side by side."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Annotated

import msgspec
import tyro
from rich.markup import escape
from rich.table import Table

from longspan import cli
from longspan.cli import print_json
from longspan.cli.options import parse
from longspan.metrics import LOG_LIKELIHOOD, METRICS, Metric, duration
from longspan.reporting.run_report import RunValue, compare_runs
from longspan.terminal import Console


@dataclass(frozen=True)
class CompareOptions:
    """Compare runs: the settings in which they differ, and their scores."""

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
    """A table with runs as columns; the best score of a row is bold if all runs have the same data."""
    table = Table(show_header=True)
    table.add_column("")
    for value in values:
        table.add_column(escape(value.run), justify="right", overflow="fold")
    for name in values[0].settings:
        table.add_row(name.replace("_", " "), *(escape(f"{value.settings[name]}") for value in values))
    table.add_section()
    table.add_row("status", *(value.status for value in values))
    table.add_row("epochs", *(str(value.epochs) for value in values))
    table.add_row("best epoch", *(str(value.best_epoch or "") for value in values))
    table.add_row("time", *(duration(value.seconds) for value in values))
    table.add_section()
    shown = _plain if "data" in values[0].settings else _marked
    table.add_row("train, nats", *shown(LOG_LIKELIHOOD, [value.train_log_likelihood for value in values]))
    table.add_row("valid, nats", *shown(LOG_LIKELIHOOD, [value.valid_log_likelihood for value in values]))
    for name, metric in METRICS.items():
        tests = [value.test or {} for value in values]
        if any(name in test for test in tests):
            errors = [test.get(f"{name}_error") for test in tests]
            table.add_row(f"test {metric.heading}", *shown(metric, [test.get(name) for test in tests], errors))
    return table


Numbers = Sequence[float | None]


def _plain(metric: Metric, scores: Numbers, errors: Numbers = ()) -> list[str]:
    return [metric.show(score, error) for score, error in zip_longest(scores, errors)]


def _marked(metric: Metric, scores: Numbers, errors: Numbers = ()) -> list[str]:
    known = [score for score in scores if score is not None]
    plain = _plain(metric, scores, errors)
    if not known:
        return plain
    best = metric.best(known)
    return [f"[bold]{text}[/]" if score == best else text for score, text in zip(scores, plain, strict=True)]
