"""Progress display of a training run: a live line, and a permanent one for every epoch.

The command line always shows it, `longspan.train` only with `progress=True`. Nothing else outside the command line
writes to a terminal.
"""

import time

from rich.markup import escape
from rich.progress import BarColumn, Progress, TextColumn

from longspan.metrics import duration
from longspan.terminal import Console
from longspan.training.listeners import Listener
from longspan.training.runs import Run

BAR = 16
"""Width of the bar of an epoch."""


class TrainingDisplay(Listener):
    """Shows epochs and blocks as they finish; if the output is not a terminal, one line per epoch."""

    def __init__(self, run: Run, *, quiet: bool = False):
        self.run = run
        self.console = Console(stderr=quiet, quiet=quiet)
        self.live = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=BAR),
            TextColumn("{task.fields[figures]}"),
            console=self.console,
            transient=True,
            disable=quiet or not self.console.is_terminal,
        )
        self.began = time.monotonic()
        self.steps = 0
        self.valid = "-"

    def __enter__(self) -> "TrainingDisplay":
        config = self.run.config
        self.console.print(
            f"[bold]{escape(config.recipe)}[/] on [bold]{escape(config.data)}[/]: {escape(config.units)}, "
            f"{escape(config.output)} output, {escape(str(self.run.path))}"
        )
        if config.cooldown > 0:
            self.console.print(
                f"{config.max_updates:,} updates, over the last {config.cooldown:.0%} of which the rate falls to zero"
            )
        self.live.start()
        self.task = self.live.add_task("", figures="compiling")
        return self

    def __exit__(self, *exception) -> None:
        self.live.stop()

    def on_pretraining(self, what: str) -> None:
        self.live.update(self.task, description=what, figures="")

    def on_block(self, progress, info, count: int, total: int) -> None:
        self.steps += count
        rate = self.steps / (time.monotonic() - self.began)
        left = self._chunks_left(progress, total)
        train = progress.train_log_likelihood - self.run.data.log_volume
        epoch = f"epoch {progress.epoch + 1}"
        needed = [f"train {train:.3f}", f"valid {self.valid}", f"{duration(left / rate)} left at most"]
        extra = [f"{rate:,.0f} steps/s", *describe_figures(progress.figures())]
        room = self.console.width - len(epoch) - BAR - 2
        self.live.update(
            self.task,
            description=epoch,
            completed=progress.position,
            total=total,
            figures=fitting(needed, extra, room),
        )

    def _chunks_left(self, progress, total: int) -> int:
        """At most: until the last epoch, or the last update where an update is a chunk."""
        config = self.run.config
        left = (config.max_epochs - progress.epoch) * total - progress.position
        if config.max_updates and config.optimizer != "hf":
            left = min(left, config.max_updates - progress.step)
        return left

    def on_epoch(self, record: dict, seconds: float) -> None:
        self.valid = ("" if record["exact"] else "about ") + f"{record['valid_log_likelihood']:.3f}"
        train = f"{record['train_log_likelihood']:8.3f}" if record["exact"] else "       -"
        needed = [f"epoch {record['epoch']:>3}", f"train {train}", f"valid {self.valid:>8}", f"{duration(seconds):>5}"]
        mark = "  [green]best[/]" if record["best"] else ""
        # A file or pipe has no width to fit.
        room = self.console.width - len("  best") if self.console.is_terminal else 1000
        line = fitting(needed, describe_figures(record), room)
        self.console.print(f"{line}{mark}", highlight=False, soft_wrap=True)


FIGURES = {
    "valid_error_rate": "wrong {:6.1%}",
    "valid_squared_error": "squared error {:.4g}",
    "valid_class_accuracy": "right {:6.1%}",
    "objective_after": "objective {:.3f}",
    "gradient_norm": "norm {:6.2f}",
    "clipped": "clipped {:4.0%}",
    "learning_rate": "rate {:.2g}",
    "ratio": "rho {:5.2f}",
    "damping": "lambda {:.2g}",
    "cg_iterations": "CG {:3.0f}",
    "backtracks": "back {:.0f}",
    "step_share": "share {:4.0%}",
}


def describe_figures(figures: dict) -> list[str]:
    """Validation errors and the optimizer's reported figures, formatted for a terminal line."""
    return [form.format(figures[name]) for name, form in FIGURES.items() if name in figures]


def fitting(needed: list[str], extra: list[str], room: int) -> str:
    """A line of what is needed, and as much of the rest, in order, as there is room for.

    >>> fitting(["train -1.2", "0:05 left"], ["norm 3.0", "rate 0.1"], 32)
    'train -1.2  0:05 left  norm 3.0'
    """
    for count in range(len(extra), 0, -1):
        line = "  ".join([*needed, *extra[:count]])
        if len(line) <= room:
            return line
    return "  ".join(needed)
