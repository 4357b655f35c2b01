"""The interface of optimizers that train on blocks of chunks, and their report about a block."""

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Array, Float, Int, PyTree, Shaped


class Info(NamedTuple):
    """Figures of a block of chunks, for monitoring.

    Attributes:
        observed: the loss's report on every chunk, with the weights it was computed with; chunks are the first axis.
        figures: figures of every update by name, such as `objective` and `gradient_norm`; only the first `updates`
            entries are meaningful.
        updates: number of updates made.
    """

    observed: PyTree
    figures: dict[str, Shaped[Array | np.ndarray, " update"]]
    updates: Int[Array, ""] | int

    def of_updates(self) -> dict[str, Any]:
        """The figures, restricted to the updates that were made."""
        return {name: values[: int(self.updates)] for name, values in self.figures.items()}


@runtime_checkable
class BlockOptimizer(Protocol):
    """Improves parameters block by block; its state is a tree of arrays, so that it can be saved."""

    @property
    def update_is_a_block(self) -> bool:
        """Whether there is one update per block of chunks; otherwise there is one per chunk."""
        ...

    def init(self, params: Any) -> Any:
        """The state before the first update."""
        ...

    def advance(
        self, params: Any, state: Any, carry: Any, chunks: Any, count: int, context: Any
    ) -> tuple[Any, Any, Any, Info]:
        """Train on the first `count` chunks, the others being filler; `params` and `state` may be consumed.

        `carry` is passed from the last of these chunks to the next block; `context` stays the same.
        """
        ...

    def rescaled(self, state: Any, scale: float) -> Any:
        """The state for steps of `scale` times their initial size, if the method has a step size."""
        ...

    def restarted(self, state: Any) -> Any:
        """The state without momentum or the like, for parameters that were replaced."""
        ...


@runtime_checkable
class ByRows(Protocol):
    """The gradient of one or several leaves, in a form that suits the rows in use."""

    def squares(self) -> Float[Array, ""]:
        """The sum of the squares of all its entries."""
        ...

    def descend(self, leaves: Any, rate: Float[Array, ""]) -> Any:
        """The leaves at which the gradient was taken, minus `rate` times the gradient."""
        ...


class Table(NamedTuple):
    """Leaves of the parameters and their gradient; `where` picks the leaves out of the parameters."""

    where: Callable[[Any], tuple]
    gradient: ByRows


class Gradient(NamedTuple):
    """A gradient: `whole` is like the parameters, with None for the leaves in `tables`."""

    whole: PyTree
    tables: tuple[Table, ...] = ()
