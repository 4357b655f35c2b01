"""What a chunk contributes to training: its negative log-likelihood and the L1 penalty of section 3.4.

Both kinds of optimizers share it: first-order methods descend it chunk by chunk; Hessian-free splits it into a network
and a convex loss (`second_order`) made of the same parts.
"""

from dataclasses import dataclass
from functools import partial
from typing import NamedTuple, TypeAlias

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, PyTree

from longspan.config import TrainConfig
from longspan.data.dataset import Chunks
from longspan.models.cells import LeakyCell
from longspan.models.outputs import OutputByRows
from longspan.models.sequence import SequenceModel
from longspan.ops import backend, noise
from longspan.ops.rows import RowGradient
from longspan.optim.interface import Gradient, Table

States: TypeAlias = Float[Array, "time lane hidden"]


class Context(NamedTuple):
    """What the objective needs besides the trained parameters."""

    constants: SequenceModel
    key: PRNGKeyArray


class Carry(NamedTuple):
    """State carried from one chunk to the next: the hidden state and the number of chunks seen."""

    state: PyTree
    step: Int[Array, ""]


@dataclass(frozen=True)
class Objective:
    """Loss of one chunk, `scale * (sum of -log p + l1 * sum of |h|)`, with dropout between `h` and the output."""

    scale: float
    l1: float
    dropout: float = 0.0

    @staticmethod
    def of(config: TrainConfig, counted_steps: int | None = None) -> "Objective":
        """The objective that a config describes.

        A mean is taken over the nominal length, so that a short last chunk weighs less than a full one. That length is
        the chunk length, or `counted_steps` if fewer steps have targets.
        """
        steps = config.chunk_length if counted_steps is None else counted_steps
        return Objective(1 / (steps * config.lanes) if config.loss == "mean" else 1.0, config.l1, config.dropout)

    def __call__(
        self, params: SequenceModel, carry: Carry, chunk: Chunks, context: Context
    ) -> tuple[Float[Array, ""], tuple[Carry, Float[Array, ""]]]:
        """Loss, the carry for the next chunk, and the summed loss of the targets, for monitoring.

        The carried state is a constant, not a function of the parameters: gradients span one chunk.
        """
        model = eqx.combine(params, context.constants)
        walked = (carry.state, chunk.inputs, chunk.resets, chunk.lengths)
        if self.l1 > 0:
            state, hidden, penalty = model.cell.run_penalised(*walked, self._penalty_weights(chunk))
        else:
            (state, hidden), penalty = model.run(*walked), 0.0
        key, dropout_key = _keys(context, carry)
        hidden = self.seen(hidden, self.mask_of(hidden, dropout_key))
        losses = model.output.loss(hidden, chunk.targets, chunk.lengths, key=key)
        return self._sum_up(losses, penalty, state, carry, chunk)

    def by_rows(
        self, params: SequenceModel, carry: Carry, chunk: Chunks, context: Context
    ) -> tuple[tuple[Float[Array, ""], tuple[Carry, Float[Array, ""]]], Gradient]:
        """The result of `__call__` and its gradient, with the gradients of word matrices restricted to the rows in use.

        The input weights of symbols enter only through the drive, so its cotangents are the gradients of their rows;
        the output handles its own tables. With the XLA backend, or if a chunk has more steps than there are symbols,
        all gradients are dense.
        """
        if not _has_tables(eqx.combine(params, context.constants), chunk):
            value, gradient = jax.value_and_grad(self, has_aux=True)(params, carry, chunk, context)
            return value, Gradient(gradient)

        def loss(params, drive):
            model = eqx.combine(params, context.constants)
            assert isinstance(model.cell, LeakyCell)
            weights = self._penalty_weights(chunk) if self.l1 > 0 else None
            state, hidden, penalty = model.cell.run_driven(carry.state, drive, chunk.resets, chunk.lengths, weights)
            key, dropout_key = _keys(context, carry)
            hidden = self.seen(hidden, self.mask_of(hidden, dropout_key))
            if isinstance(model.output, OutputByRows):
                scale = self.scale * chunk.mask
                losses, rows = model.output.loss_by_rows(hidden, chunk.targets, chunk.lengths, scale)
            else:
                losses, rows = model.output.loss(hidden, chunk.targets, chunk.lengths, key=key), None
            value, observed = self._sum_up(losses, penalty, state, carry, chunk)
            return value, (observed, rows)

        assert isinstance(params.cell, LeakyCell)
        drive = params.cell.drive_of_chunk(chunk.inputs, chunk.lengths)
        (value, (observed, output_rows)), (gradient, parts) = jax.value_and_grad(loss, argnums=(0, 1), has_aux=True)(
            params, drive
        )
        input_rows = RowGradient(chunk.inputs.ravel(), parts.reshape(-1, parts.shape[-1]))
        tables = [Table(lambda params: (params.cell.input_weights,), input_rows)]
        if output_rows is not None:
            tables.append(Table(lambda params: params.output.tables(params.output), output_rows))
        gradient = eqx.tree_at(lambda gradient: gradient.cell.bias, gradient, parts.sum((0, 1)))
        for where, _ in tables:
            gradient = eqx.tree_at(where, gradient, replace_fn=lambda _: None)
        return (value, observed), Gradient(gradient, tuple(tables))

    def seen(self, hidden: States, mask: Bool[Array, "time lane hidden"] | None) -> States:
        """The hidden states as the output sees them: all of them, or through a dropout mask."""
        return hidden if mask is None else apply_dropout(hidden, mask, self.dropout)

    def penalized(self, losses: Float[Array, "time lane"], hidden: States) -> Float[Array, "time lane"]:
        """The loss of every step with the L1 penalty on its hidden outputs."""
        return losses + self.l1 * jnp.sum(jnp.abs(hidden), axis=-1) if self.l1 > 0 else losses

    def mask_of(self, hidden: States, key: PRNGKeyArray) -> Bool[Array, "time lane hidden"] | None:
        """A dropout mask for a chunk; None without dropout."""
        return None if self.dropout == 0 else dropout_mask(key, self.dropout, hidden.shape)

    def _penalty_weights(self, chunk):
        return self.l1 * chunk.mask.astype(jnp.float32)

    def _sum_up(self, losses, penalty, state, carry, chunk):
        total = jnp.sum(jnp.where(chunk.mask, losses, 0))
        return self.scale * (total + penalty), (Carry(jax.lax.stop_gradient(state), carry.step + 1), total)


def _keys(context: Context, carry: Carry) -> tuple[PRNGKeyArray, PRNGKeyArray]:
    """Two independent keys for this chunk: for the output, and for dropout.

    `~step` is negative, so it never equals the number of another chunk.
    """
    return jax.random.fold_in(context.key, carry.step), jax.random.fold_in(context.key, ~carry.step)


def _has_tables(model: SequenceModel, chunk: Chunks) -> bool:
    if not isinstance(model.cell, LeakyCell) or chunk.inputs.dtype != jnp.int32 or backend.active() != "native":
        return False
    return model.cell.input_weights.shape[0] > chunk.inputs.size


@partial(jax.jit, static_argnames=("dropout", "shape"))  # fused, or each of its many steps would fill memory
def dropout_mask(key: PRNGKeyArray, dropout: float, shape: tuple[int, ...]) -> Bool[Array, "..."]:
    """Mask of the hidden units the output sees; each is dropped with probability `dropout`."""
    return noise.bits(key, shape) >= jnp.uint32(int(dropout * 2**32))


def apply_dropout(
    hidden: Float[Array, "time lane hidden"], kept: Bool[Array, "time lane hidden"], dropout: float
) -> Float[Array, "time lane hidden"]:
    """Inverted dropout: zero the dropped units and scale the others by `1 / (1 - dropout)`."""
    return jnp.where(kept, hidden / (1 - dropout), 0)
