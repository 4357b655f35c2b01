"""Curvature: products of a vector with the Gauss-Newton matrix, structural damping included.

For an objective split as `loss(network(params))` with a loss convex in the outputs, the matrix `J' H J` (J
the Jacobian of the network, H the Hessian of the loss at the outputs) is positive semi-definite where the
Hessian is not. It is never formed: a product is one tangent pass, a product with H, one adjoint pass.

References: Schraudolph, *Fast curvature matrix-vector products*, 2002; Martens and Sutskever, *Learning
recurrent neural networks with Hessian-free optimization*, 2011.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.tree_util import Partial
from jaxtyping import Array, Float, PyTree

from longspan.optim.slices import BatchAxis, count_examples, mean_over_slices

Network = Callable[[PyTree, PyTree], Any]
"""`network(params, batch) -> outputs`, or `-> WithStructure(outputs, ...)`."""
Loss = Callable[[Any, PyTree], Float[Array, ""]]
"""`loss(outputs, batch) -> scalar`: convex in the outputs, a mean over the batch's examples."""
Curvature = Callable[[PyTree, Any], PyTree]
"""`curvature(vector, structural_weight)`: Gauss-Newton product plus that weight times the structural one."""


class WithStructure(NamedTuple):
    """What a network returns that wants its inner workings held still by structural damping.

    The structural term of the quadratic is half the mean, over positions (all axes but the last), of the sum
    over units of `D (change of s)^2`.

    Attributes:
        outputs: what the loss is a convex function of.
        structural: s, an array or tree of arrays, units last; in recurrent networks, hidden pre-activations.
        weights: D, shaped like `structural`, or `None` for one. The choice that matches the non-linearity is
            `1 - tanh(s)^2` for tanh and `p (1 - p)` for `p = sigmoid(s)`: the curvature of the cross-entropy
            between the units before and after the step. Zero it where a position is padding.
    """

    outputs: Any
    structural: PyTree
    weights: PyTree | None = None


def without_structure(network: Network) -> Network:
    """The network that returns its outputs alone."""

    def plain(params, batch):
        result = network(params, batch)
        return result.outputs if isinstance(result, WithStructure) else result

    return plain


def objective(network: Network, loss: Loss, params: PyTree, batch: PyTree) -> Float[Array, ""]:
    """The scalar being minimised."""
    return loss(without_structure(network)(params, batch), batch)


def linearise(network: Network, loss: Loss, params: PyTree, batch: PyTree) -> Curvature:
    """The Gauss-Newton matrix at `params` as a function `(vector, structural_weight) -> product`.

    The network is run once, here; each product then costs one tangent and one adjoint pass. The function is a
    pytree of the intermediate values it needs, so it may leave one compiled function and enter another.

    A penalty such as `|h|` belongs into the loss, with h among the outputs. It then acts through the gradient
    alone: the absolute value is piecewise linear, its curvature is zero wherever it exists, and damping is
    what limits the step. A smooth penalty, such as `sqrt(h^2 + eps)`, brings its own curvature along.
    """

    def split(params):
        result = network(params, batch)
        if isinstance(result, WithStructure):
            return (result.outputs, result.structural), result.weights
        return (result, ()), None

    (outputs, structural), tangent, weights = jax.linearize(split, params, has_aux=True)
    if weights is None:
        weights = jax.tree.map(jnp.ones_like, structural)
    metric = jax.tree.map(lambda weight: weight / max(1, np.prod(weight.shape[:-1])), weights)
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
        params: where the network is linearised.
        batch: passed through to both functions.
        vector: shaped like `params`.
        structural_weight: w, the product of mu and lambda in structural damping.

    Example:
        >>> network = lambda params, batch: batch * params
        >>> loss = lambda outputs, batch: jnp.sum(outputs**2)
        >>> gauss_newton_product(network, loss, jnp.ones(2), jnp.array([1.0, 3.0]), jnp.ones(2)).tolist()
        [2.0, 18.0]
    """
    return linearise(network, loss, params, batch)(vector, structural_weight)


def curvature_factory(
    network: Network, loss: Loss, slice_size: int | None = None, batch_axis: BatchAxis = 0
) -> Callable[[PyTree, PyTree], Curvature]:
    """A function `(params, batch) -> curvature` whose results all share one compiled form.

    A batch of at most `slice_size` examples is linearised once. A larger one is run anew for every product,
    slice by slice, in memory bounded by the slice, at the price of one more forward pass a product.
    """
    linearise_whole = jax.jit(partial(linearise, network, loss))
    sliced_product = partial(_sliced_product, network, loss, slice_size, batch_axis)

    def curvature_at(params: PyTree, batch: PyTree) -> Curvature:
        if slice_size is None or count_examples(batch, batch_axis) <= slice_size:
            return linearise_whole(params, batch)
        return Partial(sliced_product, params, batch)

    return curvature_at


def _sliced_product(network, loss, slice_size, batch_axis, params, batch, vector, structural_weight):
    def product(part):
        return gauss_newton_product(network, loss, params, part, vector, structural_weight)

    return mean_over_slices(product, batch, slice_size, batch_axis)
