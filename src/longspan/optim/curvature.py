"""The curvature of an objective: Gauss-Newton products, computed over slices of a batch, and a preconditioner."""

import math
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.tree_util import Partial
from jaxtyping import Array, Float, PyTree

from longspan.errors import InputError

BatchAxis = Any
"""The example axis of a batch: an axis, or a tree of axes over the batch's leaves as in `jax.vmap`'s `in_axes`; `None`
marks leaves that all examples share."""


def leaf_axes(batch: PyTree, batch_axis: BatchAxis) -> list[int | None]:
    """The example axis of every leaf of the batch, in the order of `jax.tree.leaves`."""
    axes: list[int | None] = []

    def give(axis, part):
        axes.extend([axis] * len(jax.tree.leaves(part)))

    jax.tree.map(give, batch_axis, batch, is_leaf=lambda node: node is None)
    return axes


def count_examples(batch: PyTree, batch_axis: BatchAxis) -> int:
    """Number of examples in a batch; all leaves that are not shared must agree."""
    axes = leaf_axes(batch, batch_axis)
    leaves = jax.tree.leaves(batch)
    sizes = {leaf.shape[axis] for leaf, axis in zip(leaves, axes, strict=True) if axis is not None}
    if len(sizes) != 1:
        raise InputError(
            f"every array of a batch must hold the same number of examples along its batch axis: got {sorted(sizes)}"
        )
    return sizes.pop()


def take_examples(batch: PyTree, start, count: int, batch_axis: BatchAxis) -> PyTree:
    """`count` successive examples from `start`, as a smaller batch of the same form."""
    leaves, structure = jax.tree.flatten(batch)
    taken = [
        leaf if axis is None else jax.lax.dynamic_slice_in_dim(leaf, start, count, axis)
        for leaf, axis in zip(leaves, leaf_axes(batch, batch_axis), strict=True)
    ]
    return jax.tree.unflatten(structure, taken)


def mean_over_slices(
    function: Callable[[PyTree], PyTree], batch: PyTree, slice_size: int | None, batch_axis: BatchAxis = 0
) -> PyTree:
    """The value of `function` on the whole batch, computed from slices of at most `slice_size` examples.

    This is valid for every function that is a mean over examples, such as a mean loss, its gradient and its curvature
    products: slices are weighted by their number of examples.

    Args:
        function: from a batch to a tree of arrays, a mean over the batch's examples.
        batch: arrays with the examples along `batch_axis`.
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


Network = Callable[[PyTree, PyTree], Any]
"""`network(params, batch) -> outputs`, or `-> WithStructure(outputs, ...)`."""
Loss = Callable[[Any, PyTree], Float[Array, ""]]
"""`loss(outputs, batch) -> scalar`: convex in the outputs, a mean over the batch's examples."""
Curvature = Callable[[PyTree, Any], PyTree]
"""`curvature(vector, structural_weight)`: the Gauss-Newton product plus that weight times the structural product."""


class WithStructure(NamedTuple):
    """The result of a network that uses structural damping, which penalizes changes of inner values.

    The structural term of the quadratic is half the mean, over positions (all axes but the last), of the sum over units
    of `D (change of s)^2`.

    Attributes:
        outputs: the values in which the loss is convex.
        structural: s, an array or tree of arrays, units last; in recurrent networks, hidden pre-activations.
        weights: D, shaped like `structural`, or `None` for one. The choice that matches the nonlinearity is
            `1 - tanh(s)^2` for tanh and `p (1 - p)` for `p = sigmoid(s)`: the curvature of the cross-entropy
            between the units before and after the step. Zero it where a position is padding.
    """

    outputs: Any
    structural: PyTree
    weights: PyTree | None = None


def without_structure(network: Network) -> Network:
    """The network, returning only its outputs."""

    def plain(params, batch):
        result = network(params, batch)
        return result.outputs if isinstance(result, WithStructure) else result

    return plain


def objective(network: Network, loss: Loss, params: PyTree, batch: PyTree) -> Float[Array, ""]:
    """The scalar being minimized."""
    return loss(without_structure(network)(params, batch), batch)


def linearize(network: Network, loss: Loss, params: PyTree, batch: PyTree) -> Curvature:
    """The Gauss-Newton matrix at `params` as a function `(vector, structural_weight) -> product`.

    The network is run once, here; each product then costs one tangent and one adjoint pass. The function is a pytree of
    the intermediate values it needs, so it can be returned from one compiled function and passed to another.

    A penalty such as `|h|` belongs in the loss, with h among the outputs. It then acts only through the gradient: the
    absolute value is piecewise linear, its curvature is zero wherever it exists, and damping limits the step. A smooth
    penalty, such as `sqrt(h^2 + eps)`, contributes its own curvature.
    """

    def split(params):
        result = network(params, batch)
        if isinstance(result, WithStructure):
            return (result.outputs, result.structural), result.weights
        return (result, ()), None

    (outputs, structural), tangent, weights = jax.linearize(split, params, has_aux=True)
    if weights is None:
        weights = jax.tree.map(jnp.ones_like, structural)
    metric = jax.tree.map(lambda weight: weight / max(1, math.prod(weight.shape[:-1])), weights)
    _, loss_curvature = jax.linearize(jax.grad(lambda outputs: loss(outputs, batch)), outputs)
    return Partial(_product, tangent, loss_curvature, metric)


def _product(tangent, loss_curvature, metric, vector, structural_weight):
    outputs_change, structural_change = tangent(vector)
    pulled = jax.tree.map(lambda weight, change: structural_weight * weight * change, metric, structural_change)
    (product,) = jax.linear_transpose(tangent, vector)((loss_curvature(outputs_change), pulled))
    return product


def gauss_newton_product(
    network: Network,
    loss: Loss,
    params: PyTree,
    batch: PyTree,
    vector: PyTree,
    structural_weight: float | Float[Array, ""] = 0.0,
) -> PyTree:
    r"""One product with the Gauss-Newton matrix.

    .. math::
        J^\top H J v + w\, J_s^\top D J_s v

    with J the Jacobian of the outputs, H the Hessian of the loss at the outputs, :math:`J_s` the Jacobian of
    the structural values and D their weights (see `WithStructure`).

    Args:
        network: `network(params, batch) -> outputs`, or `-> WithStructure(outputs, ...)`.
        loss: `loss(outputs, batch) -> scalar`, convex in the outputs.
        params: the parameters at which the network is linearized.
        batch: passed through to both functions.
        vector: shaped like `params`.
        structural_weight: w, the product of mu and lambda in structural damping.

    Example:
        >>> network = lambda params, batch: batch * params
        >>> loss = lambda outputs, batch: jnp.sum(outputs**2)
        >>> gauss_newton_product(network, loss, jnp.ones(2), jnp.array([1.0, 3.0]), jnp.ones(2)).tolist()
        [2.0, 18.0]
    """
    return linearize(network, loss, params, batch)(vector, structural_weight)


def curvature_factory(
    network: Network, loss: Loss, slice_size: int | None = None, batch_axis: BatchAxis = 0
) -> Callable[[PyTree, PyTree], Curvature]:
    """A function `(params, batch) -> curvature` whose results all share one compiled form.

    A batch of at most `slice_size` examples is linearized once. A larger one is run again for every product, slice by
    slice, in memory bounded by the slice, at the cost of one more forward pass per product.
    """
    linearize_whole = jax.jit(partial(linearize, network, loss))
    sliced_product = partial(_sliced_product, network, loss, slice_size, batch_axis)

    def curvature_at(params: PyTree, batch: PyTree) -> Curvature:
        if slice_size is None or count_examples(batch, batch_axis) <= slice_size:
            return linearize_whole(params, batch)
        return Partial(sliced_product, params, batch)

    return curvature_at


def _sliced_product(network, loss, slice_size, batch_axis, params, batch, vector, structural_weight):
    def product(part):
        return gauss_newton_product(network, loss, params, part, vector, structural_weight)

    return mean_over_slices(product, batch, slice_size, batch_axis)


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
        params: the parameters at which the gradients are taken.
        batch: its examples are evaluated one by one, as batches of one.
        at_a_time: examples evaluated together by `jax.vmap`; 1 avoids it, for objectives that do not support it.
        batch_axis: see `longspan.optim.curvature.BatchAxis`.
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
    """`(squares + damping)^-exponent`, by which conjugate gradients multiply the residual.

    An exponent below one compensates for the off-diagonal elements that a diagonal ignores.
    """
    return jax.tree.map(lambda square: (square + damping) ** -exponent, squares)
