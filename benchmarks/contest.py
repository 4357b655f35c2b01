"""Contestants that do the same work, timed turn by turn so that whatever else the machine does falls on all of them."""

import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from statistics import median
from typing import NamedTuple

import numpy as np

Turn = Callable[[], int]
"""Does some updates, waits until they are done, and says how many they were."""
Weights = dict[str, np.ndarray]
"""Of a recurrent network: w (input), u (recurrent), b (bias), v (output) and c (its bias), rows for what they read."""

CLOCKS = {"wall": time.perf_counter, "processor": time.process_time}

LEAST = 0.2
"""Seconds that are measured at a time: much longer than what one contestant leaves behind for the next."""


class Task(NamedTuple):
    """Work for contestants that train the same network by the same rule.

    Attributes:
        inputs: chunks x time x lanes x size, on or off; without the last axis symbols.
        targets: like them.
        weights: the first ones.
        learning_rate: of a clipped step of Nesterov's method.
        momentum: of that step.
        threshold: to which the norm of the gradient is clipped.
    """

    inputs: np.ndarray
    targets: np.ndarray
    weights: Weights
    learning_rate: float
    momentum: float
    threshold: float

    @property
    def symbols(self) -> bool:
        return self.inputs.ndim == 3

    @property
    def steps(self) -> int:
        """Of a chunk, over all lanes: the loss is a mean over them."""
        return self.inputs.shape[1] * self.inputs.shape[2]


@dataclass(frozen=True)
class Contestant:
    """Somebody who trains; a turn is an update for every chunk of the task."""

    turn: Turn
    weights: Callable[[], Weights]
    """As they are after the turns so far."""

    def __call__(self) -> int:
        return self.turn()


def now() -> float:
    """Seconds of the clock that `BENCHMARK_CLOCK` names: the wall's, or the processor's, which a busy machine does not
    stretch; with one thread they agree on a quiet one."""
    return CLOCKS[os.environ.get("BENCHMARK_CLOCK", "wall")]()


def on_processor_clock() -> bool:
    """Whether seconds are those that the processor gave."""
    return os.environ.get("BENCHMARK_CLOCK") == "processor"


def threads() -> int:
    """How many of them every contestant may use."""
    return int(os.environ.get("LONGSPAN_THREADS", "1"))


def disagreements(task: Task, contestants: Mapping[str, Contestant], reference: str) -> dict[str, float]:
    """How far the others' weights are from the reference's after the first turn of each.

    Measured by the largest difference of each matrix, as a share of the largest change that training made to it.
    """
    for contestant in contestants.values():
        contestant()
    expected = contestants[reference].weights()

    def distance(found: Weights) -> float:
        return max(
            float(np.abs(found[name] - expected[name]).max() / np.abs(expected[name] - first).max())
            for name, first in task.weights.items()
        )

    return {name: distance(contestant.weights()) for name, contestant in contestants.items() if name != reference}


def seconds_per_update(contestants: Mapping[str, Turn], rounds: int = 7) -> dict[str, float]:
    """Median over rounds of the seconds one update takes each contestant, after two turns that compile and warm."""
    for turn in contestants.values():
        for _ in range(2):
            turn()
    spent: dict[str, list[float]] = {name: [] for name in contestants}
    for _ in range(rounds):
        for name, turn in contestants.items():
            turn()  # finds the caches, and a core or two, as its neighbor left them
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
