"""Cut songs or a stream of tokens into chunks of limited length, in one lane or several.

One lane is the paper's regime: a chunk never spans two songs, and the state is carried between the chunks of a song.
Several lanes are parallel streams of concatenated songs, where the state is reset inside a chunk; only the ends of the
streams are padded. For songs and tokens, the input of a step is the target of the step before it.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from longspan.data.dataset import Chunks
from longspan.errors import InputError

Song = np.ndarray
"""uint8, time x keys."""


def arrange(
    sequences: Sequence[Song] | np.ndarray,
    chunk_length: int,
    lanes: int = 1,
    order: np.ndarray | None = None,
    *,
    end_token: int | None = None,
) -> Chunks:
    """Arrange the songs of a split, or its stream of tokens, into chunks.

    Args:
        sequences: songs (time x 88 each), or one array of token ids.
        chunk_length: largest number of steps per chunk.
        lanes: number of parallel streams.
        order: the order of the songs, a permutation of their indices; unchanged by default.
        end_token: the input before a stream's first token.
    """
    if chunk_length < 1 or lanes < 1:
        raise InputError(f"chunk length and lanes must be at least 1, got {chunk_length} and {lanes}")
    if isinstance(sequences, np.ndarray):
        if end_token is None or order is not None:
            raise ValueError("a stream of tokens needs an end token and has no order of songs")
        return _arrange_stream(sequences, chunk_length, lanes, end_token)
    order = np.arange(len(sequences)) if order is None else order
    ordered = [sequences[song] for song in order]
    placed = _placed([len(song) for song in ordered], chunk_length, lanes)
    return _place(map(_predicting_itself, ordered), placed, chunk_length, lanes)


def song_order(count: int, seed: int, epoch: int) -> np.ndarray:
    """A permutation of `count` songs that depends on nothing but seed and epoch.

    It sorts random words, because NumPy guarantees that the words of a bit generator never change but not that its
    shuffles do not.
    """
    words = np.random.Philox(np.random.SeedSequence([seed, epoch])).random_raw(count)
    return np.argsort(words, kind="stable")


def arrange_pairs(
    inputs: Sequence[np.ndarray],
    targets: Sequence[np.ndarray],
    masks: Sequence[np.ndarray] | None = None,
    *,
    chunk_length: int,
    lanes: int = 1,
    order: np.ndarray | None = None,
) -> Chunks:
    """Arrange your own sequences, pairs of inputs and targets at each step, into chunks.

    Args:
        inputs: for each sequence, (time x input) numbers or keys, or (time) symbols.
        targets: for each sequence, what is to be predicted, in the same forms and as long as its inputs.
        masks: for each sequence, (time) bool, which steps count; all by default.
        chunk_length: largest number of steps per chunk.
        lanes: number of parallel streams of sequences.
        order: a permutation of the sequences; unchanged by default.

    Example:
        >>> wave = np.sin(np.arange(10, dtype=np.float32))[:, None]
        >>> arrange_pairs([wave[:-1]], [wave[1:]], chunk_length=4).inputs.shape
        (3, 4, 1, 1)
    """
    if chunk_length < 1 or lanes < 1:
        raise InputError(f"chunk length and lanes must be at least 1, got {chunk_length} and {lanes}")
    masks = [np.ones(len(target), bool) for target in targets] if masks is None else masks
    if not len(inputs) == len(targets) == len(masks):
        raise InputError(
            f"got {len(inputs)} sequences of inputs, {len(targets)} of targets and {len(masks)} masks: "
            "expected as many of each"
        )
    pairs = [_Pair(*map(np.asarray, parts)) for parts in zip(inputs, targets, masks, strict=True)]
    _check_pairs(pairs)
    order = np.arange(len(pairs)) if order is None else np.asarray(order)
    if sorted(order.tolist()) != list(range(len(pairs))):
        raise InputError(f"expected an order that names each of the {len(pairs)} sequences once, got {order}")
    lengths = [len(pairs[number].targets) for number in order]
    return _place([pairs[number] for number in order], _placed(lengths, chunk_length, lanes), chunk_length, lanes)


class _Pair(NamedTuple):
    inputs: np.ndarray
    targets: np.ndarray
    mask: np.ndarray


class _Placed(NamedTuple):
    """Where sequences begin, each as its lane and its first step in that lane, and the number of chunks needed."""

    starts: list[tuple[int, int]]
    chunks: int


def _placed(lengths: Sequence[int], chunk_length: int, lanes: int) -> _Placed:
    if lanes == 1:
        # In a flattened lane, a sequence is contiguous from the start of its first chunk, with padding only after it.
        counts = np.cumsum([0, *(-(-length // chunk_length) for length in lengths)])
        return _Placed([(0, int(count) * chunk_length) for count in counts[:-1]], int(counts[-1]))
    starts, ends = [], [0] * lanes
    for lane, length in zip(_deal(lengths, lanes), lengths, strict=True):
        starts.append((lane, ends[lane]))
        ends[lane] += length
    return _Placed(starts, -(-max(ends) // chunk_length))


def _deal(lengths: Sequence[int], lanes: int) -> list[int]:
    """Assign sequences to lanes of about equal length: longest sequence first, each to the shortest lane."""
    loads = [(0, lane) for lane in range(lanes)]
    assigned = [0] * len(lengths)
    for number in sorted(range(len(lengths)), key=lambda number: -lengths[number]):
        load, lane = loads[0]
        assigned[number] = lane
        heapq.heapreplace(loads, (load + lengths[number], lane))
    return assigned


def _place(pairs: Iterable[_Pair], placed: _Placed, chunk_length: int, lanes: int) -> Chunks:
    """Lay sequences into lanes."""
    steps = placed.chunks * chunk_length
    pairs = iter(pairs)
    first = next(pairs)
    inputs, targets = (np.zeros((steps, lanes, *part.shape[1:]), part.dtype) for part in first[:2])
    resets, mask, present = (np.zeros((steps, lanes), bool) for _ in range(3))
    for (lane, start), pair in zip(placed.starts, itertools.chain([first], pairs), strict=True):
        part = slice(start, start + len(pair.targets))
        inputs[part, lane], targets[part, lane], mask[part, lane] = pair
        resets[start, lane] = True
        present[part, lane] = True
    return _chunked(inputs, targets, resets, mask, present, chunk_length)


def _predicting_itself(song: Song) -> _Pair:
    """A song as a pair in which each frame is predicted from the one before."""
    before = np.zeros_like(song)
    before[1:] = song[:-1]
    return _Pair(before, song, np.ones(len(song), bool))


def _check_pairs(pairs: Sequence[_Pair]) -> None:
    if not pairs:
        raise InputError("there are no sequences: expected at least one in every split")
    for number, pair in enumerate(pairs):
        lengths = {len(part) for part in pair}
        if len(lengths) > 1 or 0 in lengths:
            raise InputError(
                f"sequence {number} has {len(pair.inputs)} inputs and {len(pair.targets)} targets with "
                f"{len(pair.mask)} marks: expected as many of each, and no empty sequences"
            )
        if pair.mask.dtype != bool or pair.mask.ndim != 1:
            raise InputError(
                f"the mask of sequence {number} is {pair.mask.dtype} of shape {pair.mask.shape}: expected bool, one "
                "value per step"
            )
        for name, part, like in zip(("inputs", "targets"), pair[:2], pairs[0][:2], strict=True):
            if part.dtype.kind not in "biuf" or part.ndim not in (1, 2):
                raise InputError(
                    f"{name} of sequence {number} are {part.dtype} of shape {part.shape}: expected numbers, keys or "
                    "symbols, (time, columns) or (time,)"
                )
            if part.shape[1:] != like.shape[1:] or part.dtype != like.dtype:
                raise InputError(
                    f"{name} of sequence {number} are {part.dtype} of shape {part.shape}, those of the first are "
                    f"{like.dtype} of shape {like.shape}: expected the same type and width"
                )
            if part.dtype.kind == "f" and not np.isfinite(part).all():
                raise InputError(f"{name} of sequence {number} are not finite: replace or leave out missing values")


def _arrange_stream(stream: np.ndarray, chunk_length: int, lanes: int, end_token: int) -> Chunks:
    """Cut a stream into contiguous parts, one per lane; the first input of a part is the token before it."""
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
    return _chunked(inputs, targets, resets, mask, mask, chunk_length)


def _chunked(
    inputs: np.ndarray,
    targets: np.ndarray,
    resets: np.ndarray,
    mask: np.ndarray,
    present: np.ndarray,
    chunk_length: int,
) -> Chunks:
    """Fold the steps into chunks; `present` marks the steps that are not padding."""
    inputs, targets, resets, mask, present = (
        array.reshape(-1, chunk_length, *array.shape[1:]) for array in (inputs, targets, resets, mask, present)
    )
    # Padding comes last in every lane of a chunk, so the count is also where padding begins.
    lengths = present.sum(axis=1).max(axis=1, initial=0).astype(np.int32)
    return Chunks(inputs, targets, resets, mask, lengths)


MOST_PADDED = 2**28
"""Numbers in the chunks of a split, padding included."""


def side_by_side(pairs: Sequence[tuple[np.ndarray, np.ndarray, np.ndarray]], lanes: int) -> Chunks:
    """Whole sequences, inputs, targets and masks, side by side: a gradient spans each of them, however long it is."""
    longest, count = max(len(mask) for _, _, mask in pairs), -(-len(pairs) // lanes)
    width = pairs[0][0][0].size + pairs[0][1][0].size
    if count * lanes * longest * width > MOST_PADDED:
        raise InputError(
            f"{len(pairs)} sequences padded to the longest, {longest} steps, are too many numbers: leave out or cut "
            "the longest ones"
        )
    padded = [np.zeros((count * lanes, longest, *leaf.shape[1:]), leaf.dtype) for leaf in pairs[0]]
    for number, pair in enumerate(pairs):
        for whole, leaf in zip(padded, pair, strict=True):
            whole[number, : len(leaf)] = leaf
    inputs, targets, mask = (
        np.ascontiguousarray(leaf.reshape(count, lanes, *leaf.shape[1:]).swapaxes(1, 2)) for leaf in padded
    )
    lengths = np.zeros(count * lanes, np.int32)
    lengths[: len(pairs)] = [len(mask) for _, _, mask in pairs]
    resets = np.zeros(mask.shape, bool)
    resets[:, 0] = True
    return Chunks(inputs, targets, resets, mask, lengths.reshape(count, lanes).max(axis=1))
