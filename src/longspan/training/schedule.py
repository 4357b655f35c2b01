"""What a validation score decides: keep the weights as best, halve the learning rate, go back, or stop."""

import msgspec

from longspan.config import TrainConfig

RNNLM_GAIN = 1.003
"""rnnlm counts an epoch as progress when the validation log-likelihood improves by more than 0.3 %."""


class Schedule(msgspec.Struct, frozen=True):
    """All that is remembered between validations."""

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
    """rnnlm: the rate is now halved every epoch."""


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
        return Decision(after, is_best, restore_best=True, stop=stop)
    if config.learning_rate_schedule == "rnnlm":
        return _decide_rnnlm(schedule, after, score, is_best, stop)
    return Decision(after, is_best, stop=stop)


def _decide_rnnlm(before: Schedule, after: Schedule, score: float, is_best: bool, stop: str | None) -> Decision:
    """Once the gain falls under 0.3 % the rate halves every epoch; when it does so again, training ends."""
    too_little = before.last is not None and score * RNNLM_GAIN < before.last
    if too_little and before.halving:
        stop = "the validation gain fell under 0.3 % again"
    halving = before.halving or too_little
    if halving:
        after = msgspec.structs.replace(after, halving=True, scale=after.scale / 2)
    return Decision(after, is_best, restore_best=not is_best, stop=stop)
