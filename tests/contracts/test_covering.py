"""The covering set: every pair that can occur does, and few combinations are enough."""

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.contracts.covering import covering


def occurs(possible, one: tuple[int, object], other: tuple[int, object]) -> bool:
    return any(each[one[0]] == one[1] and each[other[0]] == other[1] for each in possible)


@given(st.sets(st.tuples(*[st.integers(0, 2)] * 4), min_size=1, max_size=30))
def test_a_pair_occurs_in_the_covering_set_if_and_only_if_it_can_occur(possible):
    few = covering(sorted(possible))
    assert set(few) <= possible
    places = [(place, value) for place in range(4) for value in range(3)]
    for one, other in product(places, repeat=2):
        if one[0] != other[0]:
            assert occurs(few, one, other) == occurs(possible, one, other)


@pytest.mark.parametrize(("values", "fewest", "most"), [((2, 2, 2), 4, 5), ((3, 3, 3), 9, 12), ((2, 7, 6), 42, 42)])
def test_it_is_little_larger_than_the_two_longest_lists_demand(values, fewest, most):
    few = covering(list(product(*map(range, values))))
    assert fewest <= len(few) <= most
    assert len(set(few)) == len(few)
