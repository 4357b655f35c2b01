"""Cut songs or a stream of tokens into chunks of limited length, in one lane or several.

One lane is the paper's regime: a chunk never spans two songs, and the state runs on from chunk to chunk of a
song. Several lanes are parallel streams of songs, back to back, where the state is reset inside a chunk; only
the ends of the streams are padding. Everywhere the input of a step is the target of the step before it.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from longspan.data.music import KEYS, Song
from longspan.errors import InputError


class Chunks(NamedTuple):
    """Chunks of T steps in B lanes; the first axis counts the N chunks.

    Attributes:
        inputs: (N, T, B, 88) uint8 or (N, T, B) int32, the frame or token before the target.
        targets: like `inputs`, the frame or token to predict.
        resets: (N, T, B) bool, the state is set to zero *before* this step.
        mask: (N, T, B) bool, the step counts; the others are padding.
        lengths: (N,) int32, the steps up to the last that counts in any lane.

    NumPy arrays as they come from here; inside a compiled step the same tuple holds JAX arrays, and one chunk of it
    has no first axis.
    """

    inputs: Any
    targets: Any
    resets: Any
    mask: Any
    lengths: Any


def arrange(
    sequences: Sequence[Song] | np.ndarray,
    chunk_length: int,
    lanes: int = 1,
    order: np.ndarray | None = None,
    *,
    end_token: int | None = None,
) -> Chunks:
    """Arrange the songs of a split, or its stream of tokens, in chunks.

    Args:
        sequences: songs (time x 88 each), or one array of token ids.
        chunk_length: the most steps of a chunk.
        lanes: how many streams run in parallel.
        order: the order of the songs, a permutation of their numbers; as they are if not given.
        end_token: what precedes a stream's first token.
    """
    if chunk_length < 1 or lanes < 1:
        raise InputError(f"chunk length and lanes must be at least 1, got {chunk_length} and {lanes}")
    if isinstance(sequences, np.ndarray):
        if end_token is None or order is not None:
            raise ValueError("a stream of tokens needs an end token and has no order of songs")
        return _arrange_stream(sequences, chunk_length, lanes, end_token)
    order = np.arange(len(sequences)) if order is None else order
    if lanes == 1:
        return _arrange_by_song(sequences, chunk_length, order)
    return _arrange_in_lanes(sequences, chunk_length, lanes, order)


def song_order(count: int, seed: int, epoch: int) -> np.ndarray:
    """A permutation of `count` songs that depends on nothing but seed and epoch.

    Random words are sorted, since NumPy keeps the words of a bit generator the same for ever but not its
    shuffles.
    """
    words = np.random.Philox(np.random.SeedSequence([seed, epoch])).random_raw(count)
    return np.argsort(words, kind="stable")


def chunk_starts(songs: Sequence[Song], chunk_length: int) -> np.ndarray:
    """The number of each song's first chunk in one lane, and at the end the number of all chunks."""
    counts = [-(-len(song) // chunk_length) for song in songs]
    return np.concatenate([[0], np.cumsum(counts, dtype=np.int64)])


def chunk_order(starts: np.ndarray, order: np.ndarray) -> np.ndarray:
    """The chunks of a one-lane arrangement, as the songs come in `order`.

    With `starts = chunk_starts(songs, chunk_length)`, indexing the chunks of `arrange(songs, chunk_length)`
    by the result gives `arrange(songs, chunk_length, order=order)` without building it anew.
    """
    return np.concatenate(
        [np.arange(start, stop) for start, stop in zip(starts[order], starts[order + 1], strict=True)]
    )


def _arrange_by_song(songs: Sequence[Song], chunk_length: int, order: np.ndarray) -> Chunks:
    ordered = [songs[song] for song in order]
    starts = chunk_starts(ordered, chunk_length)
    # Flattened, a song is one run of frames from its first chunk on, with padding only after it.
    placements = [(0, int(start) * chunk_length, song) for start, song in zip(starts[:-1], ordered, strict=True)]
    return _place(placements, int(starts[-1]), chunk_length, lanes=1)


def _arrange_in_lanes(songs: Sequence[Song], chunk_length: int, lanes: int, order: np.ndarray) -> Chunks:
    ordered = [songs[song] for song in order]
    placements = []
    ends = [0] * lanes
    for lane, song in zip(_deal([len(song) for song in ordered], lanes), ordered, strict=True):
        placements.append((lane, ends[lane], song))
        ends[lane] += len(song)
    return _place(placements, -(-max(ends) // chunk_length), chunk_length, lanes)


def _deal(lengths: Sequence[int], lanes: int) -> list[int]:
    """A lane for each song, so that lanes are about equally long: longest first, to the shortest lane."""
    loads = [(0, lane) for lane in range(lanes)]
    assigned = [0] * len(lengths)
    for song in sorted(range(len(lengths)), key=lambda song: -lengths[song]):
        load, lane = loads[0]
        assigned[song] = lane
        heapq.heapreplace(loads, (load + lengths[song], lane))
    return assigned


def _place(placements: Sequence[tuple[int, int, Song]], chunks: int, chunk_length: int, lanes: int) -> Chunks:
    """Lay songs into lanes, each given as lane, first step and frames."""
    steps = chunks * chunk_length
    inputs = np.zeros((steps, lanes, KEYS), np.uint8)
    targets = np.zeros_like(inputs)
    resets = np.zeros((steps, lanes), bool)
    mask = np.zeros((steps, lanes), bool)
    for lane, start, song in placements:
        stop = start + len(song)
        targets[start:stop, lane] = song
        inputs[start + 1 : stop, lane] = song[:-1]
        resets[start, lane] = True
        mask[start:stop, lane] = True
    return _chunked(inputs, targets, resets, mask, chunk_length)


def _arrange_stream(stream: np.ndarray, chunk_length: int, lanes: int, end_token: int) -> Chunks:
    """Cut a stream into contiguous parts, one a lane; a part's first input is the token before it."""
    bounds = np.arange(lanes + 1) * len(stream) // lanes
    steps = -(-int(np.diff(bounds).max()) // chunk_length) * chunk_length
    before = np.concatenate([[end_token], stream[:-1]]).astype(np.int32)
    inputs = np.full((steps, lanes), end_token, np.int32)
    targets = np.full((steps, lanes), end_token, np.int32)
    resets = np.zeros((steps, lanes), bool)
    mask = np.zeros((steps, lanes), bool)
    resets[:1] = True
    for lane in range(lanes):
        part = slice(bounds[lane], bounds[lane + 1])
        length = bounds[lane + 1] - bounds[lane]
        inputs[:length, lane] = before[part]
        targets[:length, lane] = stream[part]
        mask[:length, lane] = True
    return _chunked(inputs, targets, resets, mask, chunk_length)


def _chunked(
    inputs: np.ndarray, targets: np.ndarray, resets: np.ndarray, mask: np.ndarray, chunk_length: int
) -> Chunks:
    """Fold the steps into chunks."""
    inputs, targets, resets, mask = (
        array.reshape(-1, chunk_length, *array.shape[1:]) for array in (inputs, targets, resets, mask)
    )
    # Padding comes last in every lane of a chunk, so the count is also where it begins.
    lengths = mask.sum(axis=1).max(axis=1, initial=0).astype(np.int32)
    return Chunks(inputs, targets, resets, mask, lengths)
