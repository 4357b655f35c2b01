"""The trivial baselines against enumeration, and against the published figures on the real data."""

import itertools
import math

import numpy as np
import pytest

from longspan.data import (
    MusicBaselines,
    MusicData,
    TextBaselines,
    TextData,
    load,
    summarize,
)
from longspan.data.music import count_distribution, expected_accuracy
from tests.support.real_data import DATA, needs_benchmarks

RANDOM = np.random.default_rng(1)
KEYS = 88


def accuracies(true: np.ndarray, predicted: np.ndarray) -> tuple[float, float]:
    """The two accuracies of one predicted frame, as defined."""
    hits = int(np.sum(true & predicted))
    bottom = max(int(true.sum()), int(predicted.sum()))
    union = int(np.sum(true | predicted))
    return (hits / bottom if bottom else 1.0), (hits / union if union else 1.0)


def enumerated(rates: np.ndarray, frame: np.ndarray, active: list[int]) -> np.ndarray:
    """Expected accuracies by going through every frame the active keys can make."""
    total = np.zeros(2)
    for choice in itertools.product((0, 1), repeat=len(active)):
        predicted = np.zeros(KEYS, np.uint8)
        predicted[active] = choice
        chance = math.prod(rates[key] if on else 1 - rates[key] for key, on in zip(active, choice, strict=True))
        total += chance * np.array(accuracies(frame, predicted))
    return total


def test_expected_accuracy_equals_enumeration() -> None:
    active = [3, 17, 40, 41, 60, 87]
    rates = np.zeros((8, KEYS))
    rates[:, active] = RANDOM.uniform(0.05, 0.95, (8, 6))
    frames = np.zeros((8, KEYS), np.uint8)
    frames[1:, active] = RANDOM.integers(0, 2, (7, 6))
    frames[2:, [20, 70]] = RANDOM.integers(0, 2, (6, 2))
    expected = np.array([enumerated(rates[n], frames[n], active) for n in range(8)])
    assert expected_accuracy(rates, frames) == pytest.approx(tuple(expected.mean(axis=0)), rel=1e-12)
    weights = np.arange(1.0, 9.0)
    weighted = tuple(weights @ expected / weights.sum())
    assert expected_accuracy(rates, frames, weights) == pytest.approx(weighted, rel=1e-12)


def test_expected_accuracy_equals_the_mean_of_samples() -> None:
    rates = RANDOM.uniform(0, 0.3, (600, KEYS))
    frames = (RANDOM.random((600, KEYS)) < rates).astype(np.uint8)
    samples = np.array(
        [
            np.mean(
                [
                    accuracies(true, guess)
                    for true, guess in zip(frames, RANDOM.random((600, KEYS)) < rates, strict=True)
                ],
                axis=0,
            )
            for _ in range(20)
        ]
    )
    error = samples.std(axis=0) / math.sqrt(20)
    assert np.all(np.abs(samples.mean(axis=0) - expected_accuracy(rates, frames)) < 5 * error)


def test_count_distribution_is_binomial_for_equal_rates() -> None:
    [distribution] = count_distribution(np.full((1, 10), 0.3))
    binomial = [math.comb(10, k) * 0.3**k * 0.7 ** (10 - k) for k in range(11)]
    np.testing.assert_allclose(distribution, binomial, rtol=1e-12)


@needs_benchmarks
@pytest.mark.parametrize(
    ("name", "one_rate", "key_rates", "random", "key_accuracy"),
    [
        ("piano-midi", -12.90, -11.05, 3.35, 5.80),
        ("nottingham", -16.24, -10.25, 4.53, 19.87),
        ("musedata", -14.06, -11.51, 3.74, 7.72),
        ("jsb", -15.93, -11.06, 4.42, 15.25),
    ],
)
def test_published_baselines(name: str, one_rate: float, key_rates: float, random: float, key_accuracy: float) -> None:
    baselines = load(name, DATA).baselines("test")
    assert isinstance(baselines, MusicBaselines)
    assert baselines.one_rate_log_likelihood == pytest.approx(one_rate, abs=0.01)
    assert baselines.key_rates_log_likelihood == pytest.approx(key_rates, abs=0.01)
    assert 100 * baselines.random_accuracy == pytest.approx(random, abs=0.01)
    assert 100 * baselines.key_rates_accuracy == pytest.approx(key_accuracy, abs=0.4)
    assert baselines.key_rates_accuracy_union < baselines.key_rates_accuracy


def test_text_baselines_by_hand() -> None:
    data = TextData(
        "x",
        "word",
        ("\n", "a", "b"),
        {"train": np.array([1, 1, 0], np.int32), "valid": np.array([0]), "test": np.array([1, 2, 0])},
        0,
    )
    # With one more of each: a 3 of 6, end 2 of 6, b 1 of 6.
    baselines = data.baselines("test")
    assert isinstance(baselines, TextBaselines)
    assert baselines.perplexity == pytest.approx((3 / 6 * 1 / 6 * 2 / 6) ** (-1 / 3))
    assert baselines.bits_per_token == pytest.approx(math.log2(baselines.perplexity))


def test_summary_by_hand() -> None:
    song = np.zeros((4, KEYS), np.uint8)
    song[0, :3] = song[1, 5] = 1
    data = MusicData("x", {"train": [song, song[:2]], "valid": [song], "test": [song[:1]]}, 2, origin="hand")
    summary = summarize(data)
    train = summary.splits["train"]
    assert (train.songs, train.frames, train.longest_song, train.most_notes) == (2, 6, 4, 3)  # pyright: ignore[reportAttributeAccessIssue]
    assert train.notes_per_frame == pytest.approx(8 / 6)  # pyright: ignore[reportAttributeAccessIssue]
    assert (summary.kind, summary.frames_per_beat, summary.fingerprint) == ("music", 2, data.fingerprint)
    text = TextData("y", "word", ("\n", "a"), {split: np.array([1, 1, 0]) for split in data.splits}, 0)
    summary = summarize(text)
    assert (summary.splits["test"].tokens, summary.splits["test"].lines) == (3, 1)  # pyright: ignore[reportAttributeAccessIssue]
    assert (summary.unit, summary.vocabulary_size) == ("word", 2)
