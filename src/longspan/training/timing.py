"""How long a run took, from the lines each of its processes wrote: they count seconds from their own start."""

import itertools
import statistics

from longspan.training.runs import Run


def seconds_trained(run: Run) -> float:
    """Seconds of training that ended in a validated epoch, over all processes that worked on the run."""
    return sum(_durations(run).values())


def typical_epoch_seconds(run: Run) -> float | None:
    """Median seconds of an epoch with its validation, None before the second epoch (the first one compiles)."""
    durations = _durations(run)
    later = [seconds for epoch, seconds in durations.items() if epoch > 1]
    return statistics.median(later) if later else None


def _durations(run: Run) -> dict[int, float]:
    """Seconds each epoch took; for one that was run several times, the last time."""
    durations: dict[int, float] = {}
    lines = [{"epoch": 0, "seconds": 0.0}, *run.timings()]
    for before, now in itertools.pairwise(lines):
        same_process = now["epoch"] == before["epoch"] + 1 and now["seconds"] > before["seconds"]
        durations[now["epoch"]] = now["seconds"] - (before["seconds"] if same_process else 0.0)
    return durations
