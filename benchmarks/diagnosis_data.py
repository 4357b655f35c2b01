"""Data on which the diagnosis is developed and judged, and ways to spoil them."""

from __future__ import annotations

import argparse
import difflib
import doctest
import inspect
import optparse
import pdb
import tarfile
from collections.abc import Callable, Mapping
from functools import cache
from pydoc_data.topics import topics

import numpy as np

from longspan import data as longspan_data
from longspan.data.dataset import Chunks, DataRecord, Dataset, fingerprint_of
from longspan.data.music import MusicData
from longspan.data.sequences import arrange_pairs, song_order
from longspan.data.text import TextData

Answer = Callable[[np.ndarray, np.ndarray], np.ndarray]
Splits = Mapping[str, tuple[list[np.ndarray], list[np.ndarray]]]


class Pairs(Dataset):
    """Sequences of inputs and targets, as a user would hand them in."""

    def __init__(self, name: str, kind, size: int, splits: Splits, input_size: int | None = None):
        self.name, self.splits = name, splits
        arrays = [array for pair in splits.values() for part in pair for array in part]
        self._record = DataRecord(kind, fingerprint_of(*arrays), size, input_size)

    @property
    def record(self) -> DataRecord:
        return self._record

    def chunks(self, split: str, chunk_length: int, lanes: int) -> Chunks:
        return arrange_pairs(*self.splits[split], chunk_length=chunk_length, lanes=lanes)

    def epoch(self, number: int, *, seed: int, chunk_length: int, lanes: int) -> Chunks:
        order = song_order(len(self.splits["train"][0]), seed, number)
        return arrange_pairs(*self.splits["train"], chunk_length=chunk_length, lanes=lanes, order=order)


class Forgotten(Pairs):
    """The same, but the state is reset at the beginning of every chunk."""

    def chunks(self, split, chunk_length, lanes):
        return _reset(super().chunks(split, chunk_length, lanes))

    def epoch(self, number, *, seed, chunk_length, lanes):
        return _reset(super().epoch(number, seed=seed, chunk_length=chunk_length, lanes=lanes))


def _reset(chunks: Chunks) -> Chunks:
    chunks.resets[:, 0] = True
    return chunks


@cache
def _corpus() -> MusicData:
    found = longspan_data.load("bach")
    assert isinstance(found, MusicData)
    return found


def chorales(seed: int, songs: int = 120) -> MusicData:
    """Some of Bach's chorales."""
    corpus, random = _corpus(), np.random.default_rng(seed)
    sizes = {"train": songs, "valid": 30, "test": 30}
    chosen = {
        split: [corpus.splits[split][number] for number in random.permutation(len(corpus.splits[split]))[:size]]
        for split, size in sizes.items()
    }
    return MusicData("chorales", chosen, corpus.frames_per_beat)


def prose(seed: int, length: int = 40_000) -> TextData:
    """Characters of the documentation of Python's language, as it is installed with Python."""
    pages = [topics[name] for name in sorted(topics)]
    order = np.random.default_rng(seed).permutation(len(pages))
    text = "".join(" ".join(pages[number].lower().split()) + "\n" for number in order)
    text = "".join(symbol for symbol in text if symbol in "\n abcdefghijklmnopqrstuvwxyz.,'()")
    vocabulary = ("\n", *sorted(set(text) - {"\n"}))
    ids = np.array([vocabulary.index(symbol) for symbol in text[: length + 12_000]], np.int32)
    splits = {"train": ids[:length], "valid": ids[length : length + 6000], "test": ids[length + 6000 :]}
    return TextData("prose", "character", vocabulary, splits, 0)


@cache
def _book(name: str) -> MusicData:
    found = longspan_data.load(name)
    assert isinstance(found, MusicData)
    return found


def _beginnings(name: str, book: MusicData, seed: int, songs: int) -> MusicData:
    """The first hundred frames of some songs."""
    random, sizes = np.random.default_rng(seed), {"train": songs, "valid": 20, "test": 20}
    chosen = {
        split: [book.splits[split][number][:100] for number in random.permutation(len(book.splits[split]))[:size]]
        for split, size in sizes.items()
    }
    return MusicData(name, chosen, book.frames_per_beat)


def tunes(seed: int, songs: int = 60) -> MusicData:
    """Folk tunes of Nottingham."""
    return _beginnings("tunes", _book("nottingham"), seed, songs)


def pieces(seed: int, songs: int = 70) -> MusicData:
    """Orchestral and piano pieces of MuseData."""
    return _beginnings("pieces", _book("musedata"), seed, songs)


def excerpts(seed: int, songs: int = 50) -> MusicData:
    """A hundred frames out of the middle of piano pieces."""
    book, random = _book("piano-midi"), np.random.default_rng(seed)
    sizes = {"train": songs, "valid": 12, "test": 20}
    chosen = {}
    for split, size in sizes.items():
        whole = [book.splits[split][number] for number in random.permutation(len(book.splits[split]))[:size]]
        chosen[split] = [song[len(song) // 2 :][:100] for song in whole]
    return MusicData("excerpts", chosen, book.frames_per_beat)


@cache
def _newspaper() -> TextData:
    found = longspan_data.load("ptb-chars")
    assert isinstance(found, TextData)
    return found


def _excerpt(name: str, split: str, seed: int, length: int) -> TextData:
    """Characters of the Penn Treebank, from some place of a split on."""
    paper = _newspaper()
    start = int(np.random.default_rng(seed).integers(0, len(paper.splits[split]) - length - 10_000))
    text = paper.splits[split][start : start + length + 10_000]
    splits = {"train": text[:length], "valid": text[length : length + 5000], "test": text[length + 5000 :]}
    return TextData(name, "character", paper.vocabulary, splits, paper.end_token)


def news(seed: int, length: int = 30_000) -> TextData:
    """Characters of the training split of the Penn Treebank."""
    return _excerpt("news", "train", seed, length)


def reports(seed: int, length: int = 35_000) -> TextData:
    """Characters of its test split."""
    return _excerpt("reports", "test", seed, length)


def code(seed: int, length: int = 28_000) -> TextData:
    """Characters of modules of Python's standard library, as it is installed."""
    modules = (argparse, difflib, doctest, optparse, pdb, tarfile)
    text = inspect.getsource(modules[seed % len(modules)]).lower().replace("    ", "\t")
    vocabulary = ("\n", *sorted(set(text) - {"\n"}))
    ids = np.array([vocabulary.index(symbol) for symbol in text[: length + 10_000]], np.int32)
    splits = {"train": ids[:length], "valid": ids[length : length + 5000], "test": ids[length + 5000 :]}
    return TextData("code", "character", vocabulary, splits, 0)


def _answered(name: str, symbols: int, steps: int, counts: dict[str, int], answer: Answer, **options) -> Pairs:
    """Random symbols, each with an answer about it and the one `lag` steps before it, given `early` steps too early."""
    random, lag, early = np.random.default_rng(options["seed"]), options["lag"], options["early"]

    def split(count: int) -> tuple[list[np.ndarray], list[np.ndarray]]:
        inputs = [random.integers(0, symbols, steps).astype(np.int32) for _ in range(count)]
        answers = [np.concatenate([np.zeros(lag, bool), answer(x[lag:], x[:-lag])]).astype(np.int32) for x in inputs]
        return inputs, [np.concatenate([each[early:], each[:early]]) for each in answers]

    return options["kind"](name, "classes", 2, {name: split(count) for name, count in counts.items()}, symbols)


def parities(seed: int, *, lag: int = 2, early: int = 0, kind: type[Pairs] = Pairs) -> Pairs:
    """Whether one of a symbol of four and the one before it is odd, and the other even."""
    counts = {"train": 70, "valid": 25, "test": 25}
    return _answered(
        "parities", 4, 60, counts, lambda now, then: (now + then) % 2 == 1, seed=seed, lag=lag, early=early, kind=kind
    )


def comparisons(seed: int, *, lag: int = 2, early: int = 0, kind: type[Pairs] = Pairs) -> Pairs:
    """Whether a symbol of five is larger than the one before it."""
    counts = {"train": 75, "valid": 25, "test": 25}
    return _answered(
        "comparisons", 5, 55, counts, lambda now, then: now > then, seed=seed, lag=lag, early=early, kind=kind
    )


def distances(seed: int, *, lag: int = 2, early: int = 0, kind: type[Pairs] = Pairs) -> Pairs:
    """Whether a symbol of four and the one before the last differ by more than one."""
    counts = {"train": 90, "valid": 25, "test": 25}
    return _answered(
        "distances", 4, 50, counts, lambda now, then: abs(now - then) > 1, seed=seed, lag=lag, early=early, kind=kind
    )


def recurrences(seed: int, *, lag: int = 2, early: int = 0, kind: type[Pairs] = Pairs) -> Pairs:
    """Whether a symbol is the one that came `lag` steps before it; `early` shifts the answers ahead of their steps."""
    random = np.random.default_rng(seed)

    def split(count: int) -> tuple[list[np.ndarray], list[np.ndarray]]:
        inputs = [random.integers(0, 3, 50).astype(np.int32) for _ in range(count)]
        answers = [np.concatenate([np.zeros(lag, bool), x[lag:] == x[:-lag]]).astype(np.int32) for x in inputs]
        return inputs, [np.concatenate([each[early:], each[:early]]) for each in answers]

    return kind("recurrences", "classes", 2, {"train": split(80), "valid": split(30), "test": split(30)}, 3)


def as_pairs(music: MusicData, *, delay: int = 1, kind: type[Pairs] = Pairs) -> Pairs:
    """Songs whose input is the frame `delay` steps ago; 0 is the frame itself."""

    def delayed(song: np.ndarray) -> np.ndarray:
        return np.concatenate([np.zeros_like(song[:delay]), song[: len(song) - delay]])

    splits = {name: ([delayed(song) for song in songs], list(songs)) for name, songs in music.splits.items()}
    return kind("songs", "music", 88, splits)


def overlapping_songs(music: MusicData) -> MusicData:
    """Most of the validation songs are training songs."""
    valid = [*music.splits["train"][:20], *music.splits["valid"][:5]]
    return MusicData("chorales", {**music.splits, "valid": valid}, music.frames_per_beat)


def overlapping_text(text: TextData) -> TextData:
    """The validation text stands in the training text."""
    train = text.splits["train"]
    return TextData(text.name, text.unit, text.vocabulary, {**text.splits, "valid": train[5000:10_000]}, 0)
