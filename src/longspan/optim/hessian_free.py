"""Hessian-free optimization: truncated Newton steps for any objective split as a network and a convex loss.

One update: gradient on a large batch; conjugate gradient on the damped Gauss-Newton matrix of a smaller
batch; choice of a step along its iterates; adjustment of the damping. The parts live in modules of their own
and this one joins them. The paper's section 4 compares its stochastic gradient methods with this one.

References: Martens, *Deep learning via Hessian-free optimization*, 2010; Martens and Sutskever, 2011.
"""

import math
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax.tree_util import Partial
from jaxtyping import Array, Float, Int, PyTree

from longspan.errors import InputError
from longspan.optim.conjugate_gradient import Solution, conjugate_gradient, multiply
from longspan.optim.damping import adjust_damping, reduction_ratio
from longspan.optim.gauss_newton import (
    Curvature,
    Loss,
    Network,
    curvature_factory,
    objective,
    without_structure,
)
from longspan.optim.hessian_free_settings import HessianFreeSettings
from longspan.optim.preconditioner import inverse_preconditioner, mean_squared_gradients
from longspan.optim.slices import BatchAxis, mean_over_slices
from longspan.optim.step_choice import LineSearch, backtrack, line_search


class HessianFreeState(NamedTuple):
    """What the next update needs; arrays only, so any checkpoint of a pytree will do."""

    direction: PyTree
    damping: Float[Array, ""]
    step: Int[Array, ""]


class HessianFreeInfo(NamedTuple):
    """What an observer wants to know of an update; objectives are those of the gradient batch."""

    objective_before: float
    objective_after: float
    gradient_norm: float
    ratio: float
    """rho: change of the objective for the whole step over that of the undamped quadratic."""
    damping: float
    """lambda of this update."""
    iterations: int
    """Conjugate gradient steps made."""
    chosen_iteration: int
    """The iterate stepped along; 0 for none."""
    backtracks: int
    """Saved iterates passed over."""
    share: float
    """Share of the step taken after the line search; 0 for a rejected update."""

    @property
    def accepted(self) -> bool:
        """Whether the parameters moved."""
        return self.share > 0


class HessianFree:
    """Minimises `loss(network(params, batch), batch)`.

    Args:
        network: `network(params, batch) -> outputs`, or `-> WithStructure(outputs, ...)` for structural
            damping.
        loss: `loss(outputs, batch) -> scalar`, convex in the outputs and a mean over the batch's examples.
        settings: the constants of the method.
        batch_axis: the axis of every array of a batch that counts examples, or a tree of axes as for
            `jax.vmap`, with `None` for what all examples share.
        squared_gradients: `(params, batch) -> tree like params`, the mean over examples of their squared
            gradients, for the preconditioner; `None` for one gradient an example.

    Example:
        >>> network = lambda params, batch: batch["x"] @ params
        >>> loss = lambda outputs, batch: jnp.mean((outputs - batch["y"]) ** 2)
        >>> optimizer = HessianFree(network, loss)
        >>> params = jnp.zeros(2)
        >>> state = optimizer.init(params)
        >>> batch = {"x": jnp.eye(2), "y": jnp.array([1.0, -1.0])}
        >>> for _ in range(20):
        ...     params, state, info = optimizer.update(params, state, batch)
        >>> [round(float(x), 3) for x in params]
        [1.0, -1.0]
    """

    def __init__(
        self,
        network: Network,
        loss: Loss,
        settings: HessianFreeSettings | None = None,
        batch_axis: BatchAxis = 0,
        squared_gradients: Callable[[PyTree, PyTree], PyTree] | None = None,
    ):
        self.settings = settings or HessianFreeSettings()
        size = self.settings.slice_size
        value = partial(objective, network, loss)
        if self.settings.structural_damping > 0:
            self._curvature_at = curvature_factory(network, loss, size, batch_axis)
        else:
            self._curvature_at = curvature_factory(without_structure(network), loss, size, batch_axis)
        if squared_gradients is None:
            squared_gradients = partial(
                mean_squared_gradients, value, at_a_time=self.settings.examples_per_map, batch_axis=batch_axis
            )
        self._squared_gradients = jax.jit(squared_gradients)

        def over_slices(function):
            return jax.jit(lambda params, batch: mean_over_slices(partial(function, params), batch, size, batch_axis))

        self._value = over_slices(value)
        self._value_and_gradient = over_slices(jax.value_and_grad(value))

    def init(self, params: PyTree) -> HessianFreeState:
        """The state before the first update."""
        if not all(jnp.issubdtype(jnp.result_type(leaf), jnp.floating) for leaf in jax.tree.leaves(params)):
            raise InputError("parameters must be floating point: keep anything else apart from them")
        damping = jnp.asarray(self.settings.initial_damping, jnp.float32)
        return HessianFreeState(optax.tree.zeros_like(params), damping, jnp.zeros((), jnp.int32))

    def update(
        self,
        params: PyTree,
        state: HessianFreeState,
        gradient_batch: PyTree,
        curvature_batch: PyTree | None = None,
        should_stop: Callable[[], bool] = lambda: False,
    ) -> tuple[PyTree, HessianFreeState, HessianFreeInfo]:
        """One update. The objective on `gradient_batch` never rises: a step that would raise it is rejected.

        Args:
            params: current parameters, left untouched.
            state: from `init` or the last update.
            gradient_batch: decides the gradient, the line search and the damping.
            curvature_batch: decides the curvature and the choice among conjugate gradient iterates; usually a
                smaller batch, `None` for the gradient batch.
            should_stop: asked between bursts of conjugate gradient; once true, `Interrupted` is raised, and
                `params` and `state` are still the ones to go on from.
        """
        curvature_batch = gradient_batch if curvature_batch is None else curvature_batch
        before, gradient = self._value_and_gradient(params, gradient_batch)
        before = float(before)
        if not math.isfinite(before):
            raise FloatingPointError(f"the objective is {before} at the parameters given: cannot descend")
        curvature = self._curvature_at(params, curvature_batch)
        descent, start, norm = _system(gradient, state.direction, self.settings.warm_start)
        scaling = self._scaling(params, curvature_batch, state.damping)
        solution = self._solve(state, curvature, descent, start, scaling, should_stop)

        def value_after(step, share, batch):
            return float(self._value(_moved(params, step, share), batch))

        chosen = backtrack(solution.iterates, lambda step: value_after(step, 1.0, curvature_batch))
        search, ratio, moved = LineSearch(0.0, before, math.nan), math.nan, params
        if chosen is not None:
            step = chosen.iterate.solution
            undamped = Partial(_damped_product, curvature, *[jnp.zeros_like(state.damping)] * 2)
            slope, predicted = _model_change(gradient, step, multiply(undamped, step))
            search = self._search(lambda share: value_after(step, share, gradient_batch), before, slope)
            ratio = reduction_ratio(before, search.whole, float(predicted))
            moved = _moved(params, step, search.share) if search.share > 0 else params
        info = HessianFreeInfo(
            objective_before=before,
            objective_after=search.value,
            gradient_norm=float(norm),
            ratio=ratio,
            damping=float(state.damping),
            iterations=solution.iterations,
            chosen_iteration=chosen.iterate.iteration if chosen else 0,
            backtracks=chosen.backtracks if chosen else 0,
            share=search.share,
        )
        return moved, self._next_state(state, solution, ratio), info

    def _scaling(self, params, curvature_batch, damping) -> PyTree | None:
        exponent = self.settings.preconditioner_exponent
        if exponent == 0:
            return None
        return inverse_preconditioner(self._squared_gradients(params, curvature_batch), damping, exponent)

    def _solve(self, state, curvature, descent, start, scaling, should_stop) -> Solution:
        settings = self.settings
        return conjugate_gradient(
            Partial(_damped_product, curvature, state.damping, settings.structural_damping * state.damping),
            descent,
            start,
            scaling,
            max_iterations=settings.max_iterations,
            tolerance=settings.tolerance,
            save_growth=settings.save_growth,
            burst_seconds=settings.burst_seconds,
            should_stop=should_stop,
        )

    def _search(self, value_of_share, before, slope) -> LineSearch:
        return line_search(
            value_of_share,
            before,
            float(slope),
            shrink=self.settings.line_search_shrink,
            tries=self.settings.line_search_tries,
            sufficient=self.settings.sufficient_decrease,
        )

    def _next_state(self, state: HessianFreeState, solution: Solution, ratio: float) -> HessianFreeState:
        damping = adjust_damping(
            float(state.damping),
            ratio,
            factor=self.settings.damping_factor,
            floor=self.settings.minimal_damping,
        )
        if solution.iterates and math.isfinite(solution.iterates[-1].value):
            direction = solution.iterates[-1].solution
        else:
            direction = optax.tree.zeros_like(state.direction)
        return HessianFreeState(direction, jnp.asarray(damping, jnp.float32), state.step + 1)


def _damped_product(curvature: Curvature, damping, structural_weight, vector):
    return optax.tree.add_scale(curvature(vector, structural_weight), damping, vector)


@jax.jit
def _system(gradient, direction, warm_start):
    """The right side of the linear system, where its solution starts from, and the norm of the gradient."""
    return optax.tree.scale(-1, gradient), optax.tree.scale(warm_start, direction), optax.tree.norm(gradient)


@jax.jit
def _moved(params, step, share):
    return optax.tree.add_scale(params, share, step)


@jax.jit
def _model_change(gradient, step, product):
    """Slope along a step, and what the undamped quadratic says the step will change."""
    slope = optax.tree.vdot(gradient, step)
    return slope, slope + 0.5 * optax.tree.vdot(step, product)
