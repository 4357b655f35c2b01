"""Every metric is described once, and what is written of it follows from that."""

import numpy as np
import pytest

from longspan.evaluation import Scores
from longspan.metrics import METRICS, duration, number, setting


def test_every_score_has_its_description():
    fields = [name for name in Scores.__struct_fields__ if not name.endswith("_error") or name == "squared_error"]
    assert sorted(METRICS) == sorted(fields)
    assert all(metric.name == name for name, metric in METRICS.items())


def test_likelihoods_agree_in_nats():
    """Of a model that gives each symbol of a text one probability, by the definitions of the three metrics."""
    log_probs = np.log([0.5, 0.25, 0.125])
    mean = log_probs.mean()
    assert METRICS["log_likelihood"].nats(mean) == mean
    assert METRICS["perplexity"].nats(np.prod([2, 4, 8]) ** (1 / 3)) == pytest.approx(mean)
    assert METRICS["bits_per_character"].nats((1 + 2 + 3) / 3) == pytest.approx(mean)
    with pytest.raises(ValueError, match="accuracy is not a likelihood"):
        METRICS["accuracy"].nats(0.5)


@pytest.mark.parametrize(
    ("name", "ours", "paper", "reaches"),
    [
        ("log_likelihood", -8.654, -8.65, True),
        ("log_likelihood", -8.656, -8.65, False),
        ("perplexity", 145.164, 145.16, True),
        ("perplexity", 145.17, 145.16, False),
        ("accuracy", 0.29979, 0.2998, True),
        ("accuracy", 0.2997, 0.2998, False),
    ],
)
def test_reaching_is_judged_at_two_decimals_of_what_is_shown(name, ours, paper, reaches):
    assert METRICS[name].reaches(ours, paper) == reaches


def test_scores_are_shown_with_their_unit_and_their_error():
    assert METRICS["accuracy"].heading == "accuracy, %"
    assert METRICS["accuracy"].show(0.29345) == "29.34"
    assert METRICS["log_likelihood"].show(-8.6543) == "-8.654"
    assert METRICS["log_likelihood"].show(-8.6543, 0.0321) == "-8.65 ± 0.03 (estimate)"
    assert METRICS["perplexity"].show(None) == ""
    assert METRICS["error_rate"].best([0.2, 0.1]) == 0.1
    assert METRICS["accuracy"].best([0.2, 0.1]) == 0.2


def test_numbers_settings_and_durations():
    assert (number(1234567), number(2.0), number(-1.23456, 3), number(None)) == ("1,234,567", "2.00", "-1.235", "")
    assert (setting(0.123456), setting(12), setting("tanh"), setting(None)) == ("0.1235", "12", "tanh", "")
    assert (duration(59.6), duration(3599), duration(3600)) == ("1 min 0 s", "59 min 59 s", "1 h 0 min")
