"""The complete state of training, arrays and numbers; a checkpoint stores exactly this."""

from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np
from jaxtyping import PyTree

from longspan.data.dataset import Chunks
from longspan.models.parameters import from_named, to_named
from longspan.models.sequence import SequenceModel
from longspan.optim.interface import Info
from longspan.training.objective import Carry
from longspan.training.schedule import Schedule


class Progress(msgspec.Struct, frozen=True):
    """The numbers in a checkpoint, besides its arrays."""

    threshold: float | None
    """Gradient norm to clip to, also if it was chosen by `auto`; None for no clipping."""
    epoch: int = 0
    position: int = 0
    """Chunks finished in this epoch."""
    step: int = 0
    """Updates made since the run began."""
    updates: int = 0
    """Updates made in this epoch."""
    figure_sums: dict[str, float] = {}
    """The figures that the optimizer reports, summed over the updates of this epoch."""
    loss_sum: float = 0.0
    steps_sum: int = 0
    schedule: Schedule = Schedule()
    metrics_size: int = 0
    stop: str | None = None

    def after(self, info: Info, chunks: Chunks, count: int) -> "Progress":
        """Progress after a block of `count` chunks."""
        figures = info.of_updates()
        return msgspec.structs.replace(
            self,
            position=self.position + count,
            step=self.step + int(info.updates),
            updates=self.updates + int(info.updates),
            figure_sums={name: self.figure_sums.get(name, 0.0) + total(figures[name]) for name in figures},
            loss_sum=self.loss_sum + total(info.observed[:count]),
            steps_sum=self.steps_sum + int(chunks.mask[:count].sum()),
        )

    @property
    def train_log_likelihood(self) -> float:
        """Mean over the steps of this epoch, each with the weights at that time."""
        return -self.loss_sum / self.steps_sum

    def figures(self) -> dict[str, float]:
        """The optimizer's figures, averaged over the updates of this epoch and rounded to single precision."""
        return {name: float(f"{value / self.updates:.7g}") for name, value in self.figure_sums.items()}


@dataclass
class TrainingState:
    """Everything that determines the next update."""

    params: SequenceModel
    optimizer: PyTree
    carry: Carry
    best: SequenceModel
    progress: Progress
    mean: SequenceModel | None = None
    """Running mean of `params`, if the run keeps one."""

    @property
    def judged(self) -> SequenceModel:
        """The weights to validate, which may become the best."""
        return self.params if self.mean is None else self.mean

    def arrays(self) -> dict[str, np.ndarray]:
        """All arrays by name, for a checkpoint."""
        return to_named(self._tree())

    def with_arrays(self, arrays: dict[str, np.ndarray]) -> "TrainingState":
        """The state with the arrays of a checkpoint."""
        return TrainingState(**from_named(self._tree(), arrays), progress=self.progress)

    def _tree(self) -> dict[str, Any]:
        names = ("params", "optimizer", "carry", "best", "mean")
        return {name: getattr(self, name) for name in names}


def total(values) -> float:
    """Sum in double precision, so that it does not depend on how the chunks are grouped into blocks."""
    return float(np.asarray(values, np.float64).sum())
