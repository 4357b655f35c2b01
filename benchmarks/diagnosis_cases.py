"""The runs on which the diagnosis is developed, and those by which it is counted.

`DEVELOPMENT` was counted once, on the rules of that day; since then its outcomes are known, so rules may be set on it.
`COUNTED` uses other songs, another text, other tasks, spans, sizes and seeds, and was written down before the rules met
any of it; only the healthy ones were trained beforehand, without a diagnosis, to see that they learn.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

import longspan
from benchmarks import diagnosis_data as given
from longspan.data.dataset import Dataset

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

DEVELOPMENT_FAULTS = (
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

DEVELOPMENT_HEALTHY = (
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


def _tunes(fault: str, about: str, data: Callable[[int], Dataset] = given.tunes, recipe="sgd+c", **changes) -> Case:
    return Case(fault, f"tunes: {about}", recipe, data, TUNES | changes)


def _news(fault: str, about: str, data: Callable[[int], Dataset] = given.news, recipe="sgd+c", **changes) -> Case:
    return Case(fault, f"news: {about}", recipe, data, NEWS | changes)


def _parities(fault: str, about: str, data: Callable[[int], Dataset] = given.parities, **changes) -> Case:
    return Case(fault, f"parities: {about}", "sgd+c", data, PARITIES | changes)


COUNTED_FAULTS = (
    _tunes(
        "exploding",
        "rectifiers, recurrent scale 3, unclipped",
        activation="rectifier",
        recurrent_scale=3.0,
        clip="none",
        learning_rate=0.01,
    ),
    _news("exploding", "recurrent scale 25", recurrent_scale=25.0),
    _tunes("rate too large", "rate 150", learning_rate=150.0),
    _news("rate too large", "rate 80", learning_rate=80.0),
    _task("cliff", "temporal-order", 26, "identity rectifiers, unclipped", clip="none", learning_rate=0.002),
    _task("cliff", "memorization", 13, "identity rectifiers, unclipped", clip="none", learning_rate=0.003),
    _tunes("clipped throughout", "threshold 0.002", clip=0.002, max_epochs=30),
    _news("clipped throughout", "threshold 0.003", clip=0.003, max_epochs=10),
    _tunes("rate too small", "rate 0.0002", learning_rate=0.0002, max_epochs=40),
    _news("rate too small", "rate 0.0005", learning_rate=0.0005, max_epochs=20),
    _parities("rate too small", "rate 0.0003", learning_rate=0.0003, max_epochs=60),
    _tunes(
        "dead units",
        "NADE, L1 0.4",
        recipe="nade:sgd+crm",
        activation="rectifier",
        nade_size=30,
        l1=0.4,
        learning_rate=0.03,
    ),
    _news("dead units", "rectifiers, L1 0.8", max_epochs=15, **(DYING | FIRMER)),
    _tunes("saturated", "input scale 20", input_scale=20.0),
    _news("saturated", "input scale 12", input_scale=12.0, max_epochs=20),
    _task("vanishing", "addition", 35, "recurrent scale 0.04", max_epochs=50, **(DULL | DULLER)),
    _task("vanishing", "temporal-order", 25, "recurrent scale 0.05", max_epochs=50, **DULL),
    _forgetful(_tunes("memory unused", "a cell that drops its state")),
    _forgetful(_news("memory unused", "a cell that drops its state", max_epochs=25)),
    _tunes(
        "overfitting",
        "three tunes",
        lambda seed: given.tunes(seed, 3),
        dropout=0.0,
        patience=150,
        max_epochs=150,
        learning_rate_schedule="constant",
    ),
    _news(
        "overfitting",
        "2,000 characters",
        lambda seed: given.news(seed, 2000),
        learning_rate=0.3,
        patience=150,
        max_epochs=150,
        learning_rate_schedule="constant",
    ),
    _tunes("under-trained", "two epochs", max_epochs=2),
    _news("under-trained", "one epoch", max_epochs=1),
    _tunes(
        "state not carried",
        "reset at every chunk of 10",
        lambda seed: given.as_pairs(given.tunes(seed), kind=given.Forgotten),
        chunk_length=10,
    ),
    _parities(
        "state not carried",
        "reset at every chunk of 6",
        lambda seed: given.parities(seed, kind=given.Forgotten),
        chunk_length=6,
    ),
    _tunes("misaligned", "inputs two steps too old", lambda seed: given.as_pairs(given.tunes(seed), delay=3)),
    _parities("misaligned", "answers two steps too early", lambda seed: given.parities(seed, early=2)),
    _tunes("splits overlap", "training tunes in validation", lambda seed: given.overlapping_songs(given.tunes(seed))),
    _news(
        "splits overlap",
        "training text in validation",
        lambda seed: given.overlapping_text(given.news(seed)),
        max_epochs=15,
    ),
)

COUNTED_HEALTHY = (
    _tunes("", "tanh"),
    _tunes("", "sigmoid", activation="sigmoid", learning_rate=0.5),
    _tunes("", "rectifiers", activation="rectifier", learning_rate=0.05, l1=1e-5),
    _tunes("", "leaky", leaky_share=0.5),
    _tunes("", "Adam", optimizer="adam", learning_rate=0.002, momentum=0.9, clip=5.0),
    _tunes("", "NADE", recipe="nade:sgd+c", nade_size=30, learning_rate=0.2, clip=1.0),
    _tunes("", "90 units, more dropout", hidden_size=90, dropout=0.4),
    _news("", "tanh"),
    _news("", "sigmoid", activation="sigmoid", learning_rate=3.0, max_epochs=100),
    _news("", "rectifiers", activation="rectifier", learning_rate=0.2),
    _news("", "Adam", optimizer="adam", learning_rate=0.003, momentum=0.9),
    _news("", "momentum", momentum=0.9, learning_rate=0.1),
    _parities("", "tanh"),
    _parities("", "momentum", momentum=0.9, learning_rate=0.03),
    _parities("", "60 units", hidden_size=60),
    _task("", "addition", 12, "identity rectifiers"),
    _task("", "addition", 20, "identity rectifiers"),
    _task("", "multiplication", 12, "identity rectifiers"),
    _task("", "memorization", 6, "identity rectifiers", max_epochs=600),
    _task("", "memorization", 8, "identity rectifiers", max_epochs=600),
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


DEVELOPMENT = CaseSet(DEVELOPMENT_FAULTS, DEVELOPMENT_HEALTHY, 500)
COUNTED = CaseSet(COUNTED_FAULTS, COUNTED_HEALTHY, 7000)
