"""What a chunk contributes to training: its negative log-likelihood and the L1 penalty of section 3.4."""

from dataclasses import dataclass
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from longspan.config import TrainConfig
from longspan.data.sequences import Chunks
from longspan.models.sequence import SequenceModel


class Context(NamedTuple):
    """What the objective needs beside the trained parameters."""

    constants: SequenceModel
    key: PRNGKeyArray


class Carry(NamedTuple):
    """What one chunk hands to the next: the hidden state and the number of chunks seen."""

    state: PyTree
    step: Float[Array, ""]


@dataclass(frozen=True)
class Objective:
    """Loss of one chunk: `scale * (sum of -log p + l1 * sum of |h|)`."""

    scale: float
    l1: float

    @staticmethod
    def of(config: TrainConfig, counted_steps: int | None = None) -> "Objective":
        """A mean is taken over the nominal length, so that a short last chunk weighs less than a full one.

        That length is the chunk's, or `counted_steps` where targets stand at fewer steps.
        """
        steps = config.chunk_length if counted_steps is None else counted_steps
        return Objective(1 / (steps * config.lanes) if config.loss == "mean" else 1.0, config.l1)

    def __call__(
        self, params: SequenceModel, carry: Carry, chunk: Chunks, context: Context
    ) -> tuple[Float[Array, ""], tuple[Carry, Float[Array, ""]]]:
        """Loss, the carry for the next chunk, and the summed loss of the targets as what to observe.

        The carried state is a number, not a function of the parameters: gradients span one chunk.
        """
        model = eqx.combine(params, context.constants)
        state, hidden = model.run(carry.state, chunk.inputs, chunk.resets, chunk.lengths)
        key = jax.random.fold_in(context.key, carry.step)
        losses = model.output.loss(hidden, chunk.targets, chunk.lengths, key=key)
        total = jnp.sum(jnp.where(chunk.mask, losses, 0))
        loss = total
        if self.l1 > 0:
            loss = loss + self.l1 * jnp.sum(jnp.where(chunk.mask[..., None], jnp.abs(hidden), 0))
        return self.scale * loss, (Carry(jax.lax.stop_gradient(state), carry.step + 1), total)
