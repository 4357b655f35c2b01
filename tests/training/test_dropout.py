"""Who is dropped is as random as can be told from the masks themselves: no unit, step, key or neighbor matters."""

import jax
import numpy as np
import pytest
from scipy import stats

from longspan.ops.outputs import Dropout

SHAPE = (150, 2, 400)


def standard_scores(mask: np.ndarray, share: float, axis: tuple[int, ...]) -> np.ndarray:
    """Of the counts along `axis`, each the sum of independent draws."""
    number = np.prod([mask.shape[each] for each in axis])
    return (mask.sum(axis) - number * share) / np.sqrt(number * share * (1 - share))


@pytest.mark.parametrize("dropout", [0.01, 0.3, 0.5, 0.8])
def test_every_unit_and_every_step_loses_its_share_and_no_more(dropout):
    mask = np.asarray(Dropout.of(dropout).mask(jax.random.key(1), SHAPE))
    for axis in [(0, 1, 2), (0, 1), (1, 2)]:
        squares = np.sum(standard_scores(mask, 1 - dropout, axis) ** 2)
        freedom = mask.size / np.prod([mask.shape[each] for each in axis])
        assert 1e-4 < stats.chi2.cdf(squares, freedom) < 1 - 1e-4


@pytest.mark.parametrize("dropout", [0.3, 0.5])
def test_no_unit_knows_of_another_and_no_chunk_of_the_next(dropout):
    key = jax.random.key(2)
    masks = [np.asarray(Dropout.of(dropout).mask(jax.random.fold_in(key, step), SHAPE)) for step in range(3)]
    flat = np.concatenate([mask.ravel() for mask in masks])
    centered = (flat - (1 - dropout)) / np.sqrt(dropout * (1 - dropout))
    for distance in [1, 2, 3, 7, 16, 64, 399, 400, 401, 800, 1600, masks[0].size, 2 * masks[0].size]:
        products = centered[distance:] * centered[:-distance]
        assert abs(products.sum()) < 4.5 * np.sqrt(len(products))


def test_runs_of_units_have_the_lengths_of_a_fair_coin():
    mask = np.asarray(Dropout.of(0.5).mask(jax.random.key(3), SHAPE)).ravel()
    ends = np.flatnonzero(np.diff(mask))
    counts = np.bincount(np.minimum(np.diff(ends), 10))[1:]
    expected = 0.5 ** np.append(np.arange(1, 10), 9) * counts.sum()
    assert stats.chisquare(counts, expected).pvalue > 1e-4


def test_the_expectation_of_what_is_heard_is_what_was_said():
    hidden = np.random.default_rng(4).normal(size=SHAPE).astype(np.float32)
    dropout = Dropout.of(0.4)
    heard = np.asarray(dropout.apply(jax.numpy.asarray(hidden), dropout.mask(jax.random.key(5), SHAPE)))
    dropped = heard == 0
    np.testing.assert_allclose(heard[~dropped], hidden[~dropped] / 0.6, rtol=1e-6)
    assert abs((heard - hidden).mean()) < 5 * np.sqrt(0.4 / 0.6 / hidden.size)
