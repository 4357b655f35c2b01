"""Decisions after each validation: keep the weights as best, halve the learning rate, restore the best, or stop."""

import math

import msgspec

from longspan.config import TrainConfig

HALVING_GAIN, FINAL_GAIN = 0.003, 0.0003
"""rnnlm: relative gains in validation log-likelihood below which halving begins, and below which training ends."""

SMALLEST_SCALE = 1 / 1024
"""plateau: fraction of the initial rate at which training ends; averaged weights would keep improving very slightly for
a long time."""


class Schedule(msgspec.Struct, frozen=True):
    """The state kept between validations."""

    best: float | None = None
    best_epoch: int = 0
    last: float | None = None
    stale: int = 0
    """Validations since the best one."""
    waiting: int = 0
    """Validations since the best one or the last halving, whichever is later."""
    scale: float = 1.0
    """Factor on the learning rate."""
    halving: bool = False
    """rnnlm: whether the rate is now halved after every epoch."""


class Decision(msgspec.Struct, frozen=True):
    """What to do after a validation."""

    schedule: Schedule
    is_best: bool = False
    restore_best: bool = False
    stop: str | None = None


def decide(schedule: Schedule, score: float, epoch: int, config: TrainConfig) -> Decision:
    """Judge the validation log-likelihood `score` of an epoch.

    The run stops after `patience` validations without a better score, under any schedule.
    """
    is_best = schedule.best is None or score > schedule.best
    stale = 0 if is_best else schedule.stale + 1
    after = msgspec.structs.replace(
        schedule,
        best=score if is_best else schedule.best,
        best_epoch=epoch if is_best else schedule.best_epoch,
        last=score,
        stale=stale,
        waiting=0 if is_best else schedule.waiting + 1,
    )
    stop = f"no better validation score for {stale} epochs" if stale >= config.patience else None
    if config.learning_rate_schedule == "plateau" and after.waiting >= config.plateau_epochs:
        after = msgspec.structs.replace(after, scale=after.scale / 2, waiting=0)
        if after.scale <= SMALLEST_SCALE:
            stop = f"the rate fell to 1/{1 / after.scale:g} of the first one"
        return Decision(after, is_best, restore_best=True, stop=stop)
    if config.learning_rate_schedule == "cosine":
        left = (1 + math.cos(math.pi * min(1.0, epoch / config.max_epochs))) / 2
        return Decision(msgspec.structs.replace(after, scale=left), is_best, stop=stop)
    if config.learning_rate_schedule == "rnnlm":
        return _decide_rnnlm(schedule, after, score, is_best, stop)
    return Decision(after, is_best, stop=stop)


def _decide_rnnlm(before: Schedule, after: Schedule, score: float, is_best: bool, stop: str | None) -> Decision:
    """Once an epoch gains too little, halve the rate after every epoch until one gains next to nothing.

    Mikolov's program ends at the first epoch with a halved rate that gains less than 0.3 %. The epochs after it gain
    little each but, with dropout, a few percent of perplexity together.
    """
    gain = math.inf if before.last is None else (score - before.last) / abs(before.last)
    halving = before.halving or gain < HALVING_GAIN
    if before.halving and gain < FINAL_GAIN:
        stop = f"the validation gain fell under {100 * FINAL_GAIN:g} %"
    if halving:
        after = msgspec.structs.replace(after, halving=True, scale=after.scale / 2)
    return Decision(after, is_best, restore_best=not is_best, stop=stop)
