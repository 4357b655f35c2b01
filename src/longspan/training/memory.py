"""Running out of memory: refused beforehand where that is certain, and explained where it happens all the same."""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import jax

from longspan.config import TrainConfig
from longspan.data.dataset import DataRecord
from longspan.errors import InputError
from longspan.models.sequence import SequenceModel

FIELDS = ("hidden_size", "nade_size", "chunk_length", "lanes", "block")
"""Settings that decide how much memory training takes."""
ADVICE = "choose a smaller hidden_size, chunk_length, lanes or block, or a machine with more memory"


class OutOfMemory(InputError):
    """Training needs more memory than there is."""


def check_memory(config: TrainConfig, data: DataRecord, model: SequenceModel) -> None:
    """Refuse settings that cannot be trained in the memory that is free; `model` may consist of shapes alone."""
    needed, free = least_bytes(config, data, model), free_bytes()
    if free is not None and needed > free:
        raise OutOfMemory(
            f"training would take at least {needed / 1e9:.1f} GB of memory, but {free / 1e9:.1f} GB are free: {ADVICE}",
            fields=FIELDS,
        )


def least_bytes(config: TrainConfig, data: DataRecord, model: SequenceModel) -> int:
    """Bytes that training takes in any case: copies of the weights, and what one chunk leaves for its gradient.

    What a checkpoint holds exists twice while it is written. Compiled programs, data and temporary arrays come on top.
    """
    arrays = [leaf for leaf in jax.tree.leaves(model) if hasattr(leaf, "dtype")]
    weights = sum(math.prod(leaf.shape) * leaf.dtype.itemsize for leaf in arrays)
    held = 2 + (config.momentum > 0) + (config.averaging > 0)  # weights, best weights, velocity, mean
    steps = config.chunk_length * config.lanes
    hidden, outputs = 2 * config.hidden_size, 2 * data.size  # each with its cotangent
    return 2 * held * weights + 4 * steps * (hidden + outputs)


def free_bytes() -> int | None:
    """Memory that this process could still take; None where the system does not tell."""
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
    except OSError:
        return None
    free = [int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable")]
    return min([*free, *_group_limits(Path("/sys/fs/cgroup"))], default=None)


def _group_limits(folder: Path) -> list[int]:
    """What is left of the limit of a container, if there is one."""
    try:
        most, used = ((folder / name).read_text().strip() for name in ("memory.max", "memory.current"))
    except OSError:
        return []
    return [int(most) - int(used)] if most.isdecimal() and used.isdecimal() else []


@contextmanager
def explain_lack_of_memory() -> Iterator[None]:
    """Turn a failed allocation, of Python, NumPy or XLA, into a one-line error."""
    try:
        yield
    except (MemoryError, jax.errors.JaxRuntimeError) as error:
        if not (isinstance(error, MemoryError) or "RESOURCE_EXHAUSTED" in str(error) or "bad_alloc" in str(error)):
            raise
        raise OutOfMemory(f"memory ran out; {ADVICE}", fields=FIELDS) from error
