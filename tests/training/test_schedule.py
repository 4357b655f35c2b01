"""What validations decide, case by case."""

import pytest

from longspan.training.state import Schedule, decide
from tests.support.catalog import tiny_config


def follow(scores, **changes):
    """Decisions over a sequence of validation scores."""
    config, schedule, decisions = tiny_config("sgd", **changes), Schedule(), []
    for epoch, score in enumerate(scores, start=1):
        decisions.append(decide(schedule, score, epoch, config))
        schedule = decisions[-1].schedule
    return decisions


def test_plateau_halves_and_restores_after_the_asked_number_of_stale_epochs():
    decisions = follow([-9, -8, -8.1, -8.2, -8.3, -7], learning_rate_schedule="plateau", plateau_epochs=2)
    assert [d.is_best for d in decisions] == [True, True, False, False, False, True]
    assert [d.restore_best for d in decisions] == [False, False, False, True, False, False]
    assert [d.schedule.scale for d in decisions] == [1, 1, 1, 0.5, 0.5, 0.5]


def test_plateau_ends_once_the_rate_is_next_to_nothing():
    """A score that creeps up for ever never runs out of patience."""
    scores = [score for step in range(40) for score in (-8 + 1e-6 * step, -9)]
    decisions = follow(scores, learning_rate_schedule="plateau", plateau_epochs=1)
    stops = [d.stop for d in decisions]
    assert stops[:19] == [None] * 19
    assert stops[19] == "the rate fell to 1/1024 of the first one"


def test_a_score_equal_to_the_best_is_not_better():
    assert not follow([-8, -8])[1].is_best


def test_patience_stops_under_every_schedule():
    for schedule in ("constant", "plateau", "rnnlm", "inverse", "cosine"):
        stops = [d.stop for d in follow([-8, -9, -10, -11], learning_rate_schedule=schedule, patience=3)]
        assert stops[3] is not None, schedule


def test_constant_never_changes_the_rate_or_the_weights():
    decisions = follow([-8, -9, -10], learning_rate_schedule="constant")
    assert all(d.schedule.scale == 1 and not d.restore_best for d in decisions)


def test_cosine_comes_down_to_nothing_at_the_last_epoch_whatever_the_scores():
    decisions = follow([-8, -9, -10, -11], learning_rate_schedule="cosine", max_epochs=4)
    assert [d.schedule.scale for d in decisions] == pytest.approx([(2 + 2**0.5) / 4, 0.5, (2 - 2**0.5) / 4, 0.0])
    assert not any(d.restore_best for d in decisions)


def test_rnnlm_halves_every_epoch_once_one_gains_under_a_third_of_a_percent_until_one_gains_nothing():
    scores = [-6.0, -5.5, -5.49, -5.40, -5.395, -5.394]
    decisions = follow(scores, learning_rate_schedule="rnnlm")
    assert [d.schedule.scale for d in decisions] == [1, 1, 1 / 2, 1 / 4, 1 / 8, 1 / 16]
    assert [d.stop is not None for d in decisions] == [False, False, False, False, False, True]


def test_rnnlm_goes_back_to_the_best_weights_when_an_epoch_was_worse():
    decisions = follow([-6.0, -6.5], learning_rate_schedule="rnnlm")
    assert decisions[1].restore_best
    assert decisions[1].schedule.halving
