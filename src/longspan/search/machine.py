"""Coordination of searches on one machine: which workers are alive, and which cores are taken.

Both use file locks, which are released when their holder dies in any way. A heartbeat in the storage does the same for
workers on any machine, but only after minutes of silence.
"""

import getpass
import os
import secrets
import socket
import stat
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from longspan.errors import InputError
from longspan.files import explain_disk_errors, file_lock, is_plain_name, to_plain_name, try_file_lock


@contextmanager
def present() -> Iterator[str]:
    """Yield a name for this worker; other workers on this machine can tell that it is alive while the block lasts."""
    name = f"{to_plain_name(socket.gethostname())}-{os.getpid()}-{secrets.token_hex(4)}"
    sign = _sign(name)
    _make_folder()
    with file_lock(_lock(name)):
        with explain_disk_errors(sign):
            sign.touch()
        yield name
        sign.unlink(missing_ok=True)  # only at a clean end: if a worker crashes, this file tells the others
    forget(name)


def is_gone(name: str) -> bool:
    """Whether a worker of this machine has died; False if it is alive, has ended normally, or is unknown here."""
    if not is_plain_name(name):  # it comes from the storage and must not point outside this folder
        return False
    if not _sign(name).exists():
        return False
    with suppress(InputError), try_file_lock(_lock(name)) as mine:
        return mine and _sign(name).exists()  # checked again, because it may just have ended normally
    return False


def forget(name: str) -> None:
    """Remove the files of a worker."""
    if is_plain_name(name):
        for file in (_sign(name), _lock(name)):
            with suppress(OSError):
                file.unlink()


@contextmanager
def claimed_cores(workers: int, cores_each: int) -> Iterator[list[set[int]]]:
    """Yield the cores of each worker, which no other search takes while the block lasts.

    The sets are empty if not enough cores are free or the system cannot pin processes; the system then schedules them.
    """
    nowhere: list[set[int]] = [set() for _ in range(workers)]
    if not hasattr(os, "sched_getaffinity"):
        yield nowhere
        return
    needed = workers * cores_each
    with ExitStack() as claims:
        claimed = []
        for core in sorted(os.sched_getaffinity(0)):
            if len(claimed) < needed and _claim(core, claims):
                claimed.append(core)
        if len(claimed) < needed:
            claims.close()  # too few for us, but others may use them
            yield nowhere
        else:
            yield [set(claimed[number * cores_each : (number + 1) * cores_each]) for number in range(workers)]


def pin_to(cores: list[int]) -> None:
    """Restrict this process to some cores, if the system supports it."""
    if not cores or not hasattr(os, "sched_setaffinity"):
        return
    try:
        os.sched_setaffinity(0, cores)
    except (OSError, ValueError, OverflowError) as error:
        usable = sorted(os.sched_getaffinity(0))
        raise InputError(
            f"cores must be cores of this machine, some of {usable}: got {cores}", fields=["cores"]
        ) from error


def machine_folder() -> Path:
    """The folder of the lock files by which this user's processes on this machine coordinate."""
    # Not in the study's folder, which may be on a network disk, where locks of other machines cannot be trusted.
    user = os.getuid() if hasattr(os, "getuid") else to_plain_name(getpass.getuser())
    return Path(tempfile.gettempdir()) / f"longspan-workers-{user}"


def _make_folder() -> None:
    """Make the folder of this machine's locks; refuse one that others put there, with links to files of this user."""
    folder = machine_folder()
    with explain_disk_errors(folder):
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        about = folder.lstat()
    if hasattr(os, "getuid") and (about.st_uid != os.getuid() or not stat.S_ISDIR(about.st_mode)):
        raise InputError(f"{folder} belongs to somebody else: remove it, or set TMPDIR to a folder of your own")
    if hasattr(os, "getuid") and about.st_mode & 0o022:
        os.chmod(folder, 0o700)


def _sign(name: str) -> Path:
    return machine_folder() / f"{name}.alive"


def _lock(name: str) -> Path:
    return machine_folder() / f"{name}.lock"


def _claim(core: int, claims: ExitStack) -> bool:
    """Try to lock a core's file until the claims are closed."""
    file = machine_folder() / f"core-{core}"
    _make_folder()
    return claims.enter_context(try_file_lock(file))
