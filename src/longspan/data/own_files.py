"""Your own sequences from files: arrays (`.npy`, `.npz`) and tables (`.csv`, `.tsv`, `.parquet`).

In a table a row is a step. One column may hold the id of the sequence that a row belongs to; the others are inputs and
targets, or inputs whose next step is predicted. docs/own-data.md describes all formats.
"""

from __future__ import annotations

import io
import re
import subprocess
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np

from longspan.data.csv_files import line_of, read_csv
from longspan.data.dataset import texts_of
from longspan.data.own import Sequences
from longspan.data.own_arrays import Kind
from longspan.data.splitting import SONG_SHARES
from longspan.errors import InputError, printable
from longspan.files import opened
from longspan.limits import (
    ARCHIVE_BYTES,
    CHILD_WAIT,
    HEADER_BYTES,
    NUMBERS,
    SONGS,
    TABLE_COLUMNS,
    TABLE_WORD,
    TABLE_WORD_BYTES,
)
from longspan.registry import child_command

TABLES = (".csv", ".tsv", ".parquet")
ARRAYS = ("inputs", "targets", "lengths", "masks", "ids", "split", "columns")
"""The arrays of an `.npz` file, of which only the first is needed."""
MOST_ENTRIES = {"lengths": SONGS, "ids": SONGS, "split": SONGS, "columns": TABLE_COLUMNS}
"""Those that have one entry for each sequence or column."""
KNOWN = 8
"""Ids that a message names at most."""
DECIMAL_COMMA = re.compile(r"[+-]?\d*(,\d+)?([eE][+-]?\d+)?")
FEW = 20
"""A column of so few different whole numbers is taken for classes."""


def read_table(
    path: Path | str,
    name: str | None = None,
    *,
    inputs: Sequence[str] | None = None,
    targets: Sequence[str] | None = None,
    ids: str | None = None,
    ahead: int = 0,
    at_end: bool = False,
    split: Sequence[float] = SONG_SHARES,
    seed: int = 0,
    input_kind: Kind | None = None,
    target_kind: Kind | None = None,
) -> Sequences:
    """Read a table whose rows are steps.

    Args:
        path: a `.csv`, `.tsv` or `.parquet` file; the first line of the former two has the names of the columns.
        name: the name of the data set; by default the path.
        inputs: the input columns; by default all that are not otherwise used.
        targets: the target columns; by default the next row of the inputs is predicted. Rows without a value ask for
            nothing.
        ids: the column that says which sequence a row belongs to; without it all rows are one sequence.
        ahead: predict the targets of this many rows later; 0 means those of the same row.
        at_end: ask for a target at the last row of each sequence only.
        split: fractions of training, validation and test.
        seed: determines which ids go to which split.
        input_kind: `numbers`, `binary` or `symbols`; by default words are symbols and everything else numbers.
        target_kind: likewise; by default words and at most 20 different whole numbers are classes.
    """
    path = Path(path)
    table = _columns_of(path)
    remarks = (f"the first line names the columns: {', '.join(table)}",) if all(map(_is_number, table)) else ()
    asked = list(targets or ())
    if (ahead or at_end) and not asked:
        raise InputError(
            "ahead and at_end need targets: name the target columns", fields=["ahead", "at_end", "targets"]
        )
    if ahead < 0:
        raise InputError(f"ahead must be at least 0: got {ahead}", fields=["ahead"])
    _check_names(table, [*(inputs or ()), *asked, *([ids] if ids else [])], path)
    used = list(inputs) if inputs else [column for column in table if column not in asked and column != ids]
    rows = _rows_by_id(table, ids)
    _refuse_gaps(table, used, [part[: len(part) - ahead] for part in rows.values()], path)
    _refuse_gaps(table, asked, [part[ahead:] for part in rows.values() if not at_end], path, whole_rows=True)
    sources = [_stacked(table, used, part, path) for part in rows.values()]
    if input_kind is None and sources[0].dtype.kind in "biu":
        input_kind = "numbers"
    common = {
        "name": name or str(path),
        "ids": list(rows),
        "split": split,
        "seed": seed,
        "origin": printable(path.name),
        "id_column": ids,
    }
    if not asked:
        return _noted(Sequences(sources, input_kind=input_kind, columns=used, **common), remarks)
    kind = target_kind or _guessed_kind(table, asked)
    parts = [_stacked(table, asked, part, path) for part in rows.values()]
    if ahead:
        _check_ahead(sources, ahead)
        sources, parts = [part[:-ahead] for part in sources], [part[ahead:] for part in parts]
    if at_end:
        parts = [part[-1] for part in parts]
    names = None if kind == "symbols" else asked
    return _noted(Sequences(sources, parts, input_kind=input_kind, target_kind=kind, columns=names, **common), remarks)


def _noted(data: Sequences, remarks: tuple[str, ...]) -> Sequences:
    data.remarks = (*remarks, *data.remarks)
    return data


def _is_number(name: str) -> bool:
    """Whether the name of a column may be a value in a table without a line of names."""
    try:
        float(name)
    except ValueError:
        return False
    return True


class TableSteps(NamedTuple):
    """Rows of a table, and the names of its columns that were not read."""

    steps: np.ndarray
    left_out: list[str]


def read_steps(
    path: Path, columns: Sequence[str] | None, id_column: str | None = None, chosen: str | None = None
) -> TableSteps:
    """The rows of one sequence of a table.

    Args:
        path: the table.
        columns: the columns to read; by default all but the ids.
        id_column: the column that says which sequence a row belongs to; a table without it holds one.
        chosen: the id of the sequence, needed if the table holds several.
    """
    table = _columns_of(path)
    _check_names(table, list(columns or ()), path)
    ids = id_column if id_column in table and id_column not in (columns or ()) else None
    names = list(columns or (name for name in table if name != ids))
    if chosen is not None and ids is None:
        raise InputError(
            f"{path} has no column of ids that the run knows: prime_id chooses among the sequences of a table",
            fields=["prime_id"],
        )
    rows = _rows_by_id(table, ids)
    if chosen not in rows and (len(rows) > 1 or chosen is not None):
        known = f"{', '.join([*rows][:KNOWN])}{' and more' if len(rows) > KNOWN else ''}"
        told = "choose one by prime_id" if chosen is None else f"prime_id is {chosen!r}"
        raise InputError(
            f"{path} holds {len(rows)} sequences by its column {ids!r} ({known}) and a prime is one of them: {told}",
            fields=["prime_id"],
        )
    part = next(iter(rows.values())) if chosen is None else rows[chosen]
    _refuse_gaps(table, names, [part], path)
    return TableSteps(_stacked(table, names, part, path), [name for name in table if name not in (*names, ids)])


def read_own_file(path: Path, name: str, **options: Any) -> Sequences:
    """Read a table, or an array whose next step is predicted."""
    if path.suffix.lower() in TABLES:
        return read_table(path, name, **options)
    return Sequences(read_array(path), name=name, origin=printable(path.name), **options)


def sequences_of(arrays: Mapping[str, np.ndarray], where: Path | str, **options: Any) -> Sequences:
    """Sequences from the arrays of an `.npz` file: `inputs`, and any of `ARRAYS`."""
    check_arrays(arrays, lambda name: arrays[name].size, where)
    alone = [name for name, array in arrays.items() if array.ndim == 0]
    if alone:
        raise InputError(f"'{alone[0]}' in {where} is a single value: expected an array")
    inputs, lengths = arrays["inputs"], arrays.get("lengths")
    given: dict[str, Any] = {name: arrays[name] for name in ("targets", "masks") if name in arrays}
    if lengths is None:
        sequences: Any = inputs
    else:
        cuts, padded = _cuts(lengths, inputs, where), inputs.ndim == 3
        sequences = _cut(inputs, cuts, padded=padded)
        given = {name: _cut(array, cuts, padded=padded) or list(array) for name, array in given.items()}
    for name in ("ids", "split", "columns"):
        if name in arrays:
            given[name] = texts_of(np.ravel(arrays[name]), f"the {name} in {where}")
    return Sequences(sequences, given.pop("targets", "next"), **{**options, **given})


def check_arrays(names: Iterable[str], entries: Callable[[str], int], where: Path | str) -> None:
    """Refuse arrays by their names, and then by their numbers of entries, before any of them is read."""
    unknown = sorted(set(names) - set(ARRAYS))
    if unknown:
        raise InputError(f"{where} has an array {unknown[0]!r} beside inputs: expected only {', '.join(ARRAYS)}")
    for name in MOST_ENTRIES.keys() & set(names):
        if (found := entries(name)) > MOST_ENTRIES[name]:
            raise InputError(f"'{name}' in {where} has {found} entries, more than the {MOST_ENTRIES[name]} allowed")


def read_array(path: Path, called: str | None = None) -> np.ndarray:
    """The array of an `.npy` file, which messages call by its path, or as it is `called`."""
    where = called or str(path)
    with opened(path) as file:
        head = io.BytesIO(file.read(HEADER_BYTES))  # a header may claim to be as long as memory is large
        try:
            version = np.lib.format.read_magic(head)
            read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
            shape, fortran, dtype = read(head)
        except Exception as error:  # NumPy raises many kinds on broken headers
            raise InputError(f"{where} is not an .npy file: {error}") from error
        if len(shape) > 3 or any(type(size) is not int or size < 0 for size in shape) or dtype.itemsize == 0:
            raise InputError(f"{where} is not an .npy file of steps: it has shape {shape} and type {dtype}")
        file.seek(head.tell())
        count = int(np.prod(shape, dtype=object))
        if dtype.hasobject or dtype.kind not in "biufU" or not 0 < count <= NUMBERS:
            raise InputError(f"{where} has {count} values of {dtype}: expected from 1 to {NUMBERS} numbers or words")
        check_words(dtype, count, where)
        content = file.read(count * dtype.itemsize + 1) if count * dtype.itemsize <= ARCHIVE_BYTES else b""
    if len(content) != count * dtype.itemsize:
        raise InputError(f"{where} does not hold the {count} values that it claims; save it again")
    return np.frombuffer(content, dtype).reshape(shape, order="F" if fortran else "C")


def check_words(dtype: np.dtype, count: int, where: str | Path) -> None:
    """Refuse an array of words that takes too much memory, all of them as long as the longest."""
    if dtype.kind == "U" and (dtype.itemsize > 4 * TABLE_WORD or count * dtype.itemsize > TABLE_WORD_BYTES):
        raise InputError(
            f"{where} has {count} words of up to {dtype.itemsize // 4} characters: expected at most {TABLE_WORD}, and "
            f"{TABLE_WORD_BYTES} bytes in all; number them"
        )


def _cuts(lengths: np.ndarray, inputs: np.ndarray, where: Path | str) -> np.ndarray:
    wrong = lengths.ndim != 1 or lengths.dtype.kind not in "iu" or len(lengths) == 0 or lengths.min() < 1
    if not wrong:
        # Python integers, which do not overflow.
        wrong = sum(lengths.tolist()) != len(inputs) if inputs.ndim < 3 else lengths.max() > inputs.shape[1]
        wrong = wrong or (inputs.ndim == 3 and len(lengths) != len(inputs))
    if wrong:
        raise InputError(
            f"the lengths in {where} do not fit its inputs of shape {inputs.shape}: expected positive whole numbers "
            "that add up to the steps, or one for each padded sequence"
        )
    return lengths.astype(np.int64)


def _cut(array: np.ndarray, lengths: np.ndarray, *, padded: bool) -> list[np.ndarray] | None:
    """The sequences of an array that has them side by side with padding after each, as the inputs have if they are
    `padded`, or one after the other; None if it does not go by steps."""
    if padded and array.ndim > 1 and len(array) == len(lengths) and array.shape[1] >= lengths.max():
        return [part[:length] for part, length in zip(array, lengths, strict=True)]
    return np.split(array, np.cumsum(lengths)[:-1]) if len(array) == lengths.sum() else None


def _columns_of(path: Path) -> dict[str, np.ndarray]:
    """The columns of a table: int64, float64 (gaps are NaN) or words (gaps are empty)."""
    table = _read_parquet(path) if path.suffix.lower() == ".parquet" else read_csv(path)
    if not table or not len(next(iter(table.values()))):
        raise InputError(f"{path} has no rows: expected a line of column names and a row for every step")
    return table


def _read_parquet(path: Path) -> dict[str, np.ndarray]:
    from importlib.util import find_spec

    if find_spec("pyarrow") is None:
        raise InputError("reading Parquet needs pyarrow: pip install 'longspan[tables]', or save it as CSV")
    with opened(path), tempfile.TemporaryDirectory(prefix="longspan-table-") as folder:
        command = child_command("longspan.data.parquet_child", str(path.absolute()), folder)
        try:
            done = subprocess.run(command, capture_output=True, timeout=CHILD_WAIT)
            answer = msgspec.json.decode(done.stdout, type=_Answer)
        except (subprocess.TimeoutExpired, msgspec.DecodeError) as error:
            raise InputError(f"{path}: pyarrow did not survive reading it; save it as CSV") from error
        if answer.error is not None:
            raise InputError(f"{path}: {answer.error}")
        return {
            name: read_array(Path(folder) / f"{number}.npy", f"column {name!r} of {path}")
            for number, name in enumerate(answer.names)
        }


class _Answer(msgspec.Struct):
    """What `parquet_child` says."""

    names: list[str] = []
    error: str | None = None


def _check_names(table: Mapping[str, np.ndarray], names: list[str], path: Path) -> None:
    missing = [name for name in names if name not in table]
    if missing:
        raise InputError(f"{path} has no column {missing[0]!r}: expected some of {', '.join(table)}")


def _rows_by_id(table: Mapping[str, np.ndarray], ids: str | None) -> dict[str, np.ndarray]:
    """The rows of each sequence, in order."""
    if ids is None:
        return {"0": np.arange(len(next(iter(table.values()))))}
    found, first, places = np.unique(table[ids], return_index=True, return_inverse=True)
    if len(found) > SONGS:
        raise InputError(f"column {ids!r} has {len(found)} different ids, more than the {SONGS} allowed")
    rows = np.argsort(places, kind="stable")
    parts = np.split(rows, np.cumsum(np.bincount(places))[:-1])
    return {str(found[number]): parts[number] for number in np.argsort(first)}


def _stacked(table: Mapping[str, np.ndarray], names: Sequence[str], rows: np.ndarray, path: Path) -> np.ndarray:
    columns = [table[name][rows] for name in names]
    _refuse_decimal_commas(table, names, path)
    words = [name for name, column in zip(names, columns, strict=True) if column.dtype.kind == "U"]
    if words and len(names) > 1:
        raise InputError(
            f"column {words[0]!r} of {path} holds words (such as {str(table[words[0]][0])!r}): name the columns to "
            "use, with words in one of them only if it is the only one",
            fields=["inputs"],
        )
    if not columns:
        raise InputError(f"{path} has no columns left for the inputs: name some", fields=["inputs"])
    return columns[0] if words else np.stack(columns, axis=1)


def _refuse_decimal_commas(table: Mapping[str, np.ndarray], names: Sequence[str], path: Path) -> None:
    """Refuse columns of numbers with decimal commas, which would otherwise be words."""
    for name in names:
        words = table[name] if table[name].dtype.kind == "U" else []
        example = next((word for word in words if "," in word), None)
        if example is not None and all(DECIMAL_COMMA.fullmatch(word) for word in words):
            raise InputError(
                f"column {name!r} of {path} has numbers with decimal commas, such as {str(example)!r}: expected "
                "decimal points; save it with those"
            )


def _refuse_gaps(
    table: Mapping[str, np.ndarray],
    names: Sequence[str],
    rows: Sequence[np.ndarray],
    path: Path,
    *,
    whole_rows: bool = False,
) -> None:
    """Refuse numbers that are missing or infinite in some rows, by column and line; `whole_rows` may be missing."""
    numbers = [name for name in names if table[name].dtype.kind == "f"]
    if not numbers or not rows:
        return
    used = np.sort(np.concatenate(rows))
    odd = np.stack([~np.isfinite(table[name][used]) for name in numbers], axis=1)
    if whole_rows:
        gaps = np.stack([np.isnan(table[name][used]) for name in numbers], axis=1)
        odd[gaps.all(axis=1) & (len(numbers) == len(names))] = False
    if not odd.any():
        return
    place = int(np.argmax(odd.any(axis=1)))
    name = numbers[int(np.argmax(odd[place]))]
    value = table[name][used[place]]
    held = "no number" if np.isnan(value) else f"{value:g}"
    what = "all targets of a row, or none" if whole_rows else "a finite number in every row"
    row = int(used[place])
    where = f"row {row + 1}" if path.suffix.lower() == ".parquet" else f"line {line_of(path, row)}"
    raise InputError(f"{path}, {where}: column {name!r} has {held}: expected {what}; fill or leave out gaps")


def _guessed_kind(table: Mapping[str, np.ndarray], targets: Sequence[str]) -> Kind:
    columns = [table[name] for name in targets]
    if any(column.dtype.kind == "U" for column in columns):
        return "symbols"
    present = [column[~np.isnan(column)] if column.dtype.kind == "f" else column for column in columns]
    if len(columns) == 1 and (present[0] == np.round(present[0])).all() and len(np.unique(present[0])) <= FEW:
        return "symbols"
    if len(columns) > 1 and all(column.dtype.kind == "i" and np.isin(column, (0, 1)).all() for column in columns):
        return "binary"
    return "numbers"


def _check_ahead(sources: list[np.ndarray], ahead: int) -> None:
    shortest = min(map(len, sources))
    if shortest <= ahead:
        raise InputError(f"a sequence of {shortest} rows has none {ahead} rows ahead: choose a smaller ahead")
