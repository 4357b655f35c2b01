"""The longest earlier match, beside the quadratic comparison with every earlier place."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from longspan.data.recall import identities, longest_matches


def quadratic_matches(ids):
    """Compare with every earlier place, step by step."""
    position, length = [-1], [0]
    common = np.zeros(len(ids) + 1, int)
    for step in range(1, len(ids)):
        grown = np.zeros_like(common)
        for place in range(1, step):
            grown[place] = common[place - 1] + 1 if ids[step - 1] == ids[place - 1] else 0
        common = grown
        most = common[:step].max()
        position.append(max(place for place in range(step) if common[place] == most) if most else -1)
        length.append(most)
    return position, length


@settings(max_examples=60)
@given(st.lists(st.integers(0, 3), min_size=1, max_size=60))
def test_agrees_with_the_quadratic_comparison(ids):
    position, length = quadratic_matches(ids)
    found = longest_matches(np.array(ids, np.int32))
    assert found.position.tolist() == position
    assert found.length.tolist() == length


@pytest.mark.parametrize("ids", [[0] * 50, [0, 1] * 25, list(range(50)), [0] * 20 + [1] + [0] * 20 + [2] + [0] * 21])
def test_agrees_on_sequences_with_deep_trees(ids):
    position, length = quadratic_matches(ids)
    found = longest_matches(np.array(ids))
    assert (found.position.tolist(), found.length.tolist()) == (position, length)


def test_a_long_constant_sequence():
    """One whose tree is as deep as it is long, for which following all links at every step would take minutes."""
    found = longest_matches(np.zeros(50_000, int))
    assert np.array_equal(found.length, np.maximum(np.arange(50_000) - 1, 0))
    assert np.array_equal(found.position[2:], np.arange(50_000)[2:] - 1)


def test_a_match_is_a_match_and_cannot_be_longer():
    ids = np.random.default_rng(0).integers(0, 5, 3000)
    found = longest_matches(ids)
    for step in np.flatnonzero(found.length):
        place, length = found.position[step], found.length[step]
        assert place < step
        assert np.array_equal(ids[place - length : place], ids[step - length : step])
        assert place == length or ids[place - length - 1] != ids[step - length - 1]


def test_no_match_for_the_empty_and_the_first():
    assert longest_matches(np.zeros(0, int)).length.shape == (0,)
    assert longest_matches(np.array([3])).position.tolist() == [-1]


@pytest.mark.parametrize("dtype", [np.uint8, np.int32, np.float32])
def test_equal_steps_have_equal_numbers(dtype):
    steps = np.random.default_rng(1).integers(0, 2, (40, 3)).astype(dtype)
    ids = identities(steps)
    same = (steps[:, None] == steps[None]).all(axis=2)
    assert np.array_equal(ids[:, None] == ids[None], same)
    assert set(ids.tolist()) == set(range(ids.max() + 1))


def test_symbols_are_numbered_too():
    assert identities(np.array([5, 9, 5], np.int32)).tolist() == [0, 1, 0]
