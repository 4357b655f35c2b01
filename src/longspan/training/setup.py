"""Preparation of a run before its first update: the model, the first carry and the clip threshold."""

import jax
import jax.numpy as jnp
import numpy as np

from longspan.config import TrainConfig
from longspan.data.dataset import DataRecord
from longspan.errors import InputError
from longspan.models.parameters import from_named, not_arrays
from longspan.models.parts import CELLS, OUTPUTS
from longspan.models.sequence import SequenceModel, build
from longspan.training.memory import check_memory
from longspan.training.objective import Carry, Context, Objective
from longspan.training.optimizers import OPTIMIZERS, observer
from longspan.training.runs import Given, Run
from longspan.training.source import ChunkSource
from longspan.training.state import total


def initial_model(config: TrainConfig, data: DataRecord, rates: np.ndarray) -> SequenceModel:
    """The initial model of a run: a pure function of its config and the base rates of the targets."""
    return build(config, data.input_size or data.size, rates, key=jax.random.key(config.seed))


def first_model(run: Run, rates: np.ndarray) -> SequenceModel:
    """The initial model of a run: the user's if there is one, otherwise the one its config describes."""
    given = run.part("model")
    if given is None:
        return initial_model(run.config, run.data, rates)
    return jax.tree.map(jnp.copy, given)  # training consumes its weights, and these belong to the user


def trained_model(run: Run) -> SequenceModel:
    """The model with the best weights of a run; needs no data."""
    try:
        return from_named(model_shape(run), run.read_model())
    except ValueError as error:
        raise InputError(f"the weights in {run.path} are not those of its model: {error}") from error


def model_shape(run: Run) -> SequenceModel:
    """A model with the shapes of a run's weights, without the memory they take: the user's if there is one."""
    like = run.part("model")
    return _shape(run.config, run.data) if like is None else like


def _shape(config: TrainConfig, data: DataRecord) -> SequenceModel:
    return jax.eval_shape(lambda: initial_model(config, data, np.full(data.size, 0.5)))


def check_parts(config: TrainConfig, data: DataRecord, given: Given) -> None:
    """Refuse unknown names, an output that does not suit the data, and too large sizes before a run folder exists."""
    if given.optimizer is None:
        _ = OPTIMIZERS[config.optimizer]
    if given.model is not None:
        loose = not_arrays(given.model)
        if loose:
            raise InputError(f"{loose[0]} of the model is not an array: declare it static with eqx.field(static=True)")
        return
    _ = CELLS[config.cell]
    predicts = OUTPUTS[config.output].predicts
    if predicts != data.predicted:
        raise InputError(
            f"output {config.output} predicts {predicts}, but {config.data!r} asks for {data.predicted}",
            fields=["output"],
        )
    check_memory(config, data, _shape(config, data))


def first_carry(model: SequenceModel, config: TrainConfig) -> Carry:
    """The carry of the first chunk of a run."""
    return Carry(model.start(config.lanes), jnp.zeros((), jnp.int32))


def clip_threshold(
    config: TrainConfig, params: SequenceModel, carry: Carry, source: ChunkSource, context: Context
) -> float | None:
    """The gradient norm to clip to; None for no clipping."""
    if config.clip == "none":
        return None
    if config.clip == "auto":
        return average_norm(params, carry, source, context)
    return float(config.clip)


def average_norm(params: SequenceModel, carry: Carry, source: ChunkSource, context: Context) -> float:
    """Mean gradient norm over one pass of the data at fixed weights: the paper's rule for the threshold."""
    driver = observer(Objective.of(source.config, source.counted_steps))
    params = jax.tree.map(jnp.copy, params)  # the optimizer consumes its arguments
    state = driver.init(params)
    chunks = source.epoch(0)
    norms = 0.0
    for position in range(0, len(chunks.lengths), source.config.block):
        block, count = source.block(chunks, position)
        params, state, carry, info = driver.advance(params, state, carry, block, count, context)
        norms += total(info.of_updates()["gradient_norm"])
    return norms / len(chunks.lengths)
