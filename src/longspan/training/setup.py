"""Preparation of a run before its first update: model, chunks, first carry, clip threshold, and memory.

Settings that certainly need more memory than there is are refused beforehand; running out of it later is explained.
"""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

from longspan.config import TrainConfig
from longspan.data.dataset import Chunks, DataRecord, Dataset
from longspan.errors import InputError
from longspan.models.model import SequenceModel, build, check_cell
from longspan.models.parts import OUTPUTS
from longspan.training.objective import Carry, Context, Objective
from longspan.training.optimizers import OPTIMIZERS, observer
from longspan.training.runs import Given, Run
from longspan.training.state import copied, from_named, not_arrays, total


class ChunkSource:
    """The training split as chunks, in the order of an epoch."""

    def __init__(self, config: TrainConfig, data: Dataset):
        self.config = config
        self.data = data

    @property
    def counted_steps(self) -> int:
        """Number of steps per lane of a full chunk at which something is predicted."""
        return self.data.counted_steps(self.config.chunk_length)

    def frames(self) -> np.ndarray:
        """All targets of the training split, concatenated, without their history."""
        chunks = self.data.chunks("train", self.config.chunk_length, 1)
        return chunks.targets[chunks.mask]

    def epoch(self, number: int) -> Chunks:
        """All chunks of an epoch, determined by seed and epoch."""
        config = self.config
        return self.data.epoch(number, seed=config.seed, chunk_length=config.chunk_length, lanes=config.lanes)

    def block(self, chunks: Chunks, position: int) -> tuple[Chunks, int]:
        """A full block from `position` and the number of its chunks that count; the rest is filler."""
        size = min(self.config.block, len(chunks.lengths))
        count = min(size, len(chunks.lengths) - position)
        index = np.resize(np.arange(position, position + count), size)
        return Chunks(*(leaf[index] for leaf in chunks)), count


def initial_model(config: TrainConfig, data: DataRecord, rates: np.ndarray) -> SequenceModel:
    """The initial model of a run: a pure function of its config and the base rates of the targets."""
    return build(config, data.input_size or data.size, rates, key=jax.random.key(config.seed))


def first_model(run: Run, rates: np.ndarray) -> SequenceModel:
    """The initial model of a run: the user's, one with the weights it starts from, or what its config describes."""
    given = run.part("model")
    if given is None:
        start = run.read_start()
        return initial_model(run.config, run.data, rates) if start is None else _started(run, start)
    return copied(given)  # training consumes its weights, and these belong to the user


def _started(run: Run, start: dict) -> SequenceModel:
    try:
        return from_named(_shape(run.config, run.data), start)
    except ValueError as error:
        raise InputError(f"the weights that {run.path} starts from do not fit its settings: {error}") from error


def weights_to_start_from(source: Run, config: TrainConfig, data: DataRecord) -> dict:
    """The best weights of a run for a new one, refused unless they fit its settings and its data."""
    if (source.data.predicted, source.data.size) != (data.predicted, data.size):
        raise InputError(
            f"{source.path} predicts {source.data.size} {source.data.predicted} and {config.data!r} has {data.size} "
            f"{data.predicted}: start from a run on such data"
        )
    if source.data.vocabulary != data.vocabulary:
        raise InputError(f"{source.path} was trained with another vocabulary than that of {config.data!r}")
    arrays = source.read_model()
    try:
        from_named(_shape(config, data), arrays)
    except ValueError as error:
        raise InputError(f"the weights of {source.path} do not fit the settings: {error}") from error
    return arrays


def trained_model(run: Run) -> SequenceModel:
    """The model with the best weights of a run; needs no data."""
    try:
        return from_named(model_shape(run), run.read_model())
    except ValueError as error:
        raise InputError(f"the weights in {run.path} are not those of its model: {error}") from error


def model_shape(run: Run) -> SequenceModel:
    """A model with the shapes of a run's weights, without the memory they take: the user's if there is one."""
    like = run.part("model")
    return _shape(run.config, run.data) if like is None else like


def _shape(config: TrainConfig, data: DataRecord) -> SequenceModel:
    return jax.eval_shape(lambda: initial_model(config, data, np.full(data.size, 0.5)))


def check_parts(config: TrainConfig, data: DataRecord, given: Given) -> None:
    """Refuse unknown names, an output that does not suit the data, and too large sizes before a run folder exists."""
    if given.optimizer is None:
        _ = OPTIMIZERS[config.optimizer]
    elif not all(callable(getattr(given.optimizer, name, None)) for name in ("init", "update")):
        raise InputError(f"expected an Optax transformation or a name as optimizer, got {given.optimizer!r}")
    if given.model is not None:
        if not isinstance(given.model, SequenceModel):
            found = type(given.model).__name__
            raise InputError(f"expected a longspan.models.SequenceModel of a cell and an output as model, got {found}")
        loose = not_arrays(given.model)
        if loose:
            raise InputError(f"{loose[0]} of the model is not an array: declare it static with eqx.field(static=True)")
        return
    check_cell(config)
    predicts = OUTPUTS[config.output].predicts
    if predicts != data.predicted:
        raise InputError(
            f"output {config.output} predicts {predicts}, but {config.data!r} asks for {data.predicted}",
            fields=["output"],
        )
    check_memory(config, data, _shape(config, data))


def first_carry(model: SequenceModel, config: TrainConfig) -> Carry:
    """The carry of the first chunk of a run."""
    return Carry(model.start(config.lanes), jnp.zeros((), jnp.int32))


def clip_threshold(
    config: TrainConfig, params: SequenceModel, carry: Carry, source: ChunkSource, context: Context
) -> float | None:
    """The gradient norm to clip to; None for no clipping."""
    if config.clip == "none":
        return None
    if config.clip == "auto":
        return average_norm(params, carry, source, context)
    return float(config.clip)


def average_norm(params: SequenceModel, carry: Carry, source: ChunkSource, context: Context) -> float:
    """Mean gradient norm over one pass of the data at fixed weights: the paper's rule for the threshold."""
    driver = observer(Objective.of(source.config, source.counted_steps))
    params = copied(params)  # the optimizer consumes its arguments
    state = driver.init(params)
    chunks = source.epoch(0)
    norms = 0.0
    for position in range(0, len(chunks.lengths), source.config.block):
        block, count = source.block(chunks, position)
        params, state, carry, info = driver.advance(params, state, carry, block, count, context)
        norms += total(info.of_updates()["gradient_norm"])
    return norms / len(chunks.lengths)


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
    moving = 1 + (config.momentum > 0)  # weights and velocity, which every replica has
    held = 1 + (config.averaging > 0) + moving  # best weights, mean
    steps = config.chunk_length * config.lanes
    hidden, outputs = 2 * config.hidden_size, 2 * data.size  # each with its cotangent
    copies = config.replicas * moving if config.replicas > 1 else 0
    return (2 * held + copies) * weights + 4 * steps * (hidden + outputs)


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


XLA_OUT_OF_MEMORY = ("RESOURCE_EXHAUSTED", "Out of memory", "bad_alloc")
"""Words by which XLA says, depending on the place, that an allocation failed."""


@contextmanager
def explain_lack_of_memory() -> Iterator[None]:
    """Turn a failed allocation, of Python, NumPy or XLA, into a one-line error."""
    try:
        yield
    except (MemoryError, jax.errors.JaxRuntimeError) as error:
        if not isinstance(error, MemoryError) and not any(word in str(error) for word in XLA_OUT_OF_MEMORY):
            raise
        raise OutOfMemory(f"memory ran out; {ADVICE}", fields=FIELDS) from error
