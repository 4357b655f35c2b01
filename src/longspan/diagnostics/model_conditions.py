"""Conditions of the trained model: its units, its memory, and how it does on new data."""

import statistics

from longspan.diagnostics.case import Case, Finding, rounded
from longspan.diagnostics.course import Course

DEAD, FLAT = 0.5, 0.75
VANISHED = 1e-4
"""A gradient has vanished if less than this share of it is left halfway back to the start of the sequence."""
CONNECTED = 1e-6
"""Gradient left after one step, below which a state does not depend on the one before it."""
REPETITIVE = 0.05
"""How much more often long matches must continue in the same way than short ones for memory to be useful."""
LOST, LEAST = 0.1, 0.03
"""A model is overfitted if what validation lost since the best epoch, while training gained, exceeds the first share of
the gain over the rates and the second share of what is at stake."""


def dead_units(case: Case) -> Finding | None:
    """Units that never move."""
    dead = case.seen.units.dead
    if dead < DEAD:
        return None
    changes = {"l1": 0.0} if case.config.l1 > 0 else {"learning_rate": rounded(case.config.learning_rate / 4)}
    what = "drop the L1 penalty" if case.config.l1 > 0 else "lower the learning rate"
    return Finding(
        "dead units",
        "Many units are dead: they cost time and say nothing.",
        [
            f"{dead:.0%} of {case.seen.units.count} units never move over {case.seen.steps:,} steps",
            f"the states span {case.seen.units.effective_rank:.1f} directions",
        ],
        [case.prescribe.train(what, **changes)],
    )


def saturated(case: Case) -> Finding | None:
    """Units at the flat ends of their nonlinearity."""
    flat = case.seen.units.flat
    if flat is None or case.seen.units.flat_means != "saturated" or flat < FLAT:
        return None
    smaller = {name: _shrunk(getattr(case.config, name)) for name in ("input_scale", "recurrent_scale")}
    return Finding(
        "saturated",
        "The units are saturated: their slopes are flat, so that gradients hardly pass.",
        [
            f"in {flat:.0%} of units and steps the slope is below a tenth of its steepest",
            f"one step back, {case.left(1):.1%} of the gradient is left",
        ],
        [case.prescribe.train("start with smaller weights", **smaller)],
    )


def _shrunk(scale: float | str) -> float:
    return 1.0 if isinstance(scale, str) else rounded(min(1.0, scale) if scale > 1 else scale / 4)


def vanishing(case: Case) -> Finding | None:
    """Gradients that are gone before they reach what they are about."""
    lag = len(case.seen.gradient.norms) // 2
    if case.solved or lag < 2 or case.left(lag) > VANISHED or case.left(1) < CONNECTED:
        return None
    if not case.poor or case.uses_memory:
        return None
    return Finding(
        "vanishing",
        "Gradients vanish on their way back: the model cannot learn what lies far back.",
        [
            f"half of the gradient is gone after {case.seen.gradient.half_life} steps, {case.left(lag):.1e} of it is "
            f"left after {lag}",
            f"the model is {case.gain:.3g} nats better than the rates; {case.seen.standards.stake:.3g} are at stake",
        ],
        [
            case.prescribe.train(
                "start from an identity with rectifiers, clipped",
                activation="rectifier",
                recurrent_init="identity",
                recurrent_scale=1.0,
                clip=1.0,
            )
        ],
    )


def memory_cut_off(case: Case) -> Finding | None:
    """States that do not depend on those before them: a cause, not a consequence of how the model was trained."""
    return memory_unused(case) if case.left(1) < CONNECTED else None


def memory_unused(case: Case) -> Finding | None:
    """A score that does not depend on the past, of data that do."""
    history, hits = case.seen.history, case.seen.data_checks.hits
    if not history.scores or case.gain <= 0 or case.solved or case.uses_memory:
        return None
    if hits is None or hits[1] - hits[0] < REPETITIVE:
        return None
    used = history.whole - history.scores[0]
    evidence = [f"cutting off all but the last input costs {max(used, 0.0):.3g} nats of {case.gain:.3g} over the rates"]
    evidence.append(
        f"yet there is something to remember: matches of 4 or more steps continue as before in {hits[1]:.0%} of cases, "
        f"of one step in {hits[0]:.0%}"
    )
    remedy = case.prescribe.train("let units keep their state", leaky_share=0.5, leak_low=0.5, leak_high=0.95)
    return Finding("memory unused", "The model does not use its memory.", evidence, [remedy])


def overfitting(case: Case) -> Finding | None:
    """Training that went on to help itself at the cost of new data.

    A gap between training and validation is no sign of it: early stopping keeps the best weights, and small or varied
    data have gaps as large as the gain itself that more dropout does not close (docs/diagnosis.md).
    """
    seen, course = case.seen, case.seen.course
    if case.gain <= 0 or not course.valid or case.solved:
        return None
    lost = _lost_while_training_gained(course)
    if lost < LOST * case.gain or lost < LEAST * seen.standards.stake:
        return None
    evidence = [
        f"validation lost {lost:.3g} nats since epoch {course.best_epoch} of {len(course.valid)}; training did not",
        f"at its best: training {seen.standards.train:.3f}, validation {seen.standards.valid:.3f} nats per step",
    ]
    stronger = {"dropout": 0.5 if case.config.dropout < 0.4 else 0.7}
    return Finding(
        "overfitting",
        "The model overfits: it went on learning its training data by heart, at the cost of new data.",
        evidence,
        [case.prescribe.train("hide half of the units from the output", **stronger)],
    )


def _lost_while_training_gained(course: Course) -> float:
    """How far the last epochs' validation is below the best, if there are some and the training score rose since, away
    from that of validation."""
    assert course.best_epoch is not None
    then, now = course.train[course.best_epoch - 1], course.train[-1]
    since = course.valid[course.best_epoch :]
    if len(since) < 3 or (then is not None and now is not None and now < then):
        return 0.0
    late = statistics.median(since[-max(3, len(since) // 5) :])
    lost = max(course.valid) - late
    return lost if now is None or now - late > lost / 2 else 0.0
