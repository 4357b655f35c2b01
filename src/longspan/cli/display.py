"""What a person sees of a run: a live line while it trains, a table of scores when it is done."""

import dataclasses
import math
import time

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, TextColumn
from rich.table import Table

from longspan import paper
from longspan.cli.figures import SHOWN, duration, format_figure
from longspan.data.baselines import MusicBaselines, TaskBaselines, trivial_baselines
from longspan.data.kinds import Data
from longspan.data.synthetic import WRONG_SHARE
from longspan.evaluation import Scores
from longspan.training.loop import Listener
from longspan.training.runs import Run


class TrainingDisplay(Listener):
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
            f"[bold]{config.recipe}[/] on [bold]{escape(config.data)}[/]: {config.hidden_size} {config.activation} "
            f"units, {config.output} output, {escape(str(self.run.path))}"
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
            f"{rate:,.0f} steps/s  train {progress.train_log_likelihood:.3f}  valid {self.valid}  "
            f"{describe_figures(progress.figures())}  at most {duration(left / rate)} left"
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
            f"epoch {record['epoch']:>3}  train {train}  valid {self.valid:>8}  {describe_figures(record)}  "
            f"{duration(seconds)}  {mark}",
            highlight=False,
            soft_wrap=True,
        )


FIGURES = {
    "valid_error_rate": "wrong {:6.1%}",
    "valid_squared_error": "squared error {:.4f}",
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


def describe_figures(figures: dict) -> str:
    """How a task stands and what the optimizer said of its updates, in the words of a terminal line."""
    return "  ".join(form.format(figures[name]) for name, form in FIGURES.items() if name in figures)


def show_scores(run: Run, data: Data, split: str, scores: Scores, reason: str = "") -> None:
    """Print scores beside trivial baselines and the paper's number, and what to try next."""
    console = Console(highlight=False)
    if reason:
        console.print(f"Done: {reason}.", markup=False)
    names = [name for name in SHOWN if getattr(scores, name) is not None]
    title = escape(f"{run.config.recipe} on {run.config.data}, {split} split")
    table = Table(title=title, title_justify="left")
    table.add_column("")
    for name in names:
        table.add_column(SHOWN[name], justify="right")
    ours = [format_figure(name, getattr(scores, name), getattr(scores, f"{name}_error", None)) for name in names]
    table.add_row("this model", *ours, style="bold")
    for label, figures in reference_rows(run, data, split):
        table.add_row(label, *(format_figure(name, figures.get(name)) for name in names))
    console.print(table)
    console.print(next_commands(run, split), markup=False)


SAMPLED_AS = {"music": "-o sample.mid -o sample.wav -o sample.png", "text": "--length 500"}
"""What to ask of `longspan sample`, for the kinds of data that can be sampled."""


def next_commands(run: Run, split: str) -> str:
    """What to try on a run whose scores were just shown, one command a line."""
    commands = [f"sample {run.path} {SAMPLED_AS[run.data.kind]}"] if run.data.kind in SAMPLED_AS else []
    commands += [f"inspect {run.path}", f"evaluate {run.path} --split {'valid' if split == 'test' else 'test'}"]
    return "Next:  " + "\n       ".join(f"longspan {command}" for command in commands)


def reference_rows(run: Run, data: Data, split: str) -> list[tuple[str, dict[str, float]]]:
    """What to hold a score against: the paper's cell for this recipe, and predictions that ignore the past."""
    rows = []
    cell = paper.figures_on_test(run.config.recipe, run.config.data) if split == "test" else None
    if cell:
        rows.append(("paper", cell))
    baselines = trivial_baselines(data, split)
    if isinstance(baselines, MusicBaselines):
        per_key = {
            "log_likelihood": baselines.key_rates_log_likelihood,
            "accuracy": baselines.key_rates_accuracy,
            "accuracy_union": baselines.key_rates_accuracy_union,
        }
        return [
            *rows,
            ("one rate per key", per_key),
            ("one rate for all", {"log_likelihood": baselines.one_rate_log_likelihood}),
        ]
    if isinstance(baselines, TaskBaselines):
        constant = {name: value for name, value in dataclasses.asdict(baselines).items() if value is not None}
        return [*rows, ("solved below", {"error_rate": WRONG_SHARE}), ("always the same answer", constant)]
    unigram = {
        "log_likelihood": -math.log(baselines.perplexity),
        "perplexity": baselines.perplexity,
        "bits_per_character": baselines.bits_per_token,
    }
    return [*rows, ("single-symbol frequencies", unigram)]
