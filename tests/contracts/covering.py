"""Few combinations that hold every pair of values: what goes wrong mostly takes two parts that do not fit."""

from collections.abc import Sequence
from itertools import combinations
from typing import TypeVar

Combination = TypeVar("Combination", bound=tuple)


def pairs(combination: tuple) -> set:
    """Every two values of a combination, with their places."""
    return set(combinations(enumerate(combination), 2))


def covering(possible: Sequence[Combination]) -> list[Combination]:
    """Some of the combinations, in which every pair occurs that occurs in any; greedily, the most new pairs first."""
    wanted, chosen = set[tuple]().union(*map(pairs, possible)), []
    while wanted:
        best = max(possible, key=lambda combination: len(pairs(combination) & wanted))
        chosen.append(best)
        wanted -= pairs(best)
    return chosen
