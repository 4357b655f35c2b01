"""What a config and a data set turn into before the first update: a model, an optimizer, a clip threshold."""

import math
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np

from longspan.config import TrainConfig
from longspan.models.parameters import from_named
from longspan.models.sequence import SequenceModel, build
from longspan.optim.first_order import FirstOrder
from longspan.optim.interface import BlockOptimizer
from longspan.optim.nesterov import inverse_decay, ramp
from longspan.training.objective import Carry, Context, Objective
from longspan.training.runs import DataRecord, Run
from longspan.training.second_order import SecondOrder
from longspan.training.source import ChunkSource
from longspan.training.state import total

ADVICE = {
    "sgd": "lower --learning-rate, clip harder (--clip 1) or start smaller (--recurrent-scale 0.5)",
    "hf": "damp more (--initial-damping 10) or start smaller (--recurrent-scale 0.5)",
}
"""What to try after a run diverged, by optimizer."""


def initial_model(config: TrainConfig, data: DataRecord, rates: np.ndarray) -> SequenceModel:
    """The model a run starts from: a pure function of its config and how often each target occurs."""
    return build(config, data.input_size or data.size, rates, key=jax.random.key(config.seed))


def trained_model(run: Run) -> SequenceModel:
    """The best weights of a run, without its data."""
    like = jax.eval_shape(lambda: initial_model(run.config, run.data, np.full(run.data.size, 0.5)))
    return from_named(like, run.read_model())


def first_carry(model: SequenceModel, config: TrainConfig) -> Carry:
    """What the first chunk of a run is handed."""
    return Carry(model.start(config.lanes), jnp.zeros((), jnp.int32))


def make_optimizer(
    config: TrainConfig, objective: Objective, threshold: float | None, should_stop: Callable[[], bool]
) -> BlockOptimizer:
    """The optimizer a config describes; one whose updates take long asks `should_stop` and raises `Interrupted`."""
    if config.optimizer == "hf":
        return SecondOrder.of(config, objective, should_stop)
    rate = config.learning_rate
    if config.learning_rate_schedule == "inverse":
        rate = inverse_decay(config.learning_rate, config.decay_steps)
    momentum = ramp(config.momentum) if config.momentum_schedule == "ramp" else config.momentum
    limit = math.inf if threshold is None else threshold
    return FirstOrder(objective, rate, momentum, limit, by_rows=objective.by_rows)


def clip_threshold(
    config: TrainConfig, params: SequenceModel, carry: Carry, source: ChunkSource, context: Context
) -> float | None:
    """The gradient norm to clip to, None for no clipping."""
    if config.clip == "none":
        return None
    if config.clip == "auto":
        return average_norm(params, carry, source, context)
    return float(config.clip)


def average_norm(params: SequenceModel, carry: Carry, source: ChunkSource, context: Context) -> float:
    """Mean gradient norm over one pass of the data at fixed weights: the paper's rule for the threshold."""
    objective = Objective.of(source.config, source.counted_steps)
    observer = FirstOrder(objective, learning_rate=0.0, by_rows=objective.by_rows)
    params = jax.tree.map(jnp.copy, params)  # the optimizer consumes what it is given
    state = observer.init(params)
    chunks = source.epoch(0)
    norms = 0.0
    for position in range(0, len(chunks.lengths), source.config.block):
        block, count = source.block(chunks, position)
        params, state, carry, info = observer.advance(params, state, carry, block, count, context)
        norms += total(info.of_updates()["gradient_norm"])
    return norms / len(chunks.lengths)
