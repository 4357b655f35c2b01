"""Display of a study: a live table of its slots, and the winner beside the paper's numbers."""

import math
import shutil
from collections.abc import Iterable
from pathlib import Path

from rich.console import Group
from rich.live import Live
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from longspan.metrics import METRICS, setting
from longspan.reproduction.tables import figures_on_test
from longspan.search.result import StudyResult, run_path, winner_of
from longspan.search.slots import Slot
from longspan.search.space import changes
from longspan.search.study import Study
from longspan.terminal import Console

MIN_WIDTHS = {"slot": 4, "": 8, "epoch": 5, "valid": 8}
STYLES = {"done": "", "running": "bold", "waiting": "dim", "diverged": "red", "lost": "red", "pruned": "dim"}
LINES_BESIDE_TABLE = 8


class StudyDisplay:
    """A live table of the study; if the output is not a terminal, one line per finished slot."""

    def __init__(self, study: Study, *, quiet: bool, told: Iterable[int] = ()):
        """`told` are the slots that were already shown."""
        self.study = study
        self.console = Console(stderr=quiet, quiet=quiet, highlight=False)
        self.live = Live(console=self.console, auto_refresh=False, transient=True) if self.console.is_terminal else None
        self.told = set(told)

    def __enter__(self) -> "StudyDisplay":
        definition = self.study.definition
        searched = ", ".join(definition.space) or "nothing"
        self.console.print(
            f"[bold]{escape(definition.base.recipe)}[/] on [bold]{escape(definition.base.data)}[/]: "
            f"study {escape(definition.name)}, {self.study.slot_count} slots, searching {searched}",
            soft_wrap=not self.console.is_terminal,  # a line that a program reads stays one
        )
        if self.live:
            self.live.start()
        return self

    def __exit__(self, *exception) -> None:
        if self.live:
            self.live.stop()

    def refresh(self) -> None:
        """Show the current state of the slots."""
        slots = self.study.slots()
        for slot in slots:
            if slot.finished and slot.number not in self.told:
                self.told.add(slot.number)
                if not self.live:
                    self.console.print(_line(self.study, slot), soft_wrap=True, markup=False)
        if self.live:
            self.live.update(_table(self.study, slots), refresh=True)


def _line(study: Study, slot: Slot) -> str:
    settings = changes(study.definition.base, study.definition.config_of(slot.number))
    score = _score(slot)
    return f"slot {slot.number:>4}  {slot.status:<8}  valid {score or '-':>8}  {describe_settings(settings)}"


def _table(study: Study, slots: list[Slot]) -> Group:
    """Running slots and the best ones, as many as fit."""
    room = max(shutil.get_terminal_size().lines - LINES_BESIDE_TABLE, 5)
    order = sorted(slots, key=lambda slot: (slot.status != "running", -_best(slot), slot.number))
    shown = [slot for slot in order if slot.status != "waiting"][:room]
    winner = winner_of(slots)
    table = Table(box=None, pad_edge=False, expand=True)
    for name in ("slot", "", "epoch", "valid", "settings"):
        # Numbers keep the width they need; the settings are cut to what is left of the line.
        table.add_column(
            name,
            justify="left" if name in ("", "settings") else "right",
            no_wrap=True,
            overflow="ellipsis",
            min_width=MIN_WIDTHS.get(name),
            ratio=None if name in MIN_WIDTHS else 1,
        )
    for slot in sorted(shown, key=lambda slot: slot.number):
        settings = changes(study.definition.base, study.definition.config_of(slot.number))
        best = winner is not None and slot.number == winner.number
        table.add_row(
            str(slot.number),
            "best" if best else slot.status,
            str(max(slot.curve, default=0)),
            _score(slot),
            escape(describe_settings(settings)),
            style="green" if best else STYLES[slot.status],
        )
    counts = ", ".join(
        f"{sum(slot.status == status for slot in slots)} {status}"
        for status in STYLES
        if any(slot.status == status for slot in slots)
    )
    return Group(table, Text(f"{counts}. Ctrl-C saves and stops."))


def _best(slot: Slot) -> float:
    """The score of a finished slot, otherwise the best so far."""
    if slot.outcome and slot.outcome.valid_log_likelihood is not None:
        return slot.outcome.valid_log_likelihood
    return max(slot.curve.values(), default=float("-inf"))


def _score(slot: Slot) -> str:
    return f"{_best(slot):.3f}" if math.isfinite(_best(slot)) else ""


def describe_settings(settings: dict) -> str:
    """Settings that differ from the recipe's, on one line."""
    return ", ".join(f"{name} {setting(value)}" for name, value in settings.items()) or "the recipe unchanged"


def show_result(result: StudyResult, folder: Path) -> None:
    """Print how the slots ended, and the winner's scores beside the paper's."""
    console = Console(highlight=False)
    ended = ", ".join(f"{result.count(status)} {status}" for status in STYLES if result.count(status))
    console.print(f"{result.slots} slots: {ended}.")
    winner = result.winning
    if winner is None or winner.tested is None:
        for trial in result.trials:
            console.print(f"slot {trial.slot}: {trial.outcome.reason}", soft_wrap=True, markup=False)
        return
    console.print(
        f"Best on validation ({winner.outcome.valid_log_likelihood:.3f}): slot {winner.slot}, "
        f"{describe_settings(winner.settings)}",
        soft_wrap=True,
        markup=False,
    )
    metrics = [metric for name, metric in METRICS.items() if name in winner.tested.test]
    table = Table(title=escape(f"{result.recipe} on {result.data}, test split"), title_justify="left")
    table.add_column("")
    for metric in metrics:
        table.add_column(metric.heading, justify="right")
    test = winner.tested.test
    ours = [metric.show(test[metric.name], test.get(f"{metric.name}_error")) for metric in metrics]
    table.add_row("this model", *ours, style="bold")
    if figures := figures_on_test(result.recipe, result.data):
        table.add_row("paper", *(metric.show(figures.get(metric.name)) for metric in metrics))
    console.print(table)
    console.print(
        f"The run is {run_path(folder, winner.slot)}, all slots are in {folder / 'result.json'}",
        markup=False,
    )
