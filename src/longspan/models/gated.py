"""Cells whose units are multiplied: LSTM, GRU, and the multiplicative recurrent network.

The paper names the first and the last among the ways to remember for long (section 3.2) and to let the input choose
what the network does. Gates are stacked in the order of PyTorch and Equinox, so weights can be carried over as they
are, transposed: `x W` here is `W x` there.
"""

from dataclasses import dataclass
from typing import Literal

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from longspan.config import TrainConfig
from longspan.models import draws
from longspan.models.cells import DrivenCell, draw_recurrent, spectral_scale
from longspan.models.parts import register_cell
from longspan.ops.gated import gru_scan, lstm_scan
from longspan.ops.recurrence import ACTIVATIONS, Activation


class LstmCell(DrivenCell):
    r"""Long short-term memory (Hochreiter and Schmidhuber, 1997), with a forget gate (Gers et al., 2000).

    .. math::
        i, f &= \sigma(x W_{i,f} + h U_{i,f} + b_{i,f} + p_{i,f} c) \\
        c' &= f c + i \, a(x W_g + h U_g + b_g) \\
        h' &= \sigma(x W_o + h U_o + b_o + p_o c') \, a(c')

    Peepholes p (Gers, Schraudolph and Schmidhuber, 2002) let the gates see the cell state; without them `peepholes` is
    None. The state is `(h, c)`.
    """

    input_weights: Float[Array, "input gates"]
    recurrent: Float[Array, "hidden gates"]
    bias: Float[Array, " gates"]
    peepholes: Float[Array, "3 hidden"] | None
    activation: Activation = eqx.field(static=True)

    def initial_state(self):
        rest = jnp.zeros(self.recurrent.shape[0], self.bias.dtype)
        return rest, rest

    def output(self, state):
        return state[0]

    def step_driven(self, state, drive):
        hidden, cell = state
        function, peepholes = ACTIVATIONS[self.activation].value, self._peepholes()
        into, kept, candidate, shown = jnp.split(hidden @ self.recurrent + drive, 4)
        into = jax.nn.sigmoid(into + peepholes[0] * cell)
        kept = jax.nn.sigmoid(kept + peepholes[1] * cell)
        cell = kept * cell + into * function(candidate)
        return jax.nn.sigmoid(shown + peepholes[2] * cell) * function(cell), cell

    def run_driven(self, state, drive, resets, length):
        size = self.recurrent.shape[0]
        first, cell = state
        drive, recurrent = drive.reshape(*drive.shape[:2], 4, size), self.recurrent.reshape(size, 4, size)
        hidden, cell = lstm_scan(self.activation, drive, first, cell, recurrent, self._peepholes(), resets, length)
        return (hidden[-1], cell), hidden

    def _peepholes(self) -> Float[Array, "3 hidden"]:
        size = self.recurrent.shape[0]
        return jnp.zeros((3, size), self.bias.dtype) if self.peepholes is None else self.peepholes


class GruCell(DrivenCell):
    r"""The gated recurrent unit (Cho et al., 2014), in both forms.

    .. math::
        r, z &= \sigma(x W_{r,z} + h U_{r,z} + b_{r,z}) \\
        n &= a(x W_n + b_n + r (h U_n + d)) \quad\text{or}\quad a(x W_n + b_n + (r h) U_n + d) \\
        h' &= (1 - z) n + z h

    The reset gate acts after the recurrent product, as in PyTorch, Equinox and cuDNN, or before it, as first published.
    """

    input_weights: Float[Array, "input gates"]
    recurrent: Float[Array, "hidden gates"]
    bias: Float[Array, " gates"]
    candidate_bias: Float[Array, " hidden"]
    reset: Literal["after", "before"] = eqx.field(static=True)
    activation: Activation = eqx.field(static=True)

    def initial_state(self):
        return jnp.zeros_like(self.candidate_bias)

    def output(self, state):
        return state

    def step_driven(self, state, drive):
        size = len(self.candidate_bias)
        gates = jax.nn.sigmoid(state @ self.recurrent[:, : 2 * size] + drive[: 2 * size])
        reset, update = gates[:size], gates[size:]
        into_candidate = self.recurrent[:, 2 * size :]
        if self.reset == "after":
            recurred = reset * (state @ into_candidate + self.candidate_bias)
        else:
            recurred = (reset * state) @ into_candidate + self.candidate_bias
        candidate = ACTIVATIONS[self.activation].value(drive[2 * size :] + recurred)
        return candidate + update * (state - candidate)

    def run_driven(self, state, drive, resets, length):
        if self.reset == "before":
            return super().run_driven(state, drive, resets, length)
        size = len(self.candidate_bias)
        drive = drive.reshape(*drive.shape[:2], 3, size)
        recurrent = self.recurrent.reshape(size, 3, size)
        hidden = gru_scan(self.activation, drive, state, recurrent, self.candidate_bias, resets, length)
        return hidden[-1], hidden


class MultiplicativeCell(DrivenCell):
    r"""A recurrent network whose matrix the input chooses (Sutskever, Martens and Hinton, 2011), factored.

    .. math:: h' = a\big(((x W_m + b_m) \odot (h V)) U + x W_h + b_h\big)

    The input scales the factors, through which the state passes; `b_m`, one at first, makes it a plain network until
    the input has learned to choose.
    """

    input_weights: Float[Array, "input drive"]
    to_factors: Float[Array, "hidden factor"]
    from_factors: Float[Array, "factor hidden"]
    bias: Float[Array, " drive"]
    activation: Activation = eqx.field(static=True)

    def initial_state(self):
        return jnp.zeros(self.to_factors.shape[0], self.bias.dtype)

    def output(self, state):
        return state

    def step_driven(self, state, drive):
        factors = self.to_factors.shape[1]
        chosen = drive[:factors] * (state @ self.to_factors)
        return ACTIVATIONS[self.activation].value(chosen @ self.from_factors + drive[factors:])


@dataclass(frozen=True)
class LstmSettings:
    """Settings of an LSTM's own."""

    peepholes: bool = False
    """Whether the gates see the cell state."""
    forget_bias: float = 1.0
    """Initial bias of the forget gates; a positive one remembers from the start."""


@dataclass(frozen=True)
class GruSettings:
    """Settings of a GRU's own."""

    reset: Literal["after", "before"] = "after"
    """Whether the reset gate acts after the recurrent product, as in PyTorch, or before it, as first published."""
    update_bias: float = 0.0
    """Initial bias of the update gates; a positive one remembers from the start."""


@dataclass(frozen=True)
class MultiplicativeSettings:
    """Settings of a multiplicative network's own."""

    factors: int = 0
    """Number of factors; 0 means as many as units."""


@register_cell("lstm", settings=LstmSettings)
def lstm_cell(config: TrainConfig, input_size: int, settings: LstmSettings, *, key: PRNGKeyArray) -> LstmCell:
    """An LSTM with an orthogonal matrix, or what `recurrent_init` says, for each gate."""
    size = config.hidden_size
    weights, recurrent = _draw_gates(config, input_size, 4, key)
    return LstmCell(
        input_weights=weights,
        recurrent=recurrent,
        bias=jnp.zeros(4 * size).at[size : 2 * size].set(settings.forget_bias),
        peepholes=jnp.zeros((3, size)) if settings.peepholes else None,
        activation=config.activation,
    )


@register_cell("gru", settings=GruSettings)
def gru_cell(config: TrainConfig, input_size: int, settings: GruSettings, *, key: PRNGKeyArray) -> GruCell:
    """A GRU with an orthogonal matrix, or what `recurrent_init` says, for each gate."""
    size = config.hidden_size
    weights, recurrent = _draw_gates(config, input_size, 3, key)
    return GruCell(
        input_weights=weights,
        recurrent=recurrent,
        bias=jnp.zeros(3 * size).at[size : 2 * size].set(settings.update_bias),
        candidate_bias=draws.zeros(size),
        reset=settings.reset,
        activation=config.activation,
    )


@register_cell("multiplicative", settings=MultiplicativeSettings)
def multiplicative_cell(
    config: TrainConfig, input_size: int, settings: MultiplicativeSettings, *, key: PRNGKeyArray
) -> MultiplicativeCell:
    """A multiplicative network that starts as a plain one whose matrix has about the spectral scale of the config."""
    size, key_input, key_to, key_from = config.hidden_size, *jax.random.split(key, 4)[:3]
    factors = settings.factors or size
    bias = jnp.concatenate([jnp.ones(factors), jnp.zeros(size)])
    wide = max(size, factors)
    return MultiplicativeCell(
        input_weights=draws.normal(key_input, (input_size, factors + size), config.input_scale),
        to_factors=draw_recurrent(config.recurrent_init, wide, spectral_scale(config), key=key_to)[:size, :factors],
        from_factors=draw_recurrent(config.recurrent_init, wide, 1.0, key=key_from)[:factors, :size],
        bias=bias,
        activation=config.activation,
    )


def _draw_gates(config: TrainConfig, input_size: int, gates: int, key: PRNGKeyArray):
    """Input weights and recurrent matrices of all gates, side by side."""
    key_input, key_recurrent = jax.random.split(key, 4)[:2]
    size = config.hidden_size
    scale = 1.0 if config.recurrent_scale == "auto" else config.recurrent_scale
    squares = [
        draw_recurrent(config.recurrent_init, size, scale, key=each) for each in jax.random.split(key_recurrent, gates)
    ]
    weights = draws.normal(key_input, (input_size, gates * size), config.input_scale)
    return weights, jnp.concatenate(squares, axis=1)
