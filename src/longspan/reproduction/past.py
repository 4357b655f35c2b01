"""What the past of a song is worth, over seeds: test figures with a memory, and what a repeat costs a network alone."""

import statistics
from collections.abc import Sequence
from pathlib import Path

import msgspec

from longspan.bounds import Figure, Setting, Size, Text
from longspan.files import read_json
from longspan.metrics import number, setting
from longspan.recipes import parse

MEMORY, REPEATS = "memory", "repeats"
"""Folders beside the cells of the tables."""
ADVICE = "restore it or remove it"


class _Scores(msgspec.Struct, frozen=True):
    log_likelihood: Figure
    perplexity: Size | None = None


class _Seed(msgspec.Struct, frozen=True):
    recipe: Text
    test_with_memory: _Scores


class _Memories(msgspec.Struct, frozen=True):
    """The content of memory/DATA.json."""

    data: Text
    seeds: list[_Seed]


class _Examined(msgspec.Struct, frozen=True):
    """A run whose repeats were examined; see `Repeating` for its figures."""

    network: Text
    changes: dict[Text, Setting]
    test: Figure
    price_of_a_repeat: Figure
    without_memory: Figure
    lost_without_past: Figure
    lost_beyond_8: Figure


class _Repeats(msgspec.Struct, frozen=True):
    """The content of repeats/DATA.json."""

    data: Text
    runs: list[_Examined]


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
        for place, found in _remembering(read_json(file, _Memories, ADVICE)).items()
    }
    repeats = [
        row
        for file in sorted((results / REPEATS).glob("*.json"))
        for row in _repeating(read_json(file, _Repeats, ADVICE))
    ]
    return Past(memories, repeats)


def repeats_cells(row: Repeating) -> list[str]:
    """A row of the table of repeats, below REPEATS_HEADER."""
    losses = (number(row.memoryless), number(row.lost_without_past, 3), number(row.lost_beyond_8, 3))
    return [row.data, row.network, with_spread(*row.test, 3), with_spread(*row.price), *losses, str(row.seeds)]


def with_spread(value: float | None, spread: float | None, digits: int = 2) -> str:
    """A figure with its standard deviation over seeds, if they are known."""
    known = value is not None and spread is not None
    return number(value, digits) + (f" ± {number(spread, digits)}" if known else "")


def _remembering(document: _Memories) -> dict[tuple[str, str], Remembering]:
    by_row: dict[str, list[float]] = {}
    for seed in document.seeds:
        recipe, score = parse(seed.recipe), seed.test_with_memory
        row = str(recipe._replace(letters=recipe.letters - {"w"}))
        by_row.setdefault(row, []).append(score.log_likelihood if score.perplexity is None else score.perplexity)
    return {(row, document.data): Remembering(*_over_seeds(values), len(values)) for row, values in by_row.items()}


def _repeating(document: _Repeats) -> list[Repeating]:
    by_network: dict[str, list[_Examined]] = {}
    for run in document.runs:
        changes = [f"--{name.replace('_', '-')} {setting(value)}" for name, value in run.changes.items()]
        by_network.setdefault(" ".join([run.network, *changes]), []).append(run)
    return [
        Repeating(
            data=document.data,
            network=network,
            seeds=len(runs),
            test=_over_seeds([run.test for run in runs]),
            price=_over_seeds([run.price_of_a_repeat for run in runs]),
            memoryless=statistics.fmean(run.without_memory for run in runs),
            lost_without_past=statistics.fmean(run.lost_without_past for run in runs),
            lost_beyond_8=statistics.fmean(run.lost_beyond_8 for run in runs),
        )
        for network, runs in by_network.items()
    ]


def _over_seeds(values: Sequence[float]) -> tuple[float, float | None]:
    return statistics.fmean(values), statistics.stdev(values) if len(values) > 1 else None
