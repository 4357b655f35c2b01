"""The symbols of a text: words, words and punctuation marks, characters or bytes, and their numbers."""

from __future__ import annotations

import re
import sys
from array import array
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from longspan.data.dataset import DataRecord, Unit
from longspan.errors import InputError, printable

END = "\n"
UNKNOWN: dict[Unit, str] = {"word": "<unk>", "token": "<unk>", "character": "\ufffd", "byte": "\ufffd"}
TOKEN = re.compile(r"<unk>|\d+(?:[.,]\d+)+|\w+(?:['’-]\w+)*|[^\w\s]")


def is_by_words(unit: Unit) -> bool:
    """Whether symbols are words rather than characters or bytes."""
    return unit in ("word", "token")


def check_vocabulary(tokens: Sequence[str], unit: Unit, where: str) -> tuple[str, ...]:
    """The tokens as a tuple; refused unless each is a different text that the unit can be read by."""
    tokens = tuple(tokens)
    wrong = next((token for token in tokens if not isinstance(token, str) or not token), None)
    if wrong is not None or not tokens:
        raise InputError(f"{where}: expected a vocabulary of texts, got {wrong!r} among its {len(tokens)} symbols")
    if len(set(tokens)) < len(tokens):
        twice, count = Counter(tokens).most_common(1)[0]
        raise InputError(f"{where}: expected different symbols, got {printable(twice)!r} {count} times")
    unreadable = next((token for token in tokens if token != END and not _can_be_read(token, unit)), None)
    if unreadable is not None:
        raise InputError(f"{where}: expected symbols of one {unit} each, got {printable(unreadable)!r}")
    return tokens


def _can_be_read(token: str, unit: Unit) -> bool:
    if is_by_words(unit):
        return token.split() == [token]
    return len(token) == 1 and (unit != "byte" or ord(token) < 256)


@dataclass(frozen=True)
class Vocabulary:
    """The tokens of a text by id, for encoding and decoding.

    Args:
        unit: what a token is: `word`, `token`, `character` or `byte`.
        tokens: the token of each id; a byte is the character with its number.
    """

    unit: Unit
    tokens: tuple[str, ...] = field(repr=False)

    def encode(self, text: str) -> np.ndarray:
        """Token ids of a text; every newline becomes the end token, and none is added after the last line."""
        return encode(as_bytes(text) if self.unit == "byte" else text, self.unit, self._ids)

    def decode(self, ids: Iterable[int]) -> str:
        """The text of token ids, with spaces between words; bytes that are not UTF-8 become replacement characters."""
        tokens = (self.tokens[token] for token in ids)
        if self.unit == "byte":
            return "".join(tokens).encode("latin-1").decode("utf-8", "replace")
        if self.unit == "character":
            return "".join(tokens)
        text = re.sub(f" ?{END} ?", END, " ".join(tokens))
        return re.sub(r"(?<=[(\[{]) | (?=[.,;:!?%)\]}])", "", text) if self.unit == "token" else text

    @staticmethod
    def of(record: DataRecord) -> Vocabulary:
        """The vocabulary of a run on text."""
        if len(record.vocabulary or ()) != record.size:
            raise InputError(
                f"the record of the text names {len(record.vocabulary or ())} of its {record.size} symbols"
            )
        return Vocabulary(record.unit or "character", tuple(record.vocabulary or ()))

    def without_unknown(self) -> np.ndarray | None:
        """What sampling must hold so that it never draws the unknown token; None if there is none."""
        if self.unknown is None or len(self.tokens) < 3:
            return None
        held = np.full((1, len(self.tokens)), -1, np.int8)
        held[0, self.unknown] = 0
        return held

    @property
    def unknown(self) -> int | None:
        """The id that stands for all tokens outside the vocabulary; None if there is none."""
        return self._ids.get(UNKNOWN[self.unit])

    @cached_property
    def _ids(self) -> dict[str, int]:
        return {token: number for number, token in enumerate(self.tokens)}


def as_bytes(text: str) -> str:
    """The bytes of a text in UTF-8, as the characters with their numbers."""
    return text.encode().decode("latin-1")


def words_of(text: str, unit: Unit) -> list[str]:
    """The words of a text; for tokens, punctuation marks are words of their own."""
    return TOKEN.findall(text) if unit == "token" else text.split()


def encode(text: str, unit: Unit, ids: Mapping[str, int]) -> np.ndarray:
    """Token ids of a text, given those of all tokens."""
    unknown = ids.get(UNKNOWN[unit], -1)
    by_words = is_by_words(unit)
    numbers = _encode_words(text, unit, ids, unknown) if by_words else _encode_characters(text, ids, unknown)
    if unknown < 0 and numbers.min(initial=0) < 0:
        raise InputError(f"the text has a {unit} outside the vocabulary of {len(ids)}; leave it out")
    return numbers


def _encode_characters(text: str, ids: Mapping[str, int], unknown: int) -> np.ndarray:
    table = np.full(sys.maxunicode + 1, unknown, np.int32)
    table[[ord(token) for token in ids]] = list(ids.values())
    return table[code_points(text)]


def code_points(text: str) -> np.ndarray:
    """The numbers of the characters of a text."""
    return np.frombuffer(text.encode("utf-32-le", "surrogatepass"), "<u4")


def _encode_words(text: str, unit: Unit, ids: Mapping[str, int], unknown: int) -> np.ndarray:
    numbers = array("i")
    for line in text.split(END):
        numbers.extend(ids.get(word, unknown) for word in words_of(line, unit))
        numbers.append(ids[END])
    # Splitting yields one more line than there are newlines.
    return np.array(numbers[:-1], dtype=np.int32)
