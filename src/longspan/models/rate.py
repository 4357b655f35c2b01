"""Networks of firing rates, for models of brains: noise, time constants, Dale's law, sparse connections."""

from dataclasses import dataclass

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from longspan.config import TrainConfig
from longspan.errors import InputError
from longspan.models import draws
from longspan.models.cells import DrivenCell, draw_recurrent, spectral_scale
from longspan.models.parts import Constant, register_cell, walk
from longspan.ops.recurrence import ACTIVATIONS, Activation, leaky_scan


class RateCell(DrivenCell):
    r"""Firing rates that follow their drive with a time constant of their own, and with noise.

    .. math::
        h_t = e^{-1/\tau} h_{t-1} + (1 - e^{-1/\tau})\, f\big(h_{t-1} U + x_t W + b + \sigma_\tau \xi_t\big),
        \qquad U = \mathrm{diag}(s) |V| \odot M

    It is the leaky cell in the form of systems neuroscience (Song, Yang and Wang, 2016), tau being counted in steps.
    Noise xi is standard normal and scaled by :math:`\sigma_\tau = \sigma \sqrt{2 / (1 - e^{-1/\tau})}`, so that the
    rates of units fluctuate by about sigma whatever their time constants. By Dale's law all connections from a unit
    have one sign s; without signs U is V M. A mask M says which connections exist. With a learned first state, a
    sequence starts from it instead of from rest.

    Noise acts in training, where a key is at hand; scores, samples and diagnoses are without.
    """

    input_weights: Float[Array, "input hidden"]
    recurrent: Float[Array, "hidden hidden"]
    bias: Float[Array, " hidden"]
    log_tau: Float[Array, " hidden"] | Constant
    first: Float[Array, " hidden"] | None = None
    signs: Constant | None = None
    mask: Constant | None = None
    noise: float = eqx.field(static=True, default=0.0)
    activation: Activation = eqx.field(static=True, default="rectifier")

    @property
    def takes_key(self):
        return self.noise > 0

    def initial_state(self):
        return jnp.zeros_like(self.bias) if self.first is None else self.first

    def output(self, state):
        return state

    def connections(self) -> Float[Array, "hidden hidden"]:
        """U: the recurrent matrix as the rates see it, from a unit (row) to another (column)."""
        matrix = self.recurrent
        if self.signs is not None:
            matrix = self.signs.value[:, None] * jnp.abs(matrix)
        return matrix if self.mask is None else matrix * self.mask.value

    def keep(self) -> Float[Array, " hidden"]:
        """The share of its rate that a unit keeps at each step."""
        log_tau = self.log_tau.value if isinstance(self.log_tau, Constant) else self.log_tau
        return jnp.exp(-jnp.exp(-log_tau))

    def step_driven(self, state, drive):
        keep = self.keep()
        return keep * state + (1 - keep) * ACTIVATIONS[self.activation].value(state @ self.connections() + drive)

    def step(self, state, inputs, key=None):
        drive = self.drive(inputs)
        noise = 0.0 if key is None else self.noise_scale() * jax.random.normal(key, drive.shape, drive.dtype)
        return self.step_driven(state, drive + noise)

    def noise_scale(self) -> Float[Array, " hidden"]:
        """Standard deviation of the noise in the drive of each unit."""
        return self.noise * jnp.sqrt(2 / (1 - self.keep()))

    def run(self, state, inputs, resets, length, keys=None):
        drive = self.drive_of_chunk(inputs, length)
        if keys is not None:
            drawn = jax.vmap(lambda key: jax.random.normal(key, (len(drive), drive.shape[2]), drive.dtype), out_axes=1)
            drive = drive + self.noise_scale()[None, None] * drawn(keys)
        return self.run_driven(state, drive, resets, length)

    def run_driven(self, state, drive, resets, length):
        """By the native walk where time constants are fixed and sequences start from rest."""
        if self.first is not None or not isinstance(self.log_tau, Constant):
            connections, keep, function = self.connections(), self.keep(), ACTIVATIONS[self.activation].value
            return walk(
                self, lambda old, now: keep * old + (1 - keep) * function(old @ connections + now), state, drive, resets
            )
        hidden = leaky_scan(self.activation, drive, state, self.connections(), self.keep(), resets, length)
        return hidden[-1], hidden


@dataclass(frozen=True)
class RateSettings:
    """Settings of firing-rate networks."""

    tau: tuple[float, ...] = (5.0,)
    """Time constants in steps: one for all units, or the two ends of an interval from which each unit draws its own."""
    learn_tau: bool = False
    """Whether time constants are trained."""
    noise: float = 0.0
    """How much rates fluctuate in training, as a standard deviation."""
    excitatory: float = 0.0
    """Fraction of excitatory units, the others being inhibitory (Dale's law); 0 lets every weight have any sign."""
    density: float = 1.0
    """Fraction of the possible recurrent connections that exist, chosen at random."""
    learn_start: bool = False
    """Whether the rates at the start of a sequence are trained; otherwise they are zero."""

    def __post_init__(self) -> None:
        if len(self.tau) not in (1, 2) or min(self.tau) <= 0 or list(self.tau) != sorted(self.tau):
            raise InputError(f"tau must be one or two ascending numbers above 0: got {self.tau}", fields=["cell"])
        if not (0 <= self.excitatory < 1 and 0 < self.density <= 1 and self.noise >= 0):
            raise InputError(
                "expected excitatory from 0 to below 1, density above 0 and at most 1, noise of at least 0: got "
                f"{self.excitatory}, {self.density} and {self.noise}",
                fields=["cell"],
            )


@register_cell("rate", settings=RateSettings)
def rate_cell(config: TrainConfig, input_size: int, settings: RateSettings, *, key: PRNGKeyArray) -> RateCell:
    """A network of firing rates whose connections have about the spectral scale of the config."""
    key_input, key_recurrent, key_tau = jax.random.split(key, 4)[:3]
    size = config.hidden_size
    low, high = jnp.log(settings.tau[0]), jnp.log(settings.tau[-1])
    log_tau = low + (high - low) * jax.random.uniform(key_tau, (size,))
    mask = jax.random.bernoulli(jax.random.fold_in(key_recurrent, 1), settings.density, (size, size))
    recurrent, signs = _draw_connections(config, settings, key=key_recurrent)
    return RateCell(
        input_weights=draws.normal(key_input, (input_size, size), config.input_scale),
        recurrent=recurrent,
        bias=draws.zeros(size),
        log_tau=log_tau if settings.learn_tau else Constant(log_tau),
        first=draws.zeros(size) if settings.learn_start else None,
        signs=signs,
        mask=Constant(mask.astype(jnp.float32)) if settings.density < 1 else None,
        noise=settings.noise,
        activation=config.activation,
    )


def _draw_connections(
    config: TrainConfig, settings: RateSettings, *, key: PRNGKeyArray
) -> tuple[Float[Array, "hidden hidden"], Constant | None]:
    """Initial weights, and the signs of Dale's law.

    With it excitation and inhibition balance: weights of the rarer kind are larger, so that the mean of what a unit
    receives is zero, and the spectral radius follows from the variances alone (Rajan and Abbott, 2006).
    """
    size, density = config.hidden_size, settings.density
    if settings.excitatory == 0:
        return draw_recurrent(config.recurrent_init, size, spectral_scale(config), key=key) / density**0.5, None
    excitatory = max(1, min(size - 1, round(settings.excitatory * size))) if size > 1 else size
    excites = jnp.arange(size) < excitatory
    ratio = excitatory / max(1, size - excitatory)
    strength = jnp.where(excites, 1.0, ratio)
    weights = jnp.abs(jax.random.normal(key, (size, size))) * strength[:, None]
    squares = density * strength**2 - density**2 * (2 / jnp.pi) * strength**2  # variance of |normal| through the mask
    weights = weights * spectral_scale(config) / jnp.sqrt(jnp.sum(squares))
    return weights, Constant(jnp.where(excites, 1.0, -1.0))
