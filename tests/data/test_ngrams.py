"""N-grams against a slow model of dictionaries, their own sums, and the Penn Treebank's known perplexity."""

import math
from collections import Counter, defaultdict

import numpy as np
import pytest

from longspan.data import load
from longspan.data.ngrams import KneserNey, best_ngram, discounts_of
from tests.support.real_data import DATA, needs_benchmarks

SIZE, START = 4, 0


def stream(length: int, seed: int) -> np.ndarray:
    random = np.random.default_rng(seed)
    tokens = np.zeros(length, np.int64)
    for place in range(2, length):
        likely = (tokens[place - 1] + tokens[place - 2] + 1) % SIZE
        tokens[place] = likely if random.random() < 0.6 else random.integers(SIZE)
    return tokens


class Slow:
    """Interpolated Kneser-Ney as the book says, with grams as tuples."""

    def __init__(self, tokens, order: int):
        self.order, padded = order, [START] * (order - 1) + list(tokens)
        self.raw = {
            k: Counter(tuple(padded[i - k + 1 : i + 1]) for i in range(order - 1, len(padded)))
            for k in range(1, order + 1)
        }

    def adjusted(self, k: int) -> Counter:
        if k == self.order:
            return self.raw[k]
        preceded = defaultdict(set)
        for gram in self.raw[k + 1]:
            preceded[gram[1:]].add(gram[0])
        return Counter({gram: len(before) for gram, before in preceded.items()})

    def probability(self, word: int, history: tuple, k: int) -> float:
        if k == 0:
            return 1 / SIZE
        lower = self.probability(word, history[1:], k - 1)
        counts = self.adjusted(k)
        discounts = discounts_of(np.array(list(counts.values())))
        own = {gram[-1]: count for gram, count in counts.items() if gram[:-1] == history}
        total = sum(own.values())
        if total == 0:
            return lower
        share = max(own.get(word, 0) - discounts[min(own.get(word, 0), 3)], 0)
        left = sum(min(discounts[min(count, 3)], count) for count in own.values())
        return (share + left * lower) / total


@pytest.mark.parametrize("order", [1, 2, 3])
def test_probabilities_are_those_of_a_slow_model_and_sum_to_one(order):
    tokens = np.concatenate([[START] * 3, stream(150, 0)])  # begins with what is taken to precede it
    fast, slow = KneserNey(tokens, SIZE, START, order), Slow(tokens, order)
    other = np.concatenate([[START] * 3, stream(30, 1)])
    found = fast.log_probs(other)[order - 1]
    padded = [START] * 3 + other.tolist()
    for place in range(3, len(padded)):
        history = tuple(padded[place - order + 1 : place])
        expected = [slow.probability(word, history, order) for word in range(SIZE)]
        assert sum(expected) == pytest.approx(1)
        assert math.exp(found[place - 3]) == pytest.approx(expected[padded[place]], rel=1e-9)


def test_lower_orders_are_models_of_their_own():
    tokens, other = stream(200, 0), stream(50, 1)
    whole = KneserNey(tokens, SIZE, START, 3).log_probs(other)
    for order in (1, 2):
        np.testing.assert_allclose(whole[order - 1], KneserNey(tokens, SIZE, START, order).log_probs(other)[order - 1])


def test_the_order_is_chosen_on_the_validation_split():
    best = best_ngram(stream(4000, 0), stream(1000, 1), SIZE, START, 6)
    assert best.order == 3
    exact = -(0.7 * math.log(0.7) + 0.3 * math.log(0.1))
    assert best.nats(stream(4000, 2)) == pytest.approx(exact, abs=0.03)


@needs_benchmarks
def test_five_grams_of_the_penn_treebank_reach_what_is_known():
    """Mikolov et al. (2011) report 141.2 for Kneser-Ney 5-grams."""
    data = load("ptb-words", DATA)
    model = KneserNey(data.splits["train"], 10_000, data.end_token, 5)
    perplexity = math.exp(-float(np.mean(model.log_probs(data.splits["test"])[4])))
    assert perplexity == pytest.approx(141.2, rel=0.02)


def test_long_streams_are_scored_in_blocks_to_the_same_mean():
    model, unseen = KneserNey(stream(400, 0), SIZE, START, 4), stream(103, 1)
    whole = [float(np.mean(each)) for each in model.log_probs(unseen)]
    np.testing.assert_allclose(model.mean_log_probs(unseen, at_once=10), whole, rtol=1e-12)
