"""Averages over a batch taken slice by slice, so that memory is bounded by the slice and not by the batch.

Hessian-free optimization wants thousands of sequences in one gradient and one curvature product; only a few
need to be in flight at a time.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import PyTree

from longspan.errors import InputError

BatchAxis = Any
"""Where a batch counts its examples: an axis, or a tree of axes over the batch's leaves as in `jax.vmap`'s
`in_axes`; `None` marks what all examples share."""


def leaf_axes(batch: PyTree, batch_axis: BatchAxis) -> list[int | None]:
    """The example axis of every leaf of the batch, in the order of `jax.tree.leaves`."""
    axes: list[int | None] = []

    def give(axis, part):
        axes.extend([axis] * len(jax.tree.leaves(part)))

    jax.tree.map(give, batch_axis, batch, is_leaf=lambda node: node is None)
    return axes


def count_examples(batch: PyTree, batch_axis: BatchAxis) -> int:
    """How many examples a batch holds; every leaf that is not shared must agree."""
    axes = leaf_axes(batch, batch_axis)
    leaves = jax.tree.leaves(batch)
    sizes = {leaf.shape[axis] for leaf, axis in zip(leaves, axes, strict=True) if axis is not None}
    if len(sizes) != 1:
        raise InputError(
            f"every array of a batch must hold the same number of examples along its batch axis: got {sorted(sizes)}"
        )
    return sizes.pop()


def take_examples(batch: PyTree, start, count: int, batch_axis: BatchAxis) -> PyTree:
    """`count` successive examples from `start` on, as a smaller batch of the same form."""
    leaves, structure = jax.tree.flatten(batch)
    taken = [
        leaf if axis is None else jax.lax.dynamic_slice_in_dim(leaf, start, count, axis)
        for leaf, axis in zip(leaves, leaf_axes(batch, batch_axis), strict=True)
    ]
    return jax.tree.unflatten(structure, taken)


def mean_over_slices(
    function: Callable[[PyTree], PyTree], batch: PyTree, slice_size: int | None, batch_axis: BatchAxis = 0
) -> PyTree:
    """The value `function` would have on the whole batch, from slices of at most `slice_size` examples.

    Holds for every function that is a mean over examples, such as a mean loss, its gradient and its curvature
    products: slices are weighted by the examples they hold.

    Args:
        function: from a batch to a tree of arrays, a mean over the batch's examples.
        batch: arrays that hold the examples along `batch_axis`.
        slice_size: examples evaluated at a time; `None` for the whole batch at once.
        batch_axis: see `BatchAxis`.

    Example:
        >>> float(mean_over_slices(jnp.mean, jnp.arange(5.0), slice_size=2))
        2.0
    """
    size = count_examples(batch, batch_axis)
    if slice_size is None or slice_size >= size:
        return function(batch)
    slices, rest = divmod(size, slice_size)

    def add_slice(total, index):
        part = function(take_examples(batch, index * slice_size, slice_size, batch_axis))
        return jax.tree.map(lambda sum_, value: sum_ + value * (slice_size / size), total, part), None

    shapes = jax.eval_shape(lambda: function(take_examples(batch, 0, slice_size, batch_axis)))
    zeros = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shapes)
    total, _ = jax.lax.scan(add_slice, zeros, jnp.arange(slices))
    if rest:
        part = function(take_examples(batch, slices * slice_size, rest, batch_axis))
        total = jax.tree.map(lambda sum_, value: sum_ + value * (rest / size), total, part)
    return total
