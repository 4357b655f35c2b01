"""What a chunk contributes to training: its negative log-likelihood and the L1 penalty of section 3.4."""

from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray, PyTree

from longspan import kernels
from longspan.config import TrainConfig
from longspan.data.sequences import Chunks
from longspan.kernels.rows import RowGradient
from longspan.models.cells import LeakyCell
from longspan.models.outputs import OutputByRows
from longspan.models.sequence import SequenceModel
from longspan.optim.gradients import Gradient, Table
from longspan.training import dropout

States: TypeAlias = Float[Array, "time lanes hidden"]


class Context(NamedTuple):
    """What the objective needs beside the trained parameters."""

    constants: SequenceModel
    key: PRNGKeyArray


class Carry(NamedTuple):
    """What one chunk hands to the next: the hidden state and the number of chunks seen."""

    state: PyTree
    step: Int[Array, ""]


@dataclass(frozen=True)
class Objective:
    """Loss of one chunk: `scale * (sum of -log p + l1 * sum of |h|)`, the output seeing `h` through dropout."""

    scale: float
    l1: float
    dropout: float = 0.0

    @staticmethod
    def of(config: TrainConfig, counted_steps: int | None = None) -> "Objective":
        """A mean is taken over the nominal length, so that a short last chunk weighs less than a full one.

        That length is the chunk's, or `counted_steps` where targets stand at fewer steps.
        """
        steps = config.chunk_length if counted_steps is None else counted_steps
        return Objective(1 / (steps * config.lanes) if config.loss == "mean" else 1.0, config.l1, config.dropout)

    def __call__(
        self, params: SequenceModel, carry: Carry, chunk: Chunks, context: Context
    ) -> tuple[Float[Array, ""], tuple[Carry, Float[Array, ""]]]:
        """Loss, the carry for the next chunk, and the summed loss of the targets as what to observe.

        The carried state is a number, not a function of the parameters: gradients span one chunk.
        """
        model = eqx.combine(params, context.constants)
        walked = (carry.state, chunk.inputs, chunk.resets, chunk.lengths)
        if self.l1 > 0:
            state, hidden, penalty = model.cell.run_penalised(*walked, self._penalty_weights(chunk))
        else:
            (state, hidden), penalty = model.run(*walked), 0.0
        key, dropout_key = _keys(context, carry)
        losses = model.output.loss(self._dropped(hidden, dropout_key), chunk.targets, chunk.lengths, key=key)
        return self._sum_up(losses, penalty, state, carry, chunk)

    def by_rows(
        self, params: SequenceModel, carry: Carry, chunk: Chunks, context: Context
    ) -> tuple[tuple[Float[Array, ""], tuple[Carry, Float[Array, ""]]], Gradient]:
        """What `__call__` returns and its gradient, word matrices by the rows in use.

        The input weights of symbols enter through the drive alone, so its cotangents are the gradients of their rows;
        the output knows about its own. Where XLA computes, or a chunk has more steps than there are symbols, all
        leaves come whole.
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
            hidden = self._dropped(hidden, dropout_key)
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

    def _dropped(self, hidden: States, key: PRNGKeyArray) -> States:
        if self.dropout == 0:
            return hidden
        return dropout.louder(hidden, dropout.kept(key, self.dropout, hidden.shape), self.dropout)

    def _penalty_weights(self, chunk):
        return self.l1 * chunk.mask.astype(jnp.float32)

    def _sum_up(self, losses, penalty, state, carry, chunk):
        total = jnp.sum(jnp.where(chunk.mask, losses, 0))
        return self.scale * (total + penalty), (Carry(jax.lax.stop_gradient(state), carry.step + 1), total)


def _keys(context: Context, carry: Carry) -> tuple[PRNGKeyArray, PRNGKeyArray]:
    """Of this chunk, for the output and for dropout: no chunk has a number below zero."""
    return jax.random.fold_in(context.key, carry.step), jax.random.fold_in(context.key, ~carry.step)


def _has_tables(model: SequenceModel, chunk: Chunks) -> bool:
    if not isinstance(model.cell, LeakyCell) or chunk.inputs.dtype != jnp.int32 or kernels.active() != "native":
        return False
    return model.cell.input_weights.shape[0] > chunk.inputs.size
