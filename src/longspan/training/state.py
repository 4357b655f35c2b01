"""The complete state of training, arrays and numbers; a checkpoint stores exactly this.

The schedule decides after each validation: keep the weights as best, halve the learning rate, restore the best, or
stop."""

import math
from dataclasses import dataclass
from typing import Any

import equinox as eqx
import jax
import msgspec
import numpy as np
from jaxtyping import PyTree

from longspan.bounds import Figure, Share, Size, Text, Whole
from longspan.config import TrainConfig
from longspan.data.dataset import Chunks
from longspan.errors import InputError
from longspan.models.model import SequenceModel
from longspan.models.parts import Tree
from longspan.optim.blocks import Info
from longspan.training.objective import Carry

HALVING_GAIN, FINAL_GAIN = 0.003, 0.0003
"""rnnlm: relative gains in validation log-likelihood below which halving begins, and below which training ends."""

SMALLEST_SCALE = 1 / 1024
"""plateau: fraction of the initial rate at which training ends; averaged weights would keep improving very slightly for
a long time."""


class Schedule(msgspec.Struct, frozen=True):
    """The state kept between validations."""

    best: Figure | None = None
    best_epoch: Whole = 0
    last: Figure | None = None
    stale: Whole = 0
    """Validations since the best one."""
    waiting: Whole = 0
    """Validations since the best one or the last halving, whichever is later."""
    scale: Share = 1.0
    """Factor on the learning rate."""
    halving: bool = False
    """rnnlm: whether the rate is now halved after every epoch."""


class Decision(msgspec.Struct, frozen=True):
    """What to do after a validation."""

    schedule: Schedule
    is_best: bool = False
    restore_best: bool = False
    stop: str | None = None


def decide(schedule: Schedule, score: float, epoch: int, config: TrainConfig) -> Decision:
    """Judge the validation log-likelihood `score` of an epoch.

    The run stops after `patience` validations without a better score, under any schedule.
    """
    is_best = schedule.best is None or score > schedule.best
    stale = 0 if is_best else schedule.stale + 1
    after = msgspec.structs.replace(
        schedule,
        best=score if is_best else schedule.best,
        best_epoch=epoch if is_best else schedule.best_epoch,
        last=score,
        stale=stale,
        waiting=0 if is_best else schedule.waiting + 1,
    )
    stop = f"no better validation score for {stale} epochs" if stale >= config.patience else None
    if config.learning_rate_schedule == "plateau" and after.waiting >= config.plateau_epochs:
        after = msgspec.structs.replace(after, scale=after.scale / 2, waiting=0)
        if after.scale <= SMALLEST_SCALE:
            stop = f"the rate fell to 1/{1 / after.scale:g} of the first one"
        return Decision(after, is_best, restore_best=True, stop=stop)
    if config.learning_rate_schedule == "cosine":
        left = (1 + math.cos(math.pi * min(1.0, epoch / config.max_epochs))) / 2
        return Decision(msgspec.structs.replace(after, scale=left), is_best, stop=stop)
    if config.learning_rate_schedule == "rnnlm":
        return _decide_rnnlm(schedule, after, score, is_best, stop)
    return Decision(after, is_best, stop=stop)


def cooled(step: int, config: TrainConfig) -> float:
    """Factor on the learning rate of the block that begins at update `step`: it falls to zero at the last update.

    Example:
        >>> [cooled(step, TrainConfig(max_updates=100, cooldown=0.5)) for step in (0, 50, 75, 100)]
        [1.0, 1.0, 0.5, 0.0]
    """
    return min(1.0, (config.max_updates - step) / (config.cooldown * config.max_updates))


def _decide_rnnlm(before: Schedule, after: Schedule, score: float, is_best: bool, stop: str | None) -> Decision:
    """Once an epoch gains too little, halve the rate after every epoch until one gains next to nothing.

    Mikolov's program ends at the first epoch with a halved rate that gains less than 0.3 %. The epochs after it gain
    little each but, with dropout, a few percent of perplexity together.
    """
    gain = math.inf if before.last is None else (score - before.last) / max(abs(before.last), 1e-300)
    halving = before.halving or gain < HALVING_GAIN
    if before.halving and gain < FINAL_GAIN:
        stop = f"the validation gain fell under {100 * FINAL_GAIN:g} %"
    if halving:
        after = msgspec.structs.replace(after, halving=True, scale=after.scale / 2)
    return Decision(after, is_best, restore_best=not is_best, stop=stop)


class Progress(msgspec.Struct, frozen=True):
    """The numbers in a checkpoint, besides its arrays."""

    threshold: Size | None
    """Gradient norm to clip to, also if it was chosen by `auto`; None for no clipping."""
    epoch: Whole = 0
    position: Whole = 0
    """Chunks finished in this epoch."""
    step: Whole = 0
    """Updates made since the run began."""
    updates: Whole = 0
    """Updates made in this epoch."""
    figure_sums: dict[str, Figure] = {}
    """The figures that the optimizer reports, summed over the updates of this epoch."""
    loss_sum: Figure = 0.0
    steps_sum: Whole = 0
    schedule: Schedule = Schedule()
    metrics_size: Whole = 0
    stop: Text | None = None

    def __post_init__(self) -> None:
        if self.figure_sums and not self.updates:
            raise ValueError("expected figures of some updates, got those of none")

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
        """Mean over the steps of this epoch, each with the weights at that time; not a number before one counted."""
        return -self.loss_sum / self.steps_sum if self.steps_sum else math.nan

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
        try:
            found = from_named(self._tree(), arrays)
        except ValueError as error:
            raise InputError(f"its checkpoint is not that of such a model: {error}; restore config.json") from error
        return TrainingState(**found, progress=self.progress)

    def _tree(self) -> dict[str, Any]:
        names = ("params", "optimizer", "carry", "best", "mean")
        return {name: getattr(self, name) for name in names}


def total(values) -> float:
    """Sum in double precision, so that it does not depend on how the chunks are grouped into blocks."""
    return float(np.asarray(values, np.float64).sum())


def copied(tree: Tree) -> Tree:
    """A copy of all arrays, for optimizers consume their arguments; `jnp.copy` would compile a program for each shape.

    Example:
        >>> copied({"weights": jnp.ones(2)})["weights"].tolist()
        [1.0, 1.0]
    """
    return jax.device_put(tree, may_alias=False)


def to_named(tree: PyTree) -> dict[str, np.ndarray]:
    """The arrays of a tree by path, such as `cell.recurrent`, as stored in a safetensors file."""
    leaves, _ = jax.tree_util.tree_flatten_with_path(tree)
    return {_name(path): np.asarray(leaf) for path, leaf in leaves}


def from_named(like: Tree, arrays: dict[str, np.ndarray]) -> Tree:
    """The tree `like` with its arrays replaced by those of `to_named`; shapes and types must agree."""
    leaves, structure = jax.tree_util.tree_flatten_with_path(like)
    names = [_name(path) for path, _ in leaves]
    if set(names) != set(arrays):
        raise ValueError(f"expected arrays {sorted(names)}, got {sorted(arrays)}")
    for name, (_, leaf) in zip(names, leaves, strict=True):
        found = arrays[name]
        if found.shape != leaf.shape or found.dtype != leaf.dtype:
            raise ValueError(f"{name}: expected {leaf.dtype}{leaf.shape}, got {found.dtype}{found.shape}")
    return jax.tree_util.tree_unflatten(structure, [jax.device_put(arrays[name]) for name in names])


def not_arrays(tree: PyTree) -> list[str]:
    """Names of the leaves of a tree that are not arrays."""
    leaves, _ = jax.tree_util.tree_flatten_with_path(tree)
    return [_name(path) for path, leaf in leaves if not eqx.is_array(leaf)]


def _name(path) -> str:
    return ".".join(jax.tree_util.keystr((key,), simple=True) for key in path)
