"""Commands on one run: `train`, `resume` and `evaluate` it, let it `remember`, and `seal` its files.

JAX is imported when it is needed: after the options are parsed, the data are loaded and the threads are pinned.
"""

import functools
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
import tyro
from rich.markup import escape
from rich.table import Table

from longspan import cli
from longspan.cli import leave_at_once, print_json
from longspan.cli.options import Watching, load_data, load_data_of, origins_of, parse, parse_train
from longspan.data.dataset import SPLITS, Dataset, usual_memory
from longspan.data.music import KEYS
from longspan.errors import to_paste
from longspan.metrics import METRICS, setting
from longspan.reproduction.tables import figures_on_test
from longspan.runtime import first_interrupt, prepare
from longspan.terminal import Console, say
from longspan.training.runs import Given, Run, create_run


def run(arguments: list[str]) -> int:
    began = time.monotonic()
    options = parse_train(arguments)
    config, watching = options.config, options.watching
    if options.explain:
        show_origins(origins_of(arguments, config), as_json=watching.json)
        return cli.DONE
    content = load_data(config.data, options.data_dir, quiet=watching.json, span=config.span)
    content = content.with_cues(config.cues, config.cue_dropout)
    environment = prepare(config.threads, config.replicas)
    from longspan.training.setup import check_parts, weights_to_start_from

    given = Given()
    if options.start is not None:
        given = Given(start=weights_to_start_from(Run.open(options.start), config, content.record))
    check_parts(config, content.record, given)
    if config.memory != "none":
        from longspan.memory import check_memory

        check_memory(config.memory, content.record)
    seconds = options.budget_seconds
    if seconds is not None:
        from longspan.training.planning import plan

        config = plan(config, content, given, seconds - (time.monotonic() - began))
        seconds -= time.monotonic() - began
    from longspan.training.loop import removed_unless_begun

    created = create_run(options.run_dir, config, content.record, environment, given)
    with removed_unless_begun(created):
        return run_to_end(created, content, watching, seconds=seconds)


def show_origins(rows: list[tuple[str, Any, str]], *, as_json: bool) -> None:
    """Print every setting with its value and origin."""
    if as_json:
        print_json({name: {"value": value, "from": origin} for name, value, origin in rows})
        return
    table = Table(box=None)
    for column in ("setting", "value", "set by"):
        table.add_column(column)
    for name, value, origin in rows:
        table.add_row(name, escape(setting(value)), escape(origin), style="dim" if origin == "default" else "")
    Console(highlight=False).print(table)


@dataclass(frozen=True)
class ResumeOptions:
    """Continue a run exactly where it stopped."""

    path: Annotated[Path, tyro.conf.Positional]
    """Folder of the run."""
    max_epochs: int | None = None
    """New maximum number of epochs; a larger one continues a run that reached its last epoch."""
    accept_environment: bool = False
    """Continue even if versions, kernels or threads differ from those of the run so far, so that bits may differ."""
    data_dir: Path | None = None
    """Folder of data sets; by default $LONGSPAN_DATA, else the user's cache."""
    watching: Watching = field(default_factory=Watching)


def resume(arguments: list[str]) -> int:
    options = parse(ResumeOptions, arguments, "longspan resume")
    resumed = Run.open(options.path)
    content = load_data_of(resumed, options.data_dir, quiet=options.watching.json)
    environment = prepare(resumed.config.threads, resumed.config.replicas)
    from longspan.training.loop import continue_in

    def before_training() -> None:
        continue_in(resumed, environment, max_epochs=options.max_epochs, accept=options.accept_environment)

    return run_to_end(resumed, content, options.watching, before_training)


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


def evaluate(arguments: list[str]) -> int:
    options = parse(EvaluateOptions, arguments, "longspan evaluate")
    evaluated = Run.open(options.path)
    content = load_data_of(evaluated, options.data_dir, quiet=options.json)
    prepare(evaluated.config.threads)

    return score(evaluated, content, options.split, as_json=options.json)


@dataclass(frozen=True)
class RememberOptions:
    """Fit a memory to the best weights of a run, on the validation split, and keep it in the run folder.

    From then on `evaluate` scores the run with and without it, and `sample` draws from a model that returns to what it
    has said. Nothing is trained again.
    """

    path: Annotated[Path, tyro.conf.Positional]
    """Folder of the run."""
    memory: str | None = None
    """recall, cache (text), dynamic (the network keeps learning from what it reads), recall+dynamic, cache+dynamic or
    one of your own; by default what suits the data."""
    data_dir: Path | None = None
    """Folder of data sets; by default $LONGSPAN_DATA, else the user's cache."""
    json: bool = False
    """Print only the scores, as JSON."""


def remember(arguments: list[str]) -> int:
    options = parse(RememberOptions, arguments, "longspan remember")
    remembering = Run.open(options.path)
    content = load_data_of(remembering, options.data_dir, quiet=options.json)
    name = options.memory or usual_memory(content.target_kind)
    prepare(remembering.config.threads)
    return attach_memory(remembering, content, name, as_json=options.json)


@dataclass(frozen=True)
class SealOptions:
    """Write checksums of a run's files as they are now, so that later damage is noticed.

    Runs of this version have them from the start. Use it on runs of older versions, or after editing a file yourself.
    """

    path: Annotated[Path, tyro.conf.Positional]
    """Folder of the run."""


def seal(arguments: list[str]) -> int:
    options = parse(SealOptions, arguments, "longspan seal")
    names = Run.seal(options.path)
    say(f"Sealed {', '.join(names)} of {options.path}.\n")
    return cli.DONE


def run_to_end(
    run: Run,
    content: Dataset,
    watching: Watching,
    prepare: Callable[[], None] = lambda: None,
    seconds: float | None = None,
) -> int:
    """Train a run to its end, score its best weights on the test split and suggest what to do next.

    `prepare` is called first, once no other process is training the run; `seconds` is the time it was planned for.
    """
    from longspan.evaluation import SplitEvaluator
    from longspan.progress import TrainingDisplay
    from longspan.training.listeners import TensorBoardListener
    from longspan.training.loop import train
    from longspan.training.optimizers import ADVISED
    from longspan.training.planning import train_in

    to_end = train if seconds is None else functools.partial(train_in, seconds)
    time_up = watching.time_up()
    with run.locked():
        prepare()
        with TrainingDisplay(run, quiet=watching.json) as display, first_interrupt(leave_at_once) as interrupted:
            outcome = to_end(
                run,
                content,
                listeners=[display, *([TensorBoardListener(run)] if watching.tensorboard else [])],
                interrupted=lambda: interrupted() or time_up(),
                checkpoint_seconds=watching.checkpoint_seconds,
            )
        result = None
        if outcome.status == "done":
            name = run.config.memory if run.config.memory != "none" else run.memory_name
            if name is not None:
                from longspan.memory import remember

                remember(run, name, outcome.model, content)
            result = scores_of(run, outcome.model, content, "test")
            run.write_result({**result, **facts_of(content)})
    if outcome.status == "diverged":
        say(f"longspan: diverged at {cli.with_flags(outcome.reason, ADVISED)}\n", error=True)
        return cli.DIVERGED
    if result is None:
        _say_how_to_go_on(run, SplitEvaluator(content, "valid").log_likelihood(outcome.model), watching.json)
        return cli.INTERRUPTED if interrupted() else cli.DONE
    if watching.json:
        print_json({"status": "done", **_scores_document(run, content, "test", result)})
    else:
        show_scores(run, content, "test", result, reason=outcome.reason)
    return cli.DONE


def facts_of(content: Dataset) -> dict[str, Any]:
    """What result.json keeps to compare scores with: simple predictors, and the sizes of the splits."""
    return {
        "baselines": dict(content.baselines("test").rows()),
        "splits": {split: msgspec.to_builtins(content.split_figures(split)) for split in SPLITS},
    }


def score(run: Run, content: Dataset, split: str, *, as_json: bool) -> int:
    """Score the best weights of a run on a split."""
    from longspan.training.setup import trained_model

    return _show(run, content, split, scores_of(run, trained_model(run), content, split), as_json=as_json)


def scores_of(run: Run, model: Any, content: Dataset, split: str) -> dict[str, Any]:
    """The scores of a run's best weights on a split as result.json holds them: alone, and with the run's memory."""
    from longspan.evaluation import SplitEvaluator

    result: dict[str, Any] = {split: msgspec.to_builtins(SplitEvaluator(content, split).scores(model))}
    if run.memory_name is not None:
        from longspan.memory import memory_of

        memory = memory_of(run)
        found = memory.recollect(model, content, split)
        scores = msgspec.to_builtins(found.scores)
        result["with_memory"] = {
            "memory": memory.name,
            "recalled": found.recalled,
            split: scores,
            "learned_every": None if memory.adaptation is None else memory.adaptation.segment,
            "trails": found.longest_trails(),
        }
    return result


def attach_memory(run: Run, content: Dataset, name: str, *, as_json: bool) -> int:
    """Fit a memory to the best weights of a run, keep it in the run folder, and score both on the test split."""
    from longspan.memory import remember
    from longspan.training.setup import trained_model

    model = trained_model(run)
    with run.locked():
        remember(run, name, model, content)
        result = scores_of(run, model, content, "test")
        before = run.result()
        if before is not None:
            run.write_result({**before, **result})
    return _show(run, content, "test", result, as_json=as_json)


def _show(run: Run, content: Dataset, split: str, result: dict, *, as_json: bool) -> int:
    if as_json:
        print_json(_scores_document(run, content, split, result))
    else:
        show_scores(run, content, split, result)
    return cli.DONE


def _scores_document(run: Run, content: Dataset, split: str, result: dict) -> dict:
    references = {label.replace(" ", "_"): figures for label, figures in reference_rows(run, content, split)}
    beside = {name: _without_trails(value) for name, value in result.items() if name != split}
    return {"run": str(run.path), "split": split, **result[split], **beside, "references": references}


def _without_trails(values: Any) -> Any:
    """Scores with memory, without the list of recalled steps, which is long."""
    return {name: value for name, value in values.items() if name != "trails"} if isinstance(values, dict) else values


def _say_how_to_go_on(run: Run, score: float, as_json: bool) -> None:
    if as_json:
        print_json({"run": str(run.path), "status": "interrupted", "split": "valid", "log_likelihood": score})
    else:
        say(
            f"Stopped and saved. Best weights so far: validation log-likelihood {score:.3f}.\n"
            f"Continue with:  {to_paste('resume', run.path)}\n"
        )


def show_scores(run: Run, data: Dataset, split: str, result: dict[str, Any], reason: str = "") -> None:
    """Print scores beside trivial baselines and the paper's numbers, and suggest what to try next."""
    console = Console(highlight=False)
    scores, remembered = result[split], result.get("with_memory")
    if reason:
        console.print(f"Done: {reason}.", markup=False)
    metrics = [metric for name, metric in METRICS.items() if scores.get(name) is not None]
    title = escape(f"{run.config.recipe} on {run.config.data}, {split} split")
    table = Table(title=title, title_justify="left")
    table.add_column("")
    for metric in metrics:
        table.add_column(metric.heading, justify="right")
    ours = [metric.show(scores[metric.name], scores.get(f"{metric.name}_error")) for metric in metrics]
    table.add_row("this model", *ours, style="bold")
    if remembered:
        figures = [metric.show(remembered[split].get(metric.name)) for metric in metrics]
        table.add_row(f"with memory ({escape(remembered['memory'])})", *figures, style="bold")
    for label, figures in reference_rows(run, data, split):
        table.add_row(label, *(metric.show(figures.get(metric.name)) for metric in metrics))
    console.print(table)
    if remembered:
        for line in _about_memory(remembered, PIECE[run.data.kind]):
            console.print(line)
    console.print(next_commands(run, split), markup=False)


def _about_memory(remembered: dict[str, Any], piece: str) -> Iterator[str]:
    """What the memory did, one line each."""
    if every := remembered.get("learned_every"):
        steps = "every step" if every == 1 else f"every {every} steps"
        yield f"The network went on learning from each {piece}, after {steps}."
    if remembered["recalled"]:
        yield f"{remembered['recalled']:.1%} of the steps were recalled from the same {piece}."


PIECE = {"music": "song", "text": "text"}
SAMPLED_AS = {"music": "-o sample.mid -o sample.png", "text": "--length 500", "series": "-o sample.csv"}
"""Suggested options of `longspan sample`, for the kinds of data that can be sampled."""


PLAYED = {
    "cell": ("leaky", "lstm", "gru"),
    "output": ("bernoulli", "nade", "softmax", "factored", "tree"),
    "cues": ("none",),
}
"""Settings of the models that `longspan play` runs; it knows more than their names, but need not be loaded here."""


def _is_played(run: Run) -> bool:
    known = all(getattr(run.config, name) in allowed for name, allowed in PLAYED.items())
    return known and (run.data.kind == "text" or run.data.size == KEYS)


def next_commands(run: Run, split: str) -> str:
    """Commands to try on a run whose scores were just shown, one per line."""
    kind = "series" if run.data.next_step else run.data.kind
    commands = [to_paste("sample", run.path, *SAMPLED_AS[kind].split())] if kind in SAMPLED_AS else []
    if kind in PIECE and _is_played(run):
        commands.append(to_paste("play", run.path, "-o", "play.html"))
    commands.append(to_paste("diagnose", run.path))
    commands.append(to_paste("evaluate", run.path, "--split", "valid" if split == "test" else "test"))
    return "Next:  " + "\n       ".join(commands)


def reference_rows(run: Run, data: Dataset, split: str) -> list[tuple[str, dict[str, float]]]:
    """References for a score: the paper's cell for this recipe, and baselines that ignore the past."""
    rows = []
    cell = figures_on_test(run.config.recipe, run.config.data) if split == "test" else None
    if cell:
        rows.append(("paper", cell))
    return [*rows, *data.baselines(split).rows()]
