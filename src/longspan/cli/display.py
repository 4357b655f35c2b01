"""What a person sees of a run: a live line while it trains, a table of scores when it is done."""

import time

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn
from rich.table import Table

from longspan import paper
from longspan.evaluation import Scores
from longspan.training.runs import Run


class TrainingDisplay:
    """Shows epochs and blocks as they happen; on something that is not a terminal, one line an epoch."""

    def __init__(self, run: Run, *, quiet: bool):
        self.run = run
        self.console = Console(stderr=quiet, quiet=quiet)
        self.live = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=20),
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
            f"[bold]{config.recipe}[/] on [bold]{config.data}[/]: {config.hidden_size} {config.activation} units, "
            f"{config.output} output, {self.run.path}"
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
        left = (self.run.config.max_epochs - progress.epoch) * total - progress.position
        figures = (
            f"{rate:,.0f} steps/s  loss {progress.loss_sum / progress.steps_sum:.3f}  valid {self.valid}  "
            f"norm {progress.norm_sum / progress.position:.2f}  "
            f"clipped {progress.clipped / progress.position:.0%}  at most {_duration(left / rate)} left"
        )
        self.live.update(
            self.task,
            description=f"epoch {progress.epoch + 1}",
            completed=progress.position,
            total=total,
            figures=figures,
        )

    def on_epoch(self, record: dict, seconds: float) -> None:
        self.valid = ("" if record["exact"] else "about ") + f"{record['valid_log_likelihood']:.3f}"
        train = f"{record['train_log_likelihood']:8.3f}" if record["exact"] else "       -"
        mark = "[green]best[/]" if record["best"] else ""
        self.console.print(
            f"epoch {record['epoch']:>3}  train {train}  valid {self.valid:>8}  norm {record['gradient_norm']:6.2f}  "
            f"clipped {record['clipped']:4.0%}  rate {record['learning_rate']:.2g}  {_duration(seconds)}  {mark}",
            highlight=False,
        )


def show_scores(run: Run, content, split: str, scores: Scores, reason: str = "") -> None:
    """Print scores beside trivial baselines and the paper's number, and what to try next."""
    console = Console(highlight=False)
    if reason:
        console.print(f"Done: {reason}.")
    table = Table(title=f"{run.config.recipe} on {run.config.data}, {split} split", title_justify="left")
    for column in ("", "log-likelihood", "accuracy %", "union accuracy %"):
        table.add_column(column, justify="left" if not column else "right")
    table.add_row(
        "this model",
        _log_likelihood(scores),
        "" if scores.accuracy is None else f"{100 * scores.accuracy:.2f}",
        "" if scores.accuracy_union is None else f"{100 * scores.accuracy_union:.2f}",
        style="bold",
    )
    figure = paper.test_figure(run.config.recipe, run.config.data) if split == "test" else None
    if figure:
        table.add_row("paper", f"{figure[1]:.2f}")
    console.print(table)
    console.print(f"Next:  longspan evaluate {run.path} --split valid")


def _log_likelihood(scores: Scores) -> str:
    if scores.log_likelihood_error is None:
        return f"{scores.log_likelihood:.3f}"
    return f"{scores.log_likelihood:.2f} ± {scores.log_likelihood_error:.2f} (estimate)"


def _duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"
