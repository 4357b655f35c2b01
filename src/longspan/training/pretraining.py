"""Pretraining of a joint output and its recurrent network (Boulanger-Lewandowski, Bengio and Vincent, 2012).

The output alone is fitted to shuffled frames, as if there were no history; the recurrent network is fitted with
independent keys as its output. Both are short passes of plain training, a pure function of config and data, so a run
killed in the middle simply repeats them.
"""

import dataclasses
import math
from collections.abc import Callable, Iterator
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PRNGKeyArray

from longspan.config import TrainConfig
from longspan.data.dataset import Chunks
from longspan.data.sequences import arrange, song_order
from longspan.models.model import SequenceModel
from longspan.models.outputs import Bernoulli, Nade
from longspan.models.parts import Cell, split_constants
from longspan.models.rbm import Rbm
from longspan.optim.blocks import ClippedNesterov, FirstOrder, Loss
from longspan.training.objective import Carry, Context, Objective
from longspan.training.setup import ChunkSource
from longspan.training.state import copied

KEY_OFFSET = 1
"""Folded into the seed's key, so that pretraining and training use different random numbers."""

Joint = Nade | Rbm


def pretrain(
    config: TrainConfig,
    model: SequenceModel,
    source: ChunkSource,
    on_epoch: Callable[[str], None],
) -> SequenceModel:
    """Return the model after the pretraining that its config asks for.

    Args:
        config: the number of passes of each kind, and the rate of the recurrent ones; everything else is as in
            training.
        model: the initial model.
        source: the training split.
        on_epoch: called after each pass with a description of it; may raise to stop.
    """
    cell, output = model.cell, model.output
    if not isinstance(output, Nade | Rbm):
        return model
    key = jax.random.fold_in(jax.random.key(config.seed), KEY_OFFSET)
    if config.pretrain_recurrent:
        cell, output = _pretrain_recurrent(config, cell, output, source, key, on_epoch)
    if config.pretrain_frames:
        output = _pretrain_frames(config, output, source.frames(), source, key, on_epoch)
    return SequenceModel(cell, output)


def _pretrain_recurrent(
    config: TrainConfig, cell: Cell, output: Joint, source: ChunkSource, key: PRNGKeyArray, on_epoch: Callable
) -> tuple[Cell, Joint]:
    """Fit the cell and the output's visible weights by cross-entropy, treating keys as independent."""
    bernoulli = Bernoulli(output.visible_weights, output.visible_bias)
    helper = SequenceModel(cell, bernoulli)
    params, constants = split_constants(helper)
    passes = (source.epoch(number) for number in range(config.pretrain_recurrent))
    carry = Carry(helper.start(config.lanes), jnp.zeros((), jnp.int32))
    report = _numbered("recurrent network", config.pretrain_recurrent, on_epoch)
    slower = dataclasses.replace(config, learning_rate=config.pretrain_rate)
    params = _descend(slower, Objective.of(config), params, carry, passes, source, Context(constants, key), report)
    trained = eqx.combine(params, constants)
    return trained.cell, dataclasses.replace(output, visible_weights=trained.output.weights)


def _pretrain_frames(
    config: TrainConfig, output: Joint, frames: np.ndarray, source: ChunkSource, key: PRNGKeyArray, on_epoch: Callable
) -> Joint:
    """Fit the output to frames in random order, with the hidden state held at zero."""
    params, constants = split_constants(output)
    hidden = jnp.zeros((config.chunk_length, 1, len(output.visible_weights)))

    def loss(params, step, chunk: Any, key: PRNGKeyArray):
        losses = eqx.combine(params, constants).loss(
            hidden, chunk.targets, chunk.lengths, key=jax.random.fold_in(key, step)
        )
        total = jnp.sum(jnp.where(chunk.mask, losses, 0))
        return total / config.chunk_length, (step + 1, total)

    passes = (
        arrange([frames[song_order(len(frames), config.seed, number)]], config.chunk_length)
        for number in range(config.pretrain_frames)
    )
    report = _numbered("frames", config.pretrain_frames, on_epoch)
    params = _descend(config, loss, params, jnp.zeros((), jnp.int32), passes, source, key, report)
    return eqx.combine(params, constants)


def _descend(
    config: TrainConfig, loss: Loss, params: Any, carry, passes: Iterator[Chunks], source: ChunkSource, context, report
) -> Any:
    threshold = math.inf if isinstance(config.clip, str) else float(config.clip)
    optimizer = FirstOrder(loss, ClippedNesterov(config.learning_rate, config.momentum, threshold))
    params = copied(params)  # the optimizer consumes its arguments
    state = optimizer.init(params)
    for chunks in passes:
        for position in range(0, len(chunks.lengths), config.block):
            block, count = source.block(chunks, position)
            params, state, carry, _ = optimizer.advance(params, state, carry, block, count, context)
        report()
    return params


def _numbered(phase: str, total: int, on_epoch: Callable[[str], None]) -> Callable[[], None]:
    numbers = iter(range(1, total + 1))
    return lambda: on_epoch(f"pretraining {phase}, pass {next(numbers)} of {total}")
