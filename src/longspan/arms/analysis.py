"""Statistics of a paired study: expected best of n slots, paired differences, basins, and their errors.

Every number is a function of the slots' scores alone. Errors come from a bootstrap that resamples slot numbers, jointly
over the arms of a data set, because two arms of one slot share all draws except those specific to a letter.
"""

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from longspan.arms.protocol import Definition
from longspan.arms.records import SlotResult
from longspan.errors import InputError

BASIN_NATS = 0.05
"""A slot whose score is this close to the best of its arm lies in the basin of good learning rates."""


class ArmScores(NamedTuple):
    """Scores of the slots of one arm, in the order of the slots; a failed slot has the floor as its score."""

    valid: Float[np.ndarray, " slot"]
    train: Float[np.ndarray, " slot"]
    rate: Float[np.ndarray, " slot"]
    """Effective learning rates; nan for methods without one."""
    failed: Float[np.ndarray, " slot"]
    """One for a slot that diverged or ended below the floor, else zero."""

    def first(self, slots: int) -> "ArmScores":
        """The scores of the first slots only."""
        return ArmScores(*(values[:slots] for values in self))


def arm_scores(definition: Definition, results: Sequence[SlotResult]) -> dict[str, ArmScores]:
    """The scores of every arm of a data set, up to the first slot that has no result yet."""
    by_arm: dict[str, dict[int, SlotResult]] = {arm: {} for arm in definition.arms}
    for result in results:
        if result.arm in by_arm and result.slot >= 0:
            by_arm[result.arm][result.slot] = result
    scores = {}
    for arm, found in by_arm.items():
        complete = [found[slot] for slot in range(_unbroken(found))]
        if complete:
            scores[arm] = _scores_of(complete, definition.floor)
    return scores


def best_of_weights(slots: int, n: int) -> Float[np.ndarray, " slot"]:
    """Probability that each slot, ranked from worst to best, is the best of `n` drawn without replacement.

    Example:
        >>> best_of_weights(4, 2).tolist()
        [0.0, 0.16666666666666666, 0.3333333333333333, 0.5]
    """
    if not 1 <= n <= slots:
        raise InputError(f"the best of n slots needs n from 1 to the number of slots: got n {n} of {slots} slots")
    # Weights are C(rank - 1, n - 1) / C(slots, n); each follows from that of the rank above, without large numbers.
    ranks = np.arange(slots, 1, -1)
    return np.cumprod([n / slots, *(np.maximum(ranks - n, 0) / (ranks - 1))])[::-1]


def expected_best(valid: Float[np.ndarray, "... slot"], n: int) -> Float[np.ndarray, "..."] | np.float64:
    """Unbiased estimate of the best validation score of `n` slots."""
    return np.sort(valid, axis=-1) @ best_of_weights(valid.shape[-1], n)


def expected_chosen(
    valid: Float[np.ndarray, "... slot"], other: Float[np.ndarray, "... slot"], n: int
) -> Float[np.ndarray, "..."] | np.float64:
    """Unbiased estimate of another score of the slot with the best validation score among `n`."""
    order = np.argsort(valid, axis=-1, kind="stable")
    return np.take_along_axis(other, order, axis=-1) @ best_of_weights(valid.shape[-1], n)


def resampled_slots(slots: int, repetitions: int, seed: int) -> Int[np.ndarray, "repetition slot"]:
    """Slot numbers drawn with replacement, as often as there are slots."""
    return np.random.default_rng(seed).integers(slots, size=(repetitions, slots))


class BestOfN(NamedTuple):
    """Expected best of n slots, for n from 1 on, with the 95 % band of a bootstrap over slots."""

    value: Float[np.ndarray, " n"]
    low: Float[np.ndarray, " n"]
    high: Float[np.ndarray, " n"]


def best_of_n(valid: Float[np.ndarray, " slot"], repetitions: int, seed: int) -> BestOfN:
    """The curve of an arm, up to half of its slots, as far as the estimate is reliable."""
    rows = np.sort(valid[resampled_slots(len(valid), repetitions, seed)], axis=-1)
    weights = np.array([best_of_weights(len(valid), n) for n in range(1, max(1, len(valid) // 2) + 1)])
    low, high = np.percentile(rows @ weights.T, [2.5, 97.5], axis=0)
    return BestOfN(np.sort(valid) @ weights.T, low, high)


def basin_decades(scores: ArmScores) -> float | None:
    """Decades of learning rate spanned by the slots within `BASIN_NATS` of the best; None without a learning rate."""
    near = scores.rate[(scores.valid >= scores.valid.max() - BASIN_NATS) & (scores.failed == 0)]
    if np.isnan(scores.rate).any():
        return None
    return float(np.log10(near.max()) - np.log10(near.min())) if len(near) else 0.0


class TuningDifference(NamedTuple):
    """By how much the first of two arms is easier to tune than the second, with unadjusted 95 % intervals."""

    basin: float
    """Decades by which its basin is wider."""
    basin_interval: tuple[float, float]
    failures: float
    """Fraction of the slots by which fewer of its slots fail."""
    failures_interval: tuple[float, float]

    @property
    def easier(self) -> bool | None:
        """Whether the first arm is easier to tune by either measure; None if neither differs or they contradict."""
        ends = (self.basin_interval, self.failures_interval)
        better, worse = any(low > 0 for low, _ in ends), any(high < 0 for _, high in ends)
        return None if better == worse else better


def tuning_difference(first: ArmScores, second: ArmScores, repetitions: int, seed: int) -> TuningDifference:
    """Compare how easily two arms are tuned, on the slots that both have; slots are resampled jointly."""
    slots = min(len(first.valid), len(second.valid))
    first, second = first.first(slots), second.first(slots)
    rows = resampled_slots(slots, repetitions, seed)

    def difference(index: Int[np.ndarray, " slot"]) -> float:
        wide, narrow = (basin_decades(ArmScores(*(values[index] for values in arm))) or 0.0 for arm in (first, second))
        return wide - narrow

    fewer = second.failed - first.failed
    return TuningDifference(
        difference(np.arange(slots)),
        interval(np.array([difference(row) for row in rows])),
        float(fewer.mean()),
        interval(fewer[rows].mean(axis=-1)),
    )


def chosen_slot(
    definition: Definition, results: Sequence[SlotResult], arm: str, slots: int | None = None
) -> int | None:
    """The slot of an arm with the best validation score, the first of several; None if slots are missing or all failed.

    Args:
        definition: the study.
        results: the results of its slots.
        arm: the arm.
        slots: choose among the first ones only; by default among all that the study gives the arm.
    """
    wanted = definition.slots_of(arm) if slots is None else min(slots, definition.slots_of(arm))
    scores = arm_scores(definition, [result for result in results if result.arm == arm]).get(arm)
    if scores is None or not 0 < wanted <= len(scores.valid):
        return None
    scores = scores.first(wanted)
    return None if scores.failed.all() else int(np.argmax(scores.valid))


def probability_of_improvement(better: Float[np.ndarray, " slot"], worse: Float[np.ndarray, " slot"]) -> float:
    """Fraction of paired slots in which the first arm is better, counting ties as one half."""
    return float(np.mean((better > worse) + 0.5 * (better == worse)))


def interval(samples: Float[np.ndarray, " repetition"], coverage: float = 0.95) -> tuple[float, float]:
    """The central `coverage` interval of bootstrap samples."""
    tail = 50 * (1 - coverage)
    low, high = np.percentile(samples, [tail, 100 - tail])
    return float(low), float(high)


def two_sided_p(samples: Float[np.ndarray, " repetition"]) -> float:
    """Two-sided bootstrap p-value of no difference, with the usual add-one correction; at most 1."""
    count = len(samples)
    on_one_side = min(np.sum(samples <= 0), np.sum(samples >= 0))
    return min(1.0, 2 * (float(on_one_side) + 1) / (count + 1))


def holm(p_values: Mapping[str, float], level: float) -> dict[str, bool]:
    """Which hypotheses Holm's step-down procedure rejects at a family-wise error level."""
    rejected, going = {}, True
    for number, (name, p) in enumerate(sorted(p_values.items(), key=lambda item: (item[1], item[0]))):
        going = going and p <= level / (len(p_values) - number)
        rejected[name] = going
    return rejected


def _unbroken(found: Mapping[int, SlotResult]) -> int:
    return next(slot for slot in range(len(found) + 1) if slot not in found)


def _scores_of(results: Sequence[SlotResult], floor: float) -> ArmScores:
    failed = np.array([result.valid is None or result.valid < floor for result in results])
    valid = np.array([floor if result.valid is None else result.valid for result in results])
    train = np.array([floor if result.train is None else result.train for result in results])
    rates = np.array([_effective_rate(result.settings) for result in results])
    return ArmScores(np.where(failed, floor, valid), np.where(failed, floor, train), rates, failed.astype(float))


def _effective_rate(settings: dict) -> float:
    """The rate that momentum multiplies; not a number if there is none, as with Hessian-free optimization."""
    rate, momentum = settings.get("learning_rate"), settings.get("momentum", 0.0)
    if isinstance(rate, int | float) and isinstance(momentum, int | float) and rate > 0 and 0 <= momentum < 1:
        return rate / (1 - momentum)
    return math.nan
