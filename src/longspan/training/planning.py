"""A training time chosen in advance: measure how fast a run is on this machine, then plan updates that fit.

A run that is merely cut off after five minutes ends at a high learning rate, far from what its data allow. A planned
one makes as many updates as fit and lowers the rate to zero on the way. The plan becomes part of the config, so the run
resumes to the same bytes; how fast the machine was no longer matters then.

A shared machine changes its pace, so the plan is corrected once, when half of the time is gone: until the rate begins
to fall, nothing has depended on the number of updates.
"""

import dataclasses
import math
import statistics
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

import jax

from longspan.config import TrainConfig
from longspan.data.dataset import Dataset
from longspan.errors import InputError
from longspan.evaluation import SplitEvaluator
from longspan.models.model import trained_part, whole
from longspan.training.listeners import Listener
from longspan.training.loop import Outcome, train
from longspan.training.objective import Context, Objective
from longspan.training.optimizers import OPTIMIZERS, Purpose, given_optimizer
from longspan.training.runs import Given, Run
from longspan.training.setup import ChunkSource, first_carry, initial_model
from longspan.training.state import copied

COOLDOWN = 0.5
"""Fraction of a planned run over which the rate falls to zero."""
RESERVE = 0.2
"""Fraction of the time that is left unplanned: scoring at the end, checkpoints, a machine that slows down."""
LEAST_SECONDS = 0.3
"""Time for which updates are measured at least."""
FEWEST_UPDATES = 10
"""A plan with fewer updates is refused: nothing would be learned."""
REPETITIONS = 3
"""Number of blocks that are timed at least; the median counts."""


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
        (7740, 0.5)
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
    params, constants = trained_part(copied(model))
    source = ChunkSource(config, data)
    make = OPTIMIZERS[config.optimizer] if given.optimizer is None else given_optimizer(given.optimizer)
    threshold = config.clip if isinstance(config.clip, float) else 1.0
    objective = Objective.of(config, source.counted_steps)
    optimizer = make.make(Purpose.of(config, objective, threshold, lambda: False))
    chunks = source.epoch(0)
    block, count = source.block(chunks, 0)
    state, carry = optimizer.init(params), first_carry(model, config)
    context = Context(constants, jax.random.key(config.seed))
    seconds: list[float] = []
    while len(seconds) <= REPETITIONS or sum(seconds[1:]) < LEAST_SECONDS:
        began = clock()
        params, state, carry, _ = optimizer.advance(params, state, carry, block, count, context)
        jax.block_until_ready(params)
        seconds.append(clock() - began)
    valid, trained = SplitEvaluator(data, "valid"), whole(params, constants)
    validations = []
    for _ in range(2):
        began = clock()
        valid.log_likelihood(trained)
        validations.append(clock() - began)
    usual = statistics.median(seconds[1:])
    compiling = max(seconds[0] - usual, 0.0) + max(validations[0] - validations[1], 0.0)
    return Pace(compiling, usual / count, validations[1], len(chunks.lengths))


def train_in(
    seconds: float,
    run: Run,
    data: Dataset,
    *,
    listeners: Sequence[Listener] = (),
    interrupted: Callable[[], bool] = lambda: False,
    checkpoint_seconds: float = 60.0,
    clock: Callable[[], float] = time.monotonic,
) -> Outcome:
    """Train to its end a run that was planned for `seconds`, and plan it again when half of them are gone.

    Arguments as for `longspan.training.loop.train`.
    """
    watch = _Watch(run.config, seconds, clock)
    common = {"checkpoint_seconds": checkpoint_seconds}
    if run.config.cooldown == 0:  # it ends in time by itself
        return train(run, data, listeners=listeners, interrupted=interrupted, **common)
    outcome = train(
        run, data, listeners=[watch, *listeners], interrupted=lambda: interrupted() or watch.is_half_time(), **common
    )
    if outcome.status != "interrupted" or not watch.is_half_time() or interrupted():
        return outcome
    run.config = watch.mended(run.config)
    run.write_config()
    return train(run, data, listeners=listeners, interrupted=interrupted, **common)


class _Watch(Listener):
    """Compares the time that updates take with the plan."""

    def __init__(self, config: TrainConfig, seconds: float, clock: Callable[[], float]):
        self.began, self.seconds, self.clock = clock(), seconds, clock
        self.cooling_from = math.floor((1 - config.cooldown) * config.max_updates)
        self.step, self.updates_per_pass = 0, 1

    def on_block(self, progress, info, count: int, total: int) -> None:
        self.step, self.updates_per_pass = progress.step, max(self.updates_per_pass, total)

    def is_half_time(self) -> bool:
        late = self.clock() - self.began > (1 - RESERVE) * self.seconds / 2
        return self.step > 0 and (late or self.step >= self.cooling_from)

    def mended(self, config: TrainConfig) -> TrainConfig:
        """The config with as many further updates as fit into the rest of the time, all of them cooling down."""
        spent = self.clock() - self.began
        further = max(FEWEST_UPDATES, math.floor(((1 - RESERVE) * self.seconds - spent) * self.step / spent))
        updates = self.step + further
        return dataclasses.replace(
            config,
            max_updates=updates,
            max_epochs=math.ceil(updates / self.updates_per_pass),
            cooldown=further / updates,
        )
