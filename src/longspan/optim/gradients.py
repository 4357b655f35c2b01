"""Gradients of which some leaves come by rows: large matrices of which a step touches little, never formed whole."""

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

from jaxtyping import Array, Float, PyTree


class ByRows(Protocol):
    """The gradient of one or several leaves, in whatever form suits the rows that were touched."""

    def squares(self) -> Float[Array, ""]:
        """The sum of the squares of all its entries."""
        ...

    def descend(self, leaves: Any, rate: Float[Array, ""]) -> Any:
        """The leaves, at which the gradient was taken, minus `rate` times it."""
        ...


class Table(NamedTuple):
    """Leaves of the parameters and their gradient; `where` picks the leaves out of the parameters."""

    where: Callable[[Any], tuple]
    gradient: ByRows


class Gradient(NamedTuple):
    """A gradient: `whole` is like the parameters, with None for what is in `tables`."""

    whole: PyTree
    tables: tuple[Table, ...] = ()
