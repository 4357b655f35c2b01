"""Hessian-free optimization: truncated Newton steps for any objective split into a network and a convex loss.

An update consists of the gradient on a large batch, conjugate gradients on the damped Gauss-Newton matrix of a smaller
batch, the choice of a step among the iterates, and the adjustment of the damping. Each part has its own module; this
one combines them. Section 4 of the paper compares its stochastic gradient methods with this one.

References: Martens, *Deep learning via Hessian-free optimization*, 2010; Martens and Sutskever, 2011.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax.tree_util import Partial
from jaxtyping import Array, Float, Int, PyTree

from longspan.errors import InputError
from longspan.optim.conjugate_gradient import Solution, conjugate_gradient, multiply
from longspan.optim.curvature import (
    BatchAxis,
    Curvature,
    Loss,
    Network,
    curvature_factory,
    inverse_preconditioner,
    mean_over_slices,
    mean_squared_gradients,
    objective,
    without_structure,
)
from longspan.optim.steps import LineSearch, adjust_damping, backtrack, line_search, reduction_ratio


@dataclass(frozen=True)
class HessianFreeSettings:
    """Settings of `longspan.optim.hessian_free.HessianFree`."""

    initial_damping: float = 0.5
    """Initial lambda, the weight of half the squared step that is added to the quadratic model."""
    damping_factor: float = 1.5
    """lambda is multiplied by this if the model predicted too much, divided by it if the model was about right."""
    minimal_damping: float = 1e-8
    """Lower limit of lambda, so that it can recover within a few updates."""
    structural_damping: float = 1.0
    """mu: weight, relative to lambda, of changes in the network's structural values; 0 disables it. The literature uses
    0.03 to 1; long-range tasks are solved most reliably at the upper end."""
    max_iterations: int = 250
    """Maximum number of conjugate-gradient iterations per update."""
    tolerance: float = 0.0005
    """Relative gain of the quadratic per iteration below which conjugate gradients stop."""
    save_growth: float = 1.3
    """The iterates with numbers ceil(save_growth^j) are candidates for the step."""
    warm_start: float = 0.95
    """Conjugate gradients start from this factor times their last solution; 0 for a cold start."""
    preconditioner_exponent: float = 0.0
    """Exponent of the preconditioner (mean squared gradient + lambda); 0 disables it, which suits recurrent networks;
    0.75 suits deep feed-forward ones."""
    examples_per_map: int = 1
    """Examples whose individual gradients, for the preconditioner, are computed together by `jax.vmap`."""
    line_search_shrink: float = 0.8
    """Factor between successive step lengths."""
    line_search_tries: int = 30
    """Step lengths tried before an update is rejected."""
    sufficient_decrease: float = 0.01
    """Fraction of the decrease predicted by the slope that a step must achieve."""
    slice_size: int | None = None
    """Examples computed at a time, which bounds the memory; `None` for the whole batch at once."""
    burst_seconds: float = 0.5
    """Approximate time between two checks of whether to stop, during conjugate gradients."""

    def __post_init__(self) -> None:
        for name, (low, high) in _RANGES.items():
            value = getattr(self, name)
            if value is not None and not low <= value <= high:
                raise InputError(f"{name} must lie from {low:g} to {high:g}: got {value}")


_TINY, _BELOW_ONE = 1e-30, math.nextafter(1.0, 0.0)
_RANGES: dict[str, tuple[float, float]] = {
    "initial_damping": (_TINY, 1e30),
    "damping_factor": (1, 1e6),
    "minimal_damping": (0, 1e30),
    "structural_damping": (0, 1e30),
    "max_iterations": (1, 1e6),
    "tolerance": (0, _BELOW_ONE),
    "save_growth": (1 + 1e-3, 1e6),
    "warm_start": (0, 1),
    "preconditioner_exponent": (0, 1),
    "examples_per_map": (1, 1e9),
    "line_search_shrink": (_TINY, _BELOW_ONE),
    "line_search_tries": (1, 1e6),
    "sufficient_decrease": (0, _BELOW_ONE),
    "slice_size": (1, 1e9),
    "burst_seconds": (0, 1e6),
}


class HessianFreeState(NamedTuple):
    """The state between updates; it consists of arrays, so any checkpoint of pytrees can store it."""

    direction: PyTree
    damping: Float[Array, ""]
    step: Int[Array, ""]


class HessianFreeInfo(NamedTuple):
    """Figures of an update, for monitoring; objectives are those of the gradient batch."""

    objective_before: float
    objective_after: float
    gradient_norm: float
    ratio: float
    """rho: change of the objective for the whole step, divided by that of the undamped quadratic."""
    damping: float
    """lambda of this update."""
    iterations: int
    """Conjugate-gradient iterations made."""
    chosen_iteration: int
    """The iterate used as the step; 0 for none."""
    backtracks: int
    """Number of later saved iterates that were not used."""
    share: float
    """Fraction of the step taken after the line search; 0 for a rejected update."""

    @property
    def accepted(self) -> bool:
        """Whether the parameters moved."""
        return self.share > 0


class HessianFree:
    """Minimizes `loss(network(params, batch), batch)`.

    Args:
        network: `network(params, batch) -> outputs`, or `-> WithStructure(outputs, ...)` for structural
            damping.
        loss: `loss(outputs, batch) -> scalar`, convex in the outputs and a mean over the batch's examples.
        settings: constants of the method.
        batch_axis: the example axis of every array of a batch, or a tree of axes as for `jax.vmap`, with `None` for
            arrays that all examples share.
        squared_gradients: `(params, batch) -> tree like params`, the mean over examples of their squared
            gradients, for the preconditioner; `None` to compute one gradient per example.

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
        """Make one update. The objective on `gradient_batch` never rises: a step that would raise it is rejected.

        Args:
            params: current parameters, left unchanged.
            state: from `init` or the last update.
            gradient_batch: used for the gradient, the line search and the damping.
            curvature_batch: used for the curvature and the choice among conjugate-gradient iterates; usually a smaller
                batch, `None` for the gradient batch.
            should_stop: called between bursts of conjugate gradients; once it returns True, `Interrupted` is raised,
                and `params` and `state` are still valid to continue from.
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
    """The right side of the linear system, the starting point of its solution, and the norm of the gradient."""
    return optax.tree.scale(-1, gradient), optax.tree.scale(warm_start, direction), optax.tree.norm(gradient)


@jax.jit
def _moved(params, step, share):
    return optax.tree.add_scale(params, share, step)


@jax.jit
def _model_change(gradient, step, product):
    """Slope along a step, and the change that the undamped quadratic predicts for it."""
    slope = optax.tree.vdot(gradient, step)
    return slope, slope + 0.5 * optax.tree.vdot(step, product)
