"""Contestants that do the same work, timed turn by turn so that whatever else the machine does falls on all of them."""

import os
import time
from collections.abc import Callable, Mapping
from statistics import median

Turn = Callable[[], int]
"""Does some updates, waits until they are done, and says how many they were."""

CLOCKS = {"wall": time.perf_counter, "processor": time.process_time}

LEAST = 0.2
"""Seconds that are measured at a time: much longer than what one contestant leaves behind for the next."""


def now() -> float:
    """Seconds of the clock that `BENCHMARK_CLOCK` names: the wall's, or the processor's, which a busy machine does not
    stretch; with one thread they agree on a quiet one."""
    return CLOCKS[os.environ.get("BENCHMARK_CLOCK", "wall")]()


def seconds_per_update(contestants: Mapping[str, Turn], rounds: int = 7) -> dict[str, float]:
    """Median over rounds of the seconds one update takes each contestant, after two turns that compile and warm."""
    for turn in contestants.values():
        turn(), turn()
    spent: dict[str, list[float]] = {name: [] for name in contestants}
    for _ in range(rounds):
        for name, turn in contestants.items():
            turn()  # finds the caches, and a core or two, as its neighbour left them
            spent[name].append(_seconds(turn))
    return {name: median(seconds) for name, seconds in spent.items()}


def _seconds(turn: Turn) -> float:
    began, updates = now(), 0
    while updates == 0 or now() - began < LEAST:
        updates += turn()
    return (now() - began) / updates


def ratios(seconds: Mapping[str, float], ours: str = "longspan") -> dict[str, float]:
    """How many times as long the others take."""
    return {name: value / seconds[ours] for name, value in seconds.items() if name != ours}
