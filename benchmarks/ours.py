"""The training step of longspan as `longspan train` runs it: chunks of a source, blocks of them to the optimizer."""

import os
from collections.abc import Iterator
from contextlib import contextmanager

import jax
import numpy as np

from longspan.config import TrainConfig
from longspan.data.music import MusicData
from longspan.data.text import TextData
from longspan.models.model import SequenceModel
from longspan.models.parts import split_constants
from longspan.training.objective import Context, Objective
from longspan.training.optimizers import make_optimizer
from longspan.training.setup import ChunkSource, first_carry, initial_model

from .contest import Contestant, Weights


@contextmanager
def kernels(which: str) -> Iterator[None]:
    """What is compiled inside uses these kernels, `native` or `xla`."""
    before = os.environ.get("LONGSPAN_KERNELS")
    os.environ["LONGSPAN_KERNELS"] = which
    try:
        yield
    finally:
        os.environ.pop("LONGSPAN_KERNELS")
        if before is not None:
            os.environ["LONGSPAN_KERNELS"] = before


def training(
    config: TrainConfig, data: MusicData | TextData, which: str = "native", *, fresh: bool = False
) -> Contestant:
    """One turn is one block of updates, from where the turn before it stopped, over and over through the split.

    With `fresh`, every epoch is arranged anew, as in training, and that is part of its first turn.
    """
    source = ChunkSource(config, data)
    chunks = source.epoch(0)
    model = initial_model(config, data.record, data.base_rates())
    params, constants = split_constants(model)
    context = Context(constants, jax.random.key(config.seed))
    objective = Objective.of(config, source.counted_steps)
    threshold = None if config.clip == "none" else float(config.clip)
    optimizer = make_optimizer(config, objective, threshold, lambda: False)
    running = (params, optimizer.init(params), first_carry(model, config))
    position = epoch = 0

    def turn() -> int:
        nonlocal running, position, chunks, epoch
        if fresh and position == 0:
            chunks, epoch = source.epoch(epoch), epoch + 1
        block, count = source.block(chunks, position)
        with kernels(which):
            *running, info = optimizer.advance(*running, block, count, context)
        np.asarray(info.figures["gradient_norm"])  # the loop looks at them after every block, which waits for it
        position = position + count if position + count < len(chunks.lengths) else 0
        return count

    return Contestant(turn, lambda: weights_of(running[0]))


def weights_of(model: SequenceModel) -> Weights:
    """Of a network with one input, one recurrent and one output matrix."""
    cell, output = model.cell, model.output
    named = {"w": (cell, "input_weights"), "u": (cell, "recurrent"), "b": (cell, "bias")}
    named |= {"v": (output, "weights"), "c": (output, "bias")}
    return {name: np.array(getattr(part, field)) for name, (part, field) in named.items()}


def first_gradient(config: TrainConfig, data: MusicData | TextData) -> tuple[float, float]:
    """Loss of the first chunk, and the length of its gradient, at the initial weights."""
    source = ChunkSource(config, data)
    chunk = jax.tree.map(lambda leaf: leaf[0], source.epoch(0))
    model = initial_model(config, data.record, data.base_rates())
    params, constants = split_constants(model)
    context = Context(constants, jax.random.key(config.seed))
    objective = Objective.of(config, source.counted_steps)
    gradient = jax.jit(jax.value_and_grad(objective, has_aux=True))
    (value, _), found = gradient(params, first_carry(model, config), chunk, context)
    return float(value), sum(float(np.sum(np.square(leaf))) for leaf in jax.tree.leaves(found)) ** 0.5


def random_songs(lanes: int, frames: int, notes: int = 4, seed: int = 0) -> MusicData:
    """As many songs as lanes, each frame with so many notes, as chorales have."""
    rng = np.random.default_rng(seed)
    songs = [(np.argsort(rng.random((frames, 88)), axis=-1) < notes).astype(np.uint8) for _ in range(lanes)]
    return MusicData("random", dict.fromkeys(("train", "valid", "test"), songs), 1)


def random_text(symbols: int, length: int, seed: int = 0) -> TextData:
    """Symbols that follow Zipf's law."""
    rates = 1 / np.arange(1, symbols + 1)
    stream = np.random.default_rng(seed).choice(symbols, length, p=rates / rates.sum()).astype(np.int32)
    names = ("\n", *(chr(0x10000 + number) for number in range(1, symbols)))
    return TextData("random", "character", names, dict.fromkeys(("train", "valid", "test"), stream), end_token=0)
