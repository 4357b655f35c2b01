"""All that decides what a run does next: arrays, and the numbers beside them. A checkpoint is exactly this."""

from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np
from jaxtyping import PyTree

from longspan.data.sequences import Chunks
from longspan.models.parameters import from_named, to_named
from longspan.models.sequence import SequenceModel
from longspan.optim.interface import Info
from longspan.training.objective import Carry
from longspan.training.schedule import Schedule


class Progress(msgspec.Struct, frozen=True):
    """The numbers beside the arrays of a checkpoint."""

    threshold: float | None
    """Gradient norm that is clipped to, None for no clipping; what `auto` came out as."""
    epoch: int = 0
    position: int = 0
    """Chunks done in this epoch."""
    step: int = 0
    """Updates made since the run began."""
    updates: int = 0
    """Updates made in this epoch."""
    figure_sums: dict[str, float] = {}
    """What the optimizer reported of each update of this epoch, summed."""
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
        """Mean over the steps of this epoch, each at the weights of its time."""
        return -self.loss_sum / self.steps_sum

    def figures(self) -> dict[str, float]:
        """What the optimizer reported, as means over the updates of this epoch, in the digits single precision has."""
        return {name: float(f"{value / self.updates:.7g}") for name, value in self.figure_sums.items()}


@dataclass
class TrainingState:
    """All that decides what happens next."""

    params: SequenceModel
    optimizer: PyTree
    carry: Carry
    best: SequenceModel
    progress: Progress
    mean: SequenceModel | None = None
    """Running mean of `params`, if the run keeps one."""

    @property
    def judged(self) -> SequenceModel:
        """The weights that are validated and may become the best."""
        return self.params if self.mean is None else self.mean

    def arrays(self) -> dict[str, np.ndarray]:
        """Every array by name, for a checkpoint."""
        return to_named(self._tree())

    def with_arrays(self, arrays: dict[str, np.ndarray]) -> "TrainingState":
        """The state with the arrays of a checkpoint."""
        return TrainingState(**from_named(self._tree(), arrays), progress=self.progress)

    def _tree(self) -> dict[str, Any]:
        names = ("params", "optimizer", "carry", "best", "mean")
        return {name: getattr(self, name) for name in names}


def total(values) -> float:
    """Sum in double precision, so that it does not depend on how a block was cut."""
    return float(np.asarray(values, np.float64).sum())
