"""An SQLite file that somebody else may have made, or a killed process left: what is checked before it is used.

SQLite trusts its files: it computes what they declare, and deletes what their journals name.
"""

import os
import re
import sqlite3
from collections.abc import Callable
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

from longspan.errors import InputError
from longspan.files import opened
from longspan.limits import STORAGE_BYTES, STORED_BYTES

SQLITE_WAIT_SECONDS = 60
"""Time that a writer waits for another one before it gives up."""
STEPS_AT_ONCE, STEPS, STEPS_BY_BYTE = 100_000, 10_000_000, 5
"""Steps of SQLite's machine between two looks at their number, and how many a statement may take: some millions in a
second, and some tens for a row, which has at least some tens of bytes."""
JOURNAL_MAGIC = bytes.fromhex("d9d505f920a163d7")
"""The last bytes of a journal of SQLite that names a further file."""


def check_file(file: Path) -> None:
    """Refuse a file that is too large, or beside which there is what SQLite must not read."""
    _check_companions(file)
    size = file.stat().st_size if file.exists() else 0
    if size > STORAGE_BYTES:
        raise InputError(f"{file} has {size} bytes, more than the {STORAGE_BYTES} of a storage: use PostgreSQL")


class BoundedConnection(sqlite3.Connection):
    """A connection to a file that somebody else may have made.

    Views, triggers, virtual tables, generated columns, checks, defaults and indexes may all hold expressions that
    SQLite computes when it reads or writes, as long and as large as they like. The tables of a study have none.

    The pages of a table are a tree, in which SQLite does not notice that many places name the same page: a few of them
    make a table of more rows than anybody can read. So the size of the file limits the steps of a statement.
    """

    def __init__(self, *arguments: Any, file: Path, **options: Any):
        super().__init__(*arguments, **options)
        self._file, self._steps = file, 0
        self.set_progress_handler(self._is_endless, STEPS_AT_ONCE)
        self.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, STORED_BYTES)
        self.execute("PRAGMA trusted_schema = OFF")
        # Here and not once for a file: what a killed process left half done is undone by whoever reads first.
        self.text_factory = bytes
        for kind, made in self.execute("SELECT type, sql FROM sqlite_master"):
            if not _is_plain(kind, made or b""):
                raise InputError("the storage has more in it than the tables of a study: restore it")
        self.text_factory = str

    def cursor(self, *arguments: Any, **options: Any) -> sqlite3.Cursor:
        self._steps = 0  # a statement begins
        return super().cursor(*arguments, **options)

    def _is_endless(self) -> bool:
        self._steps += STEPS_AT_ONCE
        return self._steps > STEPS + STEPS_BY_BYTE * self._file.stat().st_size


_DAMAGE = (sqlite3.SQLITE_ERROR, sqlite3.SQLITE_INTERRUPT)
"""A statement that does not fit the tables, as if one or a column were missing, or that took too many steps."""


def is_damage(code: int | None) -> bool:
    """Whether SQLite says by this code of an error that a file is damaged, and not that it cannot be used just now."""
    return code is not None and code & 0xFF in _DAMAGE


def connecting_to(file: Path) -> Callable[..., BoundedConnection]:
    """What makes connections to a file, for `sqlite3.connect`."""
    return partial(BoundedConnection, file=file)


OPTUNAS_CHECK = b"CHECK (version_info_id=1)"
"""The only expression in the tables that Optuna makes."""
_EXPRESSION = re.compile(rb"--|/\*|\b(as|check|where|virtual)\b|\bdefault\s*\(", re.IGNORECASE)


def _is_plain(kind: bytes, made: bytes) -> bool:
    """Whether a part of an SQLite file, by the statement that made it, is a table or an index without expressions."""
    if kind == b"index" and made.count(b"(") > 1:
        return False
    return kind in (b"table", b"index") and not _EXPRESSION.search(made.replace(OPTUNAS_CHECK, b""))


def _connect_to_read(file: Path) -> sqlite3.Connection:
    made_by: Any = connecting_to(file)
    return sqlite3.connect(f"{file.as_uri()}?mode=ro", uri=True, timeout=SQLITE_WAIT_SECONDS, factory=made_by)


def holds_studies(file: Path) -> bool:
    try:
        with closing(_connect_to_read(file)) as connection:
            return connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'studies'").fetchone() is not None
    except sqlite3.OperationalError as error:  # what a killed process left has to be undone first, by who may write
        return getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_READONLY_ROLLBACK
    except (sqlite3.DatabaseError, UnicodeDecodeError):  # not a database at all, or a damaged one
        return False


def _check_companions(database: Path) -> None:
    """Refuse what SQLite would read beside a database if it is no file, or a journal that names a further file.

    When SQLite undoes what a killed process left half done, it deletes the file that the end of the journal names, any
    file of the user. Only transactions over several databases write such an end, and longspan has none.
    """
    if _end_of(Path(f"{database}-journal")) == JOURNAL_MAGIC:
        raise InputError(f"{database}-journal names another file, which SQLite would delete: restore the folder")
    for companion in ("-wal", "-shm"):
        _end_of(Path(f"{database}{companion}"))


def _end_of(path: Path) -> bytes | None:
    """The last bytes of a file, as many as `JOURNAL_MAGIC` has; None if it does not exist."""
    try:
        with opened(path, follow=False) as file:
            file.seek(max(file.seek(0, os.SEEK_END) - len(JOURNAL_MAGIC), 0))
            return file.read(len(JOURNAL_MAGIC))
    except InputError as error:
        if isinstance(error.__cause__, FileNotFoundError):  # perhaps since a moment ago, when a transaction ended
            return None
        raise
