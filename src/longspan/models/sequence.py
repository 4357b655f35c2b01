"""A sequence model: a cell carried through time and an output distribution; and how one is built from a config."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, PyTree, Shaped

from longspan.config import TrainConfig
from longspan.models.cells import Cell, LeakyCell, draw_leaks, draw_recurrent
from longspan.models.factored import ClassFactored, class_starts
from longspan.models.nade import Nade
from longspan.models.outputs import Bernoulli, Gaussian, Output, Softmax
from longspan.models.parameters import Constant
from longspan.models.rbm import Rbm

RAREST = 1e-7
"""Rate an output starts out with for a symbol that training never shows."""


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
    """A freshly initialised model.

    Args:
        config: sizes, non-linearity, leak and scales.
        input_size: keys of a frame, symbols of a vocabulary, or numbers that come in at a step.
        base_rates: how often each key or symbol occurs in training, or the mean of numbers; the output starts out
            predicting these.
        key: randomness of the initial weights.
    """
    key_input, key_recurrent, key_leak, key_output = jax.random.split(key, 4)
    size = config.hidden_size
    cell = LeakyCell(
        input_weights=config.input_scale * jax.random.normal(key_input, (input_size, size)),
        recurrent=draw_recurrent(config.recurrent_init, size, config.recurrent_scale, key=key_recurrent),
        bias=jnp.zeros(size),
        leak=Constant(draw_leaks(size, config.leaky_share, config.leak_low, config.leak_high, key=key_leak)),
        activation=config.activation,
    )
    return SequenceModel(cell, build_output(config, base_rates, key=key_output))


def build_output(config: TrainConfig, base_rates: Float[np.ndarray, " target"], *, key: PRNGKeyArray) -> Output:
    """A freshly initialised output model of the config's kind."""
    size, scale = config.hidden_size, config.output_scale
    if config.output == "gaussian":
        return Gaussian.initial(size, jnp.asarray(base_rates, jnp.float32), scale, key=key)
    if config.output in ("softmax", "factored"):
        rates = np.maximum(base_rates, RAREST)
        if config.output == "softmax":
            return Softmax.initial(size, jnp.asarray(np.log(rates), jnp.float32), scale, key=key)
        return ClassFactored.initial(
            size, rates, class_starts(rates, config.classes, config.class_rule), scale, key=key
        )
    rates = np.clip(base_rates, 1e-4, 1 - 1e-4)
    log_odds = jnp.asarray(np.log(rates / (1 - rates)), jnp.float32)
    if config.output == "nade":
        return Nade.initial(size, config.nade_size, log_odds, scale, key=key)
    if config.output == "rbm":
        return Rbm.initial(size, config.rbm_size, log_odds, scale, config.cd_steps, config.tempering, key=key)
    return Bernoulli.initial(size, log_odds, scale, key=key)
