"""A training time chosen in advance: measure how fast a run is on this machine, then plan updates that fit.

A run that is merely cut off after five minutes ends at a high learning rate, far from what its data allow. A planned
one makes as many updates as fit and lowers the rate to zero on the way. The plan becomes part of the config, so the run
resumes to the same bytes; how fast the machine was no longer matters then.
"""

import dataclasses
import math
import time
from collections.abc import Callable
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp

from longspan.config import TrainConfig
from longspan.data.dataset import Dataset
from longspan.errors import InputError
from longspan.evaluation import SplitEvaluator
from longspan.models.parts import split_constants
from longspan.training.objective import Context, Objective
from longspan.training.optimizers import OPTIMIZERS, Purpose, given_optimizer
from longspan.training.runs import Given
from longspan.training.setup import ChunkSource, first_carry, initial_model

COOLDOWN = 0.5
"""Fraction of a planned run over which the rate falls to zero."""
RESERVE = 0.1
"""Fraction of the time that is left unplanned: scoring at the end, checkpoints, a machine that slows down."""
FEWEST_UPDATES = 10
"""A plan with fewer updates is refused: nothing would be learned."""
REPETITIONS = 3
"""Number of times a block is timed; the fastest one counts."""


class Pace(NamedTuple):
    """How fast a run is on this machine."""

    start: float
    """Seconds until the first update and the first validation have been compiled."""
    update: float
    """Seconds per update."""
    validation: float
    """Seconds per validation."""
    updates_per_pass: int


def plan(config: TrainConfig, data: Dataset, given: Given, seconds: float) -> TrainConfig:
    """The config with as many updates as can be made in `seconds`, and a rate that falls to zero by then.

    A run that ends earlier by its own limits is left as it is, and so is one without a learning rate: Hessian-free is
    merely stopped when the time is up.
    """
    if config.optimizer == "hf" and given.optimizer is None:
        return config
    began = time.monotonic()
    pace = measure(config, data, given)
    return planned(config, pace, seconds - (time.monotonic() - began))


def planned(config: TrainConfig, pace: Pace, seconds: float) -> TrainConfig:
    """The config planned for a pace and the seconds that are left.

    The schedules `plateau` and `constant` stay and are cooled down at the end. Those that count on a number of epochs
    or on many small ones (`cosine`, `rnnlm`, `inverse`) become a constant rate that is cooled down.

    Example:
        >>> after = planned(TrainConfig(), Pace(start=5, update=0.01, validation=1, updates_per_pass=900), 115)
        >>> after.max_updates, after.cooldown
        (8775, 0.5)
    """
    passes_before = config.pretrain_frames + config.pretrain_recurrent
    usable = (1 - RESERVE) * seconds - pace.start - passes_before * pace.updates_per_pass * pace.update
    updates = math.floor((usable - pace.validation) / (pace.update + pace.validation / pace.updates_per_pass))
    if updates < FEWEST_UPDATES:
        needed = pace.start + passes_before * pace.updates_per_pass * pace.update + pace.validation
        raise InputError(
            f"{seconds:.0f} s are left for training, but starting and one validation take about {needed:.0f} s here, "
            f"every update {pace.update:.2g} s: allow more time",
            fields=["budget"],
        )
    own = config.max_epochs * pace.updates_per_pass
    if updates >= (min(own, config.max_updates) if config.max_updates else own):
        return config
    adaptive = config.learning_rate_schedule == "plateau"
    return dataclasses.replace(
        config,
        max_updates=updates,
        max_epochs=math.ceil(updates / pace.updates_per_pass),
        cooldown=COOLDOWN,
        learning_rate_schedule="plateau" if adaptive else "constant",
    )


def measure(config: TrainConfig, data: Dataset, given: Given, clock: Callable[[], float] = time.monotonic) -> Pace:
    """Time some updates and one validation; nothing of it is kept."""
    model = given.model if given.model is not None else initial_model(config, data.record, data.base_rates())
    params, constants = split_constants(jax.tree.map(jnp.copy, model))
    source = ChunkSource(config, data)
    make = OPTIMIZERS[config.optimizer] if given.optimizer is None else given_optimizer(given.optimizer)
    threshold = config.clip if isinstance(config.clip, float) else 1.0
    objective = Objective.of(config, source.counted_steps)
    optimizer = make.make(Purpose.of(config, objective, threshold, lambda: False))
    chunks = source.epoch(0)
    block, count = source.block(chunks, 0)
    state, carry = optimizer.init(params), first_carry(model, config)
    context = Context(constants, jax.random.key(config.seed))
    seconds = []
    for _ in range(1 + REPETITIONS):
        began = clock()
        params, state, carry, _ = optimizer.advance(params, state, carry, block, count, context)
        jax.block_until_ready(params)
        seconds.append(clock() - began)
    valid, trained = SplitEvaluator(data, "valid"), eqx.combine(params, constants)
    validations = []
    for _ in range(2):
        began = clock()
        valid.log_likelihood(trained)
        validations.append(clock() - began)
    first, fastest = seconds[0], min(seconds[1:])
    compiling = max(first - fastest, 0.0) + max(validations[0] - validations[1], 0.0)
    return Pace(compiling, fastest / count, validations[1], len(chunks.lengths))
