"""The gradient of a chunk where rectifiers are mostly off: only the rows of units that are on are read and changed.

It is what JAX derives from `Objective`, written out: the walk, what the output sees of it, the walk back. A unit that
is off has no gain, so no error passes through it and none is computed. The recurrent matrix and those of the output
lag (`ops/lagging.py`), so that momentum does not have to pass over all of them at every update either. What is read is
decided at run time: a chunk in which many units are on is computed with the whole matrices.
"""

import equinox as eqx
import jax
import jax.numpy as jnp

from longspan.data.dataset import Chunks
from longspan.models.cells import LeakyCell
from longspan.models.model import SequenceModel
from longspan.models.outputs import AffineOutput
from longspan.ops import lagging, linear, recurrence
from longspan.ops.lagging import Lagging, OuterGradient
from longspan.optim.blocks import Gradient, Table
from longspan.training.objective import Carry, Context, Objective, keys_of


def sparse_gradient(objective: Objective, params: SequenceModel, carry: Carry, chunk: Chunks, context: Context):
    """As `Objective.by_rows`, for parameters whose matrices lag; their gradients are tables."""
    cell, length = params.cell, chunk.lengths
    assert isinstance(cell, LeakyCell)
    assert isinstance(cell.recurrent, Lagging)
    constants = context.constants.cell
    assert isinstance(constants, LeakyCell)
    leak = constants.leak.value

    def drive_of(weights, bias):
        return linear.project(chunk.inputs, weights, bias, length)

    drive, to_input_weights = jax.vjp(drive_of, cell.input_weights, cell.bias)
    recurrent, hidden, gain = lagging.walk(cell.recurrent, drive, carry.state, leak, chunk.resets, length)
    seen = objective.seen(hidden, objective.mask_of(hidden, keys_of(context, carry).dropout))
    losses, output_gradient, tables, errors_of_seen = _of_output(objective, params, context, seen, chunk)

    penalty_weights = objective.penalty_weights(chunk)
    penalty = jnp.sum(penalty_weights * jnp.sum(jnp.abs(hidden), axis=-1)) if objective.l1 is not None else 0.0
    value = objective.sum_up(losses, penalty, hidden[-1], carry, chunk)
    recurrent, errors = lagging.walk_back(
        recurrent,
        leak,
        gain,
        chunk.resets,
        length,
        hidden,
        objective.scale * penalty_weights,
        errors_of_seen if objective.dropout is None else errors_of_seen * objective.dropout.factor,
    )
    before = recurrence.previous_states(carry.state, hidden, chunk.resets)
    of_recurrent = OuterGradient.of(recurrent, before, errors, length)
    input_weights, bias = to_input_weights(errors)
    whole = eqx.tree_at(
        lambda tree: (tree.cell.input_weights, tree.cell.bias, tree.cell.recurrent, tree.output),
        params,
        (input_weights, bias, None, output_gradient),
    )
    tables = (Table(lambda tree: (tree.cell.recurrent,), of_recurrent), *tables)
    return value, Gradient(whole, tables)


def _of_output(objective: Objective, params: SequenceModel, context: Context, seen, chunk: Chunks):
    """Loss of each step, gradient of the output's other parameters, of its matrices, and of the states seen."""
    output, length = params.output, chunk.lengths
    assert isinstance(output, AffineOutput)
    read = [
        lagging.project_sparse(getattr(output, weights), seen, getattr(output, bias), length)
        for weights, bias in output.maps
    ]
    matrices, mapped = zip(*read, strict=True)

    def of_maps(tree):
        return tuple(getattr(tree, name) for names in output.maps for name in names)

    others = eqx.tree_at(of_maps, output, replace_fn=lambda _: None, is_leaf=lambda leaf: isinstance(leaf, Lagging))

    def loss(others, mapped):
        whole = eqx.combine(others, context.constants.output)
        assert isinstance(whole, AffineOutput)
        losses = whole.loss_of(whole.logits_of(mapped, chunk.targets, length), chunk.targets)
        return objective.scale * jnp.sum(jnp.where(chunk.mask, losses, 0)), losses

    (_, losses), (gradient, errors) = jax.value_and_grad(loss, argnums=(0, 1), has_aux=True)(others, mapped)
    tables, of_seen = [], jnp.zeros_like(seen)
    for (weights, bias), matrix, error in zip(output.maps, matrices, errors, strict=True):
        of_bias = linear.shorten(error, length).sum((0, 1))
        gradient = eqx.tree_at(
            lambda tree, name=bias: getattr(tree, name), gradient, of_bias, is_leaf=lambda leaf: leaf is None
        )
        outer = OuterGradient.of(matrix, seen, error, length)
        tables.append(Table(lambda tree, name=weights: (getattr(tree.output, name),), outer))
        of_seen = of_seen + lagging.product_transposed_where(matrix.weights, length, error, seen)
    return losses, gradient, tables, of_seen
