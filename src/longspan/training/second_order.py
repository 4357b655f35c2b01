"""Hessian-free training on blocks of chunks: the same doors as the first-order driver, one update a block.

The optimizer itself is `optim.hessian_free`, which knows no model. Here a block becomes its batch: every lane of every
chunk is a sequence of its own, entered with the state that the chunks before it leave at the current weights. Those
states are computed once an update and then are numbers: the objective that never rises is that of the block with them.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PyTree, Shaped

from longspan.config import TrainConfig
from longspan.data.sequences import Chunks, song_order
from longspan.errors import InputError
from longspan.models.outputs import ExactOutput
from longspan.models.sequence import SequenceModel
from longspan.optim.gauss_newton import WithStructure
from longspan.optim.hessian_free import HessianFree, HessianFreeInfo, HessianFreeState
from longspan.optim.hessian_free_settings import HessianFreeSettings
from longspan.optim.interface import Info
from longspan.training.objective import Carry, Context, Objective


class Sequences(NamedTuple):
    """A batch of sequences side by side.

    Attributes:
        first: the state each is entered with.
        steps: how long each is: up to its last step that counts.
        scale: what a mean over sequences is multiplied with to give the objective.
        constants: what of the model is not trained.
    """

    inputs: Shaped[Array, "time sequence ..."]
    targets: Shaped[Array, "time sequence ..."]
    resets: Bool[Array, "time sequence"]
    mask: Bool[Array, "time sequence"]
    first: PyTree
    steps: Int[Array, " sequence"]
    scale: Float[Array, ""]
    constants: SequenceModel


AXES = Sequences(inputs=1, targets=1, resets=1, mask=1, first=0, steps=0, scale=None, constants=None)  # pyright: ignore


class SecondOrder:
    """Hessian-free optimization of a sequence model.

    The objective is the mean over the counted steps of the block (or, for a loss of `sum`, the mean over sequences of
    their sums) of the negative log-likelihood and the L1 penalty. The penalty acts through the gradient alone: the
    absolute value has no curvature.

    Args:
        objective: of a chunk, as first-order methods descend it; walks through the block to find the entry states.
        settings: constants of the method.
        curvature_sequences: how many sequences, drawn anew for every update, give the curvature.
        mean: whether the objective is a mean over steps, not a sum.
        seed: decides, with the number of the update, which sequences those are.
        should_stop: asked during an update, which it ends by `Interrupted`; nothing has changed then.
    """

    def __init__(
        self,
        objective: Objective,
        settings: HessianFreeSettings,
        *,
        curvature_sequences: int,
        mean: bool = True,
        seed: int = 0,
        should_stop: Callable[[], bool] = lambda: False,
    ):
        self.method = HessianFree(network, partial(loss, objective.l1), settings, AXES)
        self.curvature_sequences = curvature_sequences
        self.mean = mean
        self.seed = seed
        self.should_stop = should_stop
        self._enter = jax.jit(partial(enter, objective))

    @staticmethod
    def of(config: TrainConfig, should_stop: Callable[[], bool]) -> "SecondOrder":
        """The optimizer a config describes."""
        settings = HessianFreeSettings(
            initial_damping=config.initial_damping,
            structural_damping=config.structural_damping,
            max_iterations=config.cg_iterations,
            slice_size=config.slice_size,
        )
        return SecondOrder(
            Objective.of(config),
            settings,
            curvature_sequences=config.curvature_sequences,
            mean=config.loss == "mean",
            seed=config.seed,
            should_stop=should_stop,
        )

    def init(self, params: SequenceModel) -> HessianFreeState:
        """The state before the first update."""
        if not isinstance(params.output, ExactOutput):
            raise InputError(
                f"hf needs an output whose likelihood is exact, not an estimate: got {type(params.output).__name__}; "
                "choose another --output, or sgd"
            )
        return self.method.init(params)

    def rescaled(self, state: HessianFreeState, scale: float) -> HessianFreeState:
        """The same state: there is no learning rate, the damping finds the size of a step."""
        del scale
        return state

    def restarted(self, state: HessianFreeState) -> HessianFreeState:
        """The state without a solution to start conjugate gradient from."""
        return state._replace(direction=jax.tree.map(jnp.zeros_like, state.direction))

    def advance(
        self,
        params: SequenceModel,
        state: HessianFreeState,
        carry: Carry,
        chunks: Chunks,
        count: int,
        context: Context,
    ) -> tuple[SequenceModel, HessianFreeState, Carry, Info]:
        """One update on the first `count` chunks."""
        carry, entered, observed = self._enter(params, carry, chunks, jnp.asarray(count, jnp.int32), context)
        if not np.isfinite(observed).all():
            return params, state, carry, Info(observed, {"objective": np.array([np.nan])}, 1)
        counted = np.asarray(chunks.mask) & (np.arange(len(chunks.lengths)) < count)[:, None, None]
        block = Block(chunks._replace(mask=counted), entered, context.constants, self.mean)
        whole = block.sequences(np.arange(len(block.steps)))
        part = self._curvature_part(block.steps, int(state.step))
        params, state, info = self.method.update(
            params, state, whole, None if part is None else block.sequences(part), self.should_stop
        )
        return params, state, carry, Info(observed, figures(info), 1)

    def _curvature_part(self, steps: Int[np.ndarray, " sequence"], step: int) -> Int[np.ndarray, " part"] | None:
        """Which sequences give the curvature of an update, as many as ever; None for all."""
        if self.curvature_sequences >= len(steps):
            return None
        used, filler = np.flatnonzero(steps > 0), np.flatnonzero(steps == 0)
        drawn = used[song_order(len(used), self.seed, step)]
        return np.concatenate([drawn, filler])[: self.curvature_sequences]


def network(params: SequenceModel, batch: Sequences) -> WithStructure:
    """From parameters to logits and hidden vectors, with what structural damping keeps from changing."""
    model = eqx.combine(params, batch.constants)
    length = jnp.max(batch.steps)
    hidden, inner, weights = model.cell.trace(batch.first, batch.inputs, batch.resets, length)
    inside = jnp.arange(len(batch.resets))[:, None] < batch.steps
    logits = model.output.logits(hidden, batch.targets, length)
    return WithStructure((logits, hidden), inner, jnp.where(inside[..., None], weights, 0))


def loss(l1: float, outputs: tuple[PyTree, Float[Array, "..."]], batch: Sequences) -> Float[Array, ""]:
    """The objective of a batch, as a mean over its sequences."""
    logits, hidden = outputs
    losses = batch.constants.output.loss_of(logits, batch.targets)
    if l1 > 0:
        losses = losses + l1 * jnp.sum(jnp.abs(hidden), axis=-1)
    return batch.scale * jnp.sum(jnp.where(batch.mask, losses, 0)) / batch.mask.shape[1]


def enter(
    objective: Objective,
    params: SequenceModel,
    carry: Carry,
    chunks: Chunks,
    count: Int[Array, ""],
    context: Context,
) -> tuple[Carry, PyTree, Float[Array, " chunk"]]:
    """Walk through a block: the carry after its first `count` chunks, the state before each and its summed loss."""

    def step(carry, now):
        index, chunk = now
        _, (after, total) = objective(params, carry, chunk, context)
        inside = index < count
        kept = jax.tree.map(lambda new, old: jnp.where(inside, new, old), after, carry)
        return kept, (carry.state, jnp.where(inside, total, 0))

    carry, (entered, observed) = jax.lax.scan(step, carry, (jnp.arange(len(chunks.lengths)), chunks))
    return carry, entered, observed


class Block:
    """The chunks of an update as sequences: lane b of chunk n is number n * lanes + b."""

    def __init__(self, chunks: Chunks, entered: PyTree, constants: SequenceModel, mean: bool):
        self.chunks = Chunks(*(_side_by_side(leaf) for leaf in chunks[:-1]), chunks.lengths)
        self.first = jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:]), entered)
        self.constants = constants
        self.mean = mean
        mask = self.chunks.mask
        self.steps = np.where(mask.any(axis=0), len(mask) - np.argmax(mask[::-1], axis=0), 0).astype(np.int32)

    def sequences(self, numbers: Int[np.ndarray, " part"]) -> Sequences:
        """Some of the sequences, the short ones first, so that a slice of them is a short walk."""
        numbers = numbers[np.argsort(self.steps[numbers], kind="stable")]
        inputs, targets, resets, mask = (leaf[:, numbers] for leaf in self.chunks[:-1])
        scale = mask.shape[1] / mask.sum() if self.mean else 1.0
        first = jax.tree.map(lambda leaf: leaf[numbers], self.first)
        return Sequences(
            inputs, targets, resets, mask, first, self.steps[numbers], jnp.float32(scale), self.constants
        )


def figures(info: HessianFreeInfo) -> dict[str, Any]:
    """An update in numbers; a ratio that is none, where the quadratic promised nothing, counts as zero."""
    return {
        "objective": np.array([info.objective_before]),
        "objective_after": np.array([info.objective_after]),
        "gradient_norm": np.array([info.gradient_norm]),
        "ratio": np.array([info.ratio if np.isfinite(info.ratio) else 0.0]),
        "damping": np.array([info.damping]),
        "cg_iterations": np.array([info.iterations]),
        "backtracks": np.array([info.backtracks]),
        "step_share": np.array([info.share]),
    }


def _side_by_side(leaf: np.ndarray) -> np.ndarray:
    """(chunk, time, lane, ...) to (time, sequence, ...)."""
    leaf = np.moveaxis(np.asarray(leaf), 0, 1)
    return leaf.reshape(len(leaf), -1, *leaf.shape[3:])
