"""Recurrent cells: one step of one example, `(state, input) -> state`; time and lanes belong to `recurrence`.

The paper's cell is the leaky one (section 3.2); with leak zero it is the standard recurrent network.
"""

from abc import abstractmethod
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, PyTree, Shaped

from longspan.kernels.matmul import affine
from longspan.kernels.recurrence import Activation
from longspan.kernels.rows import sum_rows
from longspan.models.parameters import Constant
from longspan.models.recurrence import leaky_scan, leaky_trace, penalised_scan

ACTIVATIONS = {"tanh": jnp.tanh, "sigmoid": jax.nn.sigmoid, "rectifier": jax.nn.relu}


class Trace(NamedTuple):
    """The hidden vectors of a chunk, and the inner values that a careful optimizer keeps from changing at once.

    `weights` says how much a change of each inner value counts.
    """

    hidden: Float[Array, "time lane hidden"]
    inner: Float[Array, "time lane unit"]
    weights: Float[Array, "time lane unit"]


class Cell(eqx.Module):
    """A state-to-state map; `run` carries it through a chunk and may be replaced by something faster."""

    @abstractmethod
    def initial_state(self) -> PyTree:
        """The state a song starts from."""

    @abstractmethod
    def step(self, state: PyTree, inputs: Shaped[Array, "..."]) -> PyTree:
        """The next state of one example."""

    @abstractmethod
    def output(self, state: PyTree) -> Float[Array, " hidden"]:
        """The hidden vector that the output model sees."""

    def run(
        self,
        state: PyTree,
        inputs: Shaped[Array, "time lane ..."],
        resets: Bool[Array, "time lane"],
        length: Int[Array, ""],
    ) -> tuple[PyTree, Float[Array, "time lane hidden"]]:
        """Carry every lane through a chunk; returns the last state and the hidden vectors of all steps."""
        del length  # padding follows the last step of a stream, so what it computes is never used
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
        """`run`, and the sum of the absolute hidden vectors, each step's times its weight (section 3.4)."""
        state, hidden = self.run(state, inputs, resets, length)
        return state, hidden, jnp.sum(weight * jnp.sum(jnp.abs(hidden), axis=-1))

    def trace(
        self,
        state: PyTree,
        inputs: Shaped[Array, "time lane ..."],
        resets: Bool[Array, "time lane"],
        length: Int[Array, ""],
    ) -> Trace:
        """`run` with its inner values, which are the hidden vectors themselves where a cell knows no better."""
        _, hidden = self.run(state, inputs, resets, length)
        return Trace(hidden, hidden, jnp.ones_like(hidden))


class LeakyCell(Cell):
    r"""Leaky integration of a simple recurrent network.

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
        """The non-linearity."""
        return ACTIVATIONS[self.activation](pre_activation)

    def drive(self, inputs: Shaped[Array, "..."]) -> Float[Array, "... hidden"]:
        """What the input adds to the pre-activation: whole numbers of 32 bits are symbols, anything else a vector."""
        if inputs.dtype == jnp.int32:
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
        """`run_penalised` from the drive on, which is all that it needs of the inputs; no weights, no penalty."""
        walked = (drive, state, self.recurrent, self.leak.value, resets, length)
        if weight is None:
            hidden, penalty = leaky_scan(self.activation, *walked), jnp.zeros(())
        else:
            hidden, penalty = penalised_scan(self.activation, *walked, weight)
        return hidden[-1], hidden, penalty

    def trace(self, state, inputs, resets, length):
        """The inner values are the pre-activations, weighted by the slope of the non-linearity.

        Half the weighted square of a change is then, to second order, the matching loss of the units: for tanh and
        sigmoid the cross-entropy between the units before and after.
        """
        drive = self.drive_of_chunk(inputs, length)
        return Trace(*leaky_trace(self.activation, drive, state, self.recurrent, self.leak.value, resets, length))

    def drive_of_chunk(
        self, inputs: Shaped[Array, "time lane ..."], length: Int[Array, ""]
    ) -> Float[Array, "time lane hidden"]:
        """`drive` for all steps of a chunk."""
        if inputs.dtype in (jnp.uint8, jnp.int32):  # keys of a piano roll, or symbols
            return sum_rows(self.input_weights, inputs, length, self.bias)
        return affine(inputs.astype(self.bias.dtype), self.input_weights, self.bias, length)


def draw_leaks(size: int, share: float, low: float, high: float, *, key: PRNGKeyArray) -> Float[Array, " size"]:
    """Leak factors: the first `share` of the units drawn uniformly from `(low, high)`, the others zero."""
    leaky = jnp.arange(size) < round(share * size)
    return jnp.where(leaky, jax.random.uniform(key, (size,), minval=low, maxval=high), 0.0)


def draw_recurrent(kind: str, size: int, scale: float, *, key: PRNGKeyArray) -> Float[Array, "size size"]:
    """An initial recurrent matrix whose spectral radius is about `scale`."""
    if kind == "orthogonal":
        return scale * jax.random.orthogonal(key, size)
    if kind == "identity":
        return scale * jnp.eye(size)
    return scale / jnp.sqrt(size) * jax.random.normal(key, (size, size))
