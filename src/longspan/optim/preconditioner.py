"""A diagonal guess at the curvature from the squared gradients of single examples (Martens, 2010)."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from longspan.optim.slices import BatchAxis, count_examples, mean_over_slices, take_examples


def mean_squared_gradients(
    objective: Callable[[PyTree, PyTree], Float[Array, ""]],
    params: PyTree,
    batch: PyTree,
    at_a_time: int = 1,
    batch_axis: BatchAxis = 0,
) -> PyTree:
    """The mean over examples of the squared gradient of each example's objective, shaped like `params`.

    Args:
        objective: `objective(params, batch)`, a mean over the batch's examples.
        params: where the gradients are taken.
        batch: its examples are evaluated one by one, as batches of one.
        at_a_time: examples mapped over together by `jax.vmap`; 1 maps nothing, for objectives that cannot be.
        batch_axis: see `longspan.optim.slices.BatchAxis`.
    """

    def squared_gradient(part, index):
        gradient = jax.grad(objective)(params, take_examples(part, index, 1, batch_axis))
        return jax.tree.map(jnp.square, gradient)

    def mean_of_squares(part):
        count = count_examples(part, batch_axis)
        if count == 1:
            return squared_gradient(part, 0)
        squares = jax.vmap(lambda index: squared_gradient(part, index))(jnp.arange(count))
        return jax.tree.map(lambda leaf: jnp.mean(leaf, axis=0), squares)

    return mean_over_slices(mean_of_squares, batch, at_a_time, batch_axis)


def inverse_preconditioner(squares: PyTree, damping: float | Float[Array, ""], exponent: float = 0.75) -> PyTree:
    """`(squares + damping)^-exponent`: what conjugate gradient multiplies the residual with.

    The exponent below one makes up for the off-diagonal elements that a diagonal ignores.
    """
    return jax.tree.map(lambda square: (square + damping) ** -exponent, squares)
