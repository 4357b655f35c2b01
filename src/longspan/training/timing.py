"""How long a run was trained, over all processes that worked on it, from its timing.jsonl."""

import itertools
import statistics
from typing import Literal

from longspan.training.runs import Run

Clock = Literal["seconds", "processor_seconds"]


def seconds_trained(run: Run, clock: Clock = "seconds") -> float:
    """Seconds of training up to validated epochs, over all processes that worked on the run.

    The processor clock does not advance while a busy machine runs other processes.
    """
    return sum(_durations(run, clock).values())


def typical_epoch_seconds(run: Run, clock: Clock = "processor_seconds") -> float | None:
    """Median seconds per epoch with its validation; None before the second epoch, because the first one compiles."""
    durations = _durations(run, clock)
    later = [seconds for epoch, seconds in durations.items() if epoch > 1]
    return statistics.median(later) if later else None


def _durations(run: Run, clock: Clock) -> dict[int, float]:
    """Seconds that each epoch took; for an epoch that was run several times, those of the last time."""
    durations: dict[int, float] = {}
    lines = [{"epoch": 0, "seconds": 0.0, "processor_seconds": 0.0}, *run.timings()]
    for before, now in itertools.pairwise(lines):
        same_process = now["epoch"] == before["epoch"] + 1 and now["seconds"] > before["seconds"]
        spent, spent_before = now.get(clock, now["seconds"]), before.get(clock, before["seconds"])
        durations[now["epoch"]] = spent - (spent_before if same_process else 0.0)
    return durations
