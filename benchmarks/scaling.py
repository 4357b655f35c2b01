"""How the cost of an update grows: with units, steps of a chunk, words of a vocabulary, notes of a frame."""

import dataclasses

from longspan import recipes
from longspan.config import TrainConfig

from . import ours
from .contest import Turn, seconds_per_update

CHUNKS = 8


def music(recipe: str = "sgd+c", notes: int = 4, **changes) -> Turn:
    """Training on random songs."""
    config = dataclasses.replace(recipes.settings(recipe, "random", "frames"), block=CHUNKS, **changes)
    return ours.training(config, ours.random_songs(1, CHUNKS * config.chunk_length, notes))


def text(symbols: int) -> Turn:
    """Training on random words, with as many classes as keep them about equally large."""
    config: TrainConfig = recipes.settings("sgd+c", "random", "words")
    config = dataclasses.replace(config, block=CHUNKS, classes=round(symbols**0.5), class_rule="square-root")
    return ours.training(config, ours.random_text(symbols, CHUNKS * config.chunk_length))


def measure() -> dict:
    """Seconds of an update by what grows and how large it is."""
    grown = {
        "units": {size: music(hidden_size=size) for size in (50, 100, 200, 400, 800)},
        "steps of a chunk": {length: music(chunk_length=length) for length in (25, 50, 100, 200, 400)},
        "words": {symbols: text(symbols) for symbols in (1_000, 10_000, 100_000)},
        "notes of a frame (NADE)": {notes: music("nade:sgd+c", notes=notes) for notes in (1, 4, 16, 44)},
    }
    return {
        what: seconds_per_update({str(size): turn for size, turn in turns.items()}) for what, turns in grown.items()
    }


def table(figures: dict) -> list[list[str]]:
    """Milliseconds, and times the smallest."""
    rows = [["what grows", "to", "ms", "times the first"]]
    for what, seconds in figures.items():
        first = next(iter(seconds.values()))
        rows += [[what, size, f"{1e3 * value:.2f}", f"{value / first:.1f}x"] for size, value in seconds.items()]
    return rows
