"""Hessian-free training on blocks of chunks: the same doors as the first-order driver, one update a block.

The optimizer itself is `optim.hessian_free`, which knows no model; how a block becomes its batch is in
`sequence_batch`. Here a sequence model is split into the network and the convex loss it wants. The objective that never
rises is that of the block, entered with the states of the weights before the update.
"""

from collections.abc import Callable
from functools import cache, partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PyTree

from longspan.config import TrainConfig
from longspan.data.sequences import Chunks
from longspan.errors import InputError
from longspan.models.outputs import ExactOutput
from longspan.models.sequence import SequenceModel
from longspan.optim.gauss_newton import WithStructure
from longspan.optim.hessian_free import HessianFree, HessianFreeInfo, HessianFreeState
from longspan.optim.hessian_free_settings import HessianFreeSettings
from longspan.optim.interface import Info
from longspan.training.dropout import kept, louder
from longspan.training.objective import Carry, Context, Objective
from longspan.training.sequence_batch import AXES, Block, Sequences, draw, enter


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
        self.objective = objective
        self.method = _compiled_method(settings, objective.l1, objective.dropout)
        self.curvature_sequences = curvature_sequences
        self.slice_size = settings.slice_size or 1
        self.mean = mean
        self.seed = seed
        self.should_stop = should_stop

    @staticmethod
    def of(config: TrainConfig, objective: Objective, should_stop: Callable[[], bool]) -> "SecondOrder":
        """The optimizer a config describes."""
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
        carry, entered, observed = enter(self.objective, params, carry, chunks, count, context)
        if not np.isfinite(observed).all():
            return params, state, carry, Info(observed, {"objective": jnp.array([jnp.nan])}, 1)
        counted = np.asarray(chunks.mask) & (np.arange(len(chunks.lengths)) < count)[:, None, None]
        counting = chunks._replace(mask=counted)
        seen = self._kept(params, counted.shape, context, state)
        block = Block(counting, entered, context.constants, self.mean, seen)
        part = draw(block.steps, self.curvature_sequences, self.seed, int(state.step))
        params, state, info = self.method.update(
            params,
            state,
            block.sequences(np.arange(len(block.steps)), self.slice_size),
            block.sequences(part, self.slice_size) if len(part) < len(block.steps) else None,
            self.should_stop,
        )
        return params, state, carry, Info(observed, figures(info), 1)

    def _kept(self, params, shape, context, state) -> np.ndarray | None:
        """The dropout of an update, decided by seed and update."""
        if self.objective.dropout == 0:
            return None
        cell = eqx.combine(params, context.constants).cell
        units = cell.output(cell.initial_state()).size
        chunks, steps, lanes = shape
        key = jax.random.fold_in(context.key, state.step)
        return np.asarray(kept(key, self.objective.dropout, (steps, chunks * lanes, units)))


def network(dropout: float, params: SequenceModel, batch: Sequences) -> WithStructure:
    """From parameters to logits and hidden vectors, with what structural damping keeps from changing."""
    model = eqx.combine(params, batch.constants)
    length = jnp.max(batch.steps)
    hidden, inner, weights = model.cell.trace(batch.first, batch.inputs, batch.resets, length)
    inside = jnp.arange(len(batch.resets))[:, None] < batch.steps
    seen = hidden if batch.kept is None else louder(hidden, batch.kept, dropout)
    logits = _exact(model).logits(seen, batch.targets, length)
    return WithStructure((logits, hidden), inner, jnp.where(inside[..., None], batch.inner_scale * weights, 0))


def loss(l1: float, outputs: tuple[PyTree, Float[Array, "..."]], batch: Sequences) -> Float[Array, ""]:
    """The objective of a batch, as a mean over its sequences."""
    logits, hidden = outputs
    losses = _exact(batch.constants).loss_of(logits, batch.targets)
    if l1 > 0:
        losses = losses + l1 * jnp.sum(jnp.abs(hidden), axis=-1)
    return batch.scale * jnp.sum(jnp.where(batch.mask, losses, 0)) / batch.mask.shape[1]


def _exact(model: SequenceModel) -> ExactOutput:
    """The output of a model that `init` has let pass."""
    assert isinstance(model.output, ExactOutput)
    return model.output


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


@cache
def _compiled_method(settings: HessianFreeSettings, l1: float, dropout: float) -> HessianFree:
    """One object for equal settings, so that a second run in a process does not compile again."""
    return HessianFree(partial(network, dropout), partial(loss, l1), settings, AXES)
