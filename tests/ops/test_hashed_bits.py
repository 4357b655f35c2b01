"""Numbers made by the hash pass for uniform and independent; `test_dropout` asks more of its bits."""

import jax
import numpy as np
from scipy import stats

from longspan.ops.outputs import hashed_uniform


def numbers(keys: int, shape=(1000, 88)) -> np.ndarray:
    key = jax.random.key(7)
    return np.array([hashed_uniform(jax.random.fold_in(key, number), shape) for number in range(keys)], np.float64)


def test_numbers_are_uniform_to_their_last_bits():
    found = numbers(8).ravel()
    assert 0 <= found.min() < 1e-4
    assert 1 - 1e-4 < found.max() < 1
    assert stats.kstest(found, "uniform").pvalue > 1e-4
    low_bits = (found * 2**24).astype(int) % 256
    assert stats.chisquare(np.bincount(low_bits, minlength=256)).pvalue > 1e-4


def test_numbers_of_neighbors_of_the_next_machine_and_of_the_next_step_are_independent():
    found = numbers(8)
    for one, other in [
        (found[:, :, 1:], found[:, :, :-1]),
        (found[:, 1:], found[:, :-1]),
        (found[1:], found[:-1]),
    ]:
        counts, *_ = np.histogram2d(one.ravel(), other.ravel(), bins=16)
        assert stats.chisquare(counts.ravel()).pvalue > 1e-4


def test_rare_events_are_as_rare_as_they_should_be():
    rare = (numbers(40) < 1e-4).sum()
    assert 1e-4 < stats.poisson.cdf(rare, 40 * 88_000 * 1e-4) < 1 - 1e-4
