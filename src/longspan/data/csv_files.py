"""A table as text: its columns as arrays, read block by block, since one long word decides what all others take."""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from longspan.errors import InputError
from longspan.files import opened
from longspan.limits import TABLE_BYTES, TABLE_COLUMNS, TABLE_WORD, TABLE_WORD_BYTES, UNBROKEN_BYTES

ROWS_AT_ONCE, VALUES_AT_ONCE = 10_000, 1_000_000


def read_csv(path: Path) -> dict[str, np.ndarray]:
    """The columns of a table by name: int64, float64 (gaps are NaN) or words (gaps are empty)."""
    with opened(path) as file:
        size = os.fstat(file.fileno()).st_size
        if size > TABLE_BYTES:
            raise InputError(f"{path} has {size} bytes, more than the {TABLE_BYTES} allowed; use a part, or Parquet")
        text = io.TextIOWrapper(file, encoding="utf-8-sig", newline="")
        try:
            return _parse_csv(text, path)
        except UnicodeDecodeError as error:
            raise InputError(f"{path} is not UTF-8 text ({error.reason}); convert it to UTF-8 first") from error


def line_of(path: Path, row: int) -> int:
    """The line on which a row ends, of a table that could be read; rows are counted from 0 below the names."""
    with opened(path) as file:
        reader, lines = _reader(io.TextIOWrapper(file, encoding="utf-8-sig", newline=""), path)
        width = len(next(reader))
        return next(islice(_rows(reader, lines, width, path), row, None))[0]


def _reader(text: io.TextIOWrapper, path: Path) -> tuple[Any, _Lines]:
    separator = "\t" if path.suffix.lower() == ".tsv" else _separator(text.readline(UNBROKEN_BYTES))
    text.seek(0)
    lines = _Lines(text, path)
    return csv.reader(lines, delimiter=separator), lines


def _parse_csv(text: io.TextIOWrapper, path: Path) -> dict[str, np.ndarray]:
    reader, lines = _reader(text, path)
    try:
        names = [name.strip() for name in next(reader, [])]
        if len(set(names)) != len(names) or not all(names) or len(names) > TABLE_COLUMNS:
            raise InputError(f"{path} must begin with different names of its columns, at most {TABLE_COLUMNS}")
        words = _Words(path)
        columns = [_Column(name, words) for name in names]
        for rows in _in_blocks(_rows(reader, lines, len(names), path), len(names)):
            for column, values in zip(columns, zip(*(row for _, row in rows), strict=True), strict=True):
                column.add([value.strip() for value in values], rows[0][0])
    except csv.Error as error:
        raise InputError(f"{path}, line {reader.line_num}: {error}; save it as plain CSV") from error
    return {column.name: column.joined() for column in columns if column.blocks}


class _Words:
    """What the words of all columns of a table will take."""

    def __init__(self, path: Path):
        self.path = path
        self.bytes = 0

    def take(self, more: int, name: str) -> None:
        self.bytes += more
        if self.bytes > TABLE_WORD_BYTES:
            raise InputError(
                f"{self.path}: the words of its columns, of {name!r} and those before it, take more than the "
                f"{TABLE_WORD_BYTES} bytes allowed; number them, or use a part of the table"
            )


class _Column:
    """A column of a table as it is read, block by block."""

    def __init__(self, name: str, words: _Words):
        self.name, self.words = name, words
        self.bytes_of_words = 0
        self.blocks: list[np.ndarray] = []
        self.rows, self.longest = 0, 0

    def add(self, values: list[str], line: int) -> None:
        self.rows, longest = self.rows + len(values), max(map(len, values))
        if longest > TABLE_WORD:
            raise InputError(
                f"{self.words.path}: column {self.name!r} has a value of {longest} characters after line {line}, more "
                f"than the {TABLE_WORD} allowed; shorten it"
            )
        self.longest = max(self.longest, longest)
        block = _parsed(values)
        if block.dtype.kind == "U" or self.bytes_of_words:  # one word makes words of a whole column
            taken = self.rows * self.longest * 4
            self.words.take(taken - self.bytes_of_words, self.name)
            self.bytes_of_words = taken
        self.blocks.append(block)

    def joined(self) -> np.ndarray:
        blocks, self.blocks = self.blocks, []  # so that a table is not held twice
        return _joined(blocks)


def _separator(line: str) -> str:
    return max(",;\t", key=line.count)


class _Lines:
    """The lines of a table, which refuse a row that is too long: a row may go on over any number of quoted lines."""

    def __init__(self, text: io.TextIOWrapper, path: Path):
        self.text, self.path = text, path
        self.of_row = 0
        """Characters since the last whole row."""

    def __iter__(self) -> Iterator[str]:
        while line := self.text.readline(UNBROKEN_BYTES + 1):
            self.of_row += len(line)
            if self.of_row > UNBROKEN_BYTES:
                raise InputError(
                    f"{self.path} has a row of more than the {UNBROKEN_BYTES} characters allowed; save it as plain CSV"
                )
            yield line


def _rows(reader: Any, lines: _Lines, width: int, path: Path) -> Iterator[tuple[int, list[str]]]:
    """The rows that are not empty, with their lines, all of the same width."""
    lines.of_row = 0
    for row in reader:
        lines.of_row = 0
        if len(row) not in (0, width):
            raise InputError(
                f"{path}, line {reader.line_num} has {len(row)} values: expected {width}, one for each column"
            )
        if row:
            yield reader.line_num, row


def _in_blocks(rows: Iterator[tuple[int, list[str]]], width: int) -> Iterator[list[tuple[int, list[str]]]]:
    height = max(1, min(ROWS_AT_ONCE, VALUES_AT_ONCE // max(width, 1)))
    while block := list(islice(rows, height)):
        yield block


def _parsed(values: list[str]) -> np.ndarray:
    try:
        return np.array(values, dtype="U").astype(np.int64)
    except (ValueError, OverflowError):
        pass
    try:
        return np.array([float(value) if value else np.nan for value in values])
    except ValueError:
        return np.array(values, dtype="U")


def _joined(blocks: list[np.ndarray]) -> np.ndarray:
    kinds = {block.dtype.kind for block in blocks}
    if "U" in kinds:
        return np.concatenate([block if block.dtype.kind == "U" else _as_words(block) for block in blocks])
    return np.concatenate(blocks)


def _as_words(numbers: np.ndarray) -> np.ndarray:
    if numbers.dtype.kind == "f":
        return np.array(["" if np.isnan(value) else f"{value:g}" for value in numbers], dtype="U")
    return np.array([str(value) for value in numbers.tolist()], dtype="U")  # `astype` takes 21 characters for each
