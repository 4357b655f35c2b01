"""What a paired study says: estimates against enumeration of all subsets, verdicts against the rules as written."""

import itertools
import math

import numpy as np
import pytest

from longspan.arms import verdicts
from longspan.arms.analysis import (
    ArmScores,
    arm_scores,
    basin_decades,
    best_of_n,
    best_of_weights,
    expected_best,
    expected_chosen,
    holm,
    interval,
    probability_of_improvement,
    resampled_slots,
    tuning_difference,
    two_sided_p,
)
from longspan.arms.protocol import define
from longspan.arms.records import SlotResult
from longspan.arms.verdicts import CLAIMS, Claim, decide, factor_to_decide, gap, judge
from longspan.errors import InputError

SCORES = np.array([-9.0, -8.2, -8.7, -8.2, -10.5, -8.9])
TRAIN = np.array([-8.0, -7.1, -7.9, -7.3, -10.0, -8.8])


@pytest.mark.parametrize("n", range(1, 7))
def test_the_expected_best_is_the_mean_over_all_subsets(n):
    subsets = list(itertools.combinations(SCORES, n))
    assert expected_best(SCORES, n) == pytest.approx(np.mean([max(subset) for subset in subsets]))
    assert best_of_weights(6, n).sum() == pytest.approx(1)


@pytest.mark.parametrize("n", range(1, 7))
def test_the_expected_chosen_is_the_mean_over_all_subsets(n):
    distinct = SCORES + 1e-6 * np.arange(6)  # without ties the choice is one
    chosen = [TRAIN[max(subset, key=lambda slot: distinct[slot])] for subset in itertools.combinations(range(6), n)]
    assert expected_chosen(distinct, TRAIN, n) == pytest.approx(np.mean(chosen))


def test_rows_of_samples_are_taken_one_by_one():
    rows = np.stack([SCORES, SCORES[::-1], SCORES - 1])
    np.testing.assert_allclose(expected_best(rows, 3), [expected_best(row, 3) for row in rows])


def test_the_curve_of_expected_bests_and_its_band_by_brute_force():
    curve = best_of_n(SCORES, 200, seed=3)
    rows = [SCORES[row] for row in resampled_slots(6, 200, 3)]
    for n in (1, 2, 3):
        resampled = [np.mean([max(subset) for subset in itertools.combinations(row, n)]) for row in rows]
        assert curve.value[n - 1] == pytest.approx(np.mean([max(s) for s in itertools.combinations(SCORES, n)]))
        assert (curve.low[n - 1], curve.high[n - 1]) == pytest.approx(interval(np.array(resampled)))
    assert len(curve.value) == 3  # half of the slots
    assert len(best_of_n(SCORES[:1], 10, seed=0).value) == 1


@pytest.mark.parametrize("n", [0, 7])
def test_no_best_of_more_slots_than_there_are(n):
    with pytest.raises(InputError, match="1 to the number of slots"):
        best_of_weights(6, n)


def test_holm_by_hand():
    assert holm({"a": 0.01, "b": 0.04, "c": 0.03}, 0.05) == {"a": True, "c": False, "b": False}
    assert holm({"a": 0.01, "b": 0.02, "c": 0.03}, 0.05) == {"a": True, "b": True, "c": True}


def test_p_and_interval_of_a_known_distribution():
    samples = np.random.default_rng(0).normal(1.0, 1.0, 100_000)
    assert two_sided_p(samples) == pytest.approx(2 * 0.5 * math.erfc(1 / math.sqrt(2)), rel=0.03)
    assert interval(samples) == pytest.approx((1 - 1.96, 1 + 1.96), abs=0.03)
    assert two_sided_p(np.full(999, 3.0)) == pytest.approx(2 / 1000)


def slot(number, arm, valid, rate=0.1, status="done", **settings):
    value = None if status == "diverged" else valid
    drawn = {"learning_rate": rate, **settings}
    return SlotResult("jsb", number, arm, status, value, value, 1, 1, 1, "", drawn, "id", "1", "avx2")


DEFINITION = define("jsb", "frames", "print", {100: 243}, -12.0)


def test_failed_slots_score_the_floor_and_a_gap_ends_the_list():
    results = [
        slot(0, "sgd", -9.0),
        slot(1, "sgd", -80.0),
        slot(2, "sgd", None, status="diverged"),
        slot(4, "sgd", -8.0),
        slot(-1, "sgd", -7.0),
    ]
    scores = arm_scores(DEFINITION, results)["sgd"]
    assert scores.valid.tolist() == [-9.0, -12.0, -12.0]
    assert scores.failed.tolist() == [0, 1, 1]


def test_the_rate_is_the_effective_one_and_the_basin_its_span():
    results = [
        slot(0, "sgd+crm", -8.00, rate=0.01, momentum=0.9),
        slot(1, "sgd+crm", -8.04, rate=10.0, momentum=0.0),
        slot(2, "sgd+crm", -8.20, rate=100.0),
    ]
    scores = arm_scores(DEFINITION, results)["sgd+crm"]
    assert scores.rate == pytest.approx([0.1, 10.0, 100.0])
    assert basin_decades(scores) == pytest.approx(2.0)


def test_there_is_no_basin_without_a_learning_rate():
    assert basin_decades(ArmScores(SCORES, TRAIN, np.full(6, np.nan), np.zeros(6))) is None


def test_an_arm_that_fails_less_is_easier_to_tune():
    rates = np.logspace(-3, 1, 20)
    good = np.where(rates < 3, -8.0, -11.0)
    steady, fragile = (
        ArmScores(valid, valid, rates, (valid == -11.0).astype(float))
        for valid in (good, np.where(rates < 0.05, -8.0, -11.0))
    )
    difference = tuning_difference(steady, fragile, 300, seed=0)
    assert difference.failures == pytest.approx((int(np.sum(rates >= 0.05)) - int(np.sum(rates >= 3))) / 20)
    assert difference.basin == pytest.approx(np.log10(rates[rates < 3].max() / rates[rates < 0.05].max()))
    assert difference.easier is True
    assert tuning_difference(fragile, steady, 300, seed=0).easier is False
    assert tuning_difference(steady, steady, 300, seed=0).easier is None


def test_probability_of_improvement_counts_ties_half():
    assert probability_of_improvement(np.array([1.0, 2, 3, 4]), np.array([0.0, 2, 4, 3])) == pytest.approx(2.5 / 4)


def arm(values) -> ArmScores:
    values = np.asarray(values, float)
    return ArmScores(values, values, np.ones_like(values), np.zeros_like(values))


def test_the_bootstrap_resamples_slots_jointly():
    """Arms that differ by a constant in every slot differ by it in every resample: the interval has no width."""
    values = np.random.default_rng(1).normal(-9, 1, 40)
    found = gap(Claim("", ("b",), "a"), "jsb", {"a": arm(values), "b": arm(values + 0.3)})
    assert found is not None
    assert found.value == pytest.approx(0.3)
    np.testing.assert_allclose(found.samples, 0.3)


def test_a_claim_waits_for_twice_the_slots_of_its_best():
    values = np.linspace(-10, -8, 39)
    assert gap(Claim("", ("b",), "a"), "jsb", {"a": arm(values), "b": arm(values)}) is None


HELPS = CLAIMS[0]
RIVALS = CLAIMS[-1]


@pytest.mark.parametrize(
    ("claim", "gaps", "ends", "significant", "verdict"),
    [
        (HELPS, [0.1, 0.2, 0.1, 0.3], (0.05, 0.3), True, "helps"),
        (HELPS, [0.1, 0.2, 0.1, -0.1], (0.02, 0.3), True, "helps"),
        (HELPS, [0.9, 0.2, -0.1, -0.1], (0.02, 0.3), True, "undecided"),
        (HELPS, [0.1, 0.2, 0.1, 0.3], (0.05, 0.3), False, "undecided"),
        (HELPS, [-0.1, -0.2, -0.1, -0.3], (-0.3, -0.05), True, "hurts"),
        (HELPS, [0.01, 0.0, -0.01, 0.0], (-0.04, 0.04), False, "no difference"),
        (HELPS, [0.01, 0.0, -0.01, 0.0], (-0.06, 0.04), False, "undecided"),
        (RIVALS, [0.0, -0.02], (-0.04, 0.1), False, "rivals"),
        (RIVALS, [-0.2, -0.1], (-0.3, -0.06), True, "does not rival"),
        (RIVALS, [-0.2, 0.1], (-0.3, 0.1), False, "undecided"),
    ],
)
def test_verdicts_follow_the_rules(claim, gaps, ends, significant, verdict):
    assert decide(claim, gaps, ends, significant) == verdict


@pytest.mark.parametrize(
    ("claim", "gaps"),
    [
        (HELPS, [0.02, 0.03, 0.02, 0.03]),  # no difference is nearer than a difference from zero
        (HELPS, [0.06, 0.1, 0.1, -0.02]),  # beyond the margin
        (HELPS, [0.3, 0.1, -0.1, -0.2]),  # they do not agree, but the mean lies within the margin
        (RIVALS, [-0.02, 0.0]),
        (RIVALS, [-0.2, -0.1]),
    ],
)
def test_the_factor_on_slots_is_where_the_rules_begin_to_decide(claim, gaps):
    error = 0.2
    factor = factor_to_decide(claim, gaps, error)
    assert factor is not None

    def verdict(slots_factor):
        half = 1.96 * error / math.sqrt(slots_factor)
        z = abs(np.mean(gaps)) / (error / math.sqrt(slots_factor))
        p = math.erfc(z / math.sqrt(2))
        judged = [other for other in CLAIMS if other.domain == claim.domain]
        return decide(claim, gaps, (np.mean(gaps) - half, np.mean(gaps) + half), p <= 0.05 / len(judged))

    assert verdict(0.97 * factor) == "undecided"
    assert verdict(1.03 * factor) != "undecided"


def test_more_slots_do_not_decide_where_data_sets_disagree_beyond_the_margin():
    assert factor_to_decide(HELPS, [0.9, 0.2, -0.1, -0.1], 0.2) is None


def test_all_claims_are_judged_or_say_what_they_wait_for():
    generator = np.random.default_rng(0)
    base = generator.normal(-9, 0.5, 40)
    music = ("sgd", "sgd+c", "sgd+cl", "sgd+clr", "sgd+crm", "nade:sgd", "nade:sgd+cr", "nade:sgd+crm")
    scores = {data: {name: arm(base + 0.2 * ("c" in name)) for name in music} for data in verdicts.MUSIC}
    judged = {each.claim.statement: each for each in judge(scores)}
    assert len(judged) == 12
    assert judged["Clipping helps, on music"].verdict == "helps"
    assert judged["Clipping helps, on music"].mean == pytest.approx(0.2)
    assert judged["Leaky units help, on music"].verdict == "no difference"
    assert judged["Clipping helps, on text"].wanting == ["ptb-words", "ptb-chars"]
    assert judged["Clipping helps, on text"].slots_to_decide == {"ptb-words": 8, "ptb-chars": 4}
    assert judged["Enhanced SGD rivals Hessian-free"].verdict == "undecided"
    assert judged["Enhanced SGD rivals Hessian-free"].slots_to_decide == {"jsb": 12, "piano-midi": 12}
