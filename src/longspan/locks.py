"""File locks: one holder at a time, released whenever the holder dies, for whatever reason.

They are locks of the operating system (`flock` or its Windows equivalent), through `filelock`. Its fallback for file
systems without them is disabled: a lock that is only a file would outlive a killed process.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import BaseFileLock, FileLock, Timeout

from longspan.files import explain_disk_errors


@contextmanager
def file_lock(path: Path) -> Iterator[None]:
    """Hold a lock file, after waiting for its current holder."""
    lock = _acquired(path, blocking=True)
    assert lock is not None
    try:
        yield
    finally:
        lock.release()


@contextmanager
def try_file_lock(path: Path) -> Iterator[bool]:
    """Like `file_lock`, but yields False instead of waiting if the lock is already held."""
    lock = _acquired(path, blocking=False)
    try:
        yield lock is not None
    finally:
        if lock is not None:
            lock.release()


def _acquired(path: Path, *, blocking: bool) -> BaseFileLock | None:
    lock = FileLock(path, fallback_to_soft=False)
    with explain_disk_errors(path):
        try:
            lock.acquire(blocking=blocking)
        except Timeout:  # also an OSError, but not a disk error
            return None
    return lock
