"""Preconditioned conjugate gradients on pytrees, truncated when progress stalls.

It minimizes the quadratic `q(x) = x'Ax/2 - b'x` and stops, as Martens (2010) proposes, on the relative gain of q rather
than the residual. It runs in short compiled bursts, so that it can be interrupted at any time, and returns intermediate
iterates as candidates for the step.
"""

import time
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax.tree_util import Partial
from jaxtyping import Array, Float, Int, PyTree

WINDOW_SHARE = 10  # the gain is measured over the last 1/10 of the iterations

RUNNING, STALLED, BREAKDOWN = 0, 1, 2


class Interrupted(Exception):
    """The caller asked to stop; nothing was changed."""


class Iterate(NamedTuple):
    """An approximate solution and the value of the quadratic there, `q(0) = 0`."""

    iteration: int
    solution: PyTree
    value: float


class Solution(NamedTuple):
    """The saved iterates in order, including the last one.

    `reason` is "progress" (the gain became small), "limit" (the iteration limit was reached) or "curvature" (a
    direction without positive finite curvature: exact convergence, or a matrix that is not positive definite).
    """

    iterates: list[Iterate]
    reason: str

    @property
    def iterations(self) -> int:
        """Number of iterations made."""
        return self.iterates[-1].iteration if self.iterates else 0


class _Run(NamedTuple):
    solution: PyTree
    residual: PyTree
    direction: PyTree
    energy: Float[Array, ""]  # residual' M residual, M the inverse preconditioner
    values: Float[Array, " iteration"]
    iteration: Int[Array, ""]
    status: Int[Array, ""]


def conjugate_gradient(
    matrix: Callable[[PyTree], PyTree],
    right_side: PyTree,
    start: PyTree | None = None,
    inverse_preconditioner: PyTree | None = None,
    *,
    max_iterations: int = 250,
    tolerance: float = 0.0005,
    minimal_window: int = 10,
    save_growth: float = 1.3,
    burst_seconds: float = 0.5,
    should_stop: Callable[[], bool] = lambda: False,
) -> Solution:
    r"""Approximately solve `A x = b` for a symmetric positive definite A.

    Stops at iteration i when :math:`q(x_i) < 0` and, with :math:`k = \max(k_0, i/10)`,

    .. math::
        \frac{q(x_i) - q(x_{i-k})}{q(x_i)} < k \epsilon

    Args:
        matrix: the product with A. A `jax.tree_util.Partial` whose data are arrays is compiled once for all data; any
            other callable is compiled again for every object.
        right_side: b.
        start: first iterate; `None` for zero.
        inverse_preconditioner: the diagonal of an approximate inverse of A, positive and shaped like b; `None` for the
            identity.
        max_iterations: maximum number of iterations.
        tolerance: epsilon.
        minimal_window: k_0.
        save_growth: iterates `ceil(save_growth^j)` are saved, and the last one.
        burst_seconds: approximate time between two calls of `should_stop`.
        should_stop: called between bursts; once it returns True, `Interrupted` is raised.

    Example:
        >>> solution = conjugate_gradient(lambda x: 4 * x, jnp.array([8.0, 2.0]))
        >>> solution.iterates[-1].solution.tolist()
        [2.0, 0.5]
    """
    matrix = matrix if isinstance(matrix, Partial) else Partial(matrix)
    reached = None if start is None else multiply(matrix, start)
    run = _begin(reached, right_side, start, inverse_preconditioner, max_iterations)
    iterates: list[Iterate] = []
    saves = _save_points(save_growth, max_iterations)
    done, reach, status = 0, 1, RUNNING
    while status == RUNNING and done < max_iterations:
        if should_stop():
            raise Interrupted
        until = min(done + reach, next(point for point in saves if point > done))
        began = time.perf_counter()
        run = _burst(matrix, right_side, inverse_preconditioner, run, until, tolerance, minimal_window)
        before, done, status = done, int(run.iteration), int(run.status)
        if done > before and done in saves:
            iterates.append(Iterate(done, run.solution, float(run.values[done])))
        reach = max(1, int(burst_seconds * (until - before) / (time.perf_counter() - began)))
    if done and (not iterates or iterates[-1].iteration != done):
        iterates.append(Iterate(done, run.solution, float(run.values[done])))
    return Solution(iterates, {RUNNING: "limit", STALLED: "progress", BREAKDOWN: "curvature"}[status])


def _save_points(growth: float, last: int) -> list[int]:
    points, power = {last}, 1.0
    while power < last:
        points.add(int(-(-power // 1)))
        power *= growth
    return sorted(points)


@jax.jit
def multiply(matrix: Partial, vector: PyTree) -> PyTree:
    """One product, compiled separately because products are the largest programs compiled here."""
    return matrix(vector)


@jax.jit(static_argnums=4)
def _begin(product, right_side, start, scaling, max_iterations):
    if start is None:
        start, residual = optax.tree.zeros_like(right_side), right_side
    else:
        residual = optax.tree.sub(right_side, product)
    direction = _preconditioned(scaling, residual)
    energy = _dot(residual, direction)
    values = jnp.zeros(max_iterations + 1, energy.dtype).at[0].set(_value(start, residual, right_side))
    zero = jnp.zeros((), jnp.int32)
    return _Run(start, residual, direction, energy, values, zero, zero)


def _preconditioned(scaling, residual):
    return residual if scaling is None else optax.tree.mul(scaling, residual)


def _value(solution, residual, right_side):
    return -0.5 * _dot(solution, optax.tree.add(residual, right_side))


@jax.jit
def _burst(matrix, right_side, scaling, run, until, tolerance, minimal_window):
    def going(run: _Run):
        return (run.iteration < until) & (run.status == RUNNING)

    def step(run: _Run):
        product = matrix(run.direction)
        curvature = _dot(run.direction, product)
        length = run.energy / curvature
        solution = _add_scaled(run.solution, length, run.direction)
        residual = _add_scaled(run.residual, -length, product)
        preconditioned = _preconditioned(scaling, residual)
        energy = _dot(residual, preconditioned)
        direction = _add_scaled(preconditioned, energy / run.energy, run.direction)

        iteration = run.iteration + 1
        value = _value(solution, residual, right_side)
        sound = (curvature > 0) & jnp.isfinite(value)
        window = jnp.maximum(minimal_window, iteration // WINDOW_SHARE)
        gain = value - run.values[iteration - window]
        stalled = (iteration > window) & (value < 0) & (gain > value * window.astype(value.dtype) * tolerance)
        advanced = _Run(
            solution,
            residual,
            direction,
            energy,
            run.values.at[iteration].set(value),
            iteration,
            jnp.where(stalled, STALLED, RUNNING).astype(jnp.int32),
        )
        broken = run._replace(status=jnp.asarray(BREAKDOWN, jnp.int32))
        return jax.tree.map(lambda new, old: jnp.where(sound, new, old), advanced, broken)

    return jax.lax.while_loop(going, step, run)


def _dot(tree: PyTree, other: PyTree) -> Float[Array, ""]:
    return jnp.asarray(optax.tree.vdot(tree, other))


def _add_scaled(tree: PyTree, scale: Any, other: PyTree) -> PyTree:
    return jax.tree.map(lambda a, b: a + (scale * b).astype(a.dtype), tree, other)
