"""Trivial baselines, which ignore the past, as references for every result.

For music: one rate of notes for all keys, one rate per key, and frames of coin flips. They also pin down the metrics:
log-likelihoods are in nats per frame, summed over keys and averaged over all frames of the split together. For text:
the frequencies of single tokens. For a synthetic task: the best constant answer.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from longspan.data.dataset import Baselines
from longspan.data.sequences import Song
from longspan.data.synthetic import SQUARED_ERROR, WRONG_SHARE

# The distributions of this many frames fit the second-level cache.
FRAMES_AT_ONCE = 256
TOKENS_AT_ONCE = 2**20


@dataclass(frozen=True)
class MusicBaselines(Baselines):
    """Log-likelihoods in nats per frame; accuracies as fractions, in expectation over sampled frames."""

    one_rate_log_likelihood: float
    key_rates_log_likelihood: float
    random_accuracy: float
    random_accuracy_union: float
    key_rates_accuracy: float
    key_rates_accuracy_union: float

    def rows(self) -> list[tuple[str, dict[str, float]]]:
        per_key = {
            "log_likelihood": self.key_rates_log_likelihood,
            "accuracy": self.key_rates_accuracy,
            "accuracy_union": self.key_rates_accuracy_union,
        }
        return [("one rate per key", per_key), ("one rate for all", {"log_likelihood": self.one_rate_log_likelihood})]


@dataclass(frozen=True)
class TextBaselines(Baselines):
    """Perplexity and bits per token of predicting by single-token frequencies."""

    perplexity: float
    bits_per_token: float

    def rows(self) -> list[tuple[str, dict[str, float]]]:
        figures = {"perplexity": self.perplexity, "bits_per_character": self.bits_per_token}
        return [("single-symbol frequencies", {"log_likelihood": -math.log(self.perplexity), **figures})]


@dataclass(frozen=True)
class TaskBaselines(Baselines):
    """Fraction of sequences that the best constant answer gets wrong and, for numbers, its mean squared error."""

    error_rate: float
    squared_error: float | None = None

    def rows(self) -> list[tuple[str, dict[str, float]]]:
        squares = {} if self.squared_error is None else {"squared_error": self.squared_error}
        constant = {"error_rate": self.error_rate, **squares}
        return [("solved below", {"error_rate": WRONG_SHARE}), ("always the same answer", constant)]


def expected_accuracy(rates: np.ndarray, frames: np.ndarray, weights: np.ndarray | None = None) -> tuple[float, float]:
    r"""Exact expected `accuracy` and `accuracy_union` of frames sampled key by key.

    With TP true positives among n true notes and FP false ones, accuracy is the mean over frames of $TP /
    \max(n, TP + FP)$ and accuracy_union of $TP / (n + FP)$, 0/0 counted as 1. Keys are independent given the
    rates, so TP and FP are too, and each has a Poisson-binomial distribution.

    Args:
        rates: the probability of each key, (88,), or (frames, 88) if it differs between frames.
        frames: the true frames, (frames, 88), of 0 and 1.
        weights: the weight of each frame in the mean; equal by default.
    """
    rates = np.broadcast_to(rates, frames.shape)
    weights = np.ones(len(frames)) if weights is None else weights
    sums = np.zeros(2)
    for start in range(0, len(frames), FRAMES_AT_ONCE):
        part = slice(start, start + FRAMES_AT_ONCE)
        sums += _summed_accuracies(np.asarray(rates[part], np.float64), frames[part].astype(bool), weights[part])
    accuracy, union = sums / weights.sum()
    return float(accuracy), float(union)


def count_distribution(rates: np.ndarray) -> np.ndarray:
    """Probability of each number of notes, (frames, keys + 1), if keys sound independently with these rates."""
    frames, keys = rates.shape
    distribution = np.zeros((keys + 1, frames))
    distribution[0] = 1
    for key, rate in enumerate(rates.T):
        moved = distribution[: key + 1] * rate
        distribution[: key + 1] -= moved
        distribution[1 : key + 2] += moved
    return distribution.T


def _summed_accuracies(rates: np.ndarray, frames: np.ndarray, weights: np.ndarray) -> np.ndarray:
    notes = frames.sum(axis=1)
    most = int(notes.max(initial=0))
    # Sounding keys are packed to the front: few sound at once, which keeps this distribution short.
    packed = np.argsort(~frames, axis=1, kind="stable")[:, :most]
    hits = count_distribution(np.take_along_axis(rates * frames, packed, axis=1))
    false_alarms = count_distribution(np.where(frames, 0.0, rates))
    sums = np.zeros(2)
    for true in np.unique(notes):
        rows = notes == true
        joint = (weights[rows, None] * hits[rows, : true + 1]).T @ false_alarms[rows]
        positives = np.arange(true + 1)[:, None]
        alarms = np.arange(frames.shape[1] + 1)[None, :]
        for form, bottom in enumerate((np.maximum(true, positives + alarms), true + alarms)):
            score = np.where(bottom == 0, 1.0, positives / np.maximum(bottom, 1))
            sums[form] += np.sum(joint * score)
    return sums


def music_baselines(train: list[Song], test: list[Song]) -> MusicBaselines:
    """Baselines for songs, fitted to the training split and measured on another."""
    notes, frames = note_counts(train)
    keys = len(notes)
    # Half a note and half a silence are added to each key, because a key of the test split may be silent in training.
    key_rates = (notes + 0.5) / (frames + 1)
    one_rate = np.full(keys, notes.sum() / (frames * keys))
    # The rates never change, so equal frames are computed once.
    packed = np.concatenate([np.packbits(song, axis=1) for song in test])
    packed, counts = np.unique(packed, axis=0, return_counts=True)
    distinct = np.unpackbits(packed, axis=1, count=keys)
    random_accuracy, random_union = expected_accuracy(np.full(keys, 0.5), distinct, counts)
    key_accuracy, key_union = expected_accuracy(key_rates, distinct, counts)
    return MusicBaselines(
        _log_likelihood(one_rate, test),
        _log_likelihood(key_rates, test),
        random_accuracy,
        random_union,
        key_accuracy,
        key_union,
    )


def note_counts(songs: list[Song]) -> tuple[np.ndarray, int]:
    """The number of frames in which each key sounds, and the number of frames."""
    return np.sum([song.sum(axis=0, dtype=np.int64) for song in songs], axis=0), sum(map(len, songs))


def _log_likelihood(rates: np.ndarray, songs: list[Song]) -> float:
    notes, frames = note_counts(songs)
    present = notes / frames
    return float(present @ np.log(rates) + (1 - present) @ np.log1p(-rates))


def task_baselines(train: np.ndarray, test: np.ndarray, *, numbers: bool) -> TaskBaselines:
    """Baseline of the best constant answer, from the right answers of two splits, (sequences, answers per sequence)."""
    if numbers:
        squares = np.square(test - train.mean())
        return TaskBaselines(float(np.mean(squares > SQUARED_ERROR)), float(squares.mean()))
    usual = np.array([np.bincount(column).argmax() for column in train.T])
    return TaskBaselines(float(np.mean(np.any(test != usual, axis=1))))


def text_baselines(train: np.ndarray, test: np.ndarray, vocabulary_size: int) -> TextBaselines:
    """Baselines for tokens, fitted to the training split and measured on another."""
    # Each token is counted once more, because a token of the test split may be missing in training.
    counts = np.ones(vocabulary_size, np.int64)
    for start in range(0, len(train), TOKENS_AT_ONCE):  # NumPy makes a copy of eight bytes per token
        counts += np.bincount(train[start : start + TOKENS_AT_ONCE], minlength=vocabulary_size)
    nats = -float(np.mean(np.log(counts / counts.sum())[test]))
    return TextBaselines(math.exp(nats), nats / math.log(2))
