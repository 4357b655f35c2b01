"""The linear recurrent unit, which needs no walk through time: all steps of a chunk at once, by a parallel scan."""

from dataclasses import dataclass

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from longspan.config import TrainConfig
from longspan.errors import InputError
from longspan.models import draws
from longspan.models.cells import DrivenCell
from longspan.models.parts import register_cell
from longspan.ops.recurrence import ACTIVATIONS, Activation


class LinearCell(DrivenCell):
    r"""The linear recurrent unit (Orvieto et al., 2023): a diagonal complex recurrence with a nonlinear readout.

    .. math::
        s_t &= \lambda \odot s_{t-1} + \gamma \odot (x_t B), \qquad
            \lambda = \exp(-e^{\nu} + i e^{\theta}), \quad \gamma = \sqrt{1 - |\lambda|^2} \\
        h_t &= a\big(\mathrm{Re}(s_t C) + x_t D + b\big)

    The moduli of lambda stay below one however nu and theta move, and gamma keeps the size of the state. Being linear,
    the recurrence is a prefix sum: a chunk of T steps takes log T rounds instead of T steps, which pays for long
    chunks. The state is `(real part, imaginary part, hidden)`.
    """

    input_weights: Float[Array, "input drive"]
    bias: Float[Array, " drive"]
    log_decay: Float[Array, " hidden"]
    log_phase: Float[Array, " hidden"]
    readout: Float[Array, "2 hidden hidden"]
    activation: Activation = eqx.field(static=True)

    def initial_state(self):
        rest = jnp.zeros_like(self.log_decay)
        return rest, rest, rest

    def output(self, state):
        return state[2]

    def step_driven(self, state, drive):
        real, imaginary = self._eigenvalues()
        entering, skipping = self._entering(drive)
        new = (
            real * state[0] - imaginary * state[1] + entering[0],
            real * state[1] + imaginary * state[0] + entering[1],
        )
        return *new, self._read(*new, skipping)

    def run_driven(self, state, drive, resets, length):
        del length
        entering, skipping = self._entering(drive)
        eigenvalues = jax.lax.complex(*self._eigenvalues())[None, None]
        eigenvalues = eigenvalues * jnp.where(resets[..., None], 0.0, 1.0).astype(eigenvalues.dtype)
        first = eigenvalues[0] * jax.lax.complex(state[0], state[1])
        added = jax.lax.complex(*entering).at[0].add(first)
        states = jax.lax.associative_scan(_compose, (eigenvalues, added))[1]
        hidden = self._read(states.real, states.imag, skipping)
        return (states.real[-1], states.imag[-1], hidden[-1]), hidden

    def _eigenvalues(self):
        modulus, phase = jnp.exp(-jnp.exp(self.log_decay)), jnp.exp(self.log_phase)
        return modulus * jnp.cos(phase), modulus * jnp.sin(phase)

    def _entering(self, drive):
        """Real and imaginary part of what enters the state, and what goes past it."""
        real, imaginary, skipping = jnp.split(drive, 3, axis=-1)
        # 1 - |lambda|^2 without the loss of digits where the modulus is close to one
        scale = jnp.broadcast_to(jnp.sqrt(-jnp.expm1(-2 * jnp.exp(self.log_decay))), real.shape)
        return (scale * real, scale * imaginary), skipping

    def _read(self, real, imaginary, skipping):
        return ACTIVATIONS[self.activation].value(real @ self.readout[0] - imaginary @ self.readout[1] + skipping)


def _compose(earlier, later):
    """Two maps s -> a s + b, one after the other."""
    return later[0] * earlier[0], later[0] * earlier[1] + later[1]


@dataclass(frozen=True)
class LinearSettings:
    """Settings of a linear recurrent unit's own."""

    low: float = 0.5
    """Smallest initial modulus of the eigenvalues."""
    high: float = 0.99
    """Largest initial modulus; close to one for long memory."""
    phase: float = 3.14
    """Largest initial phase; small for inputs that change slowly."""

    def __post_init__(self) -> None:
        if not (0 < self.low <= self.high < 1 and self.phase > 0):
            raise InputError(
                f"expected 0 < low <= high < 1 and phase > 0: got {self.low}, {self.high} and {self.phase}",
                fields=["cell"],
            )


@register_cell("lru", settings=LinearSettings)
def linear_cell(config: TrainConfig, input_size: int, settings: LinearSettings, *, key: PRNGKeyArray) -> LinearCell:
    """A linear recurrent unit whose eigenvalues are spread evenly over a ring, or a part of one."""
    key_input, key_ring, key_readout = jax.random.split(key, 4)[:3]
    size = config.hidden_size
    area, turn = jax.random.uniform(key_ring, (2, size), minval=1e-4)
    modulus = jnp.sqrt(settings.low**2 + area * (settings.high**2 - settings.low**2))
    return LinearCell(
        input_weights=draws.normal(key_input, (input_size, 3 * size), config.input_scale),
        bias=draws.zeros(3 * size),
        log_decay=jnp.log(-jnp.log(modulus)),
        log_phase=jnp.log(settings.phase * turn),
        readout=jax.random.normal(key_readout, (2, size, size)) / size**0.5,
        activation=config.activation,
    )
