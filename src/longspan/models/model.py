"""The sequence model, a recurrent cell and an output distribution, and how it is built from a config."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, PyTree, Shaped

from longspan.config import TrainConfig
from longspan.models.parts import OUTPUTS, Cell, Output
from longspan.models.stack import hidden_size_of, make_cell


class SequenceModel(eqx.Module):
    """Predicts every step of a sequence from the steps before it."""

    cell: Cell
    output: Output

    def start(self, lanes: int) -> PyTree:
        """The state of `lanes` songs before their first step."""
        state = self.cell.initial_state()
        return jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (lanes, *leaf.shape)), state)

    def run(
        self,
        state: PyTree,
        inputs: Shaped[Array, "time lane ..."],
        resets: Bool[Array, "time lane"],
        length: Int[Array, ""],
    ) -> tuple[PyTree, Float[Array, "time lane hidden"]]:
        """Last state and hidden vectors of a chunk."""
        return self.cell.run(state, inputs, resets, length)


def build(
    config: TrainConfig, input_size: int, base_rates: Float[np.ndarray, " target"], *, key: PRNGKeyArray
) -> SequenceModel:
    """Build an initial model with the cell and the output that a config names.

    Args:
        config: names, sizes and scales.
        input_size: number of keys per frame, symbols in the vocabulary, or input numbers per step.
        base_rates: frequencies of keys or symbols in training, or means of numbers, which the output initially
            predicts.
        key: random key of the initial weights.
    """
    cell = make_cell(config, input_size, key=key)
    key_output = jax.random.split(key, 4)[3]  # cells use the other three
    return SequenceModel(cell, OUTPUTS[config.output].make(config, hidden_size_of(cell), base_rates, key=key_output))
