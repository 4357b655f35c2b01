"""`longspan reproduce`: the paper's tables and one of gated networks, computed cell by cell, and the page of them."""

import math
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import tyro

from longspan import cli
from longspan.cli import print_json
from longspan.cli.options import limits_from, load_data, parse, pick, seconds_of
from longspan.cli.study_display import StudyDisplay
from longspan.errors import InputError
from longspan.files import cache_directory, write_atomic
from longspan.reporting.methods_pages import methods_markdown
from longspan.reporting.methods_report import MethodsReport
from longspan.reproduction.agenda import Plan, Task
from longspan.reproduction.cells import Cell, CellResult, reaches_paper, read_results, table_cells
from longspan.reproduction.markdown_page import render_page
from longspan.reproduction.past import read_past
from longspan.reproduction.run import Reproduction, Settings
from longspan.reproduction.tables import TableName
from longspan.reproduction.values import (
    LETTERS,
    PAPER_ROWS,
    methods_beside,
    read_remarks,
    results_values,
)
from longspan.runtime import available_cores, first_interrupt
from longspan.search.space import Sampling
from longspan.search.study import Study
from longspan.search.worker import Limits
from longspan.terminal import Console, say


@dataclass(frozen=True)
class ReproduceOptions:
    """Compute the paper's tables, or that of gated networks, each cell by random search, and write them beside the
    paper's numbers.

    Cells without a result come first; then all get the same number of trials, then seeds. Stop it at any
    time, or give it a budget; the same command continues where it was stopped.
    """

    table: Annotated[TableName | None, tyro.conf.Positional] = None
    """table1: music; table2: text; gated: LSTM and GRU, which the paper does not have."""
    rows: tuple[str, ...] = ()
    """Compute only these rows, such as sgd+c or "lstm/nade:sgd+cm without dropout"."""
    columns: tuple[str, ...] = ()
    """Compute only these data sets."""
    budget: str | None = None
    """Stop after this time, such as 90m or 2h; by default when nothing is left to do."""
    plan: Plan = field(default_factory=Plan)
    trial_limit: str | None = None
    """Processor time, such as 30m, after which a trial ends with its current epoch; its best weights so far count."""
    sampling: Sampling = "random"
    """How slots draw their settings: independently, or from a Sobol sequence, which fills the space more evenly."""
    max_epochs: int | None = None
    """Maximum number of passes over the training data, instead of that of the recipes."""
    workers: int = available_cores()
    """Number of processes, each with its own core if there are enough."""
    out: Path = Path("results")
    """Folder of the results, one small JSON file per cell."""
    page: Path = Path("docs/results.md")
    """The page to write from them."""
    claims_page: Path = Path("docs/claims.md")
    """The page to write about compared methods, if there are any in the folder of the results; its pictures are put
    into a folder of the same name."""
    work_dir: Path | None = None
    """Folder of studies and their runs; by default in the user's cache."""
    data_dir: Path | None = None
    """Folder of data sets; by default $LONGSPAN_DATA, else the user's cache."""
    render_only: bool = False
    """Compute nothing; only write the page again."""
    json: bool = False
    """Print only how many cells reach the paper and which could not be computed, as JSON."""


def run(arguments: list[str]) -> int:
    options = parse(ReproduceOptions, arguments, "longspan reproduce")
    _check_counts(options)
    if options.render_only:
        return _render_again(options)
    if options.table is None:
        raise InputError("expected table1, table2 or gated, or --render-only to write the page again")
    cells = choose_cells(options.table, options.rows, options.columns)
    budget = math.inf if options.budget is None else seconds_of(options.budget, "--budget")
    deadline = time.monotonic() + budget
    fingerprints: dict[str, str] = {}

    def fingerprint(name: str) -> str:
        if name not in fingerprints:
            fingerprints[name] = load_data(name, options.data_dir, quiet=options.json).fingerprint
        return fingerprints[name]

    work_dir = options.work_dir or cache_directory() / "reproduction"
    limits = limits_from(Limits().checkpoint_seconds, options.trial_limit)
    settings = Settings(
        options.out, work_dir, options.workers, options.data_dir, options.max_epochs, limits, options.sampling
    )
    reproduction = Reproduction(cells, options.plan, settings, fingerprint)
    with ReproductionDisplay(quiet=options.json) as display, first_interrupt() as interrupted:
        for reason in dict.fromkeys(reproduction.missing.values()):
            display.say(f"Skipped, because this version has no such recipe: {reason}")
        finished = reproduction.run(display, lambda: interrupted() or time.monotonic() > deadline)
    _render(options, display.failures)
    if not finished and not options.json:
        say("Stopped and saved. Run the same command again to continue.\n")
    if interrupted():
        return cli.INTERRUPTED
    return _say_what_failed(display.failures) if display.failures else cli.DONE


def _check_counts(options: ReproduceOptions) -> None:
    plan = options.plan
    counts = {
        "workers": options.workers,
        "trials": plan.trials,
        "slow-trials": plan.slow_trials,
        "seeds": plan.seeds,
    }
    for name, count in counts.items():
        if count < 1:
            raise InputError(f"--{name} must be at least 1: got {count}")


def choose_cells(table: TableName, rows: tuple[str, ...], columns: tuple[str, ...]) -> list[Cell]:
    """The selected cells of a table."""
    cells = table_cells(table)
    for row in rows:
        pick(row, list(dict.fromkeys(cell.row for cell in cells)), "row")
    for column in columns:
        pick(column, list(dict.fromkeys(cell.data for cell in cells)), "column")
    chosen = [cell for cell in cells if (not rows or cell.row in rows) and (not columns or cell.data in columns)]
    if not chosen:
        raise InputError(f"{table} has no {' or '.join(rows)} on {' or '.join(columns)}: choose other rows or columns")
    return chosen


class ReproductionDisplay:
    """Shows a line for every task and every result, and a live table of the running study."""

    def __init__(self, *, quiet: bool):
        self.quiet = quiet
        self.console = Console(stderr=quiet, quiet=quiet, highlight=False)
        self.current = ExitStack()
        self.failures: dict[Cell, str] = {}

    def __enter__(self) -> "ReproductionDisplay":
        return self

    def __exit__(self, *exception) -> None:
        self.current.close()

    def say(self, line: str) -> None:
        self.console.print(line, soft_wrap=True, markup=False)

    def on_task(self, task: Task, study: Study) -> Callable[[], None]:
        self.current.close()
        purposes = {"search": "search", "seeds": "the winner with other seeds"}
        cell = f"{task.cell.row} on {task.cell.data} ({task.cell.table})"
        self.say(f"\n{cell}: {purposes[task.kind]}, {task.slots} slots")
        earlier = (slot.number for slot in study.slots() if slot.finished)
        return self.current.enter_context(StudyDisplay(study, quiet=self.quiet, told=earlier)).refresh

    def on_result(self, result: CellResult) -> None:
        self.current.close()
        if result.mean is None:
            self.say(f"{result.row} on {result.data}: every trial diverged")
            return
        spread = f" ± {result.spread.test:.3f}" if result.spread else ""
        verdict = ""
        if result.paper is not None:
            reached = "reaches" if reaches_paper(result) else "is behind"
            verdict = f" {reached} the paper's {result.paper.test:.2f}"
        self.say(
            f"{result.row} on {result.data}: test {result.mean.test:.3f}{spread}{verdict} (trials: {result.tried})"
        )

    def on_failure(self, cell: Cell, reason: str) -> None:
        self.current.close()
        self.failures[cell] = reason
        self.say(f"{cell.row} on {cell.data} is left out: {reason}")


def _say_what_failed(failures: dict[Cell, str]) -> int:
    first, reason = next(iter(failures.items()))
    more = f", and {len(failures) - 1} more cells" if len(failures) > 1 else ""
    say(f"longspan: could not compute {first.row} on {first.data}: {reason}{more}\n", error=True)
    return cli.BAD_INPUT


def _render_again(options: ReproduceOptions) -> int:
    if not read_results(options.out):
        raise InputError(f"expected a folder of results, got {options.out}, which holds none: check --out")
    _render(options, {})
    return cli.DONE


def _write_claims(methods: MethodsReport, letters: MethodsReport | None, page: Path) -> None:
    folder = page.with_suffix("")
    text, pictures = methods_markdown(methods, letters, folder.name)
    for name, content in pictures.items():
        write_atomic(folder / name, content)
    write_atomic(page, text)


def _render(options: ReproduceOptions, failures: dict[Cell, str]) -> None:
    """Write the page, unless there is no result yet, and print a summary."""
    results = read_results(options.out)
    methods = methods_beside(options.out, PAPER_ROWS)
    if results:
        values = results_values(results, read_remarks(options.out), methods, read_past(options.out))
        write_atomic(options.page, render_page(values))
    if methods:
        _write_claims(methods, methods_beside(options.out, LETTERS), options.claims_page)
    reaching = sum(map(reaches_paper, results.values()))
    if options.json:
        failed = {f"{cell.table}/{cell.name}": reason for cell, reason in failures.items()}
        page = str(options.page) if results else None
        print_json({"page": page, "cells": len(results), "reaching_the_paper": reaching, "failed": failed})
        return
    where = f" See {options.page}" if results else ""
    beside = sum(result.paper is not None for result in results.values())
    gated = f" Gated cells with a result: {len(results) - beside}." if len(results) > beside else ""
    say(f"Cells with a result: {beside}, of which at or better than the paper: {reaching}.{gated}{where}\n")
