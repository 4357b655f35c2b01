"""The loss around the weights where training stands: cuts along a gradient and an update, and how far a step goes.

All of it is measured on the training chunks that come next, each from the state in which training would enter it, with
the run's own objective and optimizer.
"""

import math
from functools import partial
from typing import Annotated, Any, NamedTuple

import jax
import jax.numpy as jnp
import msgspec
import numpy as np
from jax.flatten_util import ravel_pytree

from longspan.bounds import Figure, Positive, Share, Size, Text, check_lengths
from longspan.data.dataset import Chunks, Dataset
from longspan.models.model import trained_part
from longspan.training.objective import Context, Objective
from longspan.training.optimizers import Purpose, optimizer_of
from longspan.training.runs import Run
from longspan.training.seals import newest_checkpoint
from longspan.training.setup import ChunkSource, first_carry, first_model
from longspan.training.state import Progress, TrainingState, to_named

CHUNKS = 16
"""Training chunks over which the loss is averaged."""
PLACES = np.linspace(-1.0, 3.0, 17)
"""Where the loss is computed on a cut, in multiples of the unclipped step."""
OVERFLOWED = 1e38
"""Stands for a gradient norm beyond float32."""
MULTIPLES = tuple(4.0**power for power in range(-3, 7))
"""Lengths at which an update is tried, as multiples of its own."""
WAY, AFTER = 128, 32
"""Updates whose way is followed farther, at most, and chunks after them on which it is judged."""
FARTHER = tuple(4.0**power for power in range(7))
"""Lengths at which the way of the next updates is tried, likewise."""


class Cut(msgspec.Struct, frozen=True):
    """The loss along a line through the weights, in nats per counted step with the penalty.

    Attributes:
        distances: places on the line, as lengths in the space of all weights; 0 is where training stands.
        chunk: loss of the chunk whose gradient or update gives the direction.
        sample: mean loss of all sampled chunks.
        unclipped: where the step ends without clipping.
        clipped: where it ends as it is made; None if nothing clips.
    """

    distances: Annotated[list[Figure], msgspec.Meta(min_length=1)]
    chunk: list[Figure | None]
    sample: list[Figure | None]
    unclipped: Figure
    clipped: Figure | None

    def __post_init__(self) -> None:
        check_lengths(distances=self.distances, chunk=self.chunk, sample=self.sample)


class Landscape(msgspec.Struct, frozen=True):
    """The loss around the weights where training stands.

    Attributes:
        norms: gradient norm of every sampled chunk, before clipping.
        threshold: the norm to which gradients are clipped; None without clipping.
        along_gradient: the cut along the steepest chunk's gradient.
        along_update: the cut along the next update; None for Hessian-free, where an update takes minutes.
        multiples: how long the next update was tried, as multiples of its own length at the full learning rate.
        multiple_losses: mean loss of the sampled chunks there.
        farther: how far the way of the next updates, up to a hundred or so, was followed, as multiples of its length.
        farther_losses: mean loss there of the chunks that come after them; the first is at the weights.
        loss: mean loss of the sampled chunks at the weights.
        update_ratios: length of the next update as a share of the weights' length, by parameter.
        rate_scale: factor to which the schedule has lowered the learning rate.
    """

    norms: Annotated[list[Size], msgspec.Meta(min_length=1)]
    threshold: Size | None
    loss: Figure
    along_gradient: Cut | None
    along_update: Cut | None
    multiples: list[Positive]
    multiple_losses: list[Figure | None]
    farther: list[Positive]
    farther_losses: list[Figure | None]
    update_ratios: dict[Text, Size]
    rate_scale: Share

    def __post_init__(self) -> None:
        check_lengths(multiples=self.multiples, multiple_losses=self.multiple_losses)
        if self.farther:
            check_lengths(farther=self.farther, farther_losses=self.farther_losses[1:])

    @property
    def best_multiple(self) -> float | None:
        """The multiple of the next update that lowers the loss of the sampled chunks most; None if none lowers it."""
        tried = [
            (value, multiple)
            for value, multiple in zip(self.multiple_losses, self.multiples, strict=True)
            if value is not None and value < self.loss
        ]
        return min(tried)[1] if tried else None

    @property
    def best_farther(self) -> tuple[float, float] | None:
        """How far along the way of the next updates the chunks after them would do best, as a multiple of its length,
        and how much better than at the weights, nats per step; None if they would do worse everywhere."""
        if not self.farther or self.farther_losses[0] is None:
            return None
        start, tried = self.farther_losses[0], zip(self.farther_losses[1:], self.farther, strict=True)
        lowest, multiple = min(((value, each) for value, each in tried if value is not None), default=(start, 0.0))
        return (multiple, start - lowest) if lowest < start else None


class Standing(NamedTuple):
    """Where the training of a run stands."""

    run: Run
    state: TrainingState
    source: ChunkSource
    context: Context
    objective: Objective

    def optimizer(self, threshold: float | None) -> Any:
        """The run's optimizer with another threshold."""
        return optimizer_of(self.run).make(Purpose.of(self.run.config, self.objective, threshold, lambda: False))


def standing(run: Run, data: Dataset) -> Standing | None:
    """The state of the newest checkpoint, without touching the folder.

    None if there is no checkpoint, or if it belongs to an optimizer of the user's own that was not given again.
    """
    newest = newest_checkpoint(run.path / "checkpoints", Progress)
    if newest is None or ("optimizer" in run.handed_in and run.given.optimizer is None):
        return None
    model = first_model(run, data.base_rates())
    params, constants = trained_part(model)
    source = ChunkSource(run.config, data)
    objective = Objective.of(run.config, source.counted_steps)
    context = Context(constants, jax.random.key(run.config.seed))
    made = optimizer_of(run).make(Purpose.of(run.config, objective, newest.progress.threshold, lambda: False))
    mean = params if run.config.averaging > 0 else None
    fresh = TrainingState(params, made.init(params), first_carry(model, run.config), params, newest.progress, mean)
    return Standing(run, fresh.with_arrays(newest.arrays), source, context, objective)


def landscape(here: Standing) -> Landscape | None:
    """Examine the loss where training stands; None for an output whose loss is not its likelihood."""
    if not here.state.params.output.exact:
        return None
    sample = _Sample(here)
    norms, gradient = sample.steepest_gradient()
    threshold = here.state.progress.threshold if here.run.config.optimizer != "hf" else None
    rate = _rate(here)
    step = rate * max(norms)
    clipped = None if threshold is None else min(step, rate * threshold)
    moved = None if here.run.config.optimizer == "hf" else sample.update(threshold)
    usable = bool(np.isfinite(gradient).all())
    return Landscape(
        norms=norms,
        threshold=threshold,
        loss=sample.loss_at(0.0, np.zeros_like(gradient))[1] or 0.0,
        along_gradient=sample.cut(-gradient, int(np.argmax(norms)), step, clipped) if step and usable else None,
        along_update=None if moved is None else _update_cut(sample, moved, threshold),
        multiples=[] if moved is None else list(MULTIPLES),
        multiple_losses=[] if moved is None else [sample.loss_at(each, moved)[1] for each in MULTIPLES],
        farther=[] if moved is None else list(FARTHER),
        farther_losses=[] if moved is None else sample.losses_ahead(threshold),
        update_ratios={} if moved is None else sample.ratios(moved),
        rate_scale=here.state.progress.schedule.scale,
    )


def _rate(here: Standing) -> float:
    """The step size of plain descent, had the schedule not lowered it; 0 for methods that scale gradients."""
    return here.run.config.learning_rate if here.run.config.optimizer == "sgd" else 0.0


def _update_cut(sample: "_Sample", moved: np.ndarray, threshold: float | None) -> Cut | None:
    with np.errstate(over="ignore"):  # a step of a run that explodes
        length = float(np.linalg.norm(moved))
    if length == 0 or not math.isfinite(length):
        return None
    free = moved if threshold is None else sample.update(None)
    unclipped = float(free @ moved) / length
    return sample.cut(moved, 0, max(unclipped, length), None if threshold is None else length)


class _Sample:
    """The training chunks that come next, and the loss on them as a function of the weights."""

    def __init__(self, here: Standing):
        self.here = here
        self.epoch = here.source.epoch(here.state.progress.epoch)
        self.chunks = Chunks(*(leaf[:CHUNKS] for leaf in self.epoch))
        self.weights, self.unravel = ravel_pytree(here.state.params)
        self.carries, self.norms = _enter(
            here.objective, here.state.params, here.state.carry, self.chunks, here.context
        )
        self.scales = here.objective.scale * np.asarray(self.chunks.mask).sum(axis=(1, 2))

    def steepest_gradient(self) -> tuple[list[float], np.ndarray]:
        """The gradient norm of every chunk, and the gradient of the chunk where it is largest."""
        norms = np.nan_to_num(np.asarray(self.norms, np.float64), nan=OVERFLOWED, posinf=OVERFLOWED)
        place = int(np.argmax(norms))
        chunk, carry = self._one(place)
        gradient = _gradient(self.here.objective, self.here.state.params, carry, chunk, self.here.context)
        return norms.tolist(), np.asarray(ravel_pytree(gradient)[0], np.float64)

    def update(self, threshold: float | None, count: int = 1) -> np.ndarray:
        """The change of the weights by the next updates, at the full learning rate."""
        here = self.here
        optimizer = here.optimizer(threshold)
        params, state = jax.tree.map(jnp.copy, (here.state.params, here.state.optimizer))  # advance consumes them
        state, carry, made = optimizer.rescaled(state, 1.0), here.state.carry, 0
        while made < count:
            block, most = here.source.block(self.epoch, made)
            now = min(count - made, most)
            params, state, carry, _ = optimizer.advance(params, state, carry, block, now, here.context)
            made += now
        return np.asarray(ravel_pytree(params)[0] - self.weights, np.float64)

    def losses_ahead(self, threshold: float | None) -> list[float | None]:
        """Loss at the weights, and along the way of the next updates, of chunks that come after them.

        What one chunk wants and the next does not is averaged out of such a way, unlike out of a single update.
        """
        here, epoch = self.here, self.epoch
        count = min(WAY, max(1, 3 * len(epoch.lengths) // 4))
        way, both = self.update(threshold, count), Chunks(*(leaf[: count + AFTER] for leaf in epoch))
        carries = _carries(here.objective, here.state.params, here.state.carry, both, here.context)
        last = min(count, len(both.lengths) - 1)  # of a single chunk, that one
        ahead = jax.tree.map(lambda leaf: leaf[last:], (carries, both))
        total = here.objective.scale * np.asarray(both.mask[last:]).sum()
        found = []
        for distance in (0.0, *FARTHER):
            losses = _losses(here.objective, self._at(distance, way), *ahead, here.context)
            found.append(_finite(np.asarray(losses, float).sum() / total))
        return found

    def cut(self, direction: np.ndarray, place: int, step: float, clipped: float | None) -> Cut:
        """The loss along a direction, of one chunk and of all."""
        unit = direction / np.linalg.norm(direction)
        distances = step * PLACES
        found = [self.loss_at(distance, unit, place) for distance in distances]
        return Cut(distances.tolist(), [one for one, _ in found], [mean for _, mean in found], step, clipped)

    def loss_at(self, distance: float, direction: np.ndarray, place: int = 0) -> tuple[float | None, float | None]:
        """Loss of one chunk and of all, in nats per counted step, `distance` times the direction away."""
        there = self._at(distance, direction)
        losses = np.asarray(_losses(self.here.objective, there, self.carries, self.chunks, self.here.context), float)
        return _finite(losses[place] / self.scales[place]), _finite(losses.sum() / self.scales.sum())

    def _at(self, distance: float, direction: np.ndarray):
        with np.errstate(over="ignore", invalid="ignore"):  # far out, weights overflow, and the loss with them
            return self.unravel(self.weights + jnp.asarray((distance * direction).astype(self.weights.dtype)))

    def ratios(self, moved: np.ndarray) -> dict[str, float]:
        """Length of an update over that of the weights, by parameter."""
        change, weights = (
            to_named(self.unravel(jnp.asarray(moved, self.weights.dtype))),
            to_named(self.here.state.params),
        )
        sizes = {name: float(np.linalg.norm(weights[name])) for name in weights}
        return {name: float(np.linalg.norm(change[name])) / sizes[name] for name in weights if sizes[name] > 0}

    def _one(self, place: int):
        return jax.tree.map(lambda leaf: leaf[place], (self.chunks, self.carries))


def _finite(value: float) -> float | None:
    return float(value) if math.isfinite(value) else None


@partial(jax.jit, static_argnums=0)
def _enter(objective: Objective, params, carry, chunks: Chunks, context: Context):
    """The carry before every chunk, and each chunk's gradient norm."""

    def step(carry, chunk):
        gradient, (after, _) = jax.grad(objective, has_aux=True)(params, carry, chunk, context)
        return after, (carry, jnp.sqrt(sum(jnp.sum(jnp.square(leaf)) for leaf in jax.tree.leaves(gradient))))

    return jax.lax.scan(step, carry, chunks)[1]


@partial(jax.jit, static_argnums=0)
def _carries(objective: Objective, params, carry, chunks: Chunks, context: Context):
    """The carry before every chunk."""
    return jax.lax.scan(lambda carry, chunk: (objective(params, carry, chunk, context)[1][0], carry), carry, chunks)[1]


@partial(jax.jit, static_argnums=0)
def _gradient(objective: Objective, params, carry, chunk: Chunks, context: Context):
    return jax.grad(objective, has_aux=True)(params, carry, chunk, context)[0]


@partial(jax.jit, static_argnums=0)
def _losses(objective: Objective, params, carries, chunks: Chunks, context: Context):
    return jax.lax.map(lambda pair: objective(params, pair[0], pair[1], context)[0], (carries, chunks))
