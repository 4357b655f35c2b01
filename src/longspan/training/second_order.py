"""Hessian-free training on blocks of chunks: the interface of the first-order driver, with one update per block.

The optimizer itself is `optim.hessian_free`, which knows nothing of models. Here a block becomes its batch, and a
sequence model is split into the network and the convex loss that it needs. The objective that never rises is that of
the block, whose initial states are computed with the weights before the update.
"""

from collections.abc import Callable
from functools import cache, partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, PyTree, Shaped, UInt32

from longspan.config import TrainConfig
from longspan.data.dataset import Chunks
from longspan.data.sequences import song_order
from longspan.errors import InputError
from longspan.models.model import SequenceModel, hidden_size_of, whole
from longspan.models.parts import Cell, ExactOutput, with_keys
from longspan.optim.blocks import Info
from longspan.optim.curvature import WithStructure
from longspan.optim.hessian_free import HessianFree, HessianFreeInfo, HessianFreeSettings, HessianFreeState
from longspan.training.objective import Carry, Context, Objective


class Sequences(NamedTuple):
    """A batch of sequences side by side.

    Attributes:
        first: the initial state of each sequence.
        steps: the length of each, up to its last step that counts; zero for filler.
        scale: factor from a mean over sequences to the objective.
        inner_scale: factor from a mean over all positions to one over those inside sequences.
        constants: the parts of the model that are not trained.
        kept: with dropout, the mask of the hidden units that the output sees; fixed during an update, whose objective
            must not change.
        keys: for cells with noise, the data of a key for each sequence; fixed for the same reason.
    """

    inputs: Shaped[Array, "time lane ..."]
    targets: Shaped[Array, "time lane ..."]
    resets: Bool[Array, "time lane"]
    mask: Bool[Array, "time lane"]
    first: PyTree
    steps: Int[Array, " lane"]
    scale: Float[Array, ""]
    inner_scale: Float[Array, ""]
    constants: SequenceModel
    kept: Bool[Array, "time lane hidden"] | None = None
    keys: UInt32[Array, "lane data"] | None = None


AXES: Any = Sequences(1, 1, 1, 1, first=0, steps=0, scale=None, inner_scale=None, constants=None, kept=1, keys=0)  # pyright: ignore


@partial(jax.jit, static_argnums=0)
def enter(
    objective: Objective,
    params: SequenceModel,
    carry: Carry,
    chunks: Chunks,
    count: int | Int[Array, ""],
    context: Context,
) -> tuple[Carry, PyTree, Float[Array, " chunk"]]:
    """Run through a block: the carry after its first `count` chunks, and the state before and summed loss of each."""

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

    def __init__(
        self,
        chunks: Chunks,
        entered: PyTree,
        constants: SequenceModel,
        mean: bool,
        kept: Bool[np.ndarray, "time lane hidden"] | None = None,
        keys: UInt32[np.ndarray, "lane data"] | None = None,
    ):
        inputs, targets, resets, mask, lengths = chunks
        self.chunks = Chunks(*map(_side_by_side, (inputs, targets, resets, mask)), lengths=lengths)
        self.first = jax.tree.map(lambda leaf: np.asarray(leaf).reshape(-1, *leaf.shape[2:]), entered)
        self.constants = constants
        self.mean = mean
        self.kept = kept
        self.keys = keys
        mask = self.chunks.mask
        self.steps = np.where(mask.any(axis=0), len(mask) - np.argmax(mask[::-1], axis=0), 0).astype(np.int32)

    def sequences(self, numbers: Int[np.ndarray, " part"], multiple: int) -> Sequences:
        """The sequences with these numbers, padded to a multiple so that all slices have the same shape.

        Short ones come first, so that a slice of them takes few steps.
        """
        numbers = numbers[np.argsort(self.steps[numbers], kind="stable")]
        fillers = -len(numbers) % multiple
        numbers = np.concatenate([np.repeat(numbers[:1], fillers), numbers])
        inputs, targets, resets, mask = (leaf[:, numbers] for leaf in self.chunks[:-1])
        mask[:, :fillers] = False
        steps = np.where(np.arange(len(numbers)) < fillers, 0, self.steps[numbers])
        counted = mask.sum() if self.mean else np.count_nonzero(steps)
        batch = Sequences(
            inputs,
            targets,
            resets,
            mask,
            first=jax.tree.map(lambda leaf: leaf[numbers], self.first),
            steps=jnp.asarray(steps, jnp.int32),
            scale=jnp.float32(len(numbers) / counted),
            inner_scale=jnp.float32(mask.size / steps.sum()),
            constants=self.constants,
            kept=None if self.kept is None else jnp.asarray(self.kept[:, numbers]),
            keys=None if self.keys is None else jnp.asarray(self.keys[numbers]),
        )
        return jax.device_put(batch)  # once, not for every product


def draw(steps: Int[np.ndarray, " lane"], count: int, seed: int, update: int) -> Int[np.ndarray, " part"]:
    """Draw at most `count` sequences, determined by seed and update; filler only if nothing else is left."""
    order = song_order(len(steps), seed, update)
    return order[np.argsort(steps[order] == 0, kind="stable")][:count]


def _side_by_side(leaf: np.ndarray) -> np.ndarray:
    """(chunk, time, lane, ...) to (time, sequence, ...)."""
    leaf = np.moveaxis(np.asarray(leaf), 0, 1)
    return leaf.reshape(len(leaf), -1, *leaf.shape[3:])


class SecondOrder:
    """Hessian-free optimization of a sequence model.

    The objective is the mean over the counted steps of the block (or, for a loss of `sum`, the mean over sequences of
    their sums) of the negative log-likelihood and the L1 penalty. The penalty acts through the gradient alone: the
    absolute value has no curvature.

    Args:
        objective: the objective of a chunk, as in first-order methods; used to find the states before each chunk.
        settings: constants of the method.
        curvature_sequences: number of sequences, redrawn for every update, that give the curvature.
        mean: whether the objective is a mean over steps rather than a sum.
        seed: determines, with the number of the update, which sequences are drawn.
        should_stop: called during an update; if it returns True, the update ends with `Interrupted` and changes
            nothing.
    """

    update_is_a_block = True

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
        self.objective = objective
        self.method = _compiled_method(settings, objective)
        self.curvature_sequences = curvature_sequences
        self.slice_size = settings.slice_size or 1
        self.mean = mean
        self.seed = seed
        self.should_stop = should_stop

    @staticmethod
    def of(config: TrainConfig, objective: Objective, should_stop: Callable[[], bool]) -> "SecondOrder":
        """The optimizer that a config describes."""
        settings = HessianFreeSettings(
            initial_damping=config.initial_damping,
            minimal_damping=config.minimal_damping,
            structural_damping=config.structural_damping,
            max_iterations=config.cg_iterations,
            slice_size=config.slice_size,
        )
        return SecondOrder(
            objective,
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
                "choose another output, or sgd"
            )
        return self.method.init(params)

    def rescaled(self, state: HessianFreeState, scale: float) -> HessianFreeState:
        """The state unchanged: there is no learning rate, the damping determines the size of a step."""
        del scale
        return state

    def restarted(self, state: HessianFreeState) -> HessianFreeState:
        """The state without a solution to start conjugate gradients from."""
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
        carry, entered, observed = enter(self.objective, params, carry, chunks, count, context)
        if not np.isfinite(observed).all():
            return params, state, carry, Info(observed, {"objective": jnp.array([jnp.nan])}, 1)
        counted = np.asarray(chunks.mask) & (np.arange(len(chunks.lengths)) < count)[:, None, None]
        counting = chunks._replace(mask=counted)
        cell = whole(params, context.constants).cell
        key = jax.random.fold_in(context.key, state.step)
        seen, keys = self._kept(cell, counted.shape, key), _noise_keys(cell, counted.shape, key)
        block = Block(counting, entered, context.constants, self.mean, seen, keys)
        part = draw(block.steps, self.curvature_sequences, self.seed, int(state.step))
        params, state, info = self.method.update(
            params,
            state,
            block.sequences(np.arange(len(block.steps)), self.slice_size),
            block.sequences(part, self.slice_size) if len(part) < len(block.steps) else None,
            self.should_stop,
        )
        return params, state, carry, Info(observed, figures(info), 1)

    def _kept(self, cell: Cell, shape: tuple[int, int, int], key: PRNGKeyArray) -> np.ndarray | None:
        """The dropout mask of an update, determined by seed and update."""
        if self.objective.dropout is None:
            return None
        units = hidden_size_of(cell)
        chunks, steps, lanes = shape
        return np.asarray(self.objective.dropout.mask(key, (steps, chunks * lanes, units)))


def _noise_keys(cell: Cell, shape: tuple[int, int, int], key: PRNGKeyArray) -> np.ndarray | None:
    """A key for each sequence of an update, as data, for a cell with noise of its own."""
    if not cell.takes_key:
        return None
    chunks, _, lanes = shape
    return np.asarray(jax.random.key_data(jax.random.split(jax.random.fold_in(key, 1), chunks * lanes)))


def network(objective: Objective, params: SequenceModel, batch: Sequences) -> WithStructure:
    """From parameters to logits and hidden vectors, with what structural damping keeps from changing."""
    model = whole(params, batch.constants)
    length = jnp.max(batch.steps)
    cell = model.cell if batch.keys is None else with_keys(model.cell, partial(jax.random.wrap_key_data, batch.keys))
    hidden, inner, weights = cell.trace(batch.first, batch.inputs, batch.resets, length)
    inside = jnp.arange(len(batch.resets))[:, None] < batch.steps[None]
    logits = _exact(model).logits(objective.seen(hidden, batch.kept), batch.targets, length)
    return WithStructure((logits, hidden), inner, jnp.where(inside[..., None], batch.inner_scale * weights, 0))


def loss(objective: Objective, outputs: tuple[PyTree, Float[Array, "..."]], batch: Sequences) -> Float[Array, ""]:
    """The objective of a batch, as a mean over its sequences."""
    logits, hidden = outputs
    losses = objective.penalized(_exact(batch.constants).loss_of(logits, batch.targets), hidden)
    return batch.scale * jnp.sum(jnp.where(batch.mask, losses, 0)) / batch.mask.shape[1]


def _exact(model: SequenceModel) -> ExactOutput:
    """The output of a model that `init` has accepted."""
    assert isinstance(model.output, ExactOutput)
    return model.output


def figures(info: HessianFreeInfo) -> dict[str, Any]:
    """Figures of an update; an undefined ratio, where the quadratic model predicts no change, counts as zero."""
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


@cache
def _compiled_method(settings: HessianFreeSettings, objective: Objective) -> HessianFree:
    """One object for equal settings, so that a second run in a process does not compile again."""
    return HessianFree(partial(network, objective), partial(loss, objective), settings, AXES)
