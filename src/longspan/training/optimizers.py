"""Optimizers by name: what the `optimizer` field of a config refers to, and how to add one.

An optimizer is a function that takes the config, the objective and the clip threshold (a `Purpose`) and returns a
`BlockOptimizer`. An Optax transformation needs only `@optax_optimizer("name")`:

    @optax_optimizer("lion")
    def lion(config, rate):
        return optax.lion(rate)
"""

import math
from collections.abc import Callable
from typing import Any, NamedTuple, cast

import optax
from jax.tree_util import Partial

from longspan.config import TrainConfig
from longspan.optim.blocks import BlockOptimizer, ClippedNesterov, FirstOrder, Method, OptaxMethod, Sparse
from longspan.optim.replicas import Replicas
from longspan.optim.transforms import Schedule, as_schedule, clip_by_norm, inverse_decay, ramp
from longspan.registry import Registry
from longspan.training.objective import Objective
from longspan.training.runs import Run
from longspan.training.second_order import SecondOrder
from longspan.training.sparse_states import sparse_gradient


class Purpose(NamedTuple):
    """The arguments from which an optimizer is made."""

    config: TrainConfig
    objective: Objective
    threshold: float
    """Gradient norm to clip to; infinity for no clipping."""
    should_stop: Callable[[], bool]
    """Called during long updates; if it returns True, the update ends with `Interrupted`."""

    @staticmethod
    def of(
        config: TrainConfig, objective: Objective, threshold: float | None, should_stop: Callable[[], bool]
    ) -> "Purpose":
        """Make a `Purpose`; a threshold of None means no clipping."""
        return Purpose(config, objective, math.inf if threshold is None else threshold, should_stop)


class Optimizer(NamedTuple):
    """A registered optimizer: how to make it, and what to try when it diverges."""

    make: Callable[[Purpose], BlockOptimizer]
    advice: str = "lower learning_rate or clip, or start with a smaller recurrent_scale"


ADVISED = ("learning_rate", "clip", "recurrent_scale", "initial_damping")
"""Settings that the advice mentions."""

OPTIMIZERS: Registry[Optimizer] = Registry("optimizer", "longspan.training.optimizers")


def optax_optimizer(name: str) -> Callable[[Callable], Callable]:
    """Register a function `(config, learning_rate) -> optax.GradientTransformation` as an optimizer.

    `learning_rate` is the schedule that the config describes; gradients are clipped before the transformation.
    """

    def register(make: Callable[[TrainConfig, Schedule], optax.GradientTransformation]) -> Callable:
        def block_optimizer(purpose: Purpose) -> BlockOptimizer:
            inner = make(purpose.config, rate_of(purpose.config))
            return first_order(purpose, OptaxMethod(optax.chain(clip_by_norm(purpose.threshold), inner)))

        block_optimizer.__module__, block_optimizer.__qualname__ = make.__module__, make.__qualname__
        OPTIMIZERS.register(name)(Optimizer(block_optimizer))
        return make

    return register


def given_optimizer(transformation: optax.GradientTransformation) -> Optimizer:
    """Wrap a user's transformation unchanged: clipping and schedules are up to it."""
    return Optimizer(lambda purpose: first_order(purpose, OptaxMethod(transformation)))


def first_order(purpose: Purpose, method: Method) -> FirstOrder | Replicas:
    """A driver that applies a first-order method chunk by chunk, in as many replicas as the config asks for."""
    objective, replicas = purpose.objective, purpose.config.replicas
    if replicas > 1:
        objective = objective.of_share(purpose.config)
    sparse = Sparse(Partial(Objective.matrices_that_lag, objective), Partial(sparse_gradient, objective))
    driver = FirstOrder(objective, method, by_rows=Partial(Objective.by_rows, objective), sparse=sparse)
    return driver if replicas == 1 else Replicas(driver, replicas)


def rate_of(config: TrainConfig) -> Schedule:
    """The learning rate as a function of the update; `schedule` says how validation changes it."""
    if config.learning_rate_schedule == "inverse":
        return inverse_decay(config.learning_rate, config.decay_steps)
    return as_schedule(config.learning_rate)


def observer(objective: Objective) -> FirstOrder:
    """A driver with learning rate zero, to observe gradients."""
    return FirstOrder(objective, ClippedNesterov(0.0), by_rows=Partial(Objective.by_rows, objective))


def _descent(purpose: Purpose) -> BlockOptimizer:
    config = purpose.config
    momentum: Any = ramp(config.momentum) if config.momentum_schedule == "ramp" else config.momentum
    return first_order(purpose, ClippedNesterov(rate_of(config), momentum, purpose.threshold))


def _hessian_free(purpose: Purpose) -> BlockOptimizer:
    return SecondOrder.of(purpose.config, purpose.objective, purpose.should_stop)


OPTIMIZERS.register("sgd")(
    Optimizer(_descent, "lower learning_rate or clip, such as to 1, or start with a smaller recurrent_scale")
)
OPTIMIZERS.register("hf")(
    Optimizer(
        _hessian_free,
        "raise initial_damping, such as to 10, or start with a smaller recurrent_scale",
    )
)


@optax_optimizer("adam")
def _adam(config: TrainConfig, rate: Schedule) -> optax.GradientTransformation:
    return optax.adam(_for_optax(rate), b1=config.momentum)


@optax_optimizer("adamw")
def _adamw(config: TrainConfig, rate: Schedule) -> optax.GradientTransformation:
    return optax.adamw(_for_optax(rate), b1=config.momentum)


@optax_optimizer("rmsprop")
def _rmsprop(config: TrainConfig, rate: Schedule) -> optax.GradientTransformation:
    return optax.rmsprop(_for_optax(rate), momentum=config.momentum or None)


def _for_optax(rate: Schedule) -> optax.Schedule:
    return cast(optax.Schedule, rate)


def make_optimizer(
    config: TrainConfig, objective: Objective, threshold: float | None, should_stop: Callable[[], bool]
) -> BlockOptimizer:
    """The optimizer that a config names; a threshold of None means no clipping."""
    return OPTIMIZERS[config.optimizer].make(Purpose.of(config, objective, threshold, should_stop))


def optimizer_of(run: Run) -> Optimizer:
    """The optimizer of a run: the user's transformation if there is one, otherwise the one its config names."""
    given = run.part("optimizer")
    return OPTIMIZERS[run.config.optimizer] if given is None else given_optimizer(given)
