"""Text as a stream of tokens, words or characters, with one end token per line (section 4.2 of the paper).

The state of a network is carried through a whole split, so a split is one array of token ids.
"""

from __future__ import annotations

import codecs
import hashlib
import json
import math
import sys
from array import array
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from longspan.data.benchmarks import Benchmark
from longspan.data.dataset import SPLITS, Chunks, DataRecord, Dataset, TargetKind, array_of, check_splits, shares, whole
from longspan.data.ngrams import BestOrder, TextBaselines, best_ngram, text_baselines
from longspan.data.sequences import arrange
from longspan.data.splitting import TEXT_SHARES, cut
from longspan.data.vocabulary import (
    END,
    UNKNOWN,
    Unit,
    Vocabulary,
    check_vocabulary,
    code_points,
    encode,
    is_by_words,
    words_of,
)
from longspan.errors import InputError, printable
from longspan.files import read_limited
from longspan.limits import DISTINCT_WORDS, LINES, TEXT_BYTES, UNBROKEN_BYTES, VOCABULARY

BYTES = 256
DEFAULT_VOCABULARY_SIZE = 10_000
MIN_LINES, MIN_BYTES = 10, 1000
"""A text with fewer lines is cut within a line, if it has that many bytes."""
NGRAM_ORDERS: dict[Unit, int] = {"word": 5, "token": 5, "character": 8, "byte": 8}
"""Highest orders of the n-grams that models are compared with."""


@dataclass(frozen=True)
class TextSplit:
    """Sizes of a split of text: tokens, including one end token per line, and lines."""

    tokens: int
    lines: int


@dataclass(frozen=True, eq=False)
class TextData(Dataset):
    """A text in three splits.

    Args:
        name: the name under which the user loaded it.
        unit: what a token is: `word`, `token`, `character` or `byte`.
        vocabulary: the token of each id; the most frequent in training come first.
        splits: token ids by split, `train`, `valid`, `test`; each int32.
        end_token: the id that ends every line, a newline in `vocabulary`.
        origin: a phrase that says where the text comes from.
        remarks: notes on what was changed, one line each.
    """

    name: str
    unit: Unit
    vocabulary: tuple[str, ...] = field(repr=False)
    splits: Mapping[str, np.ndarray] = field(repr=False)
    end_token: int
    origin: str = ""
    remarks: tuple[str, ...] = field(default=(), repr=False)

    def __post_init__(self) -> None:
        check_splits(self.splits, self.name)
        if not isinstance(self.unit, str) or self.unit not in UNKNOWN:
            raise InputError(f"{self.name}: expected the unit word, token, character or byte, got {self.unit!r}")
        object.__setattr__(self, "vocabulary", check_vocabulary(self.vocabulary, self.unit, self.name))
        end_token = whole(self.end_token, "end_token", 0, len(self.vocabulary) - 1)
        if self.vocabulary[end_token] != END:
            raise InputError(
                f"{self.name}: the end token must be a newline, got {end_token}, which is "
                f"{printable(self.vocabulary[end_token])!r}"
            )
        object.__setattr__(self, "end_token", end_token)
        checked = {split: self._checked_tokens(self.splits[split], split) for split in SPLITS}
        object.__setattr__(self, "splits", checked)

    @property
    def record(self) -> DataRecord:
        return DataRecord(
            "text",
            self._digest,
            len(self.vocabulary),
            vocabulary=list(self.vocabulary),
            unit=self.unit,
            end_token=self.end_token,
        )

    @property
    def symbols(self) -> Vocabulary:
        """The vocabulary, for encoding and decoding."""
        return Vocabulary(self.unit, self.vocabulary)

    @property
    def target_kind(self) -> TargetKind:
        return "words" if is_by_words(self.unit) else "characters"

    @property
    def metrics(self) -> tuple[str, ...]:
        return (TEXT_METRICS[self.unit],)

    @cached_property
    def _digest(self) -> str:
        """SHA-256 of the tokens, their meaning and their splits."""
        digest = hashlib.sha256(json.dumps(["text", self.unit, self.vocabulary, self.end_token]).encode())
        for split in SPLITS:
            digest.update(np.array(len(self.splits[split]), "<i8").tobytes())
            digest.update(np.ascontiguousarray(self.splits[split], "<i4").data)
        return digest.hexdigest()

    def chunks(self, split: str, chunk_length: int, lanes: int) -> Chunks:
        return arrange(self.splits[split], chunk_length, lanes, end_token=self.end_token)

    def excerpt(self, split: str, steps: int) -> Chunks:
        """The beginning of the text."""
        beginning = arrange(self.splits[split][:steps], steps, end_token=self.end_token)
        return Chunks(*(leaf[0] for leaf in beginning))

    def base_rates(self) -> np.ndarray:
        return shares(self.splits["train"], len(self.vocabulary))

    def baselines(self, split: str) -> TextBaselines:
        single = text_baselines(self.splits["train"], self.splits[split], len(self.vocabulary))
        best = self._best_ngram
        return replace(single, ngram_order=best.order, ngram_bits_per_token=best.nats(self.splits[split]) / math.log(2))

    @cached_property
    def _best_ngram(self) -> BestOrder:
        size, highest = len(self.vocabulary), NGRAM_ORDERS[self.unit]
        return best_ngram(self.splits["train"], self.splits["valid"], size, self.end_token, highest)

    def split_figures(self, split: str) -> TextSplit:
        tokens = self.splits[split]
        return TextSplit(len(tokens), int(np.count_nonzero(tokens == self.end_token)))

    def details(self) -> dict[str, Any]:
        return {"unit": self.unit, "vocabulary_size": len(self.vocabulary)}

    def steps_of_epoch(self) -> int:
        return len(self.splits["train"])

    def _checked_tokens(self, tokens: np.ndarray, split: str) -> np.ndarray:
        where, size = f"{self.name}, {split}", len(self.vocabulary)
        tokens = array_of(tokens, where)
        if tokens.ndim != 1 or tokens.dtype.kind not in "iu" or len(tokens) == 0:
            raise InputError(
                f"{where}: expected one array of symbol numbers, got {tokens.dtype} of shape {tokens.shape}"
            )
        if tokens.min() < 0 or tokens.max() >= size:
            wrong = tokens.min() if tokens.min() < 0 else tokens.max()
            raise InputError(f"{where}: expected numbers of the {size} symbols, 0 to {size - 1}, got {wrong}")
        return tokens.astype(np.int32, copy=False)


class _Part(NamedTuple):
    """A part of a text: a range of its bytes, which need a quarter of the memory of a string and are not copied."""

    content: bytes
    start: int
    stop: int
    unit: Unit = "word"

    def blocks(self) -> Iterator[str]:
        """Yield blocks that end at a space or at the end of a line, so that no word or character is split.

        Bytes are given as the characters with their numbers.
        """
        start, content = self.start, self.content
        while start < self.stop:
            stop = min(start + UNBROKEN_BYTES, self.stop)
            if stop < self.stop:
                stop = max(content.rfind(b"\n", start, stop), content.rfind(b" ", start, stop)) + 1
            if stop == 0 and is_by_words(self.unit):
                raise ValueError(f"has more than {UNBROKEN_BYTES} bytes without a space or a new line; break its lines")
            if stop == 0:
                stop = _start_of_character(content, start + UNBROKEN_BYTES)
            try:
                yield content[start:stop].decode("latin-1" if self.unit == "byte" else "utf-8")
            except UnicodeDecodeError as error:
                line = content.count(b"\n", 0, start + error.start) + 1
                raise ValueError(f"is not UTF-8 text (line {line}); convert it to UTF-8 first") from error
            start = stop


def read_benchmark_text(benchmark: Benchmark, paths: Sequence[Path]) -> TextData:
    """Read the Penn Treebank, with lines stripped and all types of the training text in the vocabulary."""
    assert benchmark.unit is not None
    texts = {}
    for split, path in zip(SPLITS, paths, strict=True):
        text = "".join(line.strip() + END for line in read_text(path).splitlines()).encode()
        texts[split] = _Part(text, 0, len(text))
    vocabulary = _ranked(_count(texts["train"], benchmark.unit))
    return _assemble(benchmark.name, benchmark.unit, texts, vocabulary, "Penn Treebank as prepared for rnnlm")


def load_text_file(
    path: Path,
    name: str,
    unit: Unit = "character",
    vocabulary_size: int = DEFAULT_VOCABULARY_SIZE,
    minimum_count: int | None = None,
) -> TextData:
    """Read a user's text: the first 90 % of its lines train, 5 % validate and the last 5 % test.

    A text of fewer than ten lines is cut at the same shares of its length. The vocabulary of words comes from the
    training lines and has at most `vocabulary_size` entries, including the end and the unknown token. Words that occur
    there less than `minimum_count` times, by default twice, count as unknown: without any, the probability of an
    unknown word could not be learned. The vocabulary of characters comes from the whole text, and `minimum_count` is
    one by default. Bytes are all known.
    """
    if not 3 <= vocabulary_size <= VOCABULARY:
        raise InputError(f"vocabulary size must be from 3 to {VOCABULARY}, got {vocabulary_size}")
    least = (2 if is_by_words(unit) else 1) if minimum_count is None else minimum_count
    if least < 1:
        raise InputError(f"minimum_count must be at least 1, got {least}", fields=["minimum_count"])
    content = _unified_newlines(read_limited(path, TEXT_BYTES))
    if content and not content.endswith(b"\n"):
        content += b"\n"
    try:
        texts = _split_text(content, unit)
        vocabulary = _all_bytes(texts) if unit == "byte" else _limited_vocabulary(texts, unit, vocabulary_size, least)
        data = _assemble(name, unit, texts, vocabulary, printable(path.name))
        return replace(data, remarks=_unknown_remarks(data, least, vocabulary_size))
    except ValueError as error:
        raise InputError(f"{path} {error}") from error


def read_text(path: Path, most: int = TEXT_BYTES) -> str:
    """Read a UTF-8 text file of at most `most` bytes, with newlines as `\\n`."""
    content = _unified_newlines(read_limited(path, most))
    try:
        return "".join(_Part(content, 0, len(content)).blocks())
    except ValueError as error:
        raise InputError(f"{path} {error}") from error


def _unified_newlines(content: bytes) -> bytes:
    return content.removeprefix(codecs.BOM_UTF8).replace(b"\r\n", b"\n").replace(b"\r", b"\n")


def _split_text(content: bytes, unit: Unit) -> dict[str, _Part]:
    lines = content.count(b"\n")
    if lines < MIN_LINES and len(content) >= MIN_BYTES:
        parts = cut(len(content), TEXT_SHARES)
        bounds = [0, *(_boundary(content, part.stop, unit) for part in parts.values())]
        return {split: _Part(content, *ends, unit) for split, ends in zip(parts, pairwise(bounds), strict=True)}
    if lines < MIN_LINES:
        raise ValueError(
            f"has {lines} line{'s' * (lines != 1)}, expected at least {MIN_LINES} to split "
            "into training, validation and test; put one sentence or paragraph on a line"
        )
    if lines > LINES:
        raise ValueError(f"has {lines} lines, more than the {LINES} allowed; use a part of it")
    parts = cut(lines, TEXT_SHARES)
    bounds = [0, *(_end_of_line(content, part.stop) for part in parts.values())]
    return {split: _Part(content, *ends, unit) for split, ends in zip(parts, pairwise(bounds), strict=True)}


def _boundary(content: bytes, near: int, unit: Unit) -> int:
    """A place at or after `near` that splits no word or character."""
    if not is_by_words(unit):
        return _start_of_character(content, near)
    blanks = [place for place in (content.find(b" ", near), content.find(b"\n", near)) if place >= 0]
    return min(blanks) + 1 if blanks and near < len(content) else len(content)


def _start_of_character(content: bytes, near: int) -> int:
    """The first byte at or after `near` that does not continue a character of UTF-8, which three at most do."""
    following = range(near, min(near + 4, len(content)))
    return next((place for place in following if content[place] & 0xC0 != 0x80), min(near, len(content)))


def _end_of_line(content: bytes, number: int) -> int:
    """The position after `number` lines, found block by block: the positions of all lines would need more memory."""
    start = 0
    while (found := content.count(b"\n", start, start + UNBROKEN_BYTES)) < number:
        number -= found
        start += UNBROKEN_BYTES
    block = np.frombuffer(content[start : start + UNBROKEN_BYTES], np.uint8)
    return start + int(np.flatnonzero(block == ord(END))[number - 1]) + 1


def _all_bytes(texts: Mapping[str, _Part]) -> list[str]:
    """All bytes, so that nothing is ever unknown, the most frequent first."""
    counts = _count(texts["train"], "byte")
    return _ranked(Counter({chr(byte): counts[chr(byte)] for byte in range(BYTES)}))


def _limited_vocabulary(texts: Mapping[str, _Part], unit: Unit, size: int, least: int) -> list[str]:
    unknown, counts = UNKNOWN[unit], _count(texts["train"], unit)
    everywhere = counts
    if not is_by_words(unit):
        everywhere = counts | _count(texts["valid"], unit) | _count(texts["test"], unit)
    # A character that only other splits have is known all the same: there are few, and they are read by eye.
    rare = {token for token, count in everywhere.items() if count < least}
    candidates = Counter({token: counts[token] for token in everywhere if token not in rare})
    del candidates[unknown]
    ranked = _ranked(candidates)
    kept = ranked[: size - 1]
    if END not in kept:
        kept = [*kept[: size - 2], END]
    if not is_by_words(unit) and not rare and len(kept) >= len(ranked) and unknown not in counts:
        return kept
    return [*kept, unknown]


def _unknown_remarks(data: TextData, least: int, size: int) -> tuple[str, ...]:
    """How much of each split became the unknown token, and what decides it."""
    unknown = data.symbols.unknown
    if unknown is None:
        return ()
    found = {split: 100 * float(np.mean(data.splits[split] == unknown)) for split in SPLITS}
    said = ", ".join(f"{share:.1f} % of {split}" for split, share in found.items())
    why = f"seen less than {least} times in training, or beyond the {size} most frequent"
    remarks = [f"{said} became {UNKNOWN[data.unit]}: {why}"]
    if least == 1 and found["train"] == 0 and is_by_words(data.unit):
        remarks.append(f"no training word is {UNKNOWN[data.unit]}, so a model cannot learn it: perplexity will suffer")
    return tuple(remarks)


def _assemble(
    name: str,
    unit: Unit,
    texts: Mapping[str, _Part],
    vocabulary: Sequence[str],
    origin: str,
    remarks: tuple[str, ...] = (),
) -> TextData:
    ids = {token: number for number, token in enumerate(vocabulary)}
    splits = {split: _encode_part(text, unit, ids) for split, text in texts.items()}
    return TextData(name, unit, tuple(vocabulary), splits, ids[END], origin, remarks)


def _encode_part(text: _Part, unit: Unit, ids: Mapping[str, int]) -> np.ndarray:
    numbers = array("i")  # grows in place; concatenating arrays would need twice the memory
    for block in text.blocks():
        numbers.frombytes(encode(block, unit, ids).tobytes())
    return np.frombuffer(numbers, np.int32)


def _count(text: _Part, unit: Unit) -> Counter[str]:
    return _count_words(text, unit) if is_by_words(unit) else _count_characters(text)


def _count_characters(text: _Part) -> Counter[str]:
    counts = np.zeros(sys.maxunicode + 1, np.int64)
    for block in text.blocks():
        found = np.bincount(code_points(block))
        counts[: len(found)] += found
    return Counter({chr(point): int(counts[point]) for point in np.flatnonzero(counts)})


def _count_words(text: _Part, unit: Unit) -> Counter[str]:
    counts: Counter[str] = Counter()
    for block in text.blocks():
        counts.update(words_of(block, unit))
        counts[END] += block.count(END)
        if len(counts) > DISTINCT_WORDS:
            raise ValueError(f"has more than the {DISTINCT_WORDS} different words allowed; use a part of it")
    return counts


def _ranked(counts: Counter[str]) -> list[str]:
    """The tokens, most frequent first, ties in alphabetical order."""
    return sorted(counts, key=lambda token: (-counts[token], token))


TEXT_METRICS: dict[Unit, str] = {
    "word": "perplexity",
    "token": "perplexity",
    "character": "bits_per_character",
    "byte": "bits_per_byte",
}
"""The score of a text, by its unit."""
