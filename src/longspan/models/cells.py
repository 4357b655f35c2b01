"""Recurrent cells: those that see their input through one affine map, and the paper's among them.

The paper's cell is the leaky one (section 3.2); with zero leak it is the standard recurrent network. The others stand
in modules of their own beside this one.
"""

import dataclasses
import math
from abc import abstractmethod
from typing import Literal

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, PyTree, Shaped

from longspan.config import TrainConfig
from longspan.errors import InputError
from longspan.models import draws
from longspan.models.parts import Cell, Constant, PulledBack, Trace, register_cell, walk
from longspan.ops import recurrence
from longspan.ops.linear import add_bias, project
from longspan.ops.recurrence import (
    ACTIVATIONS,
    Activation,
    Precision,
    leaky_scan,
    leaky_trace,
    penalized_scan,
    rounded,
)


def drive_of(
    inputs: Shaped[Array, "..."], weights: Float[Array, "input drive"], bias: Float[Array, " drive"]
) -> Float[Array, "... drive"]:
    """The input times its weights, plus bias; bytes and floats are vectors, other integers symbols."""
    if jnp.issubdtype(inputs.dtype, jnp.integer) and inputs.dtype != jnp.uint8:
        return add_bias(weights[inputs], bias)
    return add_bias(inputs.astype(bias.dtype) @ weights, bias)


class DrivenCell(Cell):
    """A cell that sees its input through one affine map, the drive, which is computed for a whole chunk at once.

    A subclass defines `step_driven`, and may override `run_driven` by something faster.
    """

    input_weights: eqx.AbstractVar[Float[Array, "input drive"]]
    bias: eqx.AbstractVar[Float[Array, " drive"]]

    @abstractmethod
    def step_driven(self, state: PyTree, drive: Float[Array, " drive"]) -> PyTree:
        """The next state of one example, given the drive instead of the input."""

    def step(self, state, inputs):
        return self.step_driven(state, self.drive(inputs))

    def drive(self, inputs: Shaped[Array, "..."]) -> Float[Array, "... drive"]:
        """What the input of a step, or of several, adds to the pre-activations, bias included."""
        return drive_of(inputs, self.input_weights, self.bias)

    def drive_of_chunk(
        self, inputs: Shaped[Array, "time lane ..."], length: Int[Array, ""]
    ) -> Float[Array, "time lane drive"]:
        """`drive` for all steps of a chunk."""
        return project(inputs, self.input_weights, self.bias, length)

    def run(self, state, inputs, resets, length, keys=None):
        del keys
        return self.run_driven(state, self.drive_of_chunk(inputs, length), resets, length)

    def run_driven(
        self,
        state: PyTree,
        drive: Float[Array, "time lane drive"],
        resets: Bool[Array, "time lane"],
        length: Int[Array, ""],
    ) -> tuple[PyTree, Float[Array, "time lane hidden"]]:
        """`run`, given the drive instead of the inputs."""
        del length
        return walk(self, self.step_driven, state, drive, resets)

    def run_penalized(self, state, inputs, resets, length, weight):
        return self.run_driven_penalized(state, self.drive_of_chunk(inputs, length), resets, length, weight)

    def run_driven_penalized(
        self,
        state: PyTree,
        drive: Float[Array, "time lane drive"],
        resets: Bool[Array, "time lane"],
        length: Int[Array, ""],
        weight: Float[Array, "time lane"],
    ) -> tuple[PyTree, Float[Array, "time lane hidden"], Float[Array, ""]]:
        """`run_penalized`, given the drive instead of the inputs."""
        state, hidden = self.run_driven(state, drive, resets, length)
        return state, hidden, jnp.sum(weight * jnp.sum(jnp.abs(hidden), axis=-1))


class LeakyCell(DrivenCell):
    r"""A simple recurrent network with leaky integration.

    .. math:: h_t = \alpha h_{t-1} + (1 - \alpha) f(h_{t-1} U + x_t W + b)
    """

    input_weights: Float[Array, "input hidden"]
    recurrent: Float[Array, "hidden hidden"]
    bias: Float[Array, " hidden"]
    leak: Constant
    activation: Activation = eqx.field(static=True)
    precision: Precision = eqx.field(static=True, default="float32")

    def initial_state(self):
        return jnp.zeros_like(self.bias)

    def at_precision(self, precision):
        return dataclasses.replace(self, precision=precision)

    def step_driven(self, state, drive):
        value = self.activate(state @ self.walked + drive)
        return self.leak.value * state + (1 - self.leak.value) * value

    def output(self, state):
        return state

    def slopes(self, state: Float[Array, " hidden"], inputs: Shaped[Array, "..."]) -> Float[Array, " hidden"]:
        """How steep each unit is in this step, as a share of its steepest slope."""
        function = ACTIVATIONS[self.activation]
        pre_activation = state @ self.walked + self.drive(inputs)
        return function.slope(pre_activation, function.value(pre_activation)) / function.steepest

    @property
    def walked(self) -> Float[Array, "hidden hidden"]:
        """The recurrent matrix as walks read it."""
        return rounded(self.recurrent, self.precision)

    @property
    def flat_means(self) -> Literal["saturated", "off"]:
        """What a flat slope says about a unit."""
        return "off" if self.activation == "rectifier" else "saturated"

    def activate(self, pre_activation: Float[Array, "..."]) -> Float[Array, "..."]:
        """The nonlinearity."""
        return ACTIVATIONS[self.activation].value(pre_activation)

    def run_driven(self, state, drive, resets, length):
        walked = (drive, state, self.recurrent, self.leak.value, resets, length)
        hidden = leaky_scan(self.activation, *walked, precision=self.precision)
        return hidden[-1], hidden

    def run_driven_penalized(self, state, drive, resets, length, weight):
        walked = (drive, state, self.recurrent, self.leak.value, resets, length)
        hidden, penalty = penalized_scan(self.activation, *walked, weight, precision=self.precision)
        return hidden[-1], hidden, penalty

    def trace(self, state, inputs, resets, length):
        """The inner values are the pre-activations, weighted by the slope of the nonlinearity.

        Half the weighted square of a change is then, to second order, the matching loss of the units: for tanh and
        sigmoid the cross-entropy between the units before and after.
        """
        walked = (self.drive_of_chunk(inputs, length), state, self.recurrent, self.leak.value, resets, length)
        return Trace(*leaky_trace(self.activation, *walked, precision=self.precision))

    def pull_back(self, state, inputs, resets, length, sent):
        frozen = jax.lax.stop_gradient(self)
        walked = (frozen.drive_of_chunk(inputs, length), state, frozen.recurrent, frozen.leak.value, resets, length)
        _, gain = recurrence.forward(*walked, activation=self.activation, precision=self.precision)
        at_drive = recurrence.adjoint(frozen.recurrent, frozen.leak.value, gain, resets, length, sent, self.precision)

        leak = frozen.leak.value

        def backward(handed, now):
            sent, reset, by_weights = now
            arriving = sent + handed
            return jnp.where(reset[:, None], 0, leak[None] * arriving + by_weights), arriving

        through_weights = at_drive @ frozen.walked.T
        _, arriving = jax.lax.scan(backward, jnp.zeros_like(state), (sent, resets, through_weights), reverse=True)
        return PulledBack(arriving, leak[None, None] * arriving + at_drive @ self.walked.T)


class EmbeddingCell(DrivenCell):
    r"""A layer without memory that maps its input, affinely: a symbol becomes a vector (Bengio et al., 2003).

    .. math:: h_t = x_t W + b

    Below a layer with several gates it stands for one vector per symbol instead of one for each gate. Alone it makes a
    model of the last step only.
    """

    input_weights: Float[Array, "input hidden"]
    bias: Float[Array, " hidden"]

    def initial_state(self):
        return jnp.zeros_like(self.bias)

    def step_driven(self, state, drive):
        del state
        return drive

    def output(self, state):
        return state

    def run_driven(self, state, drive, resets, length):
        del state, resets, length
        return drive[-1], drive


@register_cell("embedding")
def embedding_cell(config: TrainConfig, input_size: int, *, key: PRNGKeyArray) -> EmbeddingCell:
    """An affine map of the input, of standard deviation `input_scale`."""
    size, key_input = config.hidden_size, jax.random.split(key, 4)[0]
    return EmbeddingCell(draws.normal(key_input, (input_size, size), config.input_scale), draws.zeros(size))


@register_cell("leaky")
def leaky_cell(config: TrainConfig, input_size: int, *, key: PRNGKeyArray) -> LeakyCell:
    """The paper's cell, with its fraction of leaky units."""
    key_input, key_recurrent, key_leak, _ = jax.random.split(key, 4)  # the last one is for the output
    size = config.hidden_size
    return LeakyCell(
        input_weights=draws.normal(key_input, (input_size, size), config.input_scale),
        recurrent=draw_recurrent(config.recurrent_init, size, spectral_scale(config), key=key_recurrent),
        bias=draws.zeros(size),
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
    leaky = round(share * size)
    if spread == "uniform":
        return draws.uniform(key, size, low, high, leaky)
    return jnp.abs(jnp.expm1(draws.uniform(key, size, math.log1p(-high), math.log1p(-low), leaky)))


def draw_recurrent(kind: str, size: int, scale: float, *, key: PRNGKeyArray) -> Float[Array, "hidden hidden"]:
    """An initial recurrent matrix whose spectral radius is about `scale`."""
    if kind == "orthogonal":
        return draws.orthogonal(key, size, scale)
    if kind == "identity":
        return scale * jnp.eye(size)
    return draws.normal(key, (size, size), draws.over_root(scale, size))


NEUTRAL_SCALE: dict[Activation, float] = {"tanh": 1.0, "sigmoid": 10.171, "rectifier": math.sqrt(2)}
"""Scale of a random recurrent matrix at which a gradient keeps its length in a wide untrained network without input.

It solves `scale**2 * E[f'(z)**2] = 1` for Gaussian pre-activations `z` of variance `scale**2 * E[f(z)**2]`. Sigmoid
units need a large one, because their mean of one half already spreads the pre-activations.
"""


def spectral_scale(config: TrainConfig) -> float:
    """The `recurrent_scale` of a config for units with one matrix; `auto` is the neutral one."""
    return neutral_scale(config) if config.recurrent_scale == "auto" else config.recurrent_scale


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
