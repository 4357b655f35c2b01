"""The paper's claims as comparisons of arms, the rules that decide them, and the verdicts.

The thresholds were committed before the runs that they judge.
"""

import math
from collections.abc import Mapping
from statistics import NormalDist
from typing import Literal, NamedTuple

import msgspec
import numpy as np

from longspan.arms.analysis import (
    ArmScores,
    expected_best,
    expected_chosen,
    holm,
    interval,
    resampled_slots,
    two_sided_p,
)

MUSIC = ("jsb", "nottingham", "musedata", "piano-midi")
TEXT = ("ptb-words", "ptb-chars")
HESSIAN_FREE_SETS = ("jsb", "piano-midi")

BEST_OF = {"jsb": 20, "piano-midi": 12, "nottingham": 12, "musedata": 6, "ptb-words": 4, "ptb-chars": 2}
"""Number of slots whose expected best is compared: half of those that are run."""
BEST_OF_HESSIAN_FREE = 6
MARGIN = {"music": 0.05, "text": 0.01}
"""Difference in nats per frame or symbol within which two methods count as equal."""
LEVEL = 0.05
"""Family-wise error level over the claims that are judged, and one minus the coverage of intervals."""
AGREEING = {4: 3, 2: 2, 1: 1}
"""Number of data sets that must agree in sign with a claim that something helps, by the number of data sets."""
REPETITIONS, BOOTSTRAP_SEED = 10_000, 2012

Verdict = Literal["helps", "hurts", "no difference", "rivals", "does not rival", "undecided"]


class Claim(msgspec.Struct, frozen=True):
    """A sentence of the paper as a comparison of arms over data sets."""

    statement: str
    better: tuple[str, ...]
    """The arm said to be better; if there are several, the one with the best expected score on each data set is
    used."""
    worse: str
    data_sets: tuple[str, ...] = MUSIC
    kind: Literal["helps", "fits", "rivals"] = "helps"

    @property
    def domain(self) -> Literal["music", "text"]:
        return "text" if set(self.data_sets) <= set(TEXT) else "music"


CLAIMS = (
    Claim("Clipping helps, on music", ("sgd+c",), "sgd"),
    Claim("Clipping helps, on text", ("sgd+c",), "sgd", TEXT),
    Claim("Leaky units help, on music", ("sgd+cl",), "sgd+c"),
    Claim("Leaky units help, on text", ("sgd+cl",), "sgd+c", TEXT),
    Claim("Rectifiers with L1 help to fit, on music", ("sgd+clr",), "sgd+cl", MUSIC, "fits"),
    Claim("Rectifiers with L1 help to predict, on music", ("sgd+clr",), "sgd+cl"),
    Claim("Rectifiers with L1 help to fit, on text", ("sgd+clr",), "sgd+cl", TEXT, "fits"),
    Claim("Rectifiers with L1 help to predict, on text", ("sgd+clr",), "sgd+cl", TEXT),
    Claim("Rectifiers with L1 and clipping help, before NADE", ("nade:sgd+cr",), "nade:sgd"),
    Claim("Momentum helps, before NADE", ("nade:sgd+crm",), "nade:sgd+cr"),
    Claim(
        "Enhanced SGD rivals Hessian-free",
        ("sgd+c", "sgd+cl", "sgd+clr", "sgd+crm"),
        "hf",
        HESSIAN_FREE_SETS,
        "rivals",
    ),
    Claim(
        "Enhanced SGD rivals Hessian-free, before NADE",
        ("nade:sgd+cr", "nade:sgd+crm"),
        "nade:hf",
        HESSIAN_FREE_SETS,
        "rivals",
    ),
)
JUDGED = ("music",)
"""Domains whose claims are judged; on text there are too few slots, so differences are only described."""


class Gap(NamedTuple):
    """How much better the first side of a claim is on one data set, in nats, with its bootstrap samples."""

    data: str
    arm: str
    """The arm used for the better side."""
    slots: int
    n: int
    value: float
    samples: np.ndarray


class Judgment(msgspec.Struct, frozen=True):
    """The verdict on a claim."""

    claim: Claim
    verdict: Verdict
    mean: float | None
    """Mean gap over the data sets in nats, positive if in favor of the claim."""
    interval: tuple[float, float] | None
    """95 % interval, not adjusted for the number of claims."""
    p: float | None
    gaps: dict[str, float]
    wanting: list[str]
    """Data sets on which the two sides do not have enough slots yet."""
    slots_to_decide: dict[str, int] = {}
    """Slots per arm, by data set, that would probably decide the claim if its estimates stayed as they are; empty if it
    is decided, or if more slots alone would not."""


def gap(claim: Claim, data: str, scores: Mapping[str, ArmScores]) -> Gap | None:
    """The gap of a claim on one data set; None if an arm it needs has too few slots."""
    sides = [arm for arm in claim.better if arm in scores]
    if not sides or claim.worse not in scores:
        return None
    slots = min(len(scores[arm].valid) for arm in (*sides, claim.worse))
    n = BEST_OF_HESSIAN_FREE if claim.kind == "rivals" else BEST_OF[data]
    if slots < 2 * n:  # the estimate of an expected best is reliable for up to half the slots
        return None
    chosen = resampled_slots(slots, REPETITIONS, BOOTSTRAP_SEED)

    def measure(arm: str, index) -> np.ndarray | np.float64:
        valid, train = (values[:slots][index] for values in scores[arm][:2])
        return expected_chosen(valid, train, n) if claim.kind == "fits" else expected_best(valid, n)

    values = {arm: measure(arm, np.arange(slots)) for arm in sides}
    best = max(sides, key=lambda arm: float(values[arm]))
    samples = np.max([measure(arm, chosen) for arm in sides], axis=0) - measure(claim.worse, chosen)
    return Gap(data, best, slots, n, float(values[best] - measure(claim.worse, np.arange(slots))), samples)


def needed_slots(claim: Claim, data: str) -> int:
    """Slots per arm that a claim needs on a data set before it is judged."""
    return 2 * (BEST_OF_HESSIAN_FREE if claim.kind == "rivals" else BEST_OF[data])


def judge(scores: Mapping[str, Mapping[str, ArmScores]]) -> list[Judgment]:
    """Judge all claims by the scores on every data set."""
    gaps = {claim.statement: [gap(claim, data, scores.get(data, {})) for data in claim.data_sets] for claim in CLAIMS}
    complete = {
        statement: np.mean([each.samples for each in found if each is not None], axis=0)
        for statement, found in gaps.items()
        if all(each is not None for each in found)
    }
    judged = [claim.statement for claim in CLAIMS if claim.domain in JUDGED and claim.statement in complete]
    significant = holm({name: two_sided_p(complete[name]) for name in judged}, LEVEL)
    return [
        _judgment(claim, gaps[claim.statement], complete.get(claim.statement), significant.get(claim.statement))
        for claim in CLAIMS
    ]


def _judgment(claim: Claim, gaps: list[Gap | None], samples, significant: bool | None) -> Judgment:
    known = {each.data: each.value for each in gaps if each is not None}
    wanting = [data for data, each in zip(claim.data_sets, gaps, strict=True) if each is None]
    if samples is None:
        slots = {data: needed_slots(claim, data) for data in wanting}
        return Judgment(claim, "undecided", None, None, None, known, wanting, slots)
    values = list(known.values())
    mean, ends = float(np.mean(values)), interval(samples, 1 - LEVEL)
    verdict = "undecided" if significant is None else decide(claim, values, ends, significant)
    more = {}
    if verdict == "undecided" and (factor := factor_to_decide(claim, values, float(np.std(samples)))) is not None:
        more = {each.data: max(each.slots + 1, math.ceil(factor * each.slots)) for each in gaps if each is not None}
    return Judgment(claim, verdict, mean, ends, two_sided_p(samples), known, [], more)


def decide(claim: Claim, gaps: list[float], ends: tuple[float, float], significant: bool) -> Verdict:
    """The verdict on a claim whose gaps are known on all of its data sets."""
    low, high = ends
    margin = MARGIN[claim.domain]
    if claim.kind == "rivals":
        return "rivals" if low > -margin else "does not rival" if high < -margin else "undecided"
    agreeing = sum(value > 0 for value in gaps)
    needed = AGREEING[len(gaps)]
    if significant and low > 0 and agreeing >= needed:
        return "helps"
    if significant and high < 0 and len(gaps) - agreeing >= needed:
        return "hurts"
    return "no difference" if -margin < low and high < margin else "undecided"


def factor_to_decide(claim: Claim, gaps: list[float], error: float) -> float | None:
    """Factor on the number of slots that would probably decide a claim; None if more slots alone would not.

    Gaps are taken to stay as they are and their standard error to fall with the root of the number of slots. Each
    verdict within reach asks that some distance be a number of errors wide: that of the mean from zero, at the level
    that Holm's rule asks of the first of all claims, or that of the mean from the margin.
    """
    mean, margin, ordinary = float(np.mean(gaps)), MARGIN[claim.domain], NormalDist().inv_cdf(1 - LEVEL / 2)
    if claim.kind == "rivals":
        ways = [(abs(mean + margin), ordinary)]
    else:
        ways = [(margin - abs(mean), ordinary)]
        judged = sum(other.domain == claim.domain for other in CLAIMS)
        if sum(value * mean > 0 for value in gaps) >= AGREEING[len(gaps)]:
            ways.append((abs(mean), NormalDist().inv_cdf(1 - LEVEL / 2 / judged)))
    factors = [(errors * error / distance) ** 2 for distance, errors in ways if distance > 0]
    return min(factors, default=None)
