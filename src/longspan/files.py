"""Files that are either there whole or not at all: write beside, flush to disk, rename into place."""

import hashlib
import os
import secrets
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from longspan.errors import InputError


@contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
    """Open a file for writing that takes its place at `path` only when the block ends without an exception.

    The bytes are on the disk before the name is; whatever goes wrong, nothing half-written remains.
    """
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(8)}.part")
    with explain_disk_errors(path):
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with temporary.open("xb") as file:
                yield file
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, path)
            sync_folder(path.parent)
        finally:
            with suppress(OSError):
                temporary.unlink()


def write_atomic(path: Path, content: bytes | str) -> None:
    """Write a file so that no reader, and no kill at any moment, ever sees a part of it."""
    with replacing(path) as file:
        file.write(content.encode() if isinstance(content, str) else content)


@contextmanager
def folder_written_whole(path: Path) -> Iterator[Path]:
    """Yield a temporary folder beside `path` that takes its name when the block ends well, else disappears."""
    with explain_disk_errors(path):
        temporary = Path(tempfile.mkdtemp(dir=path.parent, prefix=f".{path.name}."))
        try:
            yield temporary
            temporary.chmod(0o777 & ~_umask())  # mkdtemp makes folders only their owner may enter
            sync_folder(temporary)
            os.rename(temporary, path)
        except BaseException:
            shutil.rmtree(temporary, ignore_errors=True)
            raise
        sync_folder(path.parent)


def sync_folder(path: Path) -> None:
    """Make renames within a folder durable; not every system can open one, and then the rename has to do."""
    with suppress(OSError):
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def sha256_of(path: Path) -> str:
    """The SHA-256 of a file, as hexadecimal digits."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@contextmanager
def explain_disk_errors(path: Path) -> Iterator[None]:
    """Turn a failed write (full disk, no permission, missing folder) into one line about `path`."""
    try:
        yield
    except OSError as error:
        reason = error.strerror or str(error)
        raise InputError(f"cannot write {path}: {reason}; free some space or choose a writable folder") from error


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
