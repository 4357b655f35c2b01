"""Which workers of this machine are still alive: each holds a lock on a file that its death, of any kind, releases.

A heartbeat in the storage tells the same about workers anywhere, but only after minutes of silence.
"""

import fcntl
import os
import secrets
import socket
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from longspan.files import explain_disk_errors


@contextmanager
def present() -> Iterator[str]:
    """Yield a name for this worker that others of this machine can tell to be alive while the block lasts."""
    name = f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(4)}"
    file = machine_folder() / name
    with explain_disk_errors(file):
        file.parent.mkdir(parents=True, exist_ok=True)
        lock = file.open("w")
    with lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield name
    forget(name)  # only after a clean end: of a worker that crashed, the file is what tells others


def is_gone(name: str) -> bool:
    """Whether a worker of this machine has died; False if it lives, or is not known here."""
    file = machine_folder() / name
    try:
        with file.open("r") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:  # held, or never seen on this machine
        return False
    return True


def forget(name: str) -> None:
    """Remove what is left of a worker."""
    with suppress(OSError):
        (machine_folder() / name).unlink()


def machine_folder() -> Path:
    """Where processes of this user on this machine lock files to know of each other."""
    # Not in the study's folder: that may lie on a network disk, where locks of other machines cannot be trusted.
    return Path(tempfile.gettempdir()) / f"longspan-workers-{os.getuid()}"
