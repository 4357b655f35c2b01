"""Every cell, output and optimizer that is registered, on every kind of data, small enough to train in a moment."""

from collections.abc import Callable
from functools import cache
from itertools import product
from typing import NamedTuple

import pytest

from longspan.config import TrainConfig
from longspan.data.dataset import Dataset
from longspan.data.tasks import TaskData
from longspan.models.parts import CELLS, OUTPUTS
from longspan.training.optimizers import OPTIMIZERS
from tests.contracts.covering import covering
from tests.support import quick_rbm  # noqa: F401, registers `quick-rbm`
from tests.support.catalog import tiny_labels, tiny_music, tiny_series, tiny_text
from tests.support.plugins import own_parts

own_parts()  # they take part

DATASETS: dict[str, Callable[[], Dataset]] = {
    "music": tiny_music,
    "text": tiny_text,
    "classes": lambda: TaskData("temporal-order", span=10),
    "numbers": lambda: TaskData("addition", span=10),
    "waves": lambda: own_parts().Waves(),
    "series": tiny_series,
    "labels": tiny_labels,
}
LAYERS = "lstm,size=3+gru,context=0.9"
PLACES = {
    "lstm,peepholes": ("bernoulli", "music", "hf"),
    "gru": ("softmax", "text", "sgd"),
    "gru,reset=before": ("gaussian", "numbers", "adam"),
    "multiplicative,factors=3": ("softmax", "text", "hf"),
    "delayed,lags=1:3": ("softmax", "classes", "sgd"),
    "band-pass": ("gaussian", "waves", "rmsprop"),
    "lru": ("gaussian", "numbers", "hf"),
    "rate,noise=0.01,excitatory=0.7,density=0.8": ("bernoulli", "music", "hf"),
    "rate,learn_tau,learn_start": ("gaussian", "waves", "sgd"),
    LAYERS: ("factored", "text", "sgd"),
    "embedding,size=3+gru": ("tree", "text", "adam"),
}
"""Cells that are like others to outputs and optimizers, and where each is tried always; elsewhere it is slow."""
SYMBOLS, TAKE_VECTORS = {"text", "classes"}, {"gated"}
"""Data whose inputs are symbols, and cells that are not made for them."""
NOT_CONVEX = {"quick-rbm", "mixture", "normal", "mdn", "rnade"}
"""Outputs without a loss that is convex in logits, as Hessian-free optimization wants it to fall within two epochs."""
STREAMS = {"music", "text", "waves", "series", "labels"}
RATES = {"sgd": 0.05}
"""Where they are not those that suit what is adaptive."""
SMALL = {
    "hidden_size": 5,
    "nade_size": 4,
    "components": 2,
    "rbm_size": 4,
    "cd_steps": 2,
    "classes": 2,
    "chunk_length": 10,
    "block": 4,
}
SMALL |= {"max_epochs": 2, "cg_iterations": 4, "curvature_sequences": 8, "learning_rate_schedule": "constant"}


class Parts(NamedTuple):
    """Names, as a config has them, and a key of `DATASETS`."""

    cell: str
    output: str
    data: str
    optimizer: str = "sgd"

    @property
    def config(self) -> TrainConfig:
        lanes = {"text": 2, "waves": 3, "labels": 4}.get(self.data, 1) if self.data in STREAMS else 100
        rate = RATES.get(self.optimizer, 0.01)
        chosen = {"cell": self.cell, "output": self.output, "optimizer": self.optimizer, "data": load(self.data).name}
        implied = load(self.data).implied_settings
        return TrainConfig(**chosen, **SMALL, **implied, lanes=lanes, learning_rate=rate, momentum=0.5)


@cache
def load(data: str) -> Dataset:
    return DATASETS[data]()


def makes_sense(parts: Parts) -> bool:
    """The output predicts what is asked, the cell takes what comes in, the optimizer has what it needs."""
    fits = OUTPUTS[parts.output].predicts == load(parts.data).record.predicted
    taken = parts.cell not in TAKE_VECTORS or parts.data not in SYMBOLS
    return fits and taken and not (parts.optimizer == "hf" and parts.output in NOT_CONVEX)


def every(cells: list[str], *lists: list[str], places: list[str]) -> list:
    """Parameters for pytest: those that make sense, slow but for a covering set of them and for some cells' places."""
    possible = [parts for parts in (Parts(*names) for names in product(cells, *lists)) if makes_sense(parts)]
    few = covering([parts for parts in possible if parts.cell not in PLACES])
    few += [Parts(cell, *PLACES[cell][: len(lists)]) for cell in places]
    return [
        pytest.param(parts, id="-".join(parts), marks=() if parts in few else pytest.mark.slow) for parts in possible
    ]


TESTED_OUTPUTS = [name for name in OUTPUTS.names() if name not in ("rbm", "glancing-rbm")]
"""`quick-rbm` stands for the RBM, whose estimates take minutes."""
NAMES = sorted({name for name in CELLS.names() if not any(cell.startswith(f"{name},") for cell in PLACES)} | {*PLACES})
MODELS = every(NAMES, TESTED_OUTPUTS, list(DATASETS), places=[LAYERS])
WALKS = every(NAMES, TESTED_OUTPUTS, list(DATASETS), places=list(PLACES))
RUNS = every(NAMES, TESTED_OUTPUTS, list(DATASETS), OPTIMIZERS.names(), places=list(PLACES))
