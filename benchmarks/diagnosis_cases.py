"""The runs on which the diagnosis is developed, and those by which it is counted.

`FIRST`, `SECOND` and `THIRD` were counted once, on the rules of their day; since then their outcomes are known, so
rules may be set on them. `COUNTED` uses other songs, text, sequences, spans, sizes and seeds, and was written down
before the rules met any of it; only the healthy ones were trained beforehand, without a diagnosis, to see that they
learn.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

import longspan
from benchmarks import diagnosis_data as given
from longspan.data.dataset import Dataset
from longspan.data.music import MusicData
from longspan.data.text import TextData

CHORALES = {
    "hidden_size": 50,
    "activation": "tanh",
    "learning_rate": 0.3,
    "recurrent_scale": 1.0,
    "input_scale": 0.1,
    "dropout": 0.2,
    "chunk_length": 60,
    "max_epochs": 150,
    "patience": 8,
}
PROSE = {
    "hidden_size": 50,
    "activation": "tanh",
    "learning_rate": 1.0,
    "recurrent_scale": 1.0,
    "input_scale": 0.3,
    "clip": 1.0,
    "chunk_length": 50,
    "max_epochs": 60,
    "patience": 6,
}
TASK = {
    "hidden_size": 40,
    "recurrent_init": "identity",
    "recurrent_scale": 1.0,
    "input_scale": 0.1,
    "learning_rate": 0.003,
    "clip": 1.0,
    "l1": 0.0,
    "max_epochs": 150,
}
PAIRS = {
    "hidden_size": 40,
    "activation": "tanh",
    "recurrent_init": "orthogonal",
    "recurrent_scale": 1.0,
    "learning_rate": 0.5,
    "learning_rate_schedule": "plateau",
    "clip": 1.0,
    "lanes": 4,
    "chunk_length": 50,
    "max_epochs": 150,
    "patience": 10,
}


@dataclasses.dataclass(frozen=True)
class Case:
    """A run to be made and diagnosed: `fault` is what should be found first, empty for a healthy run."""

    fault: str
    about: str
    recipe: str
    data: Callable[[int], Dataset]
    settings: dict[str, Any]
    forgetful: bool = False


def _chorales(
    fault: str, about: str, data: Callable[[int], Dataset] = given.chorales, recipe="sgd+c", **changes
) -> Case:
    return Case(fault, f"chorales: {about}", recipe, data, CHORALES | changes)


def _prose(fault: str, about: str, data: Callable[[int], Dataset] = given.prose, recipe="sgd+c", **changes) -> Case:
    return Case(fault, f"prose: {about}", recipe, data, PROSE | changes)


def _pairs(fault: str, about: str, data: Callable[[int], Dataset] = given.recurrences, **changes) -> Case:
    return Case(fault, f"recurrences: {about}", "sgd+c", data, PAIRS | changes)


def _task(fault: str, name: str, span: int, about: str, **changes) -> Case:
    return Case(
        fault, f"{name} {span}: {about}", "sgd+crm", lambda _: longspan.data.load(name, span=span), TASK | changes
    )


def _forgetful(case: Case) -> Case:
    return dataclasses.replace(case, forgetful=True)


DULL: dict[str, Any] = {
    "activation": "tanh",
    "recurrent_init": "normal",
    "recurrent_scale": 0.05,
    "learning_rate": 0.01,
}
DYING: dict[str, Any] = {"activation": "rectifier", "l1": 1.0, "momentum": 0.9, "learning_rate": 0.05}

FIRST_FAULTS = (
    _chorales(
        "exploding",
        "rectifiers, recurrent scale 3, unclipped",
        activation="rectifier",
        recurrent_scale=3.0,
        clip="none",
        learning_rate=0.01,
    ),
    _prose("exploding", "recurrent scale 20", recurrent_scale=20.0),
    _chorales("rate too large", "rate 100", learning_rate=100.0),
    _prose("rate too large", "rate 60", learning_rate=60.0),
    _pairs("rate too large", "rate 30", learning_rate=30.0, learning_rate_schedule="constant"),
    _task("cliff", "temporal-order", 22, "identity rectifiers, unclipped", clip="none", learning_rate=0.002),
    _task("cliff", "memorization", 15, "identity rectifiers, unclipped", clip="none", learning_rate=0.003),
    _chorales("clipped throughout", "threshold 0.001", clip=0.001, max_epochs=40),
    _prose("clipped throughout", "threshold 0.004", clip=0.004, max_epochs=12),
    _chorales("rate too small", "rate 0.0003", learning_rate=0.0003, max_epochs=40),
    _pairs("rate too small", "rate 0.0005", learning_rate=0.0005, max_epochs=60),
    _chorales(
        "dead units",
        "NADE, L1 0.5",
        recipe="nade:sgd+crm",
        activation="rectifier",
        nade_size=40,
        l1=0.5,
        learning_rate=0.03,
    ),
    _prose("dead units", "rectifiers, L1 1", max_epochs=20, **DYING),
    _chorales("saturated", "input scale 15", input_scale=15.0),
    _prose("saturated", "input scale 15", input_scale=15.0, max_epochs=20),
    _task("vanishing", "addition", 30, "recurrent scale 0.05", max_epochs=60, **DULL),
    _task("vanishing", "memorization", 20, "recurrent scale 0.05", max_epochs=60, **DULL),
    _forgetful(_chorales("memory unused", "a cell that drops its state")),
    _forgetful(_prose("memory unused", "a cell that drops its state", max_epochs=30)),
    _chorales(
        "overfitting",
        "four songs",
        lambda seed: given.chorales(seed, 4),
        dropout=0.0,
        patience=150,
        learning_rate_schedule="constant",
    ),
    _prose(
        "overfitting",
        "1,500 characters",
        lambda seed: given.prose(seed, 1500),
        learning_rate=0.3,
        patience=150,
        max_epochs=150,
        learning_rate_schedule="constant",
    ),
    _chorales("under-trained", "three epochs", max_epochs=3),
    _prose("under-trained", "one epoch", max_epochs=1),
    _chorales(
        "state not carried",
        "reset at every chunk of 8",
        lambda seed: given.as_pairs(given.chorales(seed), kind=given.Forgotten),
        chunk_length=8,
    ),
    _pairs(
        "state not carried",
        "reset at every chunk of 5",
        lambda seed: given.recurrences(seed, kind=given.Forgotten),
        chunk_length=5,
    ),
    _chorales("misaligned", "inputs a step too old", lambda seed: given.as_pairs(given.chorales(seed), delay=2)),
    _pairs("misaligned", "answers a step too early", lambda seed: given.recurrences(seed, early=1)),
    _chorales(
        "splits overlap", "training songs in validation", lambda seed: given.overlapping_songs(given.chorales(seed))
    ),
    _prose(
        "splits overlap",
        "training text in validation",
        lambda seed: given.overlapping_text(given.prose(seed)),
        max_epochs=20,
    ),
)

FIRST_HEALTHY = (
    _chorales("", "tanh"),
    _chorales("", "sigmoid", activation="sigmoid", learning_rate=0.6),
    _chorales("", "rectifiers", activation="rectifier", learning_rate=0.05, l1=1e-5),
    _chorales("", "leaky", leaky_share=0.5),
    _chorales("", "Adam", optimizer="adam", learning_rate=0.002, momentum=0.9, clip=5.0),
    _chorales("", "NADE", recipe="nade:sgd+c", nade_size=40, learning_rate=0.2, clip=1.0),
    _chorales("", "100 units, more dropout", hidden_size=100, dropout=0.4),
    _prose("", "tanh"),
    _prose("", "sigmoid", activation="sigmoid", learning_rate=3.0, max_epochs=120),
    _prose("", "rectifiers", activation="rectifier", learning_rate=0.2),
    _prose("", "Adam", optimizer="adam", learning_rate=0.003, momentum=0.9),
    _prose("", "100 units", hidden_size=100),
    _pairs("", "tanh"),
    _pairs("", "momentum", momentum=0.9, learning_rate=0.05),
    _pairs("", "lag 3", lambda seed: given.recurrences(seed, lag=3)),
    _task("", "addition", 15, "identity rectifiers"),
    _task("", "addition", 25, "identity rectifiers"),
    _task("", "multiplication", 15, "identity rectifiers"),
    _task("", "memorization", 5, "identity rectifiers", max_epochs=600),
    _task("", "memorization", 10, "identity rectifiers", max_epochs=600),
)

TUNES = {
    "hidden_size": 40,
    "activation": "tanh",
    "learning_rate": 0.2,
    "recurrent_scale": 1.0,
    "input_scale": 0.1,
    "dropout": 0.2,
    "chunk_length": 80,
    "max_epochs": 100,
    "patience": 8,
}
NEWS = {
    "hidden_size": 60,
    "activation": "tanh",
    "learning_rate": 1.0,
    "recurrent_scale": 1.0,
    "input_scale": 0.3,
    "clip": 1.0,
    "chunk_length": 40,
    "max_epochs": 60,
    "patience": 6,
}
FIRMER: dict[str, Any] = {"l1": 0.8}
DULLER: dict[str, Any] = {"recurrent_scale": 0.04}
PARITIES = PAIRS | {"hidden_size": 30, "learning_rate": 0.3}


class Sources(NamedTuple):
    """What a set of cases is made of: songs, text and sequences, how many units more, and spans of tasks.

    The spans are those of two cliffs, of two gradients that vanish, and of five tasks that are solved.
    """

    songs: Callable[..., MusicData]
    text: Callable[..., TextData]
    sequences: Callable[..., given.Pairs]
    more_units: int
    cliffs: tuple[int, int]
    vanishing: tuple[int, int]
    solved: tuple[int, int, int, int, int]

    def on_songs(self, fault: str, about: str, data: Callable[[int], Dataset] | None = None, recipe="sgd+c", **changes):
        return self._case(self.songs, TUNES, fault, about, data, recipe, changes)

    def on_text(self, fault: str, about: str, data: Callable[[int], Dataset] | None = None, recipe="sgd+c", **changes):
        return self._case(self.text, NEWS, fault, about, data, recipe, changes)

    def on_sequences(self, fault: str, about: str, data: Callable[[int], Dataset] | None = None, **changes):
        return self._case(self.sequences, PARITIES, fault, about, data, "sgd+c", changes)

    def _case(self, source, settings: dict, fault: str, about: str, data, recipe: str, changes: dict) -> Case:
        sized = settings | {"hidden_size": settings["hidden_size"] + self.more_units}
        return Case(fault, f"{source.__name__}: {about}", recipe, data or source, sized | changes)


def _faults(of: Sources) -> tuple[Case, ...]:
    return (
        of.on_songs(
            "exploding",
            "rectifiers, recurrent scale 3, unclipped",
            activation="rectifier",
            recurrent_scale=3.0,
            clip="none",
            learning_rate=0.01,
        ),
        of.on_text("exploding", "recurrent scale 25", recurrent_scale=25.0),
        of.on_songs("rate too large", "rate 150", learning_rate=150.0),
        of.on_text("rate too large", "rate 80", learning_rate=80.0),
        _task(
            "cliff", "temporal-order", of.cliffs[0], "identity rectifiers, unclipped", clip="none", learning_rate=0.002
        ),
        _task(
            "cliff", "memorization", of.cliffs[1], "identity rectifiers, unclipped", clip="none", learning_rate=0.003
        ),
        of.on_songs("clipped throughout", "threshold 0.002", clip=0.002, max_epochs=30),
        of.on_text("clipped throughout", "threshold 0.003", clip=0.003, max_epochs=10),
        of.on_songs("rate too small", "rate 0.0002", learning_rate=0.0002, max_epochs=40),
        of.on_text("rate too small", "rate 0.0005", learning_rate=0.0005, max_epochs=20),
        of.on_sequences("rate too small", "rate 0.0003", learning_rate=0.0003, max_epochs=60),
        of.on_songs(
            "dead units",
            "NADE, L1 0.4",
            recipe="nade:sgd+crm",
            activation="rectifier",
            nade_size=30,
            l1=0.4,
            learning_rate=0.03,
        ),
        of.on_text("dead units", "rectifiers, L1 0.8", max_epochs=15, **(DYING | FIRMER)),
        of.on_songs("saturated", "input scale 20", input_scale=20.0),
        of.on_text("saturated", "input scale 12", input_scale=12.0, max_epochs=20),
        _task("vanishing", "addition", of.vanishing[0], "recurrent scale 0.04", max_epochs=50, **(DULL | DULLER)),
        _task("vanishing", "temporal-order", of.vanishing[1], "recurrent scale 0.05", max_epochs=50, **DULL),
        _forgetful(of.on_songs("memory unused", "a cell that drops its state")),
        _forgetful(of.on_text("memory unused", "a cell that drops its state", max_epochs=25)),
        of.on_songs(
            "overfitting",
            "three tunes",
            lambda seed: of.songs(seed, 3),
            dropout=0.0,
            patience=150,
            max_epochs=150,
            learning_rate_schedule="constant",
        ),
        of.on_text(
            "overfitting",
            "2,000 characters",
            lambda seed: of.text(seed, 2000),
            learning_rate=0.3,
            patience=150,
            max_epochs=150,
            learning_rate_schedule="constant",
        ),
        of.on_songs("under-trained", "two epochs", max_epochs=2),
        of.on_text("under-trained", "one epoch", max_epochs=1),
        of.on_songs(
            "state not carried",
            "reset at every chunk of 10",
            lambda seed: given.as_pairs(of.songs(seed), kind=given.Forgotten),
            chunk_length=10,
        ),
        of.on_sequences(
            "state not carried",
            "reset at every chunk of 6",
            lambda seed: of.sequences(seed, kind=given.Forgotten),
            chunk_length=6,
        ),
        of.on_songs("misaligned", "inputs two steps too old", lambda seed: given.as_pairs(of.songs(seed), delay=3)),
        of.on_sequences("misaligned", "answers two steps too early", lambda seed: of.sequences(seed, early=2)),
        of.on_songs(
            "splits overlap", "training tunes in validation", lambda seed: given.overlapping_songs(of.songs(seed))
        ),
        of.on_text(
            "splits overlap",
            "training text in validation",
            lambda seed: given.overlapping_text(of.text(seed)),
            max_epochs=15,
        ),
    )


def _healthy(of: Sources) -> tuple[Case, ...]:
    return (
        of.on_songs("", "tanh"),
        of.on_songs("", "sigmoid", activation="sigmoid", learning_rate=0.5),
        of.on_songs("", "rectifiers", activation="rectifier", learning_rate=0.05, l1=1e-5),
        of.on_songs("", "leaky", leaky_share=0.5),
        of.on_songs("", "Adam", optimizer="adam", learning_rate=0.002, momentum=0.9, clip=5.0),
        of.on_songs("", "NADE", recipe="nade:sgd+c", nade_size=30, learning_rate=0.2, clip=1.0),
        of.on_songs("", "90 units, more dropout", hidden_size=90, dropout=0.4),
        of.on_text("", "tanh"),
        of.on_text("", "sigmoid", activation="sigmoid", learning_rate=3.0, max_epochs=100),
        of.on_text("", "rectifiers", activation="rectifier", learning_rate=0.2),
        of.on_text("", "Adam", optimizer="adam", learning_rate=0.003, momentum=0.9),
        of.on_text("", "momentum", momentum=0.9, learning_rate=0.1),
        of.on_sequences("", "tanh"),
        of.on_sequences("", "momentum", momentum=0.9, learning_rate=0.03),
        of.on_sequences("", "60 units", hidden_size=60),
        _task("", "addition", of.solved[0], "identity rectifiers"),
        _task("", "addition", of.solved[1], "identity rectifiers"),
        _task("", "multiplication", of.solved[2], "identity rectifiers"),
        _task("", "memorization", of.solved[3], "identity rectifiers", max_epochs=600),
        _task("", "memorization", of.solved[4], "identity rectifiers", max_epochs=600),
    )


class CaseSet(NamedTuple):
    """Faulty and healthy runs, and the seed of the first; the next ones follow."""

    faults: tuple[Case, ...]
    healthy: tuple[Case, ...]
    first_seed: int

    @property
    def seeded(self) -> list[tuple[int, Case]]:
        """All cases with their seeds."""
        return list(enumerate((*self.faults, *self.healthy), self.first_seed))


def _case_set(of: Sources, first_seed: int) -> CaseSet:
    return CaseSet(_faults(of), _healthy(of), first_seed)


FIRST = CaseSet(FIRST_FAULTS, FIRST_HEALTHY, 500)
SECOND_SOURCES = Sources(given.tunes, given.news, given.parities, 0, (26, 13), (35, 25), (12, 20, 12, 6, 8))
SECOND = _case_set(SECOND_SOURCES, first_seed=7000)
THIRD_SOURCES = Sources(given.pieces, given.reports, given.comparisons, 10, (24, 11), (28, 30), (10, 18, 10, 7, 9))
THIRD = _case_set(THIRD_SOURCES, first_seed=9000)
COUNTED = _case_set(
    Sources(given.excerpts, given.code, given.distances, 5, (29, 14), (33, 27), (14, 22, 13, 4, 11)),
    first_seed=12_000,
)
