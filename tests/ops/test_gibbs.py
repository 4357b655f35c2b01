"""Gibbs chains against the same coins in NumPy float64, and the coins against their law."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from longspan.ops import gibbs
from tests.ops.paths import each_with

# machines, keys, units: one of each, broken vectors, several panels of sums, more units than one logarithm takes
CASES = [(1, 1, 1), (3, 5, 2), (4, 88, 150), (2, 17, 300), (2, 6, 1100)]
STRENGTHS = np.float32([0.0, 0.3, 0.5, 1.0, 1.0, 0.8])


def mixed(bits: np.ndarray) -> np.ndarray:
    """MurmurHash3's finalizer, as published."""
    bits = bits.astype(np.uint64)
    for shift, factor in [(16, 0x85EBCA6B), (13, 0xC2B2AE35)]:
        bits = ((bits ^ (bits >> np.uint64(shift))) * np.uint64(factor)) % 2**32
    return bits ^ (bits >> np.uint64(16))


def hashed(words, numbers) -> np.ndarray:
    return mixed(mixed((numbers + int(words[0])) % 2**32) ^ np.uint64(words[1]))


def tossed(log_odds: np.ndarray, words) -> np.ndarray:
    """Whether (k + 1/2) / 2^23 is below the probability, k being the upper 23 bits of the hash of a unit's number."""
    numbers = hashed(words, np.arange(log_odds.size, dtype=np.uint64)) // 512
    probability = np.exp(-np.logaddexp(0, -log_odds))
    return (numbers.reshape(log_odds.shape) + 0.5) / 2**23 < probability


def chain(weights, visible_bias, hidden_bias, frames, strengths, seed, first=0):
    """The frames after the levels from `first` on, and what weighs them."""
    weights, visible_bias, hidden_bias = (np.asarray(each, np.float64) for each in (weights, visible_bias, hidden_bias))
    frames, total = frames != 0, np.zeros(len(visible_bias))
    for level in range(first, len(strengths)):
        words = hashed(seed, np.arange(4 * level, 4 * level + 4, dtype=np.uint64))
        input_, strength = frames @ weights, float(strengths[level])
        before = float(strengths[level - 1]) if level else 0.0
        after_minus_before = np.logaddexp(0, hidden_bias + strength * input_) - np.logaddexp(
            0, hidden_bias + before * input_
        )
        total += after_minus_before.sum(-1)
        hidden = tossed(hidden_bias + strength * input_, words[:2])
        frames = tossed(visible_bias + strength * (hidden @ weights.T), words[2:])
    return frames, total


def make(machines, keys, units, seed=0, scale=0.5):
    rng = np.random.default_rng([seed, machines, keys, units])
    shapes = [(keys, units), (machines, keys), (machines, units)]
    floats = [(scale * rng.normal(size=shape)).astype(np.float32) for shape in shapes]
    return *floats, (rng.random((machines, keys)) < 0.3).astype(np.uint8), STRENGTHS, np.uint32([2**32 - 5, 12345])


@pytest.mark.parametrize(("path", "case"), each_with(CASES, CASES[1:3]), indirect=["path"], ids=str)
def test_chains_are_those_of_the_same_coins(path, case):
    operands = make(*case)
    frames, _ = chain(*operands)
    np.testing.assert_array_equal(gibbs.gibbs_walk(*map(jnp.asarray, operands)), frames)
    frames, log_weights = chain(*operands, first=1)
    got, got_weights = gibbs.annealed_walk(*map(jnp.asarray, operands))
    np.testing.assert_array_equal(got, frames)
    np.testing.assert_allclose(got_weights, log_weights, rtol=1e-5, atol=1e-5)


def test_many_small_steps_of_the_weights_add_up_without_a_bias(native_path):
    """The logarithms of ratios that are nearly one: twenty thousand, the more accurate estimate of a likelihood."""
    levels = 20_000
    weights, visible, hidden, frames, _, seed = make(2, 20, 40)
    visible = np.where(np.arange(20) % 3 == 0, 1e4, -1e4).astype(np.float32) + 0 * visible  # nothing moves
    frames = np.broadcast_to(np.arange(20) % 3 == 0, (2, 20)).astype(np.uint8)
    strengths = np.sqrt(np.arange(levels + 1) / levels).astype(np.float32)
    moved, log_weights = gibbs.annealed_walk(*map(jnp.asarray, (weights, visible, hidden, frames, strengths, seed)))
    np.testing.assert_array_equal(moved, frames)
    input_ = frames.astype(float) @ weights.astype(float)
    want = np.logaddexp(0, hidden + input_) - np.logaddexp(0, hidden)
    np.testing.assert_allclose(log_weights, want.sum(-1), atol=2e-3)


def test_coins_follow_their_law(path):
    """Machines without weights: keys are on as often as their biases say, whatever their neighbors, machines, steps."""
    machines, keys = 2000, 88
    bias = np.linspace(-9, 9, keys, dtype=np.float32)
    bias[20:60] = 0
    visible, hidden = np.broadcast_to(bias, (machines, keys)), np.zeros((machines, 3), np.float32)
    start, weights = np.zeros((machines, keys), np.uint8), np.zeros((keys, 3), np.float32)
    draws = []
    for level in range(1, 5):
        strengths = np.ones(level, np.float32)
        operands = (weights, visible, hidden, start, strengths, np.uint32([7, 8]))
        draws.append(np.asarray(gibbs.gibbs_walk(*map(jnp.asarray, operands)), bool))
    draws = np.array(draws)
    probability = 1 / (1 + np.exp(-bias.astype(float)))
    counts = draws.sum((0, 1))
    two_sided = 2 * np.minimum(
        stats.binom.cdf(counts, 4 * machines, probability), stats.binom.sf(counts - 1, 4 * machines, probability)
    )
    assert two_sided.min() > 1e-4 / keys
    fair = draws[:, :, 20:60]
    for one, other in [
        (fair[:, :, 1:], fair[:, :, :-1]),
        (fair[:, 1:], fair[:, :-1]),
        (fair[1:], fair[:-1]),
    ]:
        table = np.histogram2d(one.ravel(), other.ravel(), bins=2)[0]
        assert stats.chi2_contingency(table).pvalue > 1e-4


@pytest.mark.parametrize("odd", [np.nan, np.inf, -np.inf])
def test_units_without_finite_odds_are_on_only_if_they_are_sure(path, odd):
    weights, visible, hidden, frames, strengths, seed = make(2, 20, 9)
    visible = visible.copy()
    visible[:, 3] = odd
    moved = gibbs.gibbs_walk(*map(jnp.asarray, (weights, visible, hidden, frames, strengths, seed)))
    np.testing.assert_array_equal(moved[:, 3], float(odd == np.inf))


def test_chains_do_not_depend_on_threads_nor_on_the_machines_beside_them(native_path, monkeypatch):
    operands = list(make(40, 88, 150))
    operands[4] = np.ones(50, np.float32)
    want = gibbs.gibbs_walk(*map(jnp.asarray, operands))
    monkeypatch.setenv("LONGSPAN_THREADS", "3")
    np.testing.assert_array_equal(gibbs.gibbs_walk(*map(jnp.asarray, operands)), want)
    few = (np.asarray(each)[:7] for each in operands[1:4])
    some = [operands[0], *few, *operands[4:]]
    np.testing.assert_array_equal(gibbs.gibbs_walk(*map(jnp.asarray, some)), want[:7])


def test_chains_compose_with_vmap_and_stop_gradients(either_path):
    weights, visible, hidden, frames, strengths, seed = map(jnp.asarray, make(4, 9, 5))
    seeds = jnp.stack([seed, seed + 1])

    def value(visible):
        ends = jax.vmap(lambda seed: gibbs.gibbs_walk(weights, visible, hidden, frames, strengths, seed))(seeds)
        return jnp.sum(visible * jax.lax.stop_gradient(ends).sum(0)), ends

    gradient, ends = jax.jit(jax.grad(value, has_aux=True))(visible)
    np.testing.assert_array_equal(gradient, ends.sum(0))
    assert np.any(np.asarray(ends[0] != ends[1]))
    np.testing.assert_array_equal(ends[0], gibbs.gibbs_walk(weights, visible, hidden, frames, strengths, seed))
