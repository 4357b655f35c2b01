"""Repetition within a sequence: for every step, the longest match of its past with an earlier passage.

The steps just read are compared with every earlier place of the same sequence. The step that
followed the longest match is *recalled*. Frames of music and symbols of text are treated alike.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

ROOT = 0


class Matches(NamedTuple):
    """For each step, the place whose past matches the step's own past over most steps; the latest of such places.

    Attributes:
        position: int32, the step that followed the match, so that `sequence[position]` is recalled; -1 without a match.
        length: int32, the number of steps that match, 0 without a match.
    """

    position: np.ndarray
    length: np.ndarray


def identities(steps: np.ndarray) -> np.ndarray:
    """Number the different steps of a sequence: equal frames or symbols, equal numbers, from 0 without gaps.

    Example:
        >>> identities(np.array([[0, 1], [1, 1], [0, 1]], np.uint8))
        array([0, 1, 0], dtype=int32)
    """
    flat = np.ascontiguousarray(steps).reshape(len(steps), -1)
    if flat.size == 0:
        return np.zeros(len(steps), np.int32)
    rows = flat.view(np.dtype((np.void, flat.dtype.itemsize * flat.shape[1]))).ravel()
    return np.unique(rows, return_inverse=True)[1].astype(np.int32)


def longest_matches(ids: np.ndarray) -> Matches:
    """The longest earlier match of every step, in time `n log n` whatever the sequence.

    Args:
        ids: the sequence, as `identities` numbers it.

    Example:
        >>> longest_matches(np.array([7, 8, 9, 7, 8, 9])).length
        array([0, 0, 0, 0, 1, 2], dtype=int32)
    """
    tree = _SuffixTree(ids.tolist())
    position = np.full(len(ids), -1, np.int32)
    length = np.zeros(len(ids), np.int32)
    for step in range(1, len(ids)):
        node = tree.meeting_point(step)
        if node != ROOT:
            position[step], length[step] = tree.latest(node), tree.depths[node]
        tree.insert(step)
    return Matches(position, length)


class _SuffixTree:
    """The prefixes of a sequence as a tree in which two of them part where their common suffix ends.

    The tree is that of the suffix links of a suffix automaton. Prefixes are inserted in order; a node is *met* by those
    below it. Beginnings of subtrees are numbered so that a subtree is a range, and a tournament tree over the numbers
    holds the latest prefix of every range.
    """

    def __init__(self, symbols: list[int]):
        self.links, self.depths, self.nodes = _suffix_links(symbols)
        self.start, self.stop = _ranges(self.links, self.depths)
        self.leaves = len(self.links)
        self.winners = [-1] * (2 * self.leaves)
        self.met = bytearray(self.leaves)
        self.met[ROOT] = True

    def meeting_point(self, step: int) -> int:
        """The deepest node above the prefix of `step` symbols that an inserted one has met."""
        node = self.nodes[step - 1]
        while not self.met[node]:
            self.met[node] = True
            node = self.links[node]
        return node

    def insert(self, step: int) -> None:
        """Insert the prefix of `step` symbols, after all shorter ones."""
        place = self.start[self.nodes[step - 1]] + self.leaves
        while place:
            self.winners[place] = step
            place >>= 1

    def latest(self, node: int) -> int:
        """The last inserted prefix below a node."""
        low, high = self.start[node] + self.leaves, self.stop[node] + self.leaves
        found, winners = -1, self.winners
        while low < high:
            if low & 1:
                found = max(found, winners[low])
                low += 1
            if high & 1:
                high -= 1
                found = max(found, winners[high])
            low >>= 1
            high >>= 1
        return found


def _suffix_links(symbols: list[int]) -> tuple[list[int], list[int], list[int]]:
    """The suffix automaton: link and longest length of every state, and the state of every prefix.

    Reference: Blumer et al., *The smallest automaton recognizing the subwords of a text*, 1985.
    """
    edges: list[dict[int, int]] = [{}]
    links, depths, nodes = [ROOT], [0], []
    last = ROOT
    for symbol in symbols:
        state, node = last, len(edges)
        edges.append({})
        links.append(ROOT)
        depths.append(depths[last] + 1)
        nodes.append(node)
        while symbol not in edges[state]:
            edges[state][symbol] = node
            if state == ROOT:
                break
            state = links[state]
        else:
            links[node] = _split(edges, links, depths, state, symbol)
        last = node
    return links, depths, nodes


def _split(edges: list[dict[int, int]], links: list[int], depths: list[int], state: int, symbol: int) -> int:
    """The state of exactly the word of `state` and then `symbol`, cloned out of a longer one if need be."""
    target = edges[state][symbol]
    if depths[target] == depths[state] + 1:
        return target
    clone = len(edges)
    edges.append(dict(edges[target]))
    links.append(links[target])
    depths.append(depths[state] + 1)
    links[target] = clone
    while edges[state].get(symbol) == target:
        edges[state][symbol] = clone
        if state == ROOT:
            break
        state = links[state]
    return clone


def _ranges(links: list[int], depths: list[int]) -> tuple[list[int], list[int]]:
    """Number the nodes so that those below a node have the numbers from its start to before its stop."""
    order = np.argsort(depths, kind="stable").tolist()  # a link leads to a shorter word
    sizes = [1] * len(links)
    for node in reversed(order[1:]):
        sizes[links[node]] += sizes[node]
    start, free = [0] * len(links), [1] * len(links)
    for node in order[1:]:
        above = links[node]
        start[node] = free[above]
        free[above] += sizes[node]
        free[node] = start[node] + 1
    return start, [first + size for first, size in zip(start, sizes, strict=True)]
