"""Files that are either there whole or not at all: write beside, flush to disk, rename into place."""

import hashlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from longspan.errors import InputError


def write_atomic(path: Path, content: bytes | str) -> None:
    """Write a file so that no reader, and no kill at any moment, ever sees a part of it."""
    data = content.encode() if isinstance(content, str) else content
    with explain_disk_errors(path):
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            os.chmod(temporary, 0o666 & ~_umask())
            os.replace(temporary, path)
        except BaseException:
            Path(temporary).unlink(missing_ok=True)
            raise
        sync_folder(path.parent)


@contextmanager
def folder_written_whole(path: Path) -> Iterator[Path]:
    """Yield a temporary folder beside `path` that takes its name when the block ends well, else disappears."""
    with explain_disk_errors(path):
        temporary = Path(tempfile.mkdtemp(dir=path.parent, prefix=f".{path.name}."))
        try:
            yield temporary
            temporary.chmod(0o777 & ~_umask())
            sync_folder(temporary)
            os.rename(temporary, path)
        except BaseException:
            shutil.rmtree(temporary, ignore_errors=True)
            raise
        sync_folder(path.parent)


def sync_folder(path: Path) -> None:
    """Make renames within a folder durable."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sha256_of(path: Path) -> str:
    """Checksum of a file, read in pieces."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@contextmanager
def explain_disk_errors(path: Path) -> Iterator[None]:
    """Turn a failed write (full disk, no permission, missing folder) into one line about `path`."""
    try:
        yield
    except OSError as error:
        reason = error.strerror or str(error)
        raise InputError(f"cannot write {path}: {reason}; free space or choose another folder") from error


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
