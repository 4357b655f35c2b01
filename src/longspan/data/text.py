"""Text as a stream of tokens, words or characters, with one end token a line (section 4.2 of the paper).

The state of a network runs through a whole split, so a split is one array of token ids.
"""

from __future__ import annotations

import hashlib
import json
import re
import sys
from array import array
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import ClassVar, Literal

import numpy as np

from longspan.data.names import SPLITS, Benchmark
from longspan.data.splitting import TEXT_SHARES, cut
from longspan.errors import InputError

Unit = Literal["word", "character"]

END = "\n"
UNKNOWN: dict[Unit, str] = {"word": "<unk>", "character": "\ufffd"}
DEFAULT_VOCABULARY_SIZE = 10_000
MIN_LINES = 10
MAX_TEXT_BYTES = 2**28


@dataclass(frozen=True, eq=False)
class TextData:
    """A text in three splits.

    Args:
        name: how the user asked for it.
        unit: what a token is, `word` or `character`.
        vocabulary: the token of each id; the most frequent in training come first.
        splits: token ids by split, `train`, `valid`, `test`; each int32.
        end_token: the id that ends every line, a newline in `vocabulary`.
        origin: where the text comes from, in a phrase.
        remarks: what was changed on the way, one line each.
    """

    name: str
    unit: Unit
    vocabulary: tuple[str, ...] = field(repr=False)
    splits: Mapping[str, np.ndarray] = field(repr=False)
    end_token: int
    origin: str = ""
    remarks: tuple[str, ...] = field(default=(), repr=False)
    kind: ClassVar[Literal["text"]] = "text"

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 of the tokens, their meaning and their splits."""
        digest = hashlib.sha256(json.dumps(["text", self.unit, self.vocabulary, self.end_token]).encode())
        for split in SPLITS:
            digest.update(np.array(len(self.splits[split]), "<i8").tobytes())
            digest.update(self.splits[split].astype("<i4").tobytes())
        return digest.hexdigest()

    def encode(self, text: str) -> np.ndarray:
        """Token ids of a text; every newline becomes the end token, and none is added after the last line."""
        return _encode(text, self.unit, self._ids)

    def decode(self, ids: Iterable[int]) -> str:
        """The text of token ids, words with a space between them."""
        tokens = (self.vocabulary[token] for token in ids)
        if self.unit == "character":
            return "".join(tokens)
        return re.sub(f" ?{END} ?", END, " ".join(tokens))

    @cached_property
    def _ids(self) -> dict[str, int]:
        return {token: number for number, token in enumerate(self.vocabulary)}


def read_benchmark_text(benchmark: Benchmark, paths: Sequence[Path]) -> TextData:
    """Read the Penn Treebank: lines stripped, all types of the training text in the vocabulary."""
    assert benchmark.unit is not None
    texts = {
        split: "".join(line.strip() + END for line in read_text(path).splitlines())
        for split, path in zip(SPLITS, paths, strict=True)
    }
    vocabulary = _ranked(_count(texts["train"], benchmark.unit))
    return _assemble(benchmark.name, benchmark.unit, texts, vocabulary, "Penn Treebank as prepared for rnnlm")


def load_text_file(
    path: Path, name: str, unit: Unit = "character", vocabulary_size: int = DEFAULT_VOCABULARY_SIZE
) -> TextData:
    """Read a user's text: the first 90 % of its lines train, 5 % validate and the last 5 % test.

    Words are those of the training lines, at most `vocabulary_size` of them with the end and the unknown
    token; words met only once there count as unknown, so that the unknown token has a probability to learn.
    Characters are those of the whole text, the rarest unknown if there are more than `vocabulary_size`.
    """
    lines = [line + END for line in read_text(path).split(END)]
    if lines[-1] == END:
        del lines[-1]
    if len(lines) < MIN_LINES:
        raise InputError(
            f"{path} has {len(lines)} line{'s' * (len(lines) != 1)}, expected at least {MIN_LINES} to split "
            "into training, validation and test; put one sentence or paragraph on a line"
        )
    if vocabulary_size < 3:
        raise InputError(f"vocabulary size {vocabulary_size} is too small, expected at least 3")
    texts = {split: "".join(lines[part]) for split, part in cut(len(lines), TEXT_SHARES).items()}
    vocabulary, remarks = _limited_vocabulary(texts, unit, vocabulary_size)
    return _assemble(name, unit, texts, vocabulary, path.name, remarks)


def read_text(path: Path) -> str:
    """A UTF-8 text file of at most `MAX_TEXT_BYTES`, with newlines as `\\n`."""
    try:
        size = path.stat().st_size
        if size > MAX_TEXT_BYTES:
            raise InputError(f"{path} has {size} bytes, more than the {MAX_TEXT_BYTES} allowed; use a part of it")
        return path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(f"{path} is not UTF-8 text (byte {error.start}); convert it to UTF-8 first") from error
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror or error}") from error


def _limited_vocabulary(texts: Mapping[str, str], unit: Unit, size: int) -> tuple[list[str], tuple[str, ...]]:
    unknown = UNKNOWN[unit]
    counts = _count(texts["train"], unit)
    training_tokens = counts.total()
    if unit == "word":
        candidates = Counter({token: count for token, count in counts.items() if count > 1})
    else:
        candidates = Counter({token: counts[token] for text in texts.values() for token in set(text)})
    del candidates[unknown]
    ranked = _ranked(candidates)
    kept = ranked[: size - 1]
    if END not in kept:
        kept[-1] = END
    if unit == "character" and len(kept) == len(ranked) and unknown not in counts:
        return kept, ()
    lost = training_tokens - sum(counts[token] for token in kept)
    remark = f"{lost} of {training_tokens} training {unit}s are not in the vocabulary and became {unknown}"
    return [*kept, unknown], (remark,)


def _assemble(
    name: str,
    unit: Unit,
    texts: Mapping[str, str],
    vocabulary: Sequence[str],
    origin: str,
    remarks: tuple[str, ...] = (),
) -> TextData:
    ids = {token: number for number, token in enumerate(vocabulary)}
    splits = {split: _encode(text, unit, ids) for split, text in texts.items()}
    return TextData(name, unit, tuple(vocabulary), splits, ids[END], origin, remarks)


def _count(text: str, unit: Unit) -> Counter[str]:
    if unit == "character":
        return Counter(text)
    counts: Counter[str] = Counter()
    for line in text.split(END):
        counts.update(line.split())
    counts[END] = text.count(END)
    return counts


def _ranked(counts: Counter[str]) -> list[str]:
    """The tokens, the most frequent first, ties in alphabetical order."""
    return sorted(counts, key=lambda token: (-counts[token], token))


def _encode(text: str, unit: Unit, ids: Mapping[str, int]) -> np.ndarray:
    unknown = ids.get(UNKNOWN[unit], -1)
    numbers = _encode_characters(text, ids, unknown) if unit == "character" else _encode_words(text, ids, unknown)
    if unknown < 0 and numbers.min(initial=0) < 0:
        raise InputError(f"the text has a {unit} outside the vocabulary of {len(ids)}; leave it out")
    return numbers


def _encode_characters(text: str, ids: Mapping[str, int], unknown: int) -> np.ndarray:
    points = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), "<u4")
    table = np.full(sys.maxunicode + 1, unknown, np.int32)
    table[[ord(token) for token in ids]] = list(ids.values())
    return table[points]


def _encode_words(text: str, ids: Mapping[str, int], unknown: int) -> np.ndarray:
    numbers = array("i")
    for line in text.split(END):
        numbers.extend(ids.get(word, unknown) for word in line.split())
        numbers.append(ids[END])
    # Splitting leaves one more line than there are newlines.
    return np.array(numbers[:-1], dtype=np.int32)
