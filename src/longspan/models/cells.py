"""Recurrent cells: `step` defines one step of one example, `run` handles time and lanes.

The paper's cell is the leaky one (section 3.2); with zero leak it is the standard recurrent network.
"""

from abc import abstractmethod
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, PyTree, Shaped

from longspan.config import TrainConfig
from longspan.models.parameters import Constant
from longspan.models.parts import register_cell
from longspan.ops.recurrence import ACTIVATIONS, Activation, leaky_scan, leaky_trace, penalized_scan
from longspan.ops.rows import project


class Trace(NamedTuple):
    """The hidden vectors of a chunk, and the inner values whose changes structural damping penalizes.

    `weights` is the weight of a change of each inner value.
    """

    hidden: Float[Array, "time lane hidden"]
    inner: Float[Array, "time lane unit"]
    weights: Float[Array, "time lane unit"]


class Cell(eqx.Module):
    """A state-to-state map; `run` applies it over a chunk and may be overridden by something faster."""

    @abstractmethod
    def initial_state(self) -> PyTree:
        """The state at the start of a song."""

    @abstractmethod
    def step(self, state: PyTree, inputs: Shaped[Array, "..."]) -> PyTree:
        """The next state of one example."""

    @abstractmethod
    def output(self, state: PyTree) -> Float[Array, " hidden"]:
        """The hidden vector passed to the output model."""

    def run(
        self,
        state: PyTree,
        inputs: Shaped[Array, "time lane ..."],
        resets: Bool[Array, "time lane"],
        length: Int[Array, ""],
    ) -> tuple[PyTree, Float[Array, "time lane hidden"]]:
        """Run every lane through a chunk; return the last state and the hidden vectors of all steps."""
        del length  # padding follows the last step of a stream, so its results are never used
        fresh = self.initial_state()

        def step_lane(state, now):
            inputs, reset = now
            start = jax.tree.map(lambda old, new: jnp.where(reset, new, old), state, fresh)
            state = self.step(start, inputs)
            return state, self.output(state)

        return jax.lax.scan(jax.vmap(step_lane), state, (inputs, resets))

    def run_penalised(
        self,
        state: PyTree,
        inputs: Shaped[Array, "time lane ..."],
        resets: Bool[Array, "time lane"],
        length: Int[Array, ""],
        weight: Float[Array, "time lane"],
    ) -> tuple[PyTree, Float[Array, "time lane hidden"], Float[Array, ""]]:
        """`run`, and the sum of absolute hidden values, weighted by step (section 3.4)."""
        state, hidden = self.run(state, inputs, resets, length)
        return state, hidden, jnp.sum(weight * jnp.sum(jnp.abs(hidden), axis=-1))

    def trace(
        self,
        state: PyTree,
        inputs: Shaped[Array, "time lane ..."],
        resets: Bool[Array, "time lane"],
        length: Int[Array, ""],
    ) -> Trace:
        """`run` with its inner values, by default the hidden vectors themselves."""
        _, hidden = self.run(state, inputs, resets, length)
        return Trace(hidden, hidden, jnp.ones_like(hidden))


class LeakyCell(Cell):
    r"""A simple recurrent network with leaky integration.

    .. math:: h_t = \alpha h_{t-1} + (1 - \alpha) f(h_{t-1} U + x_t W + b)
    """

    input_weights: Float[Array, "input hidden"]
    recurrent: Float[Array, "hidden hidden"]
    bias: Float[Array, " hidden"]
    leak: Constant
    activation: Activation = eqx.field(static=True)

    def initial_state(self):
        return jnp.zeros_like(self.bias)

    def step(self, state, inputs):
        value = self.activate(state @ self.recurrent + self.drive(inputs))
        return self.leak.value * state + (1 - self.leak.value) * value

    def output(self, state):
        return state

    def activate(self, pre_activation: Float[Array, "..."]) -> Float[Array, "..."]:
        """The nonlinearity."""
        return ACTIVATIONS[self.activation].value(pre_activation)

    def drive(self, inputs: Shaped[Array, "..."]) -> Float[Array, "... hidden"]:
        """The input's part of the pre-activation plus bias; bytes and floats are vectors, other integers symbols."""
        if jnp.issubdtype(inputs.dtype, jnp.integer) and inputs.dtype != jnp.uint8:
            return self.input_weights[inputs] + self.bias
        return inputs.astype(self.bias.dtype) @ self.input_weights + self.bias

    def run(self, state, inputs, resets, length):
        return self.run_driven(state, self.drive_of_chunk(inputs, length), resets, length)[:2]

    def run_penalised(self, state, inputs, resets, length, weight):
        return self.run_driven(state, self.drive_of_chunk(inputs, length), resets, length, weight)

    def run_driven(
        self,
        state: Float[Array, "lane hidden"],
        drive: Float[Array, "time lane hidden"],
        resets: Bool[Array, "time lane"],
        length: Int[Array, ""],
        weight: Float[Array, "time lane"] | None = None,
    ) -> tuple[Float[Array, "lane hidden"], Float[Array, "time lane hidden"], Float[Array, ""]]:
        """`run_penalised`, given the drive instead of the inputs; without `weight` there is no penalty."""
        walked = (drive, state, self.recurrent, self.leak.value, resets, length)
        if weight is None:
            hidden, penalty = leaky_scan(self.activation, *walked), jnp.zeros(())
        else:
            hidden, penalty = penalized_scan(self.activation, *walked, weight)
        return hidden[-1], hidden, penalty

    def trace(self, state, inputs, resets, length):
        """The inner values are the pre-activations, weighted by the slope of the nonlinearity.

        Half the weighted square of a change is then, to second order, the matching loss of the units: for tanh and
        sigmoid the cross-entropy between the units before and after.
        """
        drive = self.drive_of_chunk(inputs, length)
        return Trace(*leaky_trace(self.activation, drive, state, self.recurrent, self.leak.value, resets, length))

    def drive_of_chunk(
        self, inputs: Shaped[Array, "time lane ..."], length: Int[Array, ""]
    ) -> Float[Array, "time lane hidden"]:
        """`drive` for all steps of a chunk."""
        return project(inputs, self.input_weights, self.bias, length)


@register_cell("leaky")
def leaky_cell(config: TrainConfig, input_size: int, *, key: PRNGKeyArray) -> LeakyCell:
    """The paper's cell, with its fraction of leaky units."""
    key_input, key_recurrent, key_leak, _ = jax.random.split(key, 4)  # the last one is for the output
    size = config.hidden_size
    return LeakyCell(
        input_weights=config.input_scale * jax.random.normal(key_input, (input_size, size)),
        recurrent=draw_recurrent(config.recurrent_init, size, config.recurrent_scale, key=key_recurrent),
        bias=jnp.zeros(size),
        leak=Constant(draw_leaks(size, config.leaky_share, config.leak_low, config.leak_high, key=key_leak)),
        activation=config.activation,
    )


def draw_leaks(size: int, share: float, low: float, high: float, *, key: PRNGKeyArray) -> Float[Array, " size"]:
    """Leak factors: drawn uniformly from `(low, high)` for the first `share` of the units, zero for the others."""
    leaky = jnp.arange(size) < round(share * size)
    return jnp.where(leaky, jax.random.uniform(key, (size,), minval=low, maxval=high), 0.0)


def draw_recurrent(kind: str, size: int, scale: float, *, key: PRNGKeyArray) -> Float[Array, "hidden hidden"]:
    """An initial recurrent matrix whose spectral radius is about `scale`."""
    if kind == "orthogonal":
        return scale * jax.random.orthogonal(key, size)
    if kind == "identity":
        return scale * jnp.eye(size)
    return scale / jnp.sqrt(size) * jax.random.normal(key, (size, size))
