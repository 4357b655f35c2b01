"""Recurrent cells: `step` defines one step of one example, `run` handles time and lanes.

The paper's cell is the leaky one (section 3.2); with zero leak it is the standard recurrent network.
"""

import math
from abc import abstractmethod
from functools import partial
from typing import Literal, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, PyTree, Shaped

from longspan.config import TrainConfig
from longspan.errors import InputError
from longspan.models.parameters import Constant
from longspan.models.parts import register_cell
from longspan.ops import recurrence
from longspan.ops.recurrence import ACTIVATIONS, Activation, leaky_scan, leaky_trace, penalized_scan
from longspan.ops.rows import project


class Trace(NamedTuple):
    """The hidden vectors of a chunk, and the inner values whose changes structural damping penalizes.

    `weights` is the weight of a change of each inner value.
    """

    hidden: Float[Array, "time lane hidden"]
    inner: Float[Array, "time lane unit"]
    weights: Float[Array, "time lane unit"]


class PulledBack(NamedTuple):
    """Gradients on their way back through the states of a chunk, as `time lane ...` trees like the state.

    `arriving` is the gradient at the state after each step; `handed` is what that step hands to the state before it.
    Only `handed` has a derivative, and only in the parameters of the step itself.
    """

    arriving: PyTree
    handed: PyTree


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

    def pull_back(
        self,
        state: PyTree,
        inputs: Shaped[Array, "time lane ..."],
        resets: Bool[Array, "time lane"],
        length: Int[Array, ""],
        sent: Float[Array, "time lane hidden"],
    ) -> PulledBack:
        """Carry the gradients `sent` to the hidden vectors of a chunk back through its states.

        At a step that starts from a reset state, `handed` reaches nothing.
        """
        del length  # nothing is sent from padding
        frozen, fresh = jax.lax.stop_gradient(self), jax.lax.stop_gradient(self.initial_state())

        def forward(state, now):
            inputs, reset = now
            before = jax.tree.map(lambda old, new: jnp.where(reset, new, old), state, fresh)
            after = frozen.step(before, inputs)
            return after, (before, after)

        def backward(handed, now):
            inputs, reset, before, after, sent = now
            own = jax.vjp(frozen.output, after)[1](sent)[0]
            arriving = jax.tree.map(jnp.add, own, handed)
            handed = _handed(frozen, before, inputs, arriving)
            return jax.tree.map(lambda leaf: jnp.where(reset, 0, leaf), handed), arriving

        _, (before, after) = jax.lax.scan(jax.vmap(forward), state, (inputs, resets))
        nothing = jax.tree.map(jnp.zeros_like, state)
        walked = (inputs, resets, before, after, sent)
        _, arriving = jax.lax.scan(jax.vmap(backward), nothing, walked, reverse=True)
        return PulledBack(arriving, jax.vmap(jax.vmap(partial(_handed, self)))(before, inputs, arriving))


def _handed(cell: Cell, before: PyTree, inputs: Shaped[Array, "..."], arriving: PyTree) -> PyTree:
    """The gradient at the state before a step, given the one at the state after it."""
    return jax.vjp(lambda state: cell.step(state, inputs), before)[1](arriving)[0]


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

    def pull_back(self, state, inputs, resets, length, sent):
        frozen = jax.lax.stop_gradient(self)
        walked = (frozen.drive_of_chunk(inputs, length), state, frozen.recurrent, frozen.leak.value, resets, length)
        _, gain = recurrence.forward(*walked, activation=self.activation)
        at_drive = recurrence.adjoint(frozen.recurrent, frozen.leak.value, gain, resets, length, sent)

        def backward(handed, now):
            sent, reset, by_weights = now
            arriving = sent + handed
            return jnp.where(reset[:, None], 0, frozen.leak.value * arriving + by_weights), arriving

        through_weights = at_drive @ frozen.recurrent.T
        _, arriving = jax.lax.scan(backward, jnp.zeros_like(state), (sent, resets, through_weights), reverse=True)
        return PulledBack(arriving, frozen.leak.value * arriving + at_drive @ self.recurrent.T)

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
    scale = neutral_scale(config) if config.recurrent_scale == "auto" else config.recurrent_scale
    return LeakyCell(
        input_weights=config.input_scale * jax.random.normal(key_input, (input_size, size)),
        recurrent=draw_recurrent(config.recurrent_init, size, scale, key=key_recurrent),
        bias=jnp.zeros(size),
        leak=Constant(
            draw_leaks(
                size, config.leaky_share, config.leak_low, config.leak_high, spread=config.leak_spread, key=key_leak
            )
        ),
        activation=config.activation,
    )


def draw_leaks(
    size: int,
    share: float,
    low: float,
    high: float,
    *,
    spread: Literal["uniform", "time-scales"] = "uniform",
    key: PRNGKeyArray,
) -> Float[Array, " size"]:
    """Leak factors between `low` and `high` for the first `share` of the units, zero for the others.

    They are spread uniformly, as in the paper, or such that the logarithms of their time constants `1 / (1 - leak)`
    are: then, between 0.5 and 0.999, as many units forget within 2 to 20 steps as within 100 to 1000.
    """
    leaky = jnp.arange(size) < round(share * size)
    if spread == "uniform":
        return jnp.where(leaky, jax.random.uniform(key, (size,), minval=low, maxval=high), 0.0)
    forgetting = jax.random.uniform(key, (size,), minval=math.log1p(-high), maxval=math.log1p(-low))
    return jnp.where(leaky, -jnp.expm1(forgetting), 0.0)


def draw_recurrent(kind: str, size: int, scale: float, *, key: PRNGKeyArray) -> Float[Array, "hidden hidden"]:
    """An initial recurrent matrix whose spectral radius is about `scale`."""
    if kind == "orthogonal":
        return scale * jax.random.orthogonal(key, size)
    if kind == "identity":
        return scale * jnp.eye(size)
    return scale / jnp.sqrt(size) * jax.random.normal(key, (size, size))


NEUTRAL_SCALE: dict[Activation, float] = {"tanh": 1.0, "sigmoid": 10.171, "rectifier": math.sqrt(2)}
"""Scale of a random recurrent matrix at which a gradient keeps its length in a wide untrained network without input.

It solves `scale**2 * E[f'(z)**2] = 1` for Gaussian pre-activations `z` of variance `scale**2 * E[f(z)**2]`. Sigmoid
units need a large one, because their mean of one half already spreads the pre-activations.
"""


def neutral_scale(config: TrainConfig) -> float:
    """The scale of the recurrent matrix at which gradients neither grow nor vanish at first."""
    if config.recurrent_init != "identity":
        return NEUTRAL_SCALE[config.activation]
    if config.activation == "sigmoid":
        raise InputError(
            "sigmoid units have no recurrent_scale at which gradients survive an identity start: choose orthogonal, or "
            "tanh or rectifier units",
            fields=["recurrent_scale", "recurrent_init"],
        )
    return 1.0
