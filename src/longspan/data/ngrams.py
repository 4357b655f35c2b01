"""Baselines of text by counting: single-token frequencies, and n-gram models with modified Kneser-Ney smoothing.

All orders up to the highest are counted at once. An n-gram is numbered by the number of its first n - 1 tokens and its
last token, so every order is one sorted array of 64-bit keys. Which order is used is decided on the validation split.

Reference: Chen and Goodman, *An empirical study of smoothing techniques for language modeling*, 1998.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from longspan.data.dataset import Baselines

MOST_TOKENS = 2**23
"""Training tokens that are counted; a longer text is counted up to here."""
TOKENS_AT_ONCE = 2**20
UNSEEN = -1


class _Order(NamedTuple):
    """The n-grams of one order, in the order of their keys."""

    keys: np.ndarray
    counts: np.ndarray
    """How often each occurs."""
    continuations: np.ndarray | None
    """How many different tokens precede each; None for the highest order."""
    contexts: int
    """Number of n-grams of the next lower order."""


class KneserNey:
    """An interpolated n-gram model of a stream of tokens.

    Args:
        tokens: the training stream.
        size: number of different tokens.
        start: the token that is taken to precede the stream.
        highest: the highest order.
    """

    def __init__(self, tokens: np.ndarray, size: int, start: int, highest: int):
        self.size, self.start, self.highest = size, start, highest
        self.orders: list[_Order] = []
        tokens = np.asarray(tokens[:MOST_TOKENS], np.int64)
        numbers, contexts = np.zeros(len(tokens), np.int64), 1
        for order in range(1, highest + 1):
            history = self._before(numbers, order)
            keys, first, shorter, counts = np.unique(
                history * size + tokens, return_index=True, return_inverse=True, return_counts=True
            )
            if self.orders:
                followed = np.bincount(numbers[first], minlength=len(self.orders[-1].keys))
                self.orders[-1] = self.orders[-1]._replace(continuations=followed)
            self.orders.append(_Order(keys, counts, None, contexts))
            numbers, contexts = shorter, len(keys)

    def _before(self, numbers: np.ndarray, order: int) -> np.ndarray:
        """The number of the n-gram before each token; before the stream, that of repeated start tokens, if any."""
        if order == 1:
            return np.zeros(len(numbers), np.int64)
        return np.concatenate([[self._number_of_start(order - 1)], numbers[:-1]])

    def _number_of_start(self, order: int) -> int:
        number = 0
        for lower in self.orders[:order]:
            number = int(_find(lower.keys, np.array([number * self.size + self.start]))[0]) if number >= 0 else UNSEEN
        return max(number, 0)

    def log_probs(self, tokens: np.ndarray) -> list[np.ndarray]:
        """The log-probability of each token of a stream, by the models of order 1, 2, ... up to the highest."""
        tokens = np.asarray(tokens, np.int64)
        lower, found = np.full(len(tokens), 1 / self.size), []
        numbers = np.zeros(len(tokens), np.int64)
        for place, order in enumerate(self.orders, 1):
            history = self._before(numbers, place)
            numbers = np.where(history >= 0, _find(order.keys, history * self.size + tokens), UNSEEN)
            found.append(np.log(_interpolated(order, order.counts, history, numbers, lower, self.size)))
            if order.continuations is not None:
                lower = _interpolated(order, order.continuations, history, numbers, lower, self.size)
        return found

    def mean_log_probs(self, tokens: np.ndarray, at_once: int = TOKENS_AT_ONCE) -> list[float]:
        """The mean of `log_probs` of each order, computed in blocks of `at_once` tokens to bound the memory."""
        totals, before = np.zeros(self.highest), self.highest - 1
        for start in range(0, len(tokens), at_once):
            seen = min(start, before)  # tokens that only serve as history
            block = self.log_probs(tokens[start - seen : start + at_once])
            totals += [log_probs[seen:].sum() for log_probs in block]
        return (totals / len(tokens)).tolist()


def _find(keys: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    """The places of wanted keys in a sorted array, `UNSEEN` for those that are missing."""
    places = np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)
    return np.where(keys[places] == wanted, places, UNSEEN)


def _interpolated(
    order: _Order, counts: np.ndarray, history: np.ndarray, numbers: np.ndarray, lower: np.ndarray, size: int
) -> np.ndarray:
    """Discounted shares of the n-grams, plus what discounting leaves times the probability of the next lower order."""
    discounts = discounts_of(counts)[np.minimum(counts, 3)]
    owners = order.keys // size
    totals = np.bincount(owners, counts, minlength=order.contexts)
    left = np.bincount(owners, np.minimum(discounts, counts), minlength=order.contexts)
    known = (history >= 0) & (totals[history] > 0)
    share = np.where(numbers >= 0, np.maximum(counts - discounts, 0)[numbers], 0)
    total = np.where(known, totals[history], 1)
    return np.where(known, (share + left[history] * lower) / total, lower)


def discounts_of(counts: np.ndarray) -> np.ndarray:
    """What is taken off counts of 0, 1, 2 and more than 2, estimated from how many n-grams occur one to four times.

    Example:
        >>> discounts_of(np.array([1, 1, 1, 1, 2, 2, 3, 4])).tolist()
        [0.0, 0.5, 1.25, 1.0]
    """
    once, twice, thrice, four_times = (int(np.count_nonzero(counts == count)) for count in (1, 2, 3, 4))
    if min(once, twice, thrice, four_times) == 0:
        return np.array([0.0, 0.5, 0.75, 0.75])  # too few n-grams, or symbols that all occur often
    share = once / (once + 2 * twice)
    found = 1 - 2 * share * twice / once, 2 - 3 * share * thrice / twice, 3 - 4 * share * four_times / thrice
    return np.array([0.0, *(np.clip(discount, 0.01, most) for discount, most in zip(found, (1, 2, 3), strict=True))])


class BestOrder(NamedTuple):
    """The order that predicts the validation split best, and its model."""

    order: int
    model: KneserNey

    def nats(self, tokens: np.ndarray) -> float:
        """Mean negative log-probability of the tokens of a stream."""
        return -self.model.mean_log_probs(tokens)[self.order - 1]


def best_ngram(train: np.ndarray, valid: np.ndarray, size: int, start: int, highest: int) -> BestOrder:
    """The n-gram model of the order that predicts the validation split best."""
    model = KneserNey(train, size, start, highest)
    return BestOrder(1 + int(np.argmax(model.mean_log_probs(valid))), model)


@dataclass(frozen=True)
class TextBaselines(Baselines):
    """Perplexity and bits per token of predicting by single-token frequencies, and bits per token of n-grams."""

    perplexity: float
    bits_per_token: float
    ngram_order: int | None = None
    ngram_bits_per_token: float | None = None

    def rows(self) -> list[tuple[str, dict[str, float]]]:
        found = [("single-symbol frequencies", _text_figures(self.bits_per_token))]
        if self.ngram_bits_per_token is not None:
            found.insert(0, (f"{self.ngram_order}-gram, Kneser-Ney", _text_figures(self.ngram_bits_per_token)))
        return found


def _text_figures(bits: float) -> dict[str, float]:
    return {
        "log_likelihood": -bits * math.log(2),
        "perplexity": 2.0**bits,
        "bits_per_character": bits,
        "bits_per_byte": bits,
    }


def text_baselines(train: np.ndarray, test: np.ndarray, vocabulary_size: int) -> TextBaselines:
    """Baselines for tokens, fitted to the training split and measured on another."""
    # Each token is counted once more, because a token of the test split may be missing in training.
    counts = np.ones(vocabulary_size, np.int64)
    for start in range(0, len(train), TOKENS_AT_ONCE):  # NumPy makes a copy of eight bytes per token
        counts += np.bincount(train[start : start + TOKENS_AT_ONCE], minlength=vocabulary_size)
    nats = -float(np.mean(np.log(counts / counts.sum())[test]))
    return TextBaselines(math.exp(nats), nats / math.log(2))
