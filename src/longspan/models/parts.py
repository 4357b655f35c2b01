"""Cells and outputs by name: what the `cell` and `output` fields of a config refer to, and how to add one.

A cell is made by a function `(config, input_size, *, key) -> Cell`, an output by a function `(config, hidden_size,
rates, *, key) -> Output`. Registered under a name, it can be used in a config, on the command line and in a run folder.
"""

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol, TypeVar, runtime_checkable

import numpy as np
from jaxtyping import Float, PRNGKeyArray

from longspan.config import Predicted, TrainConfig
from longspan.registry import Registry

Factory = TypeVar("Factory", bound=Callable)


@runtime_checkable
class CellFactory(Protocol):
    """Makes an initial cell."""

    def __call__(self, config: TrainConfig, input_size: int, *, key: PRNGKeyArray) -> Any:
        """Make a cell for inputs of `input_size` numbers or keys, or for `input_size` symbols."""
        ...


@runtime_checkable
class OutputFactory(Protocol):
    """Makes an initial output."""

    def __call__(
        self, config: TrainConfig, hidden_size: int, rates: Float[np.ndarray, " target"], *, key: PRNGKeyArray
    ) -> Any:
        """Make an output for `hidden_size` hidden units.

        `rates` are the frequencies of keys or symbols in training, or the means of numbers: what the output should
        predict before training.
        """
        ...


class OutputPart(NamedTuple):
    """A registered output."""

    make: OutputFactory
    predicts: Predicted


CELLS: Registry[CellFactory] = Registry("cell", "longspan.models")
OUTPUTS: Registry[OutputPart] = Registry("output", "longspan.models")


def register_cell(name: str) -> Callable[[Factory], Factory]:
    """A decorator that registers a function `(config, input_size, *, key) -> Cell` under a name.

    Example:
        >>> @register_cell("my-cell")
        ... def my_cell(config, input_size, *, key):
        ...     ...
    """

    def register(make: Factory) -> Factory:
        CELLS.register(name)(make)
        return make

    return register


def register_output(name: str, *, predicts: Predicted) -> Callable[[Factory], Factory]:
    """A decorator that registers a function `(config, hidden_size, rates, *, key) -> Output` under a name.

    Args:
        name: the name used in configs.
        predicts: `keys` that are on or off, one of several `symbols`, or `numbers`.
    """

    def register(make: Factory) -> Factory:
        OUTPUTS.register(name)(OutputPart(make, predicts))
        return make

    return register
