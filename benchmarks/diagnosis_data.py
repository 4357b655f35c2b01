"""Data on which the diagnosis is judged, none of which its thresholds were set on, and ways to spoil them."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pydoc_data.topics import topics

import numpy as np

from longspan import data as longspan_data
from longspan.data.dataset import Chunks, DataRecord, Dataset, fingerprint_of
from longspan.data.music import MusicData
from longspan.data.sequences import arrange_pairs, song_order
from longspan.data.text import TextData

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
def _tune_book() -> MusicData:
    found = longspan_data.load("nottingham")
    assert isinstance(found, MusicData)
    return found


def tunes(seed: int, songs: int = 60) -> MusicData:
    """The beginnings of some folk tunes of Nottingham, in frames of eighth notes."""
    book, random = _tune_book(), np.random.default_rng(seed)
    sizes = {"train": songs, "valid": 20, "test": 20}
    chosen = {
        split: [book.splits[split][number][:100] for number in random.permutation(len(book.splits[split]))[:size]]
        for split, size in sizes.items()
    }
    return MusicData("tunes", chosen, book.frames_per_beat)


@cache
def _newspaper() -> TextData:
    found = longspan_data.load("ptb-chars")
    assert isinstance(found, TextData)
    return found


def news(seed: int, length: int = 30_000) -> TextData:
    """Characters of the Penn Treebank, from some place on."""
    paper = _newspaper()
    start = int(np.random.default_rng(seed).integers(0, len(paper.splits["train"]) - length - 10_000))
    text = paper.splits["train"][start : start + length + 10_000]
    splits = {"train": text[:length], "valid": text[length : length + 5000], "test": text[length + 5000 :]}
    return TextData("news", "character", paper.vocabulary, splits, paper.end_token)


def parities(seed: int, *, lag: int = 2, early: int = 0, kind: type[Pairs] = Pairs) -> Pairs:
    """Whether a symbol of four and the one `lag` steps before it are both odd or both even; `early` as below."""
    random = np.random.default_rng(seed)

    def split(count: int) -> tuple[list[np.ndarray], list[np.ndarray]]:
        inputs = [random.integers(0, 4, 60).astype(np.int32) for _ in range(count)]
        answers = [np.concatenate([np.zeros(lag, np.int32), (x[lag:] + x[:-lag]) % 2]).astype(np.int32) for x in inputs]
        return inputs, [np.concatenate([each[early:], each[:early]]) for each in answers]

    return kind("parities", "classes", 2, {"train": split(70), "valid": split(25), "test": split(25)}, 4)


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
