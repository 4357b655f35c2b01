"""What the past of a song is worth, over seeds: test figures with a memory, and what a repeat costs a network alone."""

import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from longspan.metrics import number, setting
from longspan.recipes import parse

MEMORY, REPEATS = "memory", "repeats"
"""Folders beside the cells of the tables."""


class Remembering(msgspec.Struct, frozen=True):
    """Test figures of a recipe with memory, over seeds."""

    mean: float
    spread: float | None
    seeds: int

    def __str__(self) -> str:
        return with_spread(self.mean, self.spread) + (" (1 seed)" if self.seeds == 1 else "")


class Repeating(msgspec.Struct, frozen=True):
    """What a repeat costs a network without a memory, means over seeds of the whole test split.

    Attributes:
        data, network: the data set, and the recipe with the settings that differ from it.
        seeds: number of runs.
        test: log-likelihood in nats per frame, with its standard deviation.
        price: mean loss at frames that repeat the song's past over that at others, with its standard deviation.
        memoryless: the same of a Markov chain per key: repeats are easier in themselves.
        lost_without_past: nats per frame that it loses if it sees its last input only.
        lost_beyond_8: nats per frame that it loses if its past is cut off eight inputs back.
    """

    data: str
    network: str
    seeds: int
    test: tuple[float, float | None]
    price: tuple[float, float | None]
    memoryless: float
    lost_without_past: float
    lost_beyond_8: float


REPEATS_HEADER = (
    "data",
    "network",
    "test",
    "price of a repeat",
    "of a Markov chain",
    "lost if only the last input is seen",
    "lost if the last 8 are",
    "seeds",
)


class Past(msgspec.Struct, frozen=True):
    """Figures with memory by row and data set, and what repeats cost."""

    memories: dict[tuple[str, str], Remembering] = {}
    repeats: list[Repeating] = []


def read_past(results: Path) -> Past:
    """Read what `longspan train` with the letter w and `python -m benchmarks.spans` left in a folder of results."""
    memories = {
        place: found
        for file in sorted((results / MEMORY).glob("*.json"))
        for place, found in _remembering(_read(file)).items()
    }
    repeats = [row for file in sorted((results / REPEATS).glob("*.json")) for row in _repeating(_read(file))]
    return Past(memories, repeats)


def repeats_cells(row: Repeating) -> list[str]:
    """A row of the table of repeats, below REPEATS_HEADER."""
    losses = (number(row.memoryless), number(row.lost_without_past, 3), number(row.lost_beyond_8, 3))
    return [row.data, row.network, with_spread(*row.test, 3), with_spread(*row.price), *losses, str(row.seeds)]


def with_spread(value: float | None, spread: float | None, digits: int = 2) -> str:
    """A figure with its standard deviation over seeds, if they are known."""
    known = value is not None and spread is not None
    return number(value, digits) + (f" ± {number(spread, digits)}" if known else "")


def _read(file: Path) -> dict[str, Any]:
    return msgspec.json.decode(file.read_bytes())


def _remembering(document: dict[str, Any]) -> dict[tuple[str, str], Remembering]:
    by_row: dict[str, list[float]] = {}
    for seed in document["seeds"]:
        recipe, score = parse(seed["recipe"]), seed["test_with_memory"]
        row = str(recipe._replace(letters=recipe.letters - {"w"}))
        by_row.setdefault(row, []).append(score.get("perplexity", score["log_likelihood"]))
    return {(row, document["data"]): Remembering(*_over_seeds(values), len(values)) for row, values in by_row.items()}


def _repeating(document: dict[str, Any]) -> list[Repeating]:
    by_network: dict[str, list[dict]] = {}
    for run in document["runs"]:
        changes = [f"--{name.replace('_', '-')} {setting(value)}" for name, value in run["changes"].items()]
        by_network.setdefault(" ".join([run["network"], *changes]), []).append(run)

    def column(runs: list[dict], name: str) -> list[float]:
        return [run[name] for run in runs]

    return [
        Repeating(
            data=document["data"],
            network=network,
            seeds=len(runs),
            test=_over_seeds(column(runs, "test")),
            price=_over_seeds(column(runs, "price_of_a_repeat")),
            memoryless=statistics.fmean(column(runs, "without_memory")),
            lost_without_past=statistics.fmean(column(runs, "lost_without_past")),
            lost_beyond_8=statistics.fmean(column(runs, "lost_beyond_8")),
        )
        for network, runs in by_network.items()
    ]


def _over_seeds(values: Sequence[float]) -> tuple[float, float | None]:
    return statistics.fmean(values), statistics.stdev(values) if len(values) > 1 else None
