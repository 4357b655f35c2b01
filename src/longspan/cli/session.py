"""What `train`, `resume` and `evaluate` do once JAX may be imported: train, score, show."""

import sys

import msgspec

from longspan import cli
from longspan.cli.display import TrainingDisplay, reference_rows, show_scores
from longspan.cli.options import Watching
from longspan.cli.output import print_json
from longspan.cli.signals import first_interrupt
from longspan.data.kinds import Data
from longspan.evaluation import Scores, SplitEvaluator
from longspan.training.loop import Listener, Outcome, train
from longspan.training.runs import Run
from longspan.training.setup import trained_model
from longspan.training.tensorboard import TensorBoardListener


def run_to_end(run: Run, content: Data, watching: Watching) -> int:
    """Train a run to its end, score its best weights on the test split and say what to do next."""
    as_json = watching.json
    with run.locked(), TrainingDisplay(run, quiet=as_json) as display, first_interrupt() as interrupted:
        listeners: list[Listener] = [display]
        if watching.tensorboard:
            listeners.append(TensorBoardListener(run))
        outcome = train(
            run,
            content,
            listeners=listeners,
            interrupted=interrupted,
            checkpoint_seconds=watching.checkpoint_seconds,
        )
    if outcome.status == "diverged":
        sys.stderr.write(f"longspan: diverged at {outcome.reason}\n")
        return cli.DIVERGED
    if outcome.status == "interrupted":
        return _after_interrupt(run, content, outcome, as_json)
    result = {"test": msgspec.to_builtins(SplitEvaluator(content, "test").scores(outcome.model))}
    run.write_result(result)
    if as_json:
        print_json({"status": "done", **_scores_document(run, content, "test", result["test"])})
    else:
        show_scores(run, content, "test", msgspec.convert(result["test"], Scores), reason=outcome.reason)
    return cli.DONE


def evaluate(run: Run, content: Data, split: str, *, as_json: bool) -> int:
    """Score the best weights of a run on a split."""
    scores = SplitEvaluator(content, split).scores(trained_model(run))
    if as_json:
        print_json(_scores_document(run, content, split, msgspec.to_builtins(scores)))
    else:
        show_scores(run, content, split, scores)
    return cli.DONE


def _scores_document(run: Run, content: Data, split: str, scores: dict) -> dict:
    references = {label.replace(" ", "_"): figures for label, figures in reference_rows(run, content, split)}
    return {"run": str(run.path), "split": split, **scores, "references": references}


def _after_interrupt(run: Run, content: Data, outcome: Outcome, as_json: bool) -> int:
    score = SplitEvaluator(content, "valid").log_likelihood(outcome.model)
    if as_json:
        print_json({"run": str(run.path), "status": "interrupted", "split": "valid", "log_likelihood": score})
    else:
        sys.stdout.write(
            f"Stopped and saved. Best weights so far: validation log-likelihood {score:.3f}.\n"
            f"Go on with:  longspan resume {run.path}\n"
        )
    return cli.INTERRUPTED
