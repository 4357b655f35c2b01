"""Cells for several time scales (section 3.2 of the paper): delayed connections, band-pass units, averaged input."""

from dataclasses import dataclass

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from longspan.config import TrainConfig
from longspan.errors import InputError
from longspan.models import draws
from longspan.models.cells import DrivenCell, draw_recurrent, drive_of, spectral_scale
from longspan.models.parts import Cell, Constant, register_cell
from longspan.ops.linear import project
from longspan.ops.recurrence import ACTIVATIONS, Activation


class DelayedCell(DrivenCell):
    r"""A recurrent network with connections from several steps back (Lin, Horne, Tino and Giles, 1995).

    .. math:: h_t = a\big(x_t W + b + \sum_k h_{t - d_k} U_k\big)

    A gradient needs only one of d steps through the longest delay d. The state is the last d hidden vectors, the newest
    first; before the first step they are zero.
    """

    input_weights: Float[Array, "input hidden"]
    recurrent: Float[Array, "lag hidden hidden"]
    bias: Float[Array, " hidden"]
    lags: tuple[int, ...] = eqx.field(static=True)
    activation: Activation = eqx.field(static=True)

    def initial_state(self):
        return jnp.zeros((max(self.lags), len(self.bias)), self.bias.dtype)

    def output(self, state):
        return state[0]

    def step_driven(self, state, drive):
        seen = state[jnp.array(self.lags) - 1]
        hidden = ACTIVATIONS[self.activation].value(jnp.einsum("ki,kij->j", seen, self.recurrent) + drive)
        return jnp.concatenate([hidden[None], state[:-1]])


class BandPassCell(DrivenCell):
    r"""Units that each respond to a frequency band of their own (Siewert and Wustlich, 2007).

    .. math::
        l_t &= (1 - \gamma) l_{t-1} + \gamma \, a(h_{t-1} U + x_t W + b) \\
        s_t &= (1 - \eta) s_{t-1} + \eta \, l_t \\
        h_t &= (1 + \eta / \gamma) (l_t - s_t)

    The first average removes fast changes, subtracting the second one removes slow ones, and the factor restores the
    gain of the frequencies between them. Rates :math:`\gamma > \eta` are constants, drawn for each unit. The state is
    `(l, s)`.
    """

    input_weights: Float[Array, "input hidden"]
    recurrent: Float[Array, "hidden hidden"]
    bias: Float[Array, " hidden"]
    fast: Constant
    slow: Constant
    activation: Activation = eqx.field(static=True)

    def initial_state(self):
        return jnp.zeros_like(self.bias), jnp.zeros_like(self.bias)

    def output(self, state):
        return (1 + self.slow.value / self.fast.value) * (state[0] - state[1])

    def step_driven(self, state, drive):
        value = ACTIVATIONS[self.activation].value(self.output(state) @ self.recurrent + drive)
        low = state[0] + self.fast.value * (value - state[0])
        return low, state[1] + self.slow.value * (low - state[1])


class ContextCell(Cell):
    r"""A cell that also sees decaying averages of its input (Mikolov and Zweig, 2012).

    .. math:: m_t = \beta m_{t-1} + (1 - \beta) x_t V, \qquad \text{drive}_t = x_t W + b + m_t

    The average of the input times V is the average of the products, so that words need no vectors as long as the
    vocabulary. There is one m, and one V, for each decay beta. The state is `(state of the cell, averages)`.
    """

    cell: DrivenCell
    context_weights: Float[Array, "input averages"]
    decays: tuple[float, ...] = eqx.field(static=True)

    def initial_state(self):
        averages = jnp.zeros((len(self.decays), len(self.cell.bias)), self.context_weights.dtype)
        return self.cell.initial_state(), averages

    def output(self, state):
        return self.cell.output(state[0])

    def step(self, state, inputs):
        inner, averages = state
        averages = self._average(averages, drive_of(inputs, self.context_weights, self._no_bias()))
        return self.cell.step_driven(inner, self.cell.drive(inputs) + averages.sum(0)), averages

    def run(self, state, inputs, resets, length, keys=None):
        del keys
        seen = project(inputs, self.context_weights, self._no_bias(), length)

        def step(averages, now):
            seen, reset = now
            averages = jax.vmap(self._average)(jnp.where(reset[:, None, None], 0, averages), seen)
            return averages, averages.sum(1)

        averages, added = jax.lax.scan(step, state[1], (seen, resets))
        drive = self.cell.drive_of_chunk(inputs, length) + added
        inner, hidden = self.cell.run_driven(state[0], drive, resets, length)
        return (inner, averages), hidden

    def _average(self, averages, seen):
        decays = jnp.array(self.decays, averages.dtype)[:, None]
        return decays * averages + (1 - decays) * seen.reshape(averages.shape)

    def _no_bias(self):
        return jnp.zeros(self.context_weights.shape[1], self.context_weights.dtype)


def with_context(
    cell: Cell, decays: tuple[float, ...], input_size: int, scale: float, *, key: PRNGKeyArray
) -> ContextCell:
    """The cell with averages of its input that decay by these factors per step."""
    if not isinstance(cell, DrivenCell) or cell.takes_key:
        raise InputError(
            f"{type(cell).__name__} takes no context: expected a cell without noise that sees its input through one "
            "affine map",
            fields=["cell"],
        )
    shape = (input_size, len(decays) * len(cell.bias))
    return ContextCell(cell, draws.normal(jax.random.fold_in(key, 1), shape, scale), decays)


@dataclass(frozen=True)
class DelayedSettings:
    """Settings of delayed connections."""

    lags: tuple[int, ...] = (1, 2, 4, 8)
    """How many steps back each connection reaches."""

    def __post_init__(self) -> None:
        if not self.lags or min(self.lags) < 1 or len(set(self.lags)) < len(self.lags) or max(self.lags) > 10_000:
            raise InputError(f"lags must be different whole numbers from 1 to 10000: got {self.lags}", fields=["cell"])


@dataclass(frozen=True)
class BandPassSettings:
    """Settings of band-pass units, as rates: the share of an average that a step replaces."""

    slowest: float = 0.02
    """Smallest of the rates by which fast changes are kept out; the largest is 1."""
    width: float = 10.0
    """How many times smaller the rate is by which slow changes are kept out."""

    def __post_init__(self) -> None:
        if not (0 < self.slowest <= 1 and self.width > 1):
            raise InputError(
                f"slowest must be above 0 and at most 1, width above 1: got {self.slowest} and {self.width}",
                fields=["cell"],
            )


@register_cell("delayed", settings=DelayedSettings)
def delayed_cell(config: TrainConfig, input_size: int, settings: DelayedSettings, *, key: PRNGKeyArray) -> DelayedCell:
    """Delayed connections whose matrices together have about the spectral scale of the config."""
    key_input, key_recurrent = jax.random.split(key, 4)[:2]
    size, scale = config.hidden_size, spectral_scale(config) / len(settings.lags) ** 0.5
    keys = jax.random.split(key_recurrent, len(settings.lags))
    return DelayedCell(
        input_weights=draws.normal(key_input, (input_size, size), config.input_scale),
        recurrent=jnp.stack([draw_recurrent(config.recurrent_init, size, scale, key=each) for each in keys]),
        bias=draws.zeros(size),
        lags=settings.lags,
        activation=config.activation,
    )


@register_cell("band-pass", settings=BandPassSettings)
def band_pass_cell(
    config: TrainConfig, input_size: int, settings: BandPassSettings, *, key: PRNGKeyArray
) -> BandPassCell:
    """Band-pass units whose bands are spread evenly on a logarithmic scale."""
    key_input, key_recurrent, key_rates = jax.random.split(key, 4)[:3]
    size = config.hidden_size
    fast = settings.slowest ** jax.random.uniform(key_rates, (size,))
    return BandPassCell(
        input_weights=draws.normal(key_input, (input_size, size), config.input_scale),
        recurrent=draw_recurrent(config.recurrent_init, size, spectral_scale(config), key=key_recurrent),
        bias=draws.zeros(size),
        fast=Constant(fast),
        slow=Constant(fast / settings.width),
        activation=config.activation,
    )
