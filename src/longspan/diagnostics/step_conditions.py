"""Conditions of training: steps that are too long or too short for the loss they are taken on, or too few."""

import itertools
import math
import statistics

from longspan.config import TrainConfig
from longspan.diagnostics.case import POOR, Case, Finding, rounded

GROWS, CHAOTIC = 100.0, 0.1
"""Growth of a gradient over the lags, and Lyapunov exponent, of a network that explodes."""
TOO_LONG, TOO_SHORT, SHORT = 1 / 16, 64.0, 16.0
"""Best multiple of an update at or below which steps are too long, at or above which they are too short; the last, of
the way of many updates, if there are other signs."""
CREEPING, PATIENT = 0.1, 10
"""Gain in the last fifth of the epochs, as a share of all gain, and number of epochs, of a run that creeps."""
WORTH = 0.001
"""Gain by another length of an update, as a share of what is at stake, that is worth mentioning."""
RUINED, RECOVERED_LITTLE = 0.5, 0.05
"""How much worse than the rates training made a model, as a share of what is at stake; and gain over the rates of a
model that hardly recovered from that."""
CLIFF, STEEP = 1.0, 4.0
"""Rise of the loss at the end of the unclipped step, as a share of it, and ratio of the largest gradient norm to the
median one, at which a step goes over a cliff."""
FALL, RECOVERED, OFTEN, HELD = 0.4, 0.2, 3, 0.05
"""Loss of validation from one epoch to the next, as a share of the gain over the rates, of a model that went over a
cliff; what is lost in the end if it climbed up again, which excuses fewer falls than the third; and share of clipped
updates beyond which clipping holds steps back."""
CLIPPED, FAR_CLIPPED = 0.9, 5.0
"""Share of updates that are clipped, and ratio of norm to threshold, at which a run was clipped throughout."""
NOTHING = 0.01
"""Gain over the rates, as a share of what is at stake, of a model that has learned nothing."""
STILL_GAINING = 0.01
"""Gain in the last fifth of the epochs, as a share of all gain, of a run that ended too early."""


def exploding(case: Case) -> Finding | None:
    """Gradients that grow on their way back."""
    gradient, spectrum = case.seen.gradient, case.seen.lyapunov
    growth = max(gradient.norms) / gradient.norms[0] if gradient.norms[0] > 0 else 0.0
    diverged = case.seen.course.status == "diverged"
    if case.solved or spectrum.exponents[0] < CHAOTIC or not (growth > GROWS or diverged):
        return None
    lag = max(range(len(gradient.norms)), key=gradient.norms.__getitem__)
    evidence = [
        f"the gradient {lag} steps back is {growth:.3g} times as long as at the step itself",
        f"a small change of the state grows by {math.exp(spectrum.exponents[0]):.2f} per step",
    ]
    if diverged:
        evidence.append(f"training diverged: {case.seen.course.reason}")
    clip = case.prescribe.train(
        "clip the gradients, and start smaller", clip=1.0, recurrent_scale=_smaller(case.config)
    )
    return Finding("exploding", "Gradients explode on their way back through time.", evidence, [clip])


def _smaller(config: TrainConfig) -> float:
    return 1.0 if config.recurrent_scale == "auto" else min(1.0, float(config.recurrent_scale))


def rate_too_large(case: Case) -> Finding | None:
    """Steps so long that they overshoot."""
    standards, course = case.seen.standards, case.seen.course
    diverged = course.status == "diverged" and not _plunged(case)
    bottom = standards.rates - RUINED * standards.stake
    ruined = standards.valid < bottom
    hardly = case.gain < RECOVERED_LITTLE * standards.stake
    thrown = hardly and bool(course.valid) and course.valid[0] < bottom
    if case.solved or not (diverged or ruined or thrown or _overshoots(case)):
        return None
    evidence = [f"training diverged: {course.reason}"] if diverged else []
    if ruined and not diverged:
        evidence.append(
            f"the model ({standards.valid:.3g} nats) is far worse than the rates alone ({standards.rates:.3g})"
        )
    elif thrown:
        evidence.append(
            f"the first epoch ended at {course.valid[0]:.3g} nats, far below the rates ({standards.rates:.3g})"
        )
    best = case.seen.landscape.best_multiple if case.seen.landscape else None
    if best is not None and best < 1:
        evidence.append(f"the next update lowers the training loss most when made {1 / best:g} times shorter")
    lower = rounded(case.config.learning_rate / (16 if best is None or best >= 1 else max(16, 1 / best)))
    return Finding(
        "rate too large",
        "The learning rate is too large: updates overshoot.",
        evidence,
        [case.prescribe.train("lower the learning rate", learning_rate=lower)],
    )


def _overshoots(case: Case) -> bool:
    """Whether updates are far too long, and no schedule has shortened them."""
    found = case.seen.landscape
    if found is None or found.best_multiple is None or found.best_multiple > TOO_LONG or found.rate_scale < 0.5:
        return False
    return (
        found.loss - min(value for value in found.multiple_losses if value is not None)
        > WORTH * case.seen.standards.stake
    )


def cliff(case: Case) -> Finding | None:
    """A wall in the loss that a step without clipping runs into."""
    evidence = [*_falls(case), *_wall(case)]
    if _plunged(case):
        evidence.insert(0, f"training had learned and then diverged at once: {case.seen.course.reason}")
    if case.solved or not evidence:
        return None
    norms = sorted(norm for norm in case.seen.course.norms if norm is not None)
    threshold = min(1.0, norms[len(norms) // 2]) if norms else 1.0
    return Finding(
        "cliff",
        "The loss has cliffs: where the gradient is steep, a full step jumps far uphill.",
        evidence,
        [case.prescribe.train("clip the gradients", clip=rounded(threshold))],
    )


def _plunged(case: Case) -> bool:
    """Whether a model that had learned something diverged, with nothing to hold its steps back."""
    course = case.seen.course
    return course.status == "diverged" and not case.poor and (course.late_clipped or 0.0) <= HELD


def _falls(case: Case) -> list[str]:
    """Epochs in which a model that had learned something lost much of it, with nothing to hold its steps back."""
    course, rates = case.seen.course, case.seen.standards.rates
    gain = max(course.valid, default=rates) - rates
    if gain < POOR * case.seen.standards.stake or (course.late_clipped or 0.0) > HELD:
        return []
    falls = [
        (before - after, number, before, after)
        for number, (before, after) in enumerate(itertools.pairwise(course.valid), 2)
        if before - rates > gain / 2 and before - after > FALL * gain
    ]
    recovered = course.valid and max(course.valid) - statistics.median(course.valid[-3:]) < RECOVERED * gain
    if not falls or (recovered and len(falls) < OFTEN):
        return []
    _, number, before, after = max(falls)
    return [f"in epoch {number} validation fell from {before:.3g} to {after:.3g} nats; such falls: {len(falls)}"]


def _wall(case: Case) -> list[str]:
    """Where training stands, a full step along the steepest gradient that lands far uphill."""
    found = case.seen.landscape
    if found is None or found.along_gradient is None or found.rate_scale < 0.5:
        return []
    cut = found.along_gradient
    start, end = _at(cut.chunk, cut.distances, 0.0), _at(cut.chunk, cut.distances, cut.unclipped)
    typical = sorted(found.norms)[len(found.norms) // 2]
    steep = max(found.norms) / typical if typical > 0 else 0.0
    over = start is not None and (end is None or end - start > CLIFF * abs(start))
    held = cut.clipped is not None and cut.clipped < 0.5 * cut.unclipped
    if not over or steep < STEEP or held:
        return []
    return [
        f"the largest gradient of {len(found.norms)} chunks is {steep:.3g} times the median one",
        f"a full step along it takes its loss from {start:.3g} to " + ("infinity" if end is None else f"{end:.3g}"),
    ]


def _at(values: list[float | None], places: list[float], place: float) -> float | None:
    return values[min(range(len(places)), key=lambda number: abs(places[number] - place))]


def clipped_throughout(case: Case) -> Finding | None:
    """A threshold so low that every step has the same short length."""
    course, found = case.seen.course, case.seen.landscape
    share, norm = course.late_clipped, course.late_norm
    if found is None or found.threshold is None or share is None or norm is None or case.solved:
        return None
    if share < CLIPPED or norm < FAR_CLIPPED * found.threshold:
        return None
    longer = _longer_is_better(case)
    if not longer and not under_trained(case):
        return None
    evidence = [
        f"{share:.0%} of the updates in the second half of training were clipped",
        f"the mean gradient norm is {norm:.3g}, the threshold {found.threshold:.3g}",
    ]
    if longer:
        evidence.append(f"the next update lowers the training loss most when made {found.best_multiple:g} times longer")
    return Finding(
        "clipped throughout",
        "Nearly all gradients are clipped, to a small part of their length: steps are too short.",
        evidence,
        [case.prescribe.train("clip at the usual gradient norm", clip=rounded(norm))],
    )


def _longer_is_better(case: Case, times: float = 16.0) -> bool:
    found = case.seen.landscape
    if found is None or not found.multiples or found.best_multiple is None or found.best_multiple < times:
        return False
    lowest = min(value for value in found.multiple_losses if value is not None)
    return found.loss - lowest > WORTH * case.seen.standards.stake


def rate_too_small(case: Case) -> Finding | None:
    """Steps so short that training hardly moves, in a model that has learned next to nothing."""
    found = case.seen.landscape
    if case.solved or not case.poor or found is None or found.rate_scale < 0.5 or clipped_throughout(case):
        return None
    farther, gain = found.best_farther or (1.0, 0.0)
    clearly = farther >= TOO_SHORT and gain > WORTH * case.seen.standards.stake
    if not clearly and not (_creeps(case) and (farther >= SHORT or _longer_is_better(case, TOO_SHORT))):
        return None
    times = max(farther, found.best_multiple or 1.0)
    evidence = [
        f"{len(case.seen.course.valid)} epochs brought {max(case.gain, 0.0):.3g} nats over the rates; "
        f"{case.seen.standards.stake:.3g} are at stake"
    ]
    if farther >= SHORT:
        evidence.append(f"the way of the next updates leads on downhill when it is made {farther:g} times longer")
    else:
        evidence.append(f"the next update lowers the training loss most when made {times:g} times longer")
    higher = rounded(case.config.learning_rate * times / 4)
    return Finding(
        "rate too small",
        "The learning rate is too small: training hardly moves.",
        evidence,
        [case.prescribe.train("raise the learning rate", learning_rate=higher)],
    )


def nothing_learned(case: Case) -> Finding | None:
    """A model no better than the rates alone, of a run whose updates are far shorter than its loss allows.

    It says less about the cause than `rate_too_small`, so it is asked last.
    """
    seen, found = case.seen, case.seen.landscape
    best = None if found is None else found.best_multiple
    reached = max((score + seen.log_volume for score in seen.course.valid), default=seen.standards.valid)
    gain = max(case.gain, reached - seen.standards.rates)
    if case.solved or seen.course.status == "diverged" or best is None or best < TOO_SHORT:
        return None
    if gain > NOTHING * seen.standards.stake or rate_too_small(case):
        return None
    return Finding(
        "nothing learned",
        "The model has learned nothing: it is no better than the rates alone.",
        [
            f"its best validation score is {reached:.3f}, that of the rates {seen.standards.rates:.3f} nats per step",
            f"the next update lowers the training loss most when made {best:g} times longer",
        ],
        [case.prescribe.train("raise the learning rate", learning_rate=rounded(case.config.learning_rate * best / 4))],
    )


def _creeps(case: Case) -> bool:
    """Whether validation rose slowly and steadily to the end of many epochs."""
    valid = case.seen.course.valid
    if len(valid) < PATIENT or case.seen.course.best_epoch != len(valid):
        return False
    return valid[-1] - valid[-1 - len(valid) // 5] > CREEPING * (valid[-1] - valid[0]) > 0


def under_trained(case: Case) -> Finding | None:
    """A run that ended while it was still learning."""
    course = case.seen.course
    valid = course.valid
    ended_early = course.status == "interrupted" or course.reason.startswith("reached")
    if case.solved or not ended_early or not valid or course.best_epoch != len(valid):
        return None
    before = valid[-1 - max(1, len(valid) // 5)] if len(valid) > 1 else case.seen.standards.rates
    late, whole = valid[-1] - before, valid[-1] - case.seen.standards.rates
    if whole <= 0 or late < STILL_GAINING * whole:
        return None
    more = max(10, 4 * len(valid))
    return Finding(
        "under-trained",
        "Training ended while the model was still learning.",
        [
            f"the last {max(1, len(valid) // 5)} of {len(valid)} epochs brought {late:.3g} nats, {late / whole:.0%} of "
            "all gain",
            f"it ended because it {course.reason}" if course.reason.startswith("reached") else "it was interrupted",
        ],
        [case.prescribe.resume("train longer", more)],
    )
