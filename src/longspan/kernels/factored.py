"""Log-probability of a row among a contiguous range of rows: the inner softmax of a class-factored output.

The work follows the rows of the ranges that occur, whatever else the matrix holds. `log_prob` is an ordinary
differentiable function; its gradient with respect to the matrix is as large as the matrix. `log_prob_and_gradient`
gives a `RangeGradient` to take a step of descent that touches only rows in use: the gradient of a range is a sum of few
outer products, its norm comes from their inner products, and it is added in place without ever being formed.
"""

from typing import NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
from jax.custom_derivatives import SymbolicZero
from jaxtyping import Array, Float, Int

from longspan.kernels import factored_twin, library
from longspan.kernels.linear import linear_map

Hidden: TypeAlias = Float[Array, "step hidden"]
Weights: TypeAlias = Float[Array, "row hidden"]
Bias: TypeAlias = Float[Array, " row"]
Rows: TypeAlias = Int[Array, " step"]
Steps: TypeAlias = Float[Array, " step"]

STEPS_KEPT = 64
"""Steps whose softmax is sure to find room between the two passes of a descent, be their ranges whole matrices."""
LONGEST_VECTOR = 16
"""Rows are padded natively to whole vectors, of at most so many floats."""


def log_prob(hidden: Hidden, weights: Weights, bias: Bias, target: Rows, start: Rows, stop: Rows) -> Steps:
    r"""Log-softmax of row `target` among the rows from `start` to before `stop`, for every step.

    .. math:: \log p_t = w_y \cdot h_t + b_y - \log \sum_{start \le r < stop} e^{w_r \cdot h_t + b_r}

    It is zero where a range holds one row or none; ranges that overlap must be equal.
    """
    ranges = _whole_numbers(target, start, stop)
    if not library.fits(hidden, weights, bias):
        return factored_twin.log_prob(hidden, weights, bias, *ranges)
    return _log_prob(hidden, weights, bias, *ranges)


def log_prob_and_gradient(
    hidden: Hidden, weights: Weights, bias: Bias, target: Rows, start: Rows, stop: Rows, scale: Steps
) -> "tuple[Steps, RangeGradient]":
    """`log_prob`, differentiable in `hidden` alone, and the gradient of `-sum(scale * log_prob)` in the others."""
    weights, bias, scale = jax.lax.stop_gradient((weights, bias, scale))
    target, start, stop = ranges = _whole_numbers(target, start, stop)
    if not library.fits(hidden, weights, bias, scale):
        by_weights, by_bias = _weights_gradient_twin(hidden, weights, bias, target, start, stop, scale)
        squares, kept = jnp.sum(by_weights**2) + jnp.sum(by_bias**2), jnp.zeros(0)
        value = factored_twin.log_prob(hidden, weights, bias, *ranges)
    else:
        value, squares, kept = _log_prob_and_squares(hidden, weights, bias, *ranges, scale)
    hidden, squares, kept = jax.lax.stop_gradient((hidden, squares, kept))
    return value, RangeGradient(hidden, target, start, stop, scale, squares, kept)


class RangeGradient(NamedTuple):
    """The gradient of `-sum(scale * log_prob)` with respect to the matrix and the bias, by what it is made of."""

    hidden: Hidden
    target: Rows
    start: Rows
    stop: Rows
    scale: Steps
    norm_squared: Float[Array, ""]
    kept: Float[Array, " number"]
    """What the softmax came to, so that it need not be found again; as much as had room."""

    def squares(self) -> Float[Array, ""]:
        """Its squared norm."""
        return self.norm_squared

    def descend(self, leaves: tuple[Weights, Bias], rate: Float[Array, ""]) -> tuple[Weights, Bias]:
        """The matrix and the bias at which it was taken, minus `rate` times the gradient; natively in place."""
        (weights, bias), scale = leaves, rate * self.scale
        target, start, stop = ranges = _whole_numbers(self.target, self.start, self.stop)
        if not library.fits(self.hidden, weights, bias, scale):
            by_weights, by_bias = _weights_gradient_twin(self.hidden, weights, bias, target, start, stop, scale)
            return weights + by_weights, bias + by_bias
        operands = (self.hidden, weights, bias, *ranges, scale, self.kept)
        return tuple(library.call("range_descend", (weights, bias), *operands, aliases={1: 0, 2: 1}))


@jax.custom_jvp
def _log_prob(hidden: Hidden, weights: Weights, bias: Bias, target: Rows, start: Rows, stop: Rows) -> Steps:
    operands = (hidden, weights, bias, target, start, stop)
    return library.call("range_log_prob", (_a_number_a_step(hidden),), *operands)[0]


def _differentiate(primals, tangents):
    hidden, weights, bias, *ranges = primals
    hidden_dot, weights_dot, bias_dot, *_ = tangents
    shapes = (_a_number_a_step(hidden), hidden)
    value, gradient = library.call("range_gradient", shapes, hidden, weights, bias, *ranges)
    tangent = jnp.zeros_like(value)
    if not isinstance(hidden_dot, SymbolicZero):
        tangent = (gradient * hidden_dot).sum(-1)
    if not (isinstance(weights_dot, SymbolicZero) and isinstance(bias_dot, SymbolicZero)):
        changes = [
            jnp.zeros_like(primal) if isinstance(change, SymbolicZero) else change
            for change, primal in ((weights_dot, weights), (bias_dot, bias))
        ]
        tangent = tangent + linear_map(_tangent, _adjoint, primals, changes)[0]
    return value, tangent


_log_prob.defjvp(_differentiate, symbolic_zeros=True)


def _tangent(residuals, operands):
    return library.call("range_tangent", (_a_number_a_step(residuals[0]),), *residuals, *operands)


def _adjoint(residuals, cotangents):
    return library.call("range_weights_gradient", residuals[1:3], *residuals, *cotangents)


@jax.custom_jvp
def _log_prob_and_squares(hidden, weights, bias, target, start, stop, scale):
    value, _, squares, kept = _gradient_and_squares(hidden, weights, bias, target, start, stop, scale)
    return value, squares, kept


@_log_prob_and_squares.defjvp
def _differentiate_hidden(primals, tangents):
    value, gradient, squares, kept = _gradient_and_squares(*primals)
    change = (gradient * tangents[0]).sum(-1)
    return (value, squares, kept), (change, jnp.zeros_like(squares), jnp.zeros_like(kept))


def _gradient_and_squares(hidden, weights, *others):
    room = min(len(hidden), STEPS_KEPT) * (len(weights) + LONGEST_VECTOR)
    shapes = (*(jax.ShapeDtypeStruct(shape, hidden.dtype) for shape in (hidden.shape[:1], hidden.shape, (), (room,))),)
    return tuple(library.call("range_squares", shapes, hidden, weights, *others))


def _weights_gradient_twin(hidden, weights, bias, target, start, stop, scale):
    _, pull = jax.vjp(lambda w, b: factored_twin.log_prob(hidden, w, b, target, start, stop), weights, bias)
    return pull(scale)


def _whole_numbers(*indices):
    return [jnp.asarray(index, jnp.int32) for index in indices]


def _a_number_a_step(hidden):
    return jax.ShapeDtypeStruct(hidden.shape[:1], hidden.dtype)
