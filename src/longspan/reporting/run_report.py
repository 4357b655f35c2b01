"""The report of a run as plain values: curves, gradient norms and the clip line, scores, settings, samples."""

from pathlib import Path

import msgspec

from longspan.config import TrainConfig, as_dict
from longspan.diagnostics.diagnosis import Diagnosis, kept_diagnosis
from longspan.errors import InputError
from longspan.metrics import METRICS
from longspan.playing.packing import Packed
from longspan.reporting.samples import MusicSample, TextSample
from longspan.reproduction.tables import figures_on_test
from longspan.training.runs import Run
from longspan.training.timing import seconds_trained, typical_epoch_seconds


class EpochValue(msgspec.Struct, frozen=True):
    """One epoch: log-likelihoods in nats per frame or symbol; the other figures are means over the epoch's updates."""

    epoch: int
    valid: float
    train: float | None = None
    """Computed with the weights at each step; None if training does not compute it."""
    gradient_norm: float | None = None
    clipped: float | None = None
    """Fraction of updates whose gradient was clipped."""
    learning_rate: float | None = None


class ScoreValue(msgspec.Struct, frozen=True):
    """A score on the test split beside the paper's."""

    metric: str
    ours: float
    paper: float | None = None
    error: float | None = None
    """Standard error if ours is an estimate."""


class TrailValue(msgspec.Struct, frozen=True):
    """A song or text of the test split, which of its steps were recalled, and from which earlier steps."""

    sequence: int
    length: int
    steps: list[int]
    places: list[int]


class MemoryValue(msgspec.Struct, frozen=True):
    """A run with its memory, on the test split."""

    memory: str
    recalled: float
    """Share of the steps that were recalled."""
    test: dict[str, float]
    trails: list[TrailValue] = []
    learned_every: int | None = None
    """Steps after which the network went on learning from what it had read; None if it did not."""


class RunReport(msgspec.Struct, frozen=True, tag="run", tag_field="report"):
    """Everything shown about a run."""

    name: str
    recipe: str
    data: str
    status: str
    reason: str
    epochs: list[EpochValue]
    best_epoch: int | None
    clip: float | None
    """The gradient norm to which gradients were clipped; None without clipping, or before `auto` is known."""
    scores: list[ScoreValue]
    baselines: dict[str, dict[str, float]]
    """What simple predictors reach on the test split, by name and metric."""
    splits: dict[str, dict[str, float]]
    """Sizes of the splits of the data, such as songs and frames."""
    grid: int | None
    """Frames per quarter note of music."""
    settings: dict
    changed: list[str]
    """Settings that differ from their defaults."""
    seconds: float
    epoch_seconds: float | None
    """Processor time of a typical epoch with its validation."""
    versions: dict[str, str]
    samples: list[MusicSample] | list[TextSample] = []
    diagnosis: Diagnosis | None = None
    """What `longspan diagnose` kept in the folder, if it is of these weights."""
    memory: MemoryValue | None = None
    """The scores with the memory that was fitted to these weights."""
    player: Packed | None = None
    """The model as a page runs it."""
    no_player: str = ""
    """Why a page cannot run it, where it was asked to."""


def run_report(run: Run, samples: list[MusicSample] | list[TextSample] | None = None) -> RunReport:
    """Make the report of a run."""
    epochs = [_epoch_value(record) for record in run.metrics()]
    default = TrainConfig()
    settings = as_dict(run.config)
    return RunReport(
        name=run.path.resolve().name,
        recipe=run.config.recipe,
        data=run.config.data,
        status=run.status,
        reason=run.reason,
        epochs=epochs,
        best_epoch=max(epochs, key=lambda each: each.valid).epoch if epochs else None,
        clip=_clip(run),
        scores=_scores(run),
        baselines=(run.result() or {}).get("baselines", {}),
        splits=(run.result() or {}).get("splits", {}),
        grid=run.data.frames_per_beat,
        settings=settings,
        changed=[name for name, value in settings.items() if value != getattr(default, name)],
        seconds=seconds_trained(run),
        epoch_seconds=typical_epoch_seconds(run),
        versions=_versions(run),
        samples=samples or [],
        diagnosis=kept_diagnosis(run),
        memory=_memory(run),
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
    from longspan.training.seals import newest_checkpoint
    from longspan.training.state import Progress

    newest = newest_checkpoint(run.path / "checkpoints", Progress)
    return newest.progress.threshold if newest else None


def _scores(run: Run) -> list[ScoreValue]:
    """All scores of a finished run; the error of an estimate is part of its value."""
    test = (run.result() or {}).get("test", {})
    theirs = figures_on_test(run.config.recipe, run.config.data) or {}
    return [
        ScoreValue(name, value, theirs.get(name), test.get(f"{name}_error"))
        for name, value in test.items()
        if name in METRICS and isinstance(value, float)
    ]


def _memory(run: Run) -> MemoryValue | None:
    kept = (run.result() or {}).get("with_memory")
    if kept is None or "test" not in kept:
        return None
    known = {name: value for name, value in kept["test"].items() if name in METRICS and value is not None}
    return msgspec.convert({**kept, "test": known}, MemoryValue)


def _versions(run: Run) -> dict[str, str]:
    return {name: str(version) for name, version in run.environment().get("versions", {}).items() if version}


class RunValue(msgspec.Struct, frozen=True):
    """One run in a comparison."""

    run: str
    status: str
    settings: dict
    """The settings in which the compared runs differ."""
    epochs: int
    best_epoch: int | None
    valid_log_likelihood: float | None
    train_log_likelihood: float | None
    """Measured during training, in the best epoch."""
    test: dict[str, float] | None
    """Scores on the test split; None before the run is done."""
    seconds: float


def compare_runs(paths: list[Path]) -> list[RunValue]:
    """The values of several runs, in the order given."""
    if len(paths) < 2:
        raise InputError(f"expected at least two run folders to compare, got {len(paths)}")
    runs = [Run.open(path) for path in paths]
    configs = [as_dict(run.config) for run in runs]
    different = [name for name in configs[0] if any(config[name] != configs[0][name] for config in configs)]
    return [_value(run, {name: config[name] for name in different}) for run, config in zip(runs, configs, strict=True)]


def _value(run: Run, settings: dict) -> RunValue:
    metrics = run.metrics()
    best = max(metrics, key=lambda record: record["valid_log_likelihood"], default={})
    result = run.result() or {}
    return RunValue(
        run=str(run.path),
        status=run.status,
        settings=settings,
        epochs=len(metrics),
        best_epoch=best.get("epoch"),
        valid_log_likelihood=best.get("valid_log_likelihood"),
        train_log_likelihood=best.get("train_log_likelihood"),
        test=result.get("test"),
        seconds=seconds_trained(run),
    )
