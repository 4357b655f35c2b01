"""Which cores workers are pinned to: cores of their own, also beside the workers of another search on this machine."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from longspan.files import explain_disk_errors
from longspan.search.presence import machine_folder


def available_cores() -> int:
    """How many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@contextmanager
def claimed_cores(workers: int, threads: int) -> Iterator[list[set[int]]]:
    """Yield the cores of each worker, which no other search takes while the block lasts.

    None where not enough are free for all of them, or the system cannot pin: then it is left to spread the work.
    """
    nowhere: list[set[int]] = [set() for _ in range(workers)]
    if not hasattr(os, "sched_getaffinity"):
        yield nowhere
        return
    needed = workers * threads
    with ExitStack() as claims:
        claimed = []
        for core in sorted(os.sched_getaffinity(0)):
            if len(claimed) < needed and _claim(core, claims):
                claimed.append(core)
        if len(claimed) < needed:
            claims.close()  # no use to us, and perhaps to others
            yield nowhere
        else:
            yield [set(claimed[number * threads : (number + 1) * threads]) for number in range(workers)]


def _claim(core: int, claims: ExitStack) -> bool:
    """Lock a core's file until the claims are closed; like those of workers, the lock ends with its owner."""
    file = machine_folder() / f"core-{core}"
    with explain_disk_errors(file):
        file.parent.mkdir(parents=True, exist_ok=True)
        lock = claims.enter_context(file.open("w"))
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True
