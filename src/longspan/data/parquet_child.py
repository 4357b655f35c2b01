"""The child process in which a Parquet file is read: `python -m longspan.data.parquet_child FILE FOLDER`.

pyarrow believes what a file claims of itself, and a few bytes can stand for any number of equal values. So the process
limits its own memory and computing time before it opens the file, and writes the columns, as plain numbers and words,
to an `.npy` file each, which are then read like any others. Its answer is a line of JSON: the names of the columns, or
why it refuses.
"""

from __future__ import annotations

import json
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from longspan.errors import InputError
from longspan.limits import (
    ARCHIVE_BYTES,
    NUMBERS,
    PARQUET_CHILD_BYTES,
    PARQUET_CHILD_SECONDS,
    TABLE_COLUMNS,
    TABLE_WORD,
    TABLE_WORD_BYTES,
    most_of_own,
)


def main(source: str, folder: str) -> None:
    _limit()
    try:
        columns = read_columns(Path(source))
        for number, values in enumerate(columns.values()):
            np.save(Path(folder) / f"{number}.npy", values)
        answer = {"names": list(columns)}
    except InputError as error:
        answer = {"error": str(error)}
    except MemoryError:
        answer = {"error": "it unpacks to more memory than a table may take; use a part of it"}
    # pyarrow's exceptions derive from several built-in ones; whatever goes wrong in there is a fault of the file.
    except Exception as error:
        told = next(iter(str(error).splitlines()), "")
        answer = {"error": f"it is not a readable Parquet file ({type(error).__name__}: {told[:300]})"}
    with open(1, "w", closefd=False) as answers:
        answers.write(json.dumps(answer) + "\n")


def _limit() -> None:
    with suppress(ImportError):
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (PARQUET_CHILD_BYTES, PARQUET_CHILD_BYTES))
        resource.setrlimit(resource.RLIMIT_CPU, (PARQUET_CHILD_SECONDS, PARQUET_CHILD_SECONDS))


def read_columns(path: Path) -> dict[str, np.ndarray]:
    """The columns of a file: int64, float64 (gaps are NaN) or words (gaps are empty)."""
    from pyarrow import parquet, set_cpu_count

    set_cpu_count(1)
    about = parquet.read_metadata(path)
    groups = [about.row_group(number) for number in range(about.num_row_groups)]
    values = about.num_rows * about.num_columns
    if about.num_columns > TABLE_COLUMNS or values > NUMBERS:
        raise InputError(f"it has {about.num_rows} rows of {about.num_columns} columns, too many; use a part")
    if 8 * values > (most := most_of_own(path.stat().st_size)):
        raise InputError(
            f"its {values} values take {8 * values} bytes, more than the {most} allowed for a file of its size; use a "
            "part, or save it as CSV"
        )
    if sum(group.total_byte_size for group in groups) > ARCHIVE_BYTES:
        raise InputError(f"it unpacks to more than the {ARCHIVE_BYTES} bytes allowed; use a part of it")
    for column in parquet.read_schema(path):
        _check_type(column.type, column.name)
    table = parquet.read_table(path, use_threads=False)
    if sum(_bytes_of_words(table[name], str(name)) for name in table.column_names) > TABLE_WORD_BYTES:
        raise InputError(f"its words take more than the {TABLE_WORD_BYTES} bytes allowed; number them, or use a part")
    return {str(name): _from_arrow(table[name], str(name)) for name in table.column_names}


def _from_arrow(column: Any, name: str) -> np.ndarray:
    values = np.asarray(column.to_numpy())
    if values.dtype.kind == "b":
        return values.astype(np.int64)
    if values.dtype.kind in "iuf":
        return values.astype(np.int64 if values.dtype.kind in "iu" else np.float64)
    if values.dtype.kind == "O" and all(isinstance(value, str) or value is None for value in values):
        return np.array(["" if value is None else value for value in values], dtype="U")
    raise InputError(f"column {name!r} holds {column.type}: expected numbers or words; convert or drop it")


def _check_type(kind: Any, name: str) -> None:
    """Refuse columns of anything but numbers and words, before they are read."""
    from pyarrow import types

    words = kind.value_type if types.is_dictionary(kind) else kind
    tests = (types.is_integer, types.is_floating, types.is_boolean, types.is_null, *_text_tests())
    if not any(test(words) for test in tests):
        raise InputError(f"column {name!r} holds {kind}: expected numbers or words; convert or drop it")


def _text_tests() -> tuple[Any, ...]:
    from pyarrow import types

    return types.is_string, types.is_large_string


def _bytes_of_words(column: Any, name: str) -> int:
    """What the words of a column will take as NumPy has them; too long ones are refused."""
    longest = max((_longest(chunk) for chunk in column.chunks), default=0)
    if longest > TABLE_WORD:
        raise InputError(f"column {name!r} has a value of {longest} characters, more than the {TABLE_WORD} allowed")
    return len(column) * longest * 4


def _longest(values: Any) -> int:
    """Characters of the longest word; 0 of numbers."""
    from pyarrow import compute, types

    if types.is_dictionary(values.type):
        return _longest(values.dictionary)
    if not any(test(values.type) for test in _text_tests()):
        return 0
    lengths = compute.call_function("utf8_length", [values])
    return compute.call_function("max", [lengths]).as_py() or 0


if __name__ == "__main__":
    main(*sys.argv[1:])
