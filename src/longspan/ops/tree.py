"""Logits along paths: the products of each step's hidden vector with the few rows of a matrix that its path names.

A softmax over a tree decides at every node between two branches, so a word costs as many rows as its path is long. A
path is a row of node numbers; a negative one names none, because paths differ in length. `path_logits` is an ordinary
differentiable function, linear in the hidden vectors and linear in the matrix. A `PathGradient` takes a step of descent
that touches only the rows in use: natively the gradient is added in place without ever being formed.
"""

from typing import NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
from jax.custom_derivatives import SymbolicZero
from jaxtyping import Array, Float, Integer

from longspan.ops import backend
from longspan.ops.backend import operation, operation_on
from longspan.ops.linear import instantiate, linear_map

Hidden: TypeAlias = Float[Array, "step hidden"]
Weights: TypeAlias = Float[Array, "node hidden"]
Bias: TypeAlias = Float[Array, " node"]
Nodes: TypeAlias = Integer[Array, "step depth"]
Logits: TypeAlias = Float[Array, "step depth"]


@operation_on("node")
def path_logits(hidden: Hidden, weights: Weights, bias: Bias, nodes: Nodes) -> Logits:
    r"""The logit of every node of every step's path.

    .. math:: z_{td} = w_n \cdot h_t + b_n, \quad n = \mathrm{nodes}_{td}

    It is zero where a node is negative.
    """
    return _path_logits(hidden, weights, bias, _nearest(nodes, weights))


class PathGradient(NamedTuple):
    """The gradient of a matrix and its bias, by what it is made of: row `n` has the sum of `cotangent * hidden`."""

    hidden: Hidden
    nodes: Nodes
    cotangent: Logits

    def squares(self) -> Float[Array, ""]:
        """Its squared norm; what belongs to one node is added up first."""
        return path_squares(self.hidden, self.nodes, self.cotangent)

    def descend(self, leaves: tuple[Weights, Bias], rate: Float[Array, ""]) -> tuple[Weights, Bias]:
        """The matrix and the bias minus `rate` times the gradient; natively in place."""
        return add_path_gradient(self.hidden, *leaves, self.nodes, -rate * self.cotangent)


@operation_on("depth", "step")
def path_squares(hidden: Hidden, nodes: Nodes, cotangent: Logits) -> Float[Array, ""]:
    """The squared norm of the gradient of `sum(cotangent * path_logits)` with respect to the matrix and the bias."""
    result = jax.ShapeDtypeStruct((), hidden.dtype)
    return backend.run("path_squares", _squares_twin, [result], hidden, nodes, cotangent)


@operation
def add_path_gradient(
    hidden: Hidden, weights: Weights, bias: Bias, nodes: Nodes, cotangent: Logits
) -> tuple[Weights, Bias]:
    """The matrix and the bias plus the gradient of `sum(cotangent * path_logits)`, natively in place; no derivative."""
    nodes = _nearest(nodes, weights)
    if not backend.fits(hidden, weights, bias, nodes, cotangent):
        by_weights, by_bias = _weights_twin(hidden, nodes, _count(weights), cotangent)
        return weights + by_weights, bias + by_bias
    operands = (hidden, weights, bias, nodes, cotangent)
    return tuple(backend.call("path_descend", (weights, bias), *operands, aliases={1: 0, 2: 1}))


def _nearest(nodes, weights):
    return jnp.minimum(nodes, len(weights) - 1)


def _count(weights):
    """An array without content that tells how many nodes there are."""
    return jnp.zeros((len(weights), 0), jnp.bool)


@jax.custom_jvp
def _path_logits(hidden, weights, bias, nodes) -> Array:
    result = jax.ShapeDtypeStruct(nodes.shape, hidden.dtype)
    return backend.run("path_logits", _logits_twin, [result], hidden, weights, bias, nodes)


def _differentiate(primals, tangents):
    hidden, weights, bias, nodes = primals
    hidden_dot, weights_dot, bias_dot, _ = tangents
    logits = _path_logits(hidden, weights, bias, nodes)
    tangent = jnp.zeros_like(logits)
    if not isinstance(hidden_dot, SymbolicZero):
        tangent = tangent + _follow_hidden(weights, nodes, hidden_dot)
    if not (isinstance(weights_dot, SymbolicZero) and isinstance(bias_dot, SymbolicZero)):
        changes = (instantiate(weights_dot, weights), instantiate(bias_dot, bias))
        tangent = tangent + _follow_weights(hidden, nodes, _count(weights), *changes)
    return logits, tangent


_path_logits.defjvp(_differentiate, symbolic_zeros=True)


def _by_hidden(weights, nodes, hidden):
    return _path_logits(hidden, weights, jnp.zeros(len(weights), weights.dtype), nodes)


def _by_hidden_transposed(weights, nodes, cotangent):
    result = jax.ShapeDtypeStruct((len(nodes), weights.shape[1]), weights.dtype)
    return backend.run("path_hidden", _hidden_twin, [result], weights, nodes, cotangent)


def _by_weights(hidden, nodes, count, weights, bias):
    del count
    return _path_logits(hidden, weights, bias, nodes)


def _by_weights_transposed(hidden, nodes, count, cotangent):
    results = [jax.ShapeDtypeStruct(shape, hidden.dtype) for shape in ((len(count), hidden.shape[1]), (len(count),))]

    def twin(hidden, nodes, cotangent):
        return _weights_twin(hidden, nodes, count, cotangent)

    return backend.run("path_weights", twin, results, hidden, nodes, cotangent)


_follow_hidden = linear_map(_by_hidden, _by_hidden_transposed)
_follow_weights = linear_map(_by_weights, _by_weights_transposed, operands=2)


# The XLA twin: all steps at once, one node of each path after the other.


def _logits_twin(hidden, weights, bias, nodes):
    def of_depth(nodes):
        rows = jnp.maximum(nodes, 0)
        return jnp.where(nodes >= 0, jnp.sum(hidden * weights[rows], axis=-1) + bias[rows], 0)

    return jax.lax.map(of_depth, nodes.T).T


def _hidden_twin(weights, nodes, cotangent):
    def add(total, now):
        nodes, cotangent = now
        return total + jnp.where(nodes >= 0, cotangent, 0)[:, None] * weights[jnp.maximum(nodes, 0)], None

    return jax.lax.scan(add, jnp.zeros((len(nodes), weights.shape[1]), weights.dtype), (nodes.T, cotangent.T))[0]


def _weights_twin(hidden, nodes, count, cotangent):
    def add(totals, now):
        by_weights, by_bias = totals
        nodes, cotangent = now
        rows, parts = jnp.maximum(nodes, 0), jnp.where(nodes >= 0, cotangent, 0)
        return (by_weights.at[rows].add(parts[:, None] * hidden), by_bias.at[rows].add(parts)), None

    nothing = (jnp.zeros((len(count), hidden.shape[1]), hidden.dtype), jnp.zeros(len(count), hidden.dtype))
    return jax.lax.scan(add, nothing, (nodes.T, cotangent.T))[0]


def _squares_twin(hidden, nodes, cotangent):
    steps, depth = nodes.shape
    flat = nodes.ravel()
    order = jnp.argsort(flat)
    ranked = flat[order]
    place = jnp.cumsum(jnp.concatenate([jnp.zeros(1, bool), ranked[1:] != ranked[:-1]]))
    parts = jnp.where(ranked >= 0, cotangent.ravel()[order], 0)
    by_bias = jax.ops.segment_sum(parts, place, steps * depth)
    by_weights = jax.ops.segment_sum(parts[:, None] * hidden[order // depth], place, steps * depth)
    return jnp.sum(jnp.square(by_weights)) + jnp.sum(jnp.square(by_bias))
