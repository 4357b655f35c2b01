"""Matrices of which a chunk reads few rows, because rectifiers are mostly off, trained with momentum.

Momentum moves every weight at every update, so a large matrix costs a pass over all of it even if the states of a chunk
are so sparse that they read a tenth of its rows. In a `Lagging` matrix a row that a gradient does not reach stays as it
is; when it is read next, it makes the updates it has missed, one by one, so that not a bit differs from moving it every
time. What depends on the weights therefore takes the matrix and returns it with the rows it read caught up; natively
they are changed in place. A row is that of a hidden unit: of the recurrent matrix or of one that an output reads.

The XLA twins let all rows catch up at once, and give the same numbers to rounding.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Integer

from longspan.ops import backend, linear, recurrence
from longspan.ops.backend import operation, operation_on
from longspan.ops.recurrence import Length, Resets, State, Steps, Units

Matrix = Float[Array, "row column"]
Counts = Integer[Array, " row"]
Momenta = Float[Array, "update 2"]
Now = Integer[Array, ""]


class Lagging(NamedTuple):
    """A matrix, its velocity, and how far each row is behind.

    Attributes:
        weights: as they were when each row was moved last.
        velocity: like them.
        moved: the number of updates that each row has made.
        momenta: for every update, the shares of the velocity that it adds to the weights, and that it keeps.
        now: the number of updates so far; at most as many as there are momenta.
    """

    weights: Matrix
    velocity: Matrix
    moved: Counts
    momenta: Momenta
    now: Now

    @staticmethod
    def of(weights: Matrix, velocity: Matrix, momenta: Momenta) -> "Lagging":
        """A matrix before the first of these updates."""
        nothing = jnp.zeros((), jnp.int32)
        return Lagging(weights, velocity, jnp.zeros(len(weights), jnp.int32), momenta, nothing)

    def settled(self) -> tuple[Matrix, Matrix]:
        """Weights and velocity with all rows caught up."""
        weights, velocity, _ = catch_up(*self)
        return weights, velocity


class OuterGradient(NamedTuple):
    """The gradient of a lagging matrix, a sum of outer products of sparse states with errors.

    Attributes:
        matrix: as the chunk left it, the rows it read caught up.
        rows: of the gradient; only those that were reached mean something, the others are zero.
        reached: which rows the states reached.
        sum_of_squares: over all rows.
    """

    matrix: Lagging
    rows: Matrix
    reached: Bool[Array, " row"]
    sum_of_squares: Float[Array, ""]

    @staticmethod
    def of(matrix: Lagging, states: Steps, errors: Float[Array, "time lane output"], length: Length) -> "OuterGradient":
        """The sum over steps and lanes of the outer products of states with errors."""
        rows, squares, reached = outer_rows(states, length, errors)
        return OuterGradient(matrix, rows, reached, squares)

    def squares(self) -> Float[Array, ""]:
        """The squared norm."""
        return self.sum_of_squares

    def accelerate(self, rate: Float[Array, ""], stride: Float[Array, ""]) -> Lagging:
        """The matrix after an update: `rate` times the gradient changes the velocity, `stride` times the weights."""
        parts = descend_rows(*self.matrix, self.rows, self.reached, jnp.stack([rate, stride]))
        return _after(self.matrix, list(parts))._replace(now=self.matrix.now + 1)


def walk(
    matrix: Lagging, drive: Steps, first: State, leak: Units, resets: Resets, length: Length
) -> tuple[Lagging, Steps, Steps]:
    """`recurrence.forward` of rectifiers with a lagging matrix: the matrix, hidden states and gains."""
    hidden, gain, *moved = walk_forward(*matrix, drive, first, leak, resets, length)
    return _after(matrix, moved), hidden, gain


def walk_back(
    matrix: Lagging,
    leak: Units,
    gain: Steps,
    resets: Resets,
    length: Length,
    hidden: Steps,
    weight: Float[Array, "time lane"],
    hidden_cotangent: Steps,
) -> tuple[Lagging, Steps]:
    """`recurrence.penalized_adjoint` with a lagging matrix: the matrix and the cotangent of the drive."""
    errors, *moved = walk_backward(*matrix, leak, gain, resets, length, hidden, weight, hidden_cotangent)
    return _after(matrix, moved), errors


def project_sparse(
    matrix: Lagging, x: Steps, bias: Float[Array, " column"], length: Length
) -> tuple[Lagging, Float[Array, "time lane output"]]:
    """`linear.affine` of sparse states: the matrix and x_t W + b."""
    y, *moved = product(*matrix, x, bias, length)
    return _after(matrix, moved), y


def _after(matrix: Lagging, moved: list[Array]) -> Lagging:
    weights, velocity, counts = moved
    return matrix._replace(weights=weights, velocity=velocity, moved=counts)


# The operations take a matrix as its parts, and return those that change: weights, velocity, counts of updates.


@operation_on("update")
def walk_forward(
    weights: Float[Array, "hidden hidden"],
    velocity: Float[Array, "hidden hidden"],
    moved: Integer[Array, " hidden"],
    momenta: Momenta,
    now: Now,
    drive: Steps,
    first: State,
    leak: Units,
    resets: Resets,
    length: Length,
) -> tuple[Steps, Steps, Array, Array, Array]:
    """Hidden states, gains, and the parts of the matrix: see `walk`."""
    parts, operands = (weights, velocity, moved), (drive, first, leak, resets, length)
    if not backend.fits(*parts, *operands):
        parts = _catch_up_twin(*parts, momenta, now)
        operands = (drive, first, parts[0], leak, resets, length)
        return *recurrence.forward_twin(*operands, activation="rectifier"), *parts
    results = (drive, drive, *parts)
    return backend.call("lagging_forward", results, *parts, momenta, now, *operands, aliases={0: 2, 1: 3, 2: 4})


@operation_on("update")
def walk_backward(
    weights: Float[Array, "hidden hidden"],
    velocity: Float[Array, "hidden hidden"],
    moved: Integer[Array, " hidden"],
    momenta: Momenta,
    now: Now,
    leak: Units,
    gain: Steps,
    resets: Resets,
    length: Length,
    hidden: Steps,
    weight: Float[Array, "time lane"],
    hidden_cotangent: Steps,
) -> tuple[Steps, Array, Array, Array]:
    """The cotangent of the drive, and the parts of the matrix: see `walk_back`."""
    parts, operands = (weights, velocity, moved), (leak, gain, resets, length, hidden, weight, hidden_cotangent)
    if not backend.fits(*parts, *operands):
        parts = _catch_up_twin(*parts, momenta, now)
        return recurrence.penalized_adjoint(parts[0], *operands), *parts
    results = (gain, *parts)
    return backend.call("lagging_adjoint", results, *parts, momenta, now, *operands, aliases={0: 1, 1: 2, 2: 3})


@operation_on("update")
def product(
    weights: Matrix,
    velocity: Matrix,
    moved: Counts,
    momenta: Momenta,
    now: Now,
    x: Float[Array, "time lane row"],
    bias: Float[Array, " column"],
    length: Length,
) -> tuple[Float[Array, "time lane column"], Array, Array, Array]:
    """x_t W + b, and the parts of the matrix: see `project_sparse`."""
    parts = (weights, velocity, moved)
    if not backend.fits(*parts, x):
        parts = _catch_up_twin(*parts, momenta, now)
        return linear.affine(x, parts[0], bias, length), *parts
    results = (jax.ShapeDtypeStruct((*x.shape[:2], weights.shape[1]), x.dtype), *parts)
    operands = (momenta, now, x, bias, length)
    return backend.call("lagging_product", results, *parts, *operands, aliases={0: 1, 1: 2, 2: 3})


@operation
def product_transposed_where(
    weights: Matrix, length: Length, y: Float[Array, "time lane column"], x: Float[Array, "time lane row"]
) -> Float[Array, "time lane row"]:
    """y_t W^T for every step t < length where x_t is not zero, and zero elsewhere.

    For x the states of rectifiers this is all that a gradient needs of the cotangent of x: a rectifier that is off
    hands nothing on. Rows of units that are on were caught up when the states were read.
    """
    return backend.run("product_transposed_where", _product_transposed_where_twin, [x], weights, length, y, x)


@operation
def outer_rows(
    states: Float[Array, "time lane row"], length: Length, errors: Float[Array, "time lane column"]
) -> tuple[Matrix, Float[Array, ""], Array]:
    """The sum of outer products by rows, its squared norm, and which rows the states reached; others are undefined."""
    rows, columns = states.shape[2], errors.shape[2]
    shapes = [((rows, columns), states.dtype), ((), states.dtype), ((rows,), jnp.bool)]
    results = [jax.ShapeDtypeStruct(shape, dtype) for shape, dtype in shapes]
    return backend.run("outer_rows", _outer_rows_twin, results, states, length, errors)


@operation_on("update")
def descend_rows(
    weights: Matrix,
    velocity: Matrix,
    moved: Counts,
    momenta: Momenta,
    now: Now,
    gradient: Matrix,
    reached: Bool[Array, " row"],
    rate_and_stride: Float[Array, "2"],
) -> tuple[Matrix, Matrix, Array]:
    """One update of the rows that are reached: weights, velocity, and the counts of updates, theirs one more."""
    parts = (weights, velocity, moved)
    if backend.fits(*parts, gradient):
        operands = (*parts, momenta, now, gradient, reached, rate_and_stride)
        return backend.call("descend_rows", parts, *operands, aliases={0: 0, 1: 1, 2: 2})
    weights, velocity, moved = _catch_up_twin(*parts, momenta, now)
    (ahead, decay), (rate, stride) = momenta[now], rate_and_stride
    gradient = jnp.where(reached[:, None], gradient, 0)
    weights = jnp.where(reached[:, None], weights + ahead * velocity - stride * gradient, weights)
    velocity = jnp.where(reached[:, None], decay * velocity - rate * gradient, velocity)
    return weights, velocity, moved + reached.astype(jnp.int32)


@operation_on("update")
def catch_up(
    weights: Matrix, velocity: Matrix, moved: Counts, momenta: Momenta, now: Now
) -> tuple[Matrix, Matrix, Array]:
    """All rows after `now` updates: weights, velocity, and the counts of updates."""
    parts = (weights, velocity, moved)
    if not backend.fits(*parts, momenta):
        return _catch_up_twin(*parts, momenta, now)
    return backend.call("catch_up", parts, *parts, momenta, now, aliases={0: 0, 1: 1, 2: 2})


# The XLA twins.


def _catch_up_twin(weights, velocity, moved, momenta, now):
    now = jnp.clip(now, 0, len(momenta))

    def update(number, parts):
        weights, velocity = parts
        missed = (moved <= number)[:, None]
        ahead, decay = momenta[number]
        return jnp.where(missed, weights + ahead * velocity, weights), jnp.where(missed, decay * velocity, velocity)

    weights, velocity = jax.lax.fori_loop(0, now, update, (weights, velocity))
    return weights, velocity, jnp.full_like(moved, now)


def _product_transposed_where_twin(weights, length, y, x):
    return jnp.where(x != 0, linear.shorten(y @ weights.T, length), 0)


def _outer_rows_twin(states, length, errors):
    rows = linear.outer_twin(states, length, errors)
    return rows, jnp.sum(jnp.square(rows)), jnp.any(linear.shorten(states, length) != 0, axis=(0, 1))
