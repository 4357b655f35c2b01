"""What a chunk contributes to training: its negative log-likelihood and the L1 penalty of section 3.4.

Both kinds of optimizers share it: first-order methods descend it chunk by chunk; Hessian-free splits it into a network
and a convex loss (`second_order`) made of the same parts.
"""

import dataclasses
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple, TypeAlias

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, PyTree

from longspan.config import TrainConfig
from longspan.data.dataset import Chunks
from longspan.models.cells import DrivenCell, LeakyCell
from longspan.models.model import SequenceModel, given_drive, reader_of, whole
from longspan.models.outputs import AffineOutput
from longspan.models.parts import Cell, OutputByRows, with_keys
from longspan.ops import backend
from longspan.ops.linear import RowGradient
from longspan.ops.outputs import Dropout
from longspan.ops.recurrence import Precision
from longspan.optim.blocks import Gradient, Table, Where

States: TypeAlias = Float[Array, "time lane hidden"]
Number: TypeAlias = float | Array
SPARSE_FROM = 512
"""Units from which rectifiers are trained by the rows of those that are on; smaller matrices take no time."""


class Context(NamedTuple):
    """What the objective needs besides the trained parameters."""

    constants: SequenceModel
    key: PRNGKeyArray


class Carry(NamedTuple):
    """State carried from one chunk to the next: the hidden state and the number of chunks seen."""

    state: PyTree
    step: Int[Array, ""]


class Keys(NamedTuple):
    """Two independent random keys of a chunk: for the output, and for dropout."""

    output: PRNGKeyArray
    dropout: PRNGKeyArray

    def of_lanes(self, lanes: int) -> PRNGKeyArray:
        """A key for each lane, for cells with noise of their own; dropout uses its key in another way."""
        return jax.random.split(jax.random.fold_in(self.dropout, lanes), lanes)


@partial(
    jax.tree_util.register_dataclass,
    data_fields=["scale", "l1", "dropout", "omega"],
    meta_fields=["segment", "precision"],
)
@dataclass(frozen=True)
class Objective:
    """Loss of one chunk, `scale * (sum of -log p + l1 * sum of |h|)`, with dropout between `h` and the output.

    It is a tree: compiled programs take its numbers as arguments, so that runs which differ in nothing else share them.

    Attributes:
        scale: factor of the summed loss.
        l1: weight of the penalty on hidden outputs; None for no penalty.
        dropout: which hidden outputs the output does not see; None for seeing all.
        omega: weight of the penalty on gradients that change their length on the way back; None for no penalty.
        segment: number of steps whose intermediate values are kept for the gradient; 0 for all.
        precision: of the recurrent weights as the cell reads them.
    """

    scale: Number
    l1: Number | None = None
    dropout: Dropout | None = None
    omega: Number | None = None
    segment: int = 0
    precision: Precision = "float32"

    @staticmethod
    def of(config: TrainConfig, counted_steps: int | None = None) -> "Objective":
        """The objective that a config describes.

        A mean is taken over the nominal length, so that a short last chunk weighs less than a full one. That length is
        the chunk length, or `counted_steps` if fewer steps have targets.
        """
        steps = config.chunk_length if counted_steps is None else counted_steps
        scale = 1 / (steps * config.lanes) if config.loss == "mean" else 1.0
        dropout = Dropout.of(config.dropout) if config.dropout > 0 else None
        return Objective(scale, config.l1 or None, dropout, config.omega or None, config.segment, config.precision)

    def of_share(self, config: TrainConfig) -> "Objective":
        """The objective of one replica's share of the lanes, of which there are fewer to take a mean over."""
        return dataclasses.replace(self, scale=self.scale * config.replicas) if config.loss == "mean" else self

    def __call__(
        self, params: SequenceModel, carry: Carry, chunk: Chunks, context: Context
    ) -> tuple[Float[Array, ""], tuple[Carry, Float[Array, ""]]]:
        """Loss, the carry for the next chunk, and the summed loss of the targets, for monitoring.

        The carried state is a constant, not a function of the parameters: gradients span one chunk.
        """
        model = self._model(params, context)
        keys = keys_of(context, carry)
        if self.segment > 0:
            state, losses, penalty = self._walk_segments(model, carry.state, chunk, keys)
        else:
            state, losses, penalty = self._walk(model, carry.state, chunk, keys)
        value, observed = self.sum_up(losses, penalty, state, carry, chunk)
        if self.omega is not None:
            value = value + self.omega * self._changes_of_gradients(model, carry.state, chunk, keys)
        return value, observed

    def _model(self, params: SequenceModel, context: Context) -> SequenceModel:
        """The model as training runs it."""
        model = whole(params, context.constants)
        if self.precision == "float32":
            return model
        return dataclasses.replace(model, cell=model.cell.at_precision(self.precision))

    def _walk(
        self, model: SequenceModel, state: PyTree, chunk: Chunks, keys: Keys
    ) -> tuple[PyTree, Float[Array, "time lane"], Float[Array, ""] | float]:
        """The state after a chunk, the loss of each step, and the L1 penalty."""
        state, hidden, penalty = self._walk_cell(model.cell, state, chunk, keys)
        return state, model.output.loss(hidden, chunk.targets, chunk.lengths, key=keys.output), penalty

    def _walk_cell(
        self, cell: Cell, state: PyTree, chunk: Chunks, keys: Keys
    ) -> tuple[PyTree, States, Float[Array, ""] | float]:
        """The state after a chunk, what the output sees of the hidden vectors, and the L1 penalty."""
        walked = (state, chunk.inputs, chunk.resets, chunk.lengths)
        cell = with_keys(cell, lambda: keys.of_lanes(chunk.resets.shape[1]))
        if self.l1 is not None:
            state, hidden, penalty = cell.run_penalized(*walked, self.penalty_weights(chunk))
        else:
            (state, hidden), penalty = cell.run(*walked), 0.0
        return state, self.seen(hidden, self.mask_of(hidden, keys.dropout)), penalty

    def _walk_segments(self, model: SequenceModel, state: PyTree, chunk: Chunks, keys: Keys):
        """`_walk` in segments, of which the gradient keeps only the first states and computes the rest again."""
        segments = _in_segments(chunk, self.segment)

        @jax.checkpoint
        def walk(state, now):
            number, segment = now
            own = Keys(*(jax.random.fold_in(key, number) for key in keys))
            state, losses, penalty = self._walk(model, state, segment, own)
            return state, (losses, jnp.asarray(penalty))

        state, (losses, penalties) = jax.lax.scan(walk, state, (jnp.arange(len(segments.lengths)), segments))
        return state, losses.reshape(-1, losses.shape[-1])[: len(chunk.mask)], penalties.sum()

    def _changes_of_gradients(self, model: SequenceModel, state: PyTree, chunk: Chunks, keys: Keys) -> Float[Array, ""]:
        r"""Omega: the mean over steps of :math:`(|e_t \partial s_t / \partial s_{t-1}|^2 / |e_t|^2 - 1)^2`.

        Here :math:`e_t` is the gradient of the chunk's loss in the state :math:`s_t`. As in the reference, the penalty
        is differentiated only in the weights of the step itself: states and gradients are constants.

        Reference: Pascanu, Mikolov and Bengio, *On the difficulty of training recurrent neural networks*, 2013.
        """
        frozen = jax.lax.stop_gradient(model)
        _, hidden = frozen.run(state, chunk.inputs, chunk.resets, chunk.lengths)
        dropped = self.mask_of(hidden, keys.dropout)

        def loss(hidden):
            losses = frozen.output.loss(self.seen(hidden, dropped), chunk.targets, chunk.lengths, key=keys.output)
            return self.scale * jnp.sum(jnp.where(chunk.mask, losses, 0))

        sent = jax.grad(loss)(hidden)
        pulled = model.cell.pull_back(state, chunk.inputs, chunk.resets, chunk.lengths, sent)
        arriving, handed = _squares(pulled.arriving), _squares(pulled.handed)
        counted = ~chunk.resets & (arriving > 0)
        changes = jnp.square(handed / jnp.where(counted, arriving, 1) - 1)
        return jnp.sum(jnp.where(counted, changes, 0)) / jnp.maximum(jnp.sum(counted), 1).astype(changes.dtype)

    def by_rows(
        self, params: SequenceModel, carry: Carry, chunk: Chunks, context: Context
    ) -> tuple[tuple[Float[Array, ""], tuple[Carry, Float[Array, ""]]], Gradient]:
        """The result of `__call__` and its gradient, with the gradients of word matrices restricted to the rows in use.

        The input weights of symbols enter only through the drive, so its cotangents are the gradients of their rows;
        the output handles its own tables. With the XLA backend, if a chunk has more steps than there are symbols, in
        segments, with `omega` and for a tied matrix, whose rows are used twice, all gradients are dense.
        """
        dense = self.omega is not None or self.segment > 0
        if dense or not _has_tables(whole(params, context.constants), chunk):
            value, gradient = jax.value_and_grad(self, has_aux=True)(params, carry, chunk, context)
            return value, Gradient(gradient)

        keys = keys_of(context, carry)

        def loss(params, drive):
            model = self._model(params, context)
            state, hidden, penalty = self._walk_cell(
                given_drive(model.cell), carry.state, chunk._replace(inputs=drive), keys
            )
            if isinstance(model.output, OutputByRows):
                scale = jnp.where(chunk.mask, self.scale, 0.0)
                losses, rows = model.output.loss_by_rows(hidden, chunk.targets, chunk.lengths, scale)
            else:
                losses, rows = model.output.loss(hidden, chunk.targets, chunk.lengths, key=keys.output), None
            value, observed = self.sum_up(losses, penalty, state, carry, chunk)
            return value, (observed, rows)

        drive = _reader(params).drive_of_chunk(chunk.inputs, chunk.lengths)
        (value, (observed, output_rows)), (gradient, parts) = jax.value_and_grad(loss, argnums=(0, 1), has_aux=True)(
            params, drive
        )
        input_rows = RowGradient(chunk.inputs.ravel(), parts.reshape(-1, parts.shape[-1]))
        tables = [Table(lambda params: (_reader(params).input_weights,), input_rows)]
        if output_rows is not None:
            tables.append(Table(lambda params: params.output.tables(params.output), output_rows))
        gradient = eqx.tree_at(lambda gradient: _reader(gradient).bias, gradient, parts.sum((0, 1)))
        for where, _ in tables:
            gradient = eqx.tree_at(where, gradient, replace_fn=lambda _: None)
        return (value, observed), Gradient(gradient, tuple(tables))

    def matrices_that_lag(self, params: SequenceModel, context: Context, from_units: int = SPARSE_FROM) -> Where | None:
        """Which leaves may lag: the matrices with a row for each unit of a large network of rectifiers, or none.

        They are descended by `sparse_states.sparse_gradient`.
        """
        model = whole(params, context.constants)
        cell, output = model.cell, model.output
        plain = self.omega is None and self.segment == 0 and self.precision == "float32"
        if not (plain and isinstance(cell, LeakyCell) and isinstance(output, AffineOutput)):
            return None
        if cell.activation != "rectifier" or len(cell.recurrent) < from_units:
            return None
        names = [weights for weights, _ in output.maps]
        if not backend.fits(cell.recurrent, *(getattr(output, name) for name in names)):
            return None
        return lambda tree: (tree.cell.recurrent, *(getattr(tree.output, name) for name in names))

    def seen(self, hidden: States, mask: Bool[Array, "time lane hidden"] | None) -> States:
        """The hidden states as the output sees them: all of them, or through a dropout mask."""
        return hidden if self.dropout is None or mask is None else self.dropout.apply(hidden, mask)

    def penalized(self, losses: Float[Array, "time lane"], hidden: States) -> Float[Array, "time lane"]:
        """The loss of every step with the L1 penalty on its hidden outputs."""
        return losses if self.l1 is None else losses + self.l1 * jnp.sum(jnp.abs(hidden), axis=-1)

    def mask_of(self, hidden: States, key: PRNGKeyArray) -> Bool[Array, "time lane hidden"] | None:
        """A dropout mask for a chunk; None without dropout."""
        return None if self.dropout is None else self.dropout.mask(key, hidden.shape)

    def penalty_weights(self, chunk: Chunks) -> Float[Array, "time lane"]:
        """What |h| costs at each step."""
        return (0.0 if self.l1 is None else self.l1) * chunk.mask.astype(jnp.float32)

    def sum_up(
        self,
        losses: Float[Array, "time lane"],
        penalty: Float[Array, ""] | float,
        state: PyTree,
        carry: Carry,
        chunk: Chunks,
    ) -> tuple[Float[Array, ""], tuple[Carry, Float[Array, ""]]]:
        """The value of a chunk, the next carry, and the summed loss of the targets."""
        total = jnp.sum(jnp.where(chunk.mask, losses, 0))
        return self.scale * (total + penalty), (Carry(jax.lax.stop_gradient(state), carry.step + 1), total)


def keys_of(context: Context, carry: Carry) -> Keys:
    """The keys of this chunk. `~step` is negative, so it never equals the number of another chunk."""
    return Keys(jax.random.fold_in(context.key, carry.step), jax.random.fold_in(context.key, ~carry.step))


def _in_segments(chunk: Chunks, steps: int) -> Chunks:
    """A chunk as shorter chunks of `steps` steps, the last one padded."""
    count = -(-len(chunk.mask) // steps)

    def fold(leaf):
        padding = [(0, count * steps - len(leaf))] + [(0, 0)] * (leaf.ndim - 1)
        return jnp.pad(leaf, padding).reshape(count, steps, *leaf.shape[1:])

    lengths = jnp.clip(chunk.lengths - steps * jnp.arange(count), 0, steps).astype(jnp.int32)
    return Chunks(*map(fold, chunk[:-1]), lengths=lengths)


def _squares(states: PyTree) -> Float[Array, "time lane"]:
    """The squared length of each state of a tree of `time lane ...` leaves."""
    squares = (jnp.sum(jnp.square(leaf), axis=tuple(range(2, leaf.ndim))) for leaf in jax.tree.leaves(states))
    return jnp.asarray(sum(squares))


def _has_tables(model: SequenceModel, chunk: Chunks) -> bool:
    reader = reader_of(model.cell)
    if model.tied or reader is None or chunk.inputs.dtype != jnp.int32 or backend.active() != "native":
        return False
    return reader.input_weights.shape[0] > chunk.inputs.size


def _reader(model: SequenceModel) -> DrivenCell:
    """The part of a model that reads the inputs, where `_has_tables` holds."""
    reader = reader_of(model.cell)
    assert reader is not None
    return reader
