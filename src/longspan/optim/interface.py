"""The doors of every optimizer that trains on blocks of chunks, and what it reports of a block."""

from typing import Any, NamedTuple, Protocol

import numpy as np
from jaxtyping import Array, Int, PyTree, Shaped


class Info(NamedTuple):
    """What an observer wants to know of a block of chunks.

    Attributes:
        observed: what the loss reports of every chunk, at the weights it was computed with; chunks on the first axis.
        figures: numbers about every update by name, such as `objective` and `gradient_norm`; what comes after
            `updates` of them means nothing.
        updates: how many updates were made.
    """

    observed: PyTree
    figures: dict[str, Shaped[Array | np.ndarray, " update"]]
    updates: Int[Array, ""] | int

    def of_updates(self) -> dict[str, Any]:
        """The figures of the updates that were made."""
        return {name: values[: int(self.updates)] for name, values in self.figures.items()}


class BlockOptimizer(Protocol):
    """Something that improves parameters block by block; its state is a tree of arrays, so that it can be saved."""

    def init(self, params: Any) -> Any:
        """The state before the first update."""
        ...

    def advance(
        self, params: Any, state: Any, carry: Any, chunks: Any, count: int, context: Any
    ) -> tuple[Any, Any, Any, Info]:
        """Train on the first `count` of the chunks, the others being filler; `params` and `state` may be consumed.

        `carry` is handed on from the last of these chunks to the block after it; `context` is anything that stays the
        same.
        """
        ...

    def rescaled(self, state: Any, scale: float) -> Any:
        """The state for steps of `scale` times their first size, where the method has such a thing."""
        ...

    def restarted(self, state: Any) -> Any:
        """The state at rest, for parameters that were put somewhere else."""
        ...
