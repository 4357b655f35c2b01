"""The report of compared methods as plain values: how far the studies are, every estimate, the verdicts on claims."""

import statistics
from collections.abc import Mapping, Sequence

import msgspec
import numpy as np

from longspan.arms.analysis import (
    ArmScores,
    arm_scores,
    basin_decades,
    best_of_n,
    chosen_slot,
    expected_best,
    interval,
    probability_of_improvement,
    resampled_slots,
    tuning_difference,
)
from longspan.arms.protocol import FULL_SET, RECIPE_SLOT
from longspan.arms.records import StudyResults
from longspan.arms.verdicts import BOOTSTRAP_SEED, CLAIMS, Claim, Judgment, judge
from longspan.metrics import METRICS
from longspan.reproduction.tables import TABLE1, TABLE2

REPETITIONS = 2000
"""Bootstrap samples of the bands and intervals that describe; verdicts have their own number."""
LETTERS = {"c": "clipping", "l": "leaky units", "r": "rectifiers with L1", "m": "momentum"}


class CurveValue(msgspec.Struct, frozen=True):
    """Expected best validation score of n slots of an arm, for n from 1 to half of its slots, with a 95 % band."""

    value: list[float]
    low: list[float]
    high: list[float]


class SlotValue(msgspec.Struct, frozen=True):
    """A slot of an arm: its effective learning rate and its score, the floor if it failed."""

    slot: int
    rate: float | None
    valid: float
    failed: bool


class WinnerValue(msgspec.Struct, frozen=True):
    """The slot that validation chose, trained again with fresh seeds: its scores on the test split."""

    slot: int
    seeds: int
    diverged: int
    test: dict[str, float]
    """Means over the seeds that did not diverge, by metric."""
    spread: dict[str, float]
    """Standard deviations over those seeds, if there are two or more."""


class ArmValue(msgspec.Struct, frozen=True):
    """One arm on one data set."""

    arm: str
    wanted: int
    """Slots that the study gives it."""
    slots: list[SlotValue]
    """Those that are done, without gaps."""
    curve: CurveValue
    basin: float | None
    """Decades of learning rate within 0.05 nats of the best; None without a learning rate."""
    seconds: float | None
    """Mean processor seconds per slot."""
    winner: WinnerValue | None = None
    recipe: float | None = None
    """Validation score of the shipped recipe without dropout and averaging at the same cap; never counted."""

    @property
    def failed(self) -> int:
        return sum(slot.failed for slot in self.slots)

    @property
    def best(self) -> float:
        return max(slot.valid for slot in self.slots)


class PairValue(msgspec.Struct, frozen=True):
    """Two arms of a claim on one data set, slot by slot."""

    better: str
    worse: str
    differences: list[float]
    """Validation score of the arm said to be better minus that of the other, by slot."""
    improvement: float
    """Fraction of the slots in which it is better, ties as one half."""
    basin: float
    basin_interval: tuple[float, float]
    fewer_failures: float
    failures_interval: tuple[float, float]
    easier: bool | None
    """Whether it is easier to tune; None if that does not show."""


class LetterValue(msgspec.Struct, frozen=True):
    """What a letter does to the expected best of n slots, in nats with an unadjusted 95 % interval."""

    letter: str
    n: int
    added: float
    added_interval: tuple[float, float]
    """Added to plain descent."""
    kept: float
    kept_interval: tuple[float, float]
    """Kept in the full set, against the full set without it."""


class SetValue(msgspec.Struct, frozen=True):
    """The study of one data set."""

    data: str
    definition: str
    versions: list[str]
    instruction_sets: list[str]
    floor: float
    updates: int
    wanted: int
    """Slots of all arms together."""
    trained: int
    """Those that have a result."""
    arms: list[ArmValue]
    pairs: list[PairValue]
    letters: list[LetterValue] = []

    @property
    def used(self) -> int:
        """Slots that estimates use: those of each arm before the first that has no result yet."""
        return sum(len(arm.slots) for arm in self.arms)


class MethodsReport(msgspec.Struct, frozen=True, tag="methods", tag_field="report"):
    """Everything shown about compared methods."""

    sets: list[SetValue]
    judgments: list[Judgment]
    """One per claim of the paper; empty for a study of letters."""
    paper: dict[str, float]
    """The paper's own mean difference in nats, by claim."""


def methods_report(studies: Mapping[str, StudyResults]) -> MethodsReport:
    """Everything that the results of some studies say."""
    scores = {data: arm_scores(study.definition, study.slots) for data, study in studies.items()}
    sets = [_set_value(study, scores[data]) for data, study in studies.items()]
    letters = any(study.definition.compares_letters for study in studies.values())
    judgments = [] if letters else judge(scores)
    return MethodsReport(sets, judgments, {claim.statement: paper_difference(claim) for claim in CLAIMS})


def paper_difference(claim: Claim) -> float:
    """The paper's mean difference; of several rows the best by test score, as the paper prints no validation scores."""

    def figure(row: str, data: str) -> float:
        if music := TABLE1.get((row, data)):
            value = music.train_log_likelihood if claim.kind == "fits" else music.log_likelihood
            assert value is not None
            return value
        text = TABLE2[row, data]
        metric = METRICS["perplexity" if data == "ptb-words" else "bits_per_character"]
        return metric.nats(text.train if claim.kind == "fits" else text.test)

    return statistics.mean(
        max(figure(row, data) for row in claim.better) - figure(claim.worse, data) for data in claim.data_sets
    )


def outlook(judgment: Judgment, sets: Sequence[SetValue]) -> str:
    """What it would take to decide a claim, in words; empty if it is decided."""
    claim = judgment.claim
    if judgment.verdict != "undecided":
        return ""
    if not judgment.slots_to_decide:
        return "more slots alone would not decide it: the data sets disagree"
    known = {each.data: each for each in sets}

    def having(data: str) -> int:
        arms = {arm.arm: len(arm.slots) for arm in known[data].arms} if data in known else {}
        return min(arms.get(arm, 0) for arm in (*claim.better, claim.worse))

    asked = ", ".join(f"{data} {slots} (has {having(data)})" for data, slots in judgment.slots_to_decide.items())
    return f"slots per arm: {asked}" if judgment.wanting else f"probably, slots per arm: {asked}"


def _set_value(study: StudyResults, scores: Mapping[str, ArmScores]) -> SetValue:
    definition = study.definition
    pairs = dict.fromkeys((claim.better[0], claim.worse) for claim in CLAIMS if claim.kind != "rivals")
    return SetValue(
        data=definition.data,
        definition=definition.identity,
        versions=sorted({result.version for result in study.slots}),
        instruction_sets=sorted({result.instruction_set for result in study.slots}),
        floor=definition.floor,
        updates=definition.budget.updates,
        wanted=len(definition.tasks()),
        trained=sum(result.slot >= 0 for result in study.slots),
        arms=[_arm_value(study, arm, scores[arm]) for arm in definition.arms if arm in scores],
        pairs=[
            _pair_value(better, worse, scores[better], scores[worse])
            for better, worse in pairs
            if better in scores and worse in scores
        ],
        letters=_letters(scores) if definition.compares_letters else [],
    )


def _arm_value(study: StudyResults, arm: str, scores: ArmScores) -> ArmValue:
    curve = best_of_n(scores.valid, REPETITIONS, BOOTSTRAP_SEED)
    seconds = [timing.processor_seconds for timing in study.timings if timing.arm == arm and timing.slot >= 0]
    return ArmValue(
        arm=arm,
        wanted=study.definition.slots_of(arm),
        slots=[
            SlotValue(slot, None if np.isnan(rate) else float(rate), float(valid), bool(failed))
            for slot, (valid, rate, failed) in enumerate(zip(scores.valid, scores.rate, scores.failed, strict=True))
        ],
        curve=CurveValue(curve.value.tolist(), curve.low.tolist(), curve.high.tolist()),
        basin=basin_decades(scores),
        seconds=statistics.mean(seconds) if seconds else None,
        winner=_winner_value(study, arm),
        recipe=next((each.valid for each in study.slots if each.arm == arm and each.slot == RECIPE_SLOT), None),
    )


def _winner_value(study: StudyResults, arm: str) -> WinnerValue | None:
    """The runs of the slot that validation chooses now; None if it has none."""
    slot = chosen_slot(study.definition, study.slots, arm)
    runs = [each for each in study.winners if each.arm == arm and each.slot == slot]
    if not runs:
        return None
    scored = [each.test for each in runs if each.test]
    names = [name for name in (scored[0] if scored else {}) if all(name in test for test in scored)]
    values = {name: [test[name] for test in scored] for name in names}
    return WinnerValue(
        slot=runs[0].slot,
        seeds=len(runs),
        diverged=len(runs) - len(scored),
        test={name: statistics.mean(each) for name, each in values.items()},
        spread={name: statistics.stdev(each) for name, each in values.items() if len(each) > 1},
    )


def _pair_value(better: str, worse: str, first: ArmScores, second: ArmScores) -> PairValue:
    slots = min(len(first.valid), len(second.valid))
    easier = tuning_difference(first, second, REPETITIONS, BOOTSTRAP_SEED)
    return PairValue(
        better,
        worse,
        differences=(first.valid[:slots] - second.valid[:slots]).tolist(),
        improvement=probability_of_improvement(first.valid[:slots], second.valid[:slots]),
        basin=easier.basin,
        basin_interval=easier.basin_interval,
        fewer_failures=easier.failures,
        failures_interval=easier.failures_interval,
        easier=easier.easier,
    )


def _letters(scores: Mapping[str, ArmScores]) -> list[LetterValue]:
    """Each letter whose arms all have slots, on the slots that all of them have."""
    made = []
    for letter in LETTERS:
        fewer = f"sgd+{FULL_SET.removeprefix('sgd+').replace(letter, '')}"
        arms = [f"sgd+{letter}", "sgd", FULL_SET, fewer]
        if not all(arm in scores for arm in arms):
            continue
        slots = min(len(scores[arm].valid) for arm in arms)
        added, kept = (_gap(scores[one], scores[other], slots) for one, other in (arms[:2], arms[2:]))
        made.append(LetterValue(letter, max(1, slots // 2), *added, *kept))
    return made


def _gap(first: ArmScores, second: ArmScores, slots: int) -> tuple[float, tuple[float, float]]:
    n, rows = max(1, slots // 2), resampled_slots(slots, REPETITIONS, BOOTSTRAP_SEED)
    values = [expected_best(arm.valid[:slots], n) for arm in (first, second)]
    samples = [expected_best(arm.valid[:slots][rows], n) for arm in (first, second)]
    return float(values[0] - values[1]), interval(np.asarray(samples[0] - samples[1]))
