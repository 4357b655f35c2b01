"""Several runs side by side, as plain values: settings that differ, best epoch, scores, time."""

from pathlib import Path

import msgspec

from longspan.config import as_dict
from longspan.errors import InputError
from longspan.training.runs import Run
from longspan.training.timing import seconds_trained

LOWER_IS_BETTER = frozenset({"perplexity", "bits_per_character", "error_rate", "squared_error"})


class RunValue(msgspec.Struct, frozen=True):
    """One run as a comparison shows it."""

    run: str
    status: str
    settings: dict
    """Those in which the compared runs differ."""
    epochs: int
    best_epoch: int | None
    valid_log_likelihood: float | None
    train_log_likelihood: float | None
    """While training, in the best epoch."""
    test: dict[str, float] | None
    """Scores on the test split, None before the run is done."""
    seconds: float


def compare_runs(paths: list[Path]) -> list[RunValue]:
    """The runs in the order given."""
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
