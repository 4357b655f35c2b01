"""Candidates from a sequence's own past: earlier steps that followed passages like the present one.

A step of the past is a candidate for the next one. Its *level* says over how many steps the present resembles the past
before it: level k means at least `ORDERS[k - 1]` steps, level 0 none. Of the different steps of the past, those of the
highest levels are candidates, the latest first.

`look_up` reads a whole sequence at a cost that is linear in its length. By the same definition `look_back` of
`sampling/reading.py` finds the candidates of one next step inside compiled code.
"""

from typing import Any, NamedTuple

import numpy as np

from longspan.data.dataset import Chunks
from longspan.data.recall import identities

ORDERS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 64)
"""Numbers of steps over which the present is compared with the past; in between, the next lower one counts."""
LEVELS = len(ORDERS) + 1
NONE = -1

_PRIME, _BASE = (1 << 61) - 1, 1_000_003


class Found(NamedTuple):
    """Candidates for each step, best first: `[..., candidate]`, int32.

    Attributes:
        level: how far the present resembles the past before the candidate; `NONE` where there is no candidate.
        place: the step of the sequence that is proposed, the latest one at this level.
        latest: the latest place of an equal step.
        count: number of equal steps so far.
        step: the step for which candidates are proposed.
    """

    level: Any
    place: Any
    latest: Any
    count: Any
    step: Any


def look_up(ids: np.ndarray, candidates: int) -> Found:
    """The candidates for every step of a sequence, from the steps before it.

    Args:
        ids: the sequence, equal steps as equal numbers.
        candidates: largest number of candidates per step.
    """
    past = _Past(candidates)
    rows = np.full((4, len(ids), candidates), NONE, np.int32)
    for step, symbol in enumerate(ids.tolist()):
        for number, candidate in enumerate(past.candidates()):
            rows[:, step, number] = candidate
        past.append(symbol)
    steps = np.broadcast_to(np.arange(len(ids), dtype=np.int32)[:, None], rows.shape[1:])
    return Found(*rows, step=steps)


class _Past:
    """The steps read so far, indexed by what came before them.

    For every level and every context of that length it keeps the latest continuations, as many as may be asked for. A
    context is known by a hash; should two of them ever collide, a candidate is a poor one, never a wrong probability.
    """

    def __init__(self, candidates: int):
        self.most = candidates
        self.symbols: list[int] = []
        self.hashes = [0]
        self.powers = [pow(_BASE, order, _PRIME) for order in ORDERS]
        self.continuations: list[dict[int, dict[int, int]]] = [{} for _ in range(LEVELS)]
        self.latest: dict[int, int] = {}
        self.counts: dict[int, int] = {}

    def candidates(self) -> list[tuple[int, int, int, int]]:
        """Level, place, latest place and count of the candidates for the next step."""
        found: dict[int, tuple[int, int, int, int]] = {}
        contexts = self._contexts()
        for level in range(len(contexts) - 1, -1, -1):
            known = self.continuations[level].get(contexts[level])
            for symbol in reversed(known or ()):
                if symbol not in found:
                    assert known is not None
                    found[symbol] = level, known[symbol], self.latest[symbol], self.counts[symbol]
                    if len(found) == self.most:
                        return list(found.values())
        return list(found.values())

    def append(self, symbol: int) -> None:
        """Read the next step."""
        place = len(self.symbols)
        for level, context in enumerate(self._contexts()):
            known = self.continuations[level].setdefault(context, {})
            known.pop(symbol, None)  # the order of a dictionary is that of insertion: the latest comes last
            known[symbol] = place
            if len(known) > self.most:
                del known[next(iter(known))]
        self.symbols.append(symbol)
        self.hashes.append((self.hashes[-1] * _BASE + symbol + 1) % _PRIME)
        self.latest[symbol] = place
        self.counts[symbol] = self.counts.get(symbol, 0) + 1

    def _contexts(self) -> list[int]:
        """The hash of the last steps, for every level that is not longer than the past."""
        now, read = self.hashes[-1], len(self.symbols)
        return [0] + [
            (now - self.hashes[read - order] * power) % _PRIME
            for order, power in zip(ORDERS, self.powers, strict=True)
            if order <= read
        ]


class Recalled(NamedTuple):
    """The candidates of all steps of a split, arranged like its `Chunks`, with the steps that they propose."""

    found: Found
    steps: np.ndarray
    """(chunk, time, lane, candidate, ...), like the targets; zero where there is no candidate."""


def look_up_split(chunks: Chunks, candidates: int) -> Recalled:
    """The candidates of every step of a split, each sequence on its own."""
    shape = (*chunks.mask.shape, candidates)
    found = Found(*(np.full(shape, NONE, np.int32) for _ in Found._fields))
    steps = np.zeros((*shape, *chunks.targets.shape[3:]), chunks.targets.dtype)
    for sequence in sequences_of(chunks):
        targets = chunks.targets[sequence]
        one = look_up(identities(targets), candidates)
        for whole, part in zip(found, one, strict=True):
            whole[sequence] = part
        exist = (one.level > NONE).reshape(*one.level.shape, *[1] * (targets.ndim - 1))
        steps[sequence] = np.where(exist, targets[one.place], 0)
    return Recalled(found, steps)


def sequences_of(chunks: Chunks) -> list[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Where the counted steps of each sequence are, as indices (chunk, time, lane) in order of time."""
    count, time, lanes = chunks.mask.shape
    found = []
    for lane in range(lanes):
        counted = np.flatnonzero(chunks.mask[:, :, lane].ravel())
        begins = np.flatnonzero(chunks.resets[:, :, lane].ravel())
        for part in np.split(counted, np.searchsorted(counted, begins[1:])):
            if len(part):
                found.append((*np.unravel_index(part, (count, time)), np.full(len(part), lane)))
    return found
