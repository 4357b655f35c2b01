"""The part of `train`, `resume` and `evaluate` that needs JAX: train, score and show."""

import sys
from collections.abc import Callable

import msgspec
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from longspan import cli
from longspan.cli.options import Watching
from longspan.cli.output import leave_at_once, print_json
from longspan.data.dataset import Dataset
from longspan.evaluation import Scores, SplitEvaluator
from longspan.metrics import METRICS
from longspan.progress import TrainingDisplay
from longspan.reproduction.tables import figures_on_test
from longspan.runtime import first_interrupt
from longspan.training.listeners import TensorBoardListener
from longspan.training.loop import Outcome, train
from longspan.training.optimizers import ADVISED
from longspan.training.runs import Run
from longspan.training.setup import trained_model


def run_to_end(run: Run, content: Dataset, watching: Watching, prepare: Callable[[], None] = lambda: None) -> int:
    """Train a run to its end, score its best weights on the test split and suggest what to do next.

    `prepare` is called first, once no other process is training the run.
    """
    time_up = watching.time_up()
    with run.locked():
        prepare()
        with TrainingDisplay(run, quiet=watching.json) as display, first_interrupt(leave_at_once) as interrupted:
            outcome = train(
                run,
                content,
                listeners=[display, *([TensorBoardListener(run)] if watching.tensorboard else [])],
                interrupted=lambda: interrupted() or time_up(),
                checkpoint_seconds=watching.checkpoint_seconds,
            )
        scores = SplitEvaluator(content, "test").scores(outcome.model) if outcome.status == "done" else None
        if scores is not None:
            run.write_result({"test": msgspec.to_builtins(scores)})
    if outcome.status == "diverged":
        sys.stderr.write(f"longspan: diverged at {cli.with_flags(outcome.reason, ADVISED)}\n")
        return cli.DIVERGED
    if scores is None:
        _say_how_to_go_on(run, content, outcome, watching.json)
        return cli.INTERRUPTED if interrupted() else cli.DONE
    if watching.json:
        print_json({"status": "done", **_scores_document(run, content, "test", msgspec.to_builtins(scores))})
    else:
        show_scores(run, content, "test", scores, reason=outcome.reason)
    return cli.DONE


def evaluate(run: Run, content: Dataset, split: str, *, as_json: bool) -> int:
    """Score the best weights of a run on a split."""
    scores = SplitEvaluator(content, split).scores(trained_model(run))
    if as_json:
        print_json(_scores_document(run, content, split, msgspec.to_builtins(scores)))
    else:
        show_scores(run, content, split, scores)
    return cli.DONE


def _scores_document(run: Run, content: Dataset, split: str, scores: dict) -> dict:
    references = {label.replace(" ", "_"): figures for label, figures in reference_rows(run, content, split)}
    return {"run": str(run.path), "split": split, **scores, "references": references}


def _say_how_to_go_on(run: Run, content: Dataset, outcome: Outcome, as_json: bool) -> None:
    score = SplitEvaluator(content, "valid").log_likelihood(outcome.model)
    if as_json:
        print_json({"run": str(run.path), "status": "interrupted", "split": "valid", "log_likelihood": score})
    else:
        sys.stdout.write(
            f"Stopped and saved. Best weights so far: validation log-likelihood {score:.3f}.\n"
            f"Continue with:  longspan resume {run.path}\n"
        )


def show_scores(run: Run, data: Dataset, split: str, scores: Scores, reason: str = "") -> None:
    """Print scores beside trivial baselines and the paper's numbers, and suggest what to try next."""
    console = Console(highlight=False)
    if reason:
        console.print(f"Done: {reason}.", markup=False)
    metrics = [metric for name, metric in METRICS.items() if getattr(scores, name) is not None]
    title = escape(f"{run.config.recipe} on {run.config.data}, {split} split")
    table = Table(title=title, title_justify="left")
    table.add_column("")
    for metric in metrics:
        table.add_column(metric.heading, justify="right")
    ours = [
        metric.show(getattr(scores, metric.name), getattr(scores, f"{metric.name}_error", None)) for metric in metrics
    ]
    table.add_row("this model", *ours, style="bold")
    for label, figures in reference_rows(run, data, split):
        table.add_row(label, *(metric.show(figures.get(metric.name)) for metric in metrics))
    console.print(table)
    console.print(next_commands(run, split), markup=False)


SAMPLED_AS = {"music": "-o sample.mid -o sample.wav -o sample.png", "text": "--length 500"}
"""Suggested options of `longspan sample`, for the kinds of data that can be sampled."""


def next_commands(run: Run, split: str) -> str:
    """Commands to try on a run whose scores were just shown, one per line."""
    commands = [f"sample {run.path} {SAMPLED_AS[run.data.kind]}"] if run.data.kind in SAMPLED_AS else []
    commands += [f"inspect {run.path}", f"evaluate {run.path} --split {'valid' if split == 'test' else 'test'}"]
    return "Next:  " + "\n       ".join(f"longspan {command}" for command in commands)


def reference_rows(run: Run, data: Dataset, split: str) -> list[tuple[str, dict[str, float]]]:
    """References for a score: the paper's cell for this recipe, and baselines that ignore the past."""
    rows = []
    cell = figures_on_test(run.config.recipe, run.config.data) if split == "test" else None
    if cell:
        rows.append(("paper", cell))
    return [*rows, *data.baselines(split).rows()]
