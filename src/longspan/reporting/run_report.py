"""What a page says of one run, as plain values: curves, gradient norms and the clip line, scores, settings, samples."""

from pathlib import Path

import msgspec

from longspan import paper
from longspan.config import TrainConfig, as_dict
from longspan.reporting.samples import MusicSample, TextSample
from longspan.training.runs import Run, read_json
from longspan.training.timing import seconds_trained, typical_epoch_seconds


class EpochValue(msgspec.Struct, frozen=True):
    """One validation; log-likelihoods in nats per frame or symbol, the other figures means over the epoch's updates."""

    epoch: int
    valid: float
    train: float | None = None
    """At the weights of their time; None where training does not compute it."""
    gradient_norm: float | None = None
    clipped: float | None = None
    """Share of updates whose gradient was clipped."""
    learning_rate: float | None = None


class ScoreValue(msgspec.Struct, frozen=True):
    """A figure of the test split beside the paper's."""

    metric: str
    ours: float
    paper: float | None = None
    error: float | None = None
    """Standard error where ours is an estimate."""


class RunReport(msgspec.Struct, frozen=True, tag="run", tag_field="report"):
    """All that is shown of a run."""

    name: str
    recipe: str
    data: str
    status: str
    reason: str
    epochs: list[EpochValue]
    best_epoch: int | None
    clip: float | None
    """The gradient norm that was clipped to; None without clipping, or before `auto` is known."""
    scores: list[ScoreValue]
    settings: dict
    changed: list[str]
    """Settings that are not at their default."""
    seconds: float
    epoch_seconds: float | None
    """Processor time of a typical epoch with its validation."""
    versions: dict[str, str]
    samples: list[MusicSample] | list[TextSample] = []


def run_report(path: Path, samples: list[MusicSample] | list[TextSample] | None = None) -> RunReport:
    """The values of the run in a folder."""
    run = Run.open(path)
    epochs = [_epoch_value(record) for record in run.metrics()]
    default = TrainConfig()
    settings = as_dict(run.config)
    return RunReport(
        name=path.resolve().name,
        recipe=run.config.recipe,
        data=run.config.data,
        status=run.status,
        reason=run.reason,
        epochs=epochs,
        best_epoch=max(epochs, key=lambda each: each.valid).epoch if epochs else None,
        clip=_clip(run),
        scores=_scores(run),
        settings=settings,
        changed=[name for name, value in settings.items() if value != getattr(default, name)],
        seconds=seconds_trained(run),
        epoch_seconds=typical_epoch_seconds(run),
        versions=_versions(path),
        samples=samples or [],
    )


def _epoch_value(record: dict) -> EpochValue:
    return EpochValue(
        epoch=record["epoch"],
        valid=record["valid_log_likelihood"],
        train=record.get("train_log_likelihood"),
        gradient_norm=record.get("gradient_norm"),
        clipped=record.get("clipped"),
        learning_rate=record.get("learning_rate"),
    )


def _clip(run: Run) -> float | None:
    if run.config.optimizer != "sgd" or run.config.clip == "none":
        return None
    if run.config.clip != "auto":
        return float(run.config.clip)
    from longspan.training import checkpoints  # only here, for the state of a run needs JAX
    from longspan.training.state import Progress

    newest = checkpoints.read_newest(run.path / "checkpoints", Progress)
    return newest.progress.threshold if newest else None


def _scores(run: Run) -> list[ScoreValue]:
    """Every figure the run was given at its end; an estimate's error stands with the estimate."""
    test = (run.result() or {}).get("test", {})
    theirs = paper.figures_on_test(run.config.recipe, run.config.data) or {}
    return [
        ScoreValue(name, value, theirs.get(name), test.get(f"{name}_error"))
        for name, value in test.items()
        if isinstance(value, float) and not name.endswith("_error")
    ]


def _versions(path: Path) -> dict[str, str]:
    environment = read_json(path / "environment.json") or {}
    return {name: str(version) for name, version in environment.get("versions", {}).items() if version}
