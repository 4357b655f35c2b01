"""Where a study is kept: an SQLite file in its folder, or a PostgreSQL server that many machines reach.

Optuna writes the tables, so `optuna-dashboard URL` opens them. What Optuna does not give is a claim that two
processes cannot make at once (SQLite reads before it locks), so claims are made one at a time under `claim_lock`.
"""

import fcntl
import hashlib
import os
import re
import sqlite3
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, TextIO, TypeVar

from longspan.errors import InputError
from longspan.files import explain_disk_errors

if TYPE_CHECKING:
    from optuna.storages import RDBStorage

SQLITE = "sqlite:///"
URL_VARIABLE = "LONGSPAN_STORAGE"
SQLITE_WAIT_SECONDS = 60
"""How long a writer waits for another one before it gives up."""
OUTAGE_SECONDS = 300
"""How long a storage may be out of reach before a worker gives up."""
RETRY_SECONDS = 2.0

Value = TypeVar("Value")


def default_url(folder: Path) -> str:
    """The SQLite storage inside a study's folder."""
    return f"{SQLITE}{folder.resolve() / 'study.db'}"


def normalized(url: str) -> str:
    """The URL in the one form used everywhere; a path of SQLite is made absolute, PostgreSQL gets its driver."""
    if url.startswith(SQLITE) and len(url) > len(SQLITE):
        return f"{SQLITE}{Path(url.removeprefix(SQLITE)).expanduser().resolve()}"
    if match := re.fullmatch(r"postgres(?:ql)?(?:\+psycopg)?://(.+)", url):
        return f"postgresql+psycopg://{match[1]}"
    raise InputError(
        f"cannot use storage {hide_password(url)!r}: expected sqlite:///FILE or postgresql://HOST/DATABASE"
    )


def hide_password(url: str) -> str:
    """The URL as it may be shown."""
    return re.sub(r"(://[^:/@]*):[^@]*@", r"\1:***@", url)


def open_storage(url: str, heartbeat_seconds: int, grace_seconds: int) -> "RDBStorage":
    """Open a storage, creating its tables if they are not there."""
    import_optuna()
    from optuna.exceptions import ExperimentalWarning, StorageInternalError
    from optuna.storages import RDBStorage
    from sqlalchemy.exc import SQLAlchemyError

    options = {}
    if url.startswith(SQLITE):
        folder = Path(url.removeprefix(SQLITE)).parent
        with explain_disk_errors(folder):
            folder.mkdir(parents=True, exist_ok=True)
        options = {"connect_args": {"timeout": SQLITE_WAIT_SECONDS}}
    try:
        # Two processes that find no tables would both create them.
        with warnings.catch_warnings(), claim_lock(url, "tables"):
            warnings.simplefilter("ignore", ExperimentalWarning)
            return RDBStorage(
                url,
                engine_kwargs=options | {"pool_pre_ping": True},
                heartbeat_interval=heartbeat_seconds,
                grace_period=grace_seconds,
            )
    except (SQLAlchemyError, StorageInternalError, ImportError, OSError, RuntimeError, ValueError) as error:
        hint = (
            "pip install 'longspan[postgresql]'" if isinstance(error, ImportError) else "check the URL and the server"
        )
        raise InputError(f"cannot open storage {hide_password(url)}: {_reason(error)}; {hint}") from error


def check_exists(url: str) -> None:
    """Refuse an SQLite file that is not there or holds no studies: opening it would make a storage of it."""
    if not url.startswith(SQLITE):
        return
    file = Path(url.removeprefix(SQLITE))
    if not file.is_file():
        raise InputError(f"there is no storage {url}: check the path; `longspan search` makes one")
    if not _holds_studies(file):
        raise InputError(f"expected a study's storage, got {file}, which has no studies in it: check the path")


def _holds_studies(file: Path) -> bool:
    try:
        with closing(sqlite3.connect(f"{file.as_uri()}?mode=ro", uri=True, timeout=SQLITE_WAIT_SECONDS)) as connection:
            return connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'studies'").fetchone() is not None
    except sqlite3.DatabaseError:  # not a database at all
        return False


def import_optuna():
    """Optuna, quiet; it is an extra because only searching needs it."""
    try:
        import optuna
    except ImportError as error:
        raise InputError("searching needs Optuna: pip install 'longspan[search]'") from error
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    return optuna


@contextmanager
def claim_lock(url: str, name: str) -> Iterator[None]:
    """Hold the study `name` against every other process that wants to claim; a killed holder lets go by dying."""
    if url.startswith(SQLITE):
        with file_lock(Path(url.removeprefix(SQLITE) + ".lock")):
            yield
        return
    from sqlalchemy import NullPool, create_engine, text

    key = int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "big", signed=True)
    engine = create_engine(url, poolclass=NullPool)
    with engine.connect() as connection:
        connection.execute(text("SELECT pg_advisory_lock(:key)"), {"key": key})
        try:
            yield
        finally:
            connection.execute(text("SELECT pg_advisory_unlock(:key)"), {"key": key})


@contextmanager
def file_lock(path: Path) -> Iterator[None]:
    """Hold a lock file; the system lets go of it when the process ends, however it ends."""
    with _lock_file(path) as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


@contextmanager
def try_file_lock(path: Path) -> Iterator[bool]:
    """Like `file_lock`, but instead of waiting yields False if another process holds it."""
    with _lock_file(path) as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
            return
        yield True


def _lock_file(path: Path) -> TextIO:
    with explain_disk_errors(path):
        return path.open("a")


def patiently(action: Callable[[], Value], unless: Callable[[], bool] = lambda: False) -> Value:
    """Do something with the storage, trying again while it is out of reach, `unless` nobody wants to wait for it."""
    from optuna.exceptions import StorageInternalError
    from sqlalchemy.exc import OperationalError

    deadline = time.monotonic() + OUTAGE_SECONDS
    while True:
        try:
            return action()
        except (StorageInternalError, OperationalError):
            if time.monotonic() > deadline or unless():
                raise
            time.sleep(RETRY_SECONDS)


@contextmanager
def explain_outage(url: str) -> Iterator[None]:
    """Turn a storage that stayed out of reach, however patiently it was tried, into one line."""
    import_optuna()
    from optuna.exceptions import StorageInternalError
    from sqlalchemy.exc import OperationalError

    try:
        yield
    except (StorageInternalError, OperationalError) as error:
        raise InputError(
            f"storage {hide_password(url)} stayed out of reach: {_reason(error)}; "
            "bring it back, then the same command goes on"
        ) from error


def url_from(given: str | None, default: str | None = None) -> str:
    """The storage a command was given, else the one in the environment, else `default`."""
    url = given or os.environ.get(URL_VARIABLE) or default
    if not url:
        raise InputError(f"expected the URL of a storage, such as postgresql://host/database, or ${URL_VARIABLE}")
    return normalized(url)


def _reason(error: Exception) -> str:
    return str(error.__cause__ or error).strip().splitlines()[0]
