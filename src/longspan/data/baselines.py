"""Trivial baselines: what is reached without looking at the past, to hold every result against.

For music: one rate of notes for all keys, one rate a key, and a frame of coin flips. They also pin the
metrics: these log-likelihoods are in nats a frame, summed over keys and averaged over all frames of the split
together. For text: the frequencies of single tokens. For a synthetic task: the best answer that is always the same.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from longspan.data.kinds import Data
from longspan.data.music import KEYS, MusicData
from longspan.data.synthetic import SQUARED_ERROR
from longspan.data.tasks import TaskData

# As many frames as the second-level cache holds the distributions of.
FRAMES_AT_ONCE = 256


@dataclass(frozen=True)
class MusicBaselines:
    """Log-likelihoods in nats a frame; accuracies as fractions, expected over sampled frames."""

    one_rate_log_likelihood: float
    key_rates_log_likelihood: float
    random_accuracy: float
    random_accuracy_union: float
    key_rates_accuracy: float
    key_rates_accuracy_union: float


@dataclass(frozen=True)
class TextBaselines:
    """How well single-token frequencies predict: perplexity a token and bits a token."""

    perplexity: float
    bits_per_token: float


@dataclass(frozen=True)
class TaskBaselines:
    """How many sequences the best constant answer gets wrong, and, for numbers, its mean squared error."""

    error_rate: float
    squared_error: float | None = None


Baselines = MusicBaselines | TextBaselines | TaskBaselines


def trivial_baselines(data: Data, split: str = "test") -> Baselines:
    """The baselines, fitted to the training split and measured on `split`."""
    if isinstance(data, TaskData):
        return _task_baselines(data, split)
    if isinstance(data, MusicData):
        return _music_baselines(np.concatenate(data.splits["train"]), np.concatenate(data.splits[split]))
    return _text_baselines(data.splits["train"], data.splits[split], len(data.vocabulary))


def expected_accuracy(rates: np.ndarray, frames: np.ndarray, weights: np.ndarray | None = None) -> tuple[float, float]:
    r"""Exact expected `accuracy` and `accuracy_union` of frames sampled key by key.

    With TP true positives among n true notes and FP false ones, accuracy is the mean over frames of $TP /
    \max(n, TP + FP)$ and accuracy_union of $TP / (n + FP)$, 0/0 counted as 1. Keys are independent given the
    rates, so TP and FP are too, and each has a Poisson-binomial distribution.

    Args:
        rates: the probability of each key, (88,), or (frames, 88) if it differs between frames.
        frames: the true frames, (frames, 88), of 0 and 1.
        weights: how much each frame counts in the mean; all the same if not given.
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
    """How likely each number of notes is, (frames, keys + 1), if each key sounds on its own with its rate."""
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
    # The keys that sound, packed to the front: few sound at once, which keeps this distribution short.
    packed = np.argsort(~frames, axis=1, kind="stable")[:, :most]
    hits = count_distribution(np.take_along_axis(rates * frames, packed, axis=1))
    false_alarms = count_distribution(np.where(frames, 0.0, rates))
    sums = np.zeros(2)
    for true in np.unique(notes):
        rows = notes == true
        joint = (weights[rows, None] * hits[rows, : true + 1]).T @ false_alarms[rows]
        positives = np.arange(true + 1)[:, None]
        alarms = np.arange(KEYS + 1)[None, :]
        for form, bottom in enumerate((np.maximum(true, positives + alarms), true + alarms)):
            score = np.where(bottom == 0, 1.0, positives / np.maximum(bottom, 1))
            sums[form] += np.sum(joint * score)
    return sums


def _music_baselines(train: np.ndarray, test: np.ndarray) -> MusicBaselines:
    # Half a note and half a silence are added to each key, for a key of the test may be silent in training.
    key_rates = (train.sum(axis=0) + 0.5) / (len(train) + 1)
    one_rate = np.full(KEYS, train.mean())
    # The rates never change, so equal frames are worked out once.
    packed, counts = np.unique(np.packbits(test, axis=1), axis=0, return_counts=True)
    distinct = np.unpackbits(packed, axis=1, count=KEYS)
    random_accuracy, random_union = expected_accuracy(np.full(KEYS, 0.5), distinct, counts)
    key_accuracy, key_union = expected_accuracy(key_rates, distinct, counts)
    return MusicBaselines(
        _log_likelihood(one_rate, test),
        _log_likelihood(key_rates, test),
        random_accuracy,
        random_union,
        key_accuracy,
        key_union,
    )


def _log_likelihood(rates: np.ndarray, frames: np.ndarray) -> float:
    present = frames.mean(axis=0)
    return float(present @ np.log(rates) + (1 - present) @ np.log1p(-rates))


def _task_baselines(data: TaskData, split: str) -> TaskBaselines:
    train, test = (_answers(data, name) for name in ("train", split))
    if data.kind == "numbers":
        squares = np.square(test - train.mean())
        return TaskBaselines(float(np.mean(squares > SQUARED_ERROR)), float(squares.mean()))
    usual = np.array([np.bincount(column).argmax() for column in train.T])
    return TaskBaselines(float(np.mean(np.any(test != usual, axis=1))))


def _answers(data: TaskData, split: str) -> np.ndarray:
    """The right answers of a split, (sequences, answers of each)."""
    chunks = data.judged_chunks(split, lanes=1)
    return chunks.targets[chunks.mask].reshape(len(chunks.lengths), -1)


def _text_baselines(train: np.ndarray, test: np.ndarray, vocabulary_size: int) -> TextBaselines:
    # One more of each token, for a token of the test may not be in training.
    counts = np.bincount(train, minlength=vocabulary_size) + 1
    nats = -float(np.mean(np.log(counts / counts.sum())[test]))
    return TextBaselines(math.exp(nats), nats / math.log(2))
