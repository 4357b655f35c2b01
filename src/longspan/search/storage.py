"""The storage of a study: an SQLite file in its folder, or a PostgreSQL server that many machines can reach.

Optuna makes the tables, so `optuna-dashboard URL` opens them. Two processes must not claim the same slot at once, and
SQLite reads before it locks, so claims are made one at a time under `claim_lock`.
"""

import functools
import hashlib
import math
import os
import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar
from urllib.parse import unquote

from msgspec import MsgspecError

from longspan.errors import InputError
from longspan.files import explain_disk_errors, file_lock, refuse_link, user_path
from longspan.search import sqlite_files

if TYPE_CHECKING:
    from optuna.storages import RDBStorage
    from sqlalchemy import URL, Engine

SQLITE = "sqlite:///"
URL_VARIABLE = "LONGSPAN_STORAGE"

LIFE_SIGNS = {"keepalives_idle": 5, "keepalives_interval": 3, "keepalives_count": 3, "tcp_user_timeout": 15_000}
"""How a worker and the server find out that the other is cut off, after about 15 seconds: by default both would wait
for hours, and a lock that a lost worker holds would hold up everybody."""

RESTED_SECONDS = 1.0
"""A connection that was used less long ago is used again untested."""

UNDEFINED_TABLE = "42P01"
"""What PostgreSQL calls a table that does not exist."""

Value = TypeVar("Value")


def default_url(folder: Path) -> str:
    """The SQLite storage inside a study's folder."""
    return _sqlite_url(refuse_link(folder / "study.db"))


def _sqlite_url(file: Path) -> str:
    """The URL of an SQLite file; SQLAlchemy would take what follows a question mark for options."""
    path = os.path.realpath(user_path(file))
    if "?" in path:
        raise InputError(
            f"the path of an SQLite storage cannot have a question mark: got {path}; choose another folder"
        )
    return f"{SQLITE}{path}"


def normalized(url: str) -> str:
    """The URL in canonical form: absolute paths for SQLite, with the driver for PostgreSQL."""
    if url.startswith(SQLITE) and len(url) > len(SQLITE):
        return _sqlite_url(Path(url.removeprefix(SQLITE)))
    if match := re.fullmatch(r"postgres(?:ql)?(?:\+psycopg)?://(.+)", url):
        found = _parsed(url)
        if found is None or "@" in f"{found.host}{found.database}":
            raise InputError(
                "cannot use the URL of the storage: expected postgresql://USER:PASSWORD@HOST:PORT/DATABASE, with @ and "
                "/ in a password written as %40 and %2F"
            )
        return f"postgresql+psycopg://{match[1]}"
    raise InputError(f"cannot use storage {hide_password(url)}: expected sqlite:///FILE or postgresql://HOST/DATABASE")


def hide_password(url: str) -> str:
    """The URL as it may be shown: its password and its query, which may hold one, are left out.

    A secret may stand anywhere in a mistyped URL, so one whose parts are not plain names is not shown at all.
    """
    if url.startswith(SQLITE):
        return url
    found = _parsed(url)
    if found is None or not found.host or not all(map(_SHOWN.fullmatch, _named_parts(found))):
        return "the URL that was given"
    user = f"{found.username}{':***' if found.password else ''}@" if found.username else ""
    port = f":{found.port}" if found.port else ""
    return f"{found.drivername.partition('+')[0]}://{user}{found.host}{port}/{found.database or ''}"


_SHOWN = re.compile(r"[\w.:/-]*")


def _named_parts(url: "URL") -> tuple[str, str, str]:
    return url.username or "", url.host or "", url.database or ""


def _parsed(url: str):
    from sqlalchemy.engine import make_url
    from sqlalchemy.exc import ArgumentError

    try:
        return make_url(url)
    except (ArgumentError, ValueError):
        return None


class Patience(NamedTuple):
    """How long a storage may be unreachable before it is given up, and the pause before it is tried again."""

    outage_seconds: float = 300
    retry_seconds: float = 2.0


USUAL_PATIENCE = Patience()


def make_storage(url: str, patience: Patience = USUAL_PATIENCE) -> "RDBStorage":
    """Open a storage by Optuna, which makes tables that do not exist and compares those that do with its own.

    Those who join a study, of whom there may be many, do without: it takes longer than all else.
    """

    if url.startswith(SQLITE):
        folder = Path(url.removeprefix(SQLITE)).parent
        with explain_disk_errors(folder):
            folder.mkdir(parents=True, exist_ok=True)

    def opening(options: dict) -> "RDBStorage":
        from optuna.storages import RDBStorage

        with claim_lock(url, "tables"):  # else two processes that find no tables would both make them
            return RDBStorage(url, engine_kwargs=options)

    made = _patiently_opened(url, opening, patience)
    _test_rested_connections(made.engine)
    return made


def join_storage(url: str, patience: Patience = USUAL_PATIENCE) -> "Engine":
    """Connect to a storage that exists."""

    def opening(options: dict) -> "Engine":
        from sqlalchemy import create_engine

        engine = create_engine(url, **options)
        engine.connect().close()
        return engine

    engine = _patiently_opened(url, opening, patience)
    _test_rested_connections(engine)
    return engine


def _patiently_opened(url: str, opening: Callable[[dict], Value], patience: Patience) -> Value:
    """What is opened with the options of an engine; a server with too many clients is tried again."""
    import_optuna()
    from optuna.exceptions import StorageInternalError
    from sqlalchemy.exc import SQLAlchemyError

    deadline = time.monotonic() + patience.outage_seconds
    options: dict[str, Any] = {"connect_args": _connection(url)}
    if url.startswith(SQLITE):
        sqlite_files.check_file(Path(url.removeprefix(SQLITE)))
    else:
        # Between two queries a worker keeps one connection, of which a server has not many. No table has an hstore,
        # about which every new worker would ask the server.
        options |= {"pool_size": 1, "max_overflow": 4, "use_native_hstore": False}
    while True:
        try:
            return opening(options)
        except (SQLAlchemyError, StorageInternalError, ImportError, OSError, RuntimeError, ValueError) as error:
            if _is_full(error) and time.monotonic() < deadline:
                time.sleep(patience.retry_seconds)
                continue
            hint = (
                "pip install 'longspan[postgresql]'"
                if isinstance(error, ImportError)
                else "check the URL and the server"
            )
            reason = reason_of(error, url)
            raise InputError(f"cannot open storage {hide_password(url)}: {reason}; {hint}") from error


def _test_rested_connections(engine: "Engine") -> None:
    """Before a connection is used that nobody used for a while, find out whether the server still has it.

    SQLAlchemy would ask before every use, which is a quarter of all statements of a worker.
    """
    from sqlalchemy import event
    from sqlalchemy.exc import DisconnectionError

    def note_the_time(connection: Any, record: Any) -> None:
        record.info["rests_since"] = time.monotonic()

    def test(connection: Any, record: Any, proxy: Any) -> None:
        if time.monotonic() - record.info.get("rests_since", math.inf) < RESTED_SECONDS:
            return
        try:
            engine.dialect.do_ping(connection)
        except engine.dialect.loaded_dbapi.Error as error:
            raise DisconnectionError from error  # upon which SQLAlchemy connects anew

    event.listen(engine, "checkin", note_the_time)
    event.listen(engine, "checkout", test)


def at_once(engine: "Engine") -> "Engine":
    """The engine with every statement a transaction of its own, which spares the server two messages for each."""
    return engine.execution_options(isolation_level="AUTOCOMMIT")


def _is_full(error: BaseException | None) -> bool:
    """Whether a server refused a connection because it has too many."""
    told = f"{error} {error.__cause__ if error else ''}"
    return "too many clients" in told or "remaining connection slots" in told


def lacks_tables(error: Exception) -> bool:
    """Whether a server says that a table does not exist."""
    return getattr(getattr(error, "orig", None), "sqlstate", None) == UNDEFINED_TABLE


def check_exists(url: str) -> None:
    """Refuse an SQLite file that does not exist or contains no studies: opening it would create a storage."""
    if not url.startswith(SQLITE):
        return
    file = Path(url.removeprefix(SQLITE))
    if not file.is_file():
        raise InputError(f"there is no storage {url}: check the path; `longspan search` makes one")
    sqlite_files.check_file(file)
    if not sqlite_files.holds_studies(file):
        raise InputError(f"expected a study's storage, got {file}, which has no studies in it: check the path")


@functools.cache
def import_optuna():
    """Import Optuna and silence its logging; it is an extra because only searching needs it."""
    try:
        import optuna
    except ImportError as error:
        raise InputError("searching needs Optuna: pip install 'longspan[search]'") from error
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    return optuna


@contextmanager
def claim_lock(url: str, name: str, engine: "Engine | None" = None) -> Iterator[Any]:
    """Lock the study `name` against claims of other processes; released if the holder is killed.

    With the engine of an open storage, yield the connection of a transaction that ends with the lock.
    """
    if url.startswith(SQLITE):
        with file_lock(Path(url.removeprefix(SQLITE) + ".lock")):
            if engine is None:
                yield None
                return
            with engine.begin() as connection:
                yield connection
        return
    from sqlalchemy import NullPool, create_engine, text

    key = int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "big", signed=True)
    engine = engine or create_engine(url, poolclass=NullPool, connect_args=_connection(url))
    with engine.begin() as connection:  # the lock ends with the transaction, however that ends
        connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": key})
        yield connection


def _connection(url: str) -> dict:
    """Options of a connection: how long to wait for a file, or how to notice that a server or a client is gone."""
    if url.startswith(SQLITE):
        file = Path(url.removeprefix(SQLITE))
        return {"timeout": sqlite_files.SQLITE_WAIT_SECONDS, "factory": sqlite_files.connecting_to(file)}
    for_server = " ".join(
        f"-c {name if name.startswith('tcp') else f'tcp_{name}'}={value}" for name, value in LIFE_SIGNS.items()
    )
    return {**LIFE_SIGNS, "connect_timeout": 10, "options": for_server}


def outages() -> tuple[type[Exception], ...]:
    """The exceptions that mean that a storage cannot be reached at present, or is damaged: see `is_outage`."""
    from optuna.exceptions import StorageInternalError
    from sqlalchemy.exc import InterfaceError, OperationalError

    return StorageInternalError, OperationalError, InterfaceError


def is_outage(error: BaseException) -> bool:
    """Whether an error means that a storage cannot be reached at present; what is damaged does not come back.

    Optuna has one exception for both, and SQLite says of a table that is missing what it says of a file that is locked.
    """
    from sqlalchemy.exc import InterfaceError, OperationalError, SQLAlchemyError

    told = error.__cause__ if isinstance(error.__cause__, SQLAlchemyError) else error
    if isinstance(told, SQLAlchemyError) and not isinstance(told, OperationalError | InterfaceError):
        return False
    code = getattr(getattr(told, "orig", None), "sqlite_errorcode", None)
    return isinstance(told, outages()) and not sqlite_files.is_damage(code)


def patiently(
    action: Callable[[], Value], unless: Callable[[], bool] = lambda: False, patience: Patience = USUAL_PATIENCE
) -> Value:
    """Perform an action on the storage, retrying while it is unreachable and `unless()` is False."""
    deadline = time.monotonic() + patience.outage_seconds
    while True:
        try:
            return action()
        except outages() as error:
            if not is_outage(error) or time.monotonic() > deadline or unless():
                raise
            time.sleep(patience.retry_seconds)


@contextmanager
def explain_outage(url: str) -> Iterator[None]:
    """Turn an outage that outlasted all retries into a one-line error, and damage that was met elsewhere, too."""
    import_optuna()
    try:
        yield
    except outages() as error:
        if not is_outage(error):
            raise _damaged(url, error) from error
        raise InputError(
            f"storage {hide_password(url)} stayed out of reach: {reason_of(error, url)}; "
            "bring it back, then run the same command again to continue"
        ) from error


@contextmanager
def explain_damage(url: str) -> Iterator[None]:
    """Turn what comes of reading a damaged storage into a one-line error."""
    from sqlalchemy.exc import DatabaseError, NoResultFound

    try:
        yield
    except outages() as error:
        if is_outage(error):
            raise  # it may come back
        raise _damaged(url, error) from error
    # Text that is not UTF-8 or not JSON, lists in lists, no such state, values of other types; rows that are missing.
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError, MsgspecError) as error:
        raise _damaged(url, error) from error
    except (NoResultFound, DatabaseError) as error:
        raise _damaged(url, error) from error


def _damaged(url: str, error: Exception) -> InputError:
    kind = type(error.__cause__ or error).__name__
    return InputError(f"storage {hide_password(url)} is damaged ({kind}: {reason_of(error, url)}): restore it")


def url_from(given: str | None, default: str | None = None) -> str:
    """The storage given to a command, else the one in the environment, else `default`."""
    url = given or os.environ.get(URL_VARIABLE) or default
    if not url:
        raise InputError(f"expected the URL of a storage, such as postgresql://host/database, or ${URL_VARIABLE}")
    return normalized(url)


def reason_of(error: Exception, url: str) -> str:
    """The first line of an error, without the secrets of the URL."""
    text = next(iter(str(error.__cause__ or error).strip().splitlines()), "")
    text = text.replace(url, hide_password(url))
    for secret in [] if url.startswith(SQLITE) else _secrets_in(url):
        text = text.replace(secret, "***")
    return text


def _secrets_in(url: str) -> list[str]:
    """What may be a secret in a URL, as it stands there and as it is meant, the longest first.

    Errors quote parts of a URL, and file systems know forms of it that cannot be parsed here.
    """
    found = _parsed(url)
    secrets = [] if found is None else [found.password, *found.normalized_query.values()]
    plain = [each for secret in secrets for each in ((secret,) if isinstance(secret, str) else secret or ())]
    written = [*re.findall(r"//[^/?#:]*:([^/?#]*)@", url), *re.findall(r"[?&][^=&#]*=([^&#]*)", url)]
    return sorted({*plain, *written, *map(unquote, written)} - {""}, key=len, reverse=True)
