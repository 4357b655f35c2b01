"""Where data lies on disk, and writing it so that a file is either whole or not there."""

from __future__ import annotations

import hashlib
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from longspan.errors import InputError

DATA_VARIABLE = "LONGSPAN_DATA"


def cache_directory() -> Path:
    """The user's cache folder for longspan."""
    import platformdirs

    return Path(platformdirs.user_cache_dir("longspan", appauthor=False))


def data_directory(data_dir: Path | str | None = None) -> Path:
    """Where benchmarks and imported sets live: the argument, else `LONGSPAN_DATA`, else the user's cache."""
    chosen = data_dir or os.environ.get(DATA_VARIABLE)
    return Path(chosen).expanduser() if chosen else cache_directory()


def imported_directory(data_dir: Path | str | None = None) -> Path:
    """The folder of the sets made by `longspan data import`."""
    return data_directory(data_dir) / "imported"


@contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
    """Open a file for writing that takes its place at `path` only when the block ends without an exception.

    The bytes are on the disk before the name is; whatever goes wrong, nothing half-written remains.
    """
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(8)}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with temporary.open("xb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
        _sync_directory(path.parent)
    except OSError as error:
        raise _cannot_write(path, error) from error
    finally:
        with suppress(OSError):
            temporary.unlink()


def sha256_of(path: Path) -> str:
    """The SHA-256 of a file, as hexadecimal digits."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _cannot_write(path: Path, error: OSError) -> InputError:
    reason = error.strerror or str(error)
    return InputError(
        f"cannot write {path}: {reason}; free some space or choose a writable folder with --data-dir or {DATA_VARIABLE}"
    )


def _sync_directory(directory: Path) -> None:
    """Make a rename durable, on systems that let a folder be opened; on others the rename has to do."""
    with suppress(OSError):
        descriptor = os.open(directory, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
