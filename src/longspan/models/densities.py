"""Outputs for real numbers whose spread is learned: Gaussian, mixture of Gaussians, and NADE for numbers.

Their losses are not convex in the logits, so they are trained by first-order methods. Spreads have a lower limit: on
data that can be predicted exactly the likelihood would otherwise have none.
"""

import math
from collections.abc import Callable
from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key, PRNGKeyArray

from longspan.config import TrainConfig
from longspan.models import draws
from longspan.models.outputs import AffineOutput
from longspan.models.parts import Rates, register_output
from longspan.ops.linear import add_bias

SMALLEST_SPREAD = 1e-3
"""Smallest standard deviation, in the units the model sees: normalized numbers have a standard deviation of one."""


class Mixture(AffineOutput):
    r"""A vector of numbers from a mixture of Gaussians with diagonal covariances.

    .. math:: p(y \mid h) = \sum_k \pi_k(h) \prod_i \mathcal{N}\big(y_i; \mu_{ki}(h), \sigma_{ki}(h)^2\big)

    Shares, means and log spreads are affine in the hidden state. A component covers the whole vector, so that several
    components express how its numbers depend on each other; one component is a Gaussian with learned variances.

    Reference: Bishop, *Mixture density networks*, 1994.
    """

    weights: Float[Array, "hidden parameter"]
    bias: Float[Array, " parameter"]
    components: int = eqx.field(static=True)

    @staticmethod
    def initial(
        hidden_size: int, means: Float[Array, " number"], components: int, scale: float, *, key: PRNGKeyArray
    ) -> "Mixture":
        """Weights drawn from a normal distribution of standard deviation `scale`; components start side by side."""
        key_weights, key_means = jax.random.split(key)
        apart = jax.random.normal(key_means, (components, len(means))) * float(components > 1)
        bias = jnp.concatenate([jnp.zeros(components), (means[None] + apart).ravel(), jnp.zeros(apart.size)])
        return Mixture(draws.normal(key_weights, (hidden_size, len(bias)), scale), bias, components)

    def loss_of(self, logits, targets):
        shares, means, log_spreads = self._parts(logits)
        return mixture_loss(shares, means, log_spreads, targets[..., None, :])

    def sample(self, hidden, *, key):
        shares, means, log_spreads = self._parts(add_bias(hidden @ self.weights, self.bias))
        key_component, key_noise = jax.random.split(key)
        chosen = jax.random.categorical(key_component, shares)[..., None, None]
        mean, spread = (
            jnp.take_along_axis(values, chosen, axis=-2)[..., 0, :] for values in (means, jnp.exp(log_spreads))
        )
        return mean + spread * jax.random.normal(key_noise, mean.shape)

    def likeliest(self, hidden):
        """The expectation, which has the smallest squared error."""
        shares, means, _ = self._parts(add_bias(hidden @ self.weights, self.bias))
        return jnp.sum(jax.nn.softmax(shares)[..., None] * means, axis=-2)

    def _parts(self, logits: Float[Array, "... parameter"]):
        count, rest = self.components, logits[..., self.components :]
        means, log_spreads = jnp.split(rest.reshape(*rest.shape[:-1], 2 * count, -1), 2, axis=-2)
        return logits[..., :count], means, _limited(log_spreads)


class NumberNade(AffineOutput):
    r"""NADE for numbers: each from a mixture of Gaussians given the hidden state and the numbers before it.

    .. math:: \theta_i = b_i(h) + V_i \, \sigma(c(h) + y_{<i} W_{<i})

    where :math:`\theta_i` holds the shares, means and log spreads of number i.

    Reference: Uria, Murray and Larochelle, *RNADE: The real-valued neural autoregressive density-estimator*, 2013.
    """

    visible_weights: Float[Array, "hidden parameter"]
    visible_bias: Float[Array, " parameter"]
    hidden_weights: Float[Array, "hidden unit"]
    hidden_bias: Float[Array, " unit"]
    weights: Float[Array, "number unit"]
    readout: Float[Array, "number unit each"]
    maps: ClassVar = (("visible_weights", "visible_bias"), ("hidden_weights", "hidden_bias"))

    @staticmethod
    def initial(
        hidden_size: int,
        units: int,
        means: Float[Array, " number"],
        components: int,
        scale: float,
        *,
        key: PRNGKeyArray,
    ) -> "NumberNade":
        """Weights drawn from a normal distribution of standard deviation `scale`; components start side by side."""
        numbers, each = len(means), 3 * components
        shapes = [(hidden_size, numbers * each), (hidden_size, units), (numbers, units), (numbers, units, each)]
        *keys, key_means = jax.random.split(key, 5)
        visible_weights, hidden_weights, weights, readout = (
            draws.normal(one, shape, scale) for one, shape in zip(keys, shapes, strict=True)
        )
        apart = means[:, None] + jax.random.normal(key_means, (numbers, components)) * float(components > 1)
        bias = jnp.concatenate([jnp.zeros_like(apart), apart, jnp.zeros_like(apart)], axis=1).ravel()
        return NumberNade(visible_weights, bias, hidden_weights, draws.zeros(units), weights, readout)

    def logits_of(self, mapped, targets, length):
        """Shares, means and log spreads of every number: time x lane x number x parameters."""
        del length
        visible, driven = mapped
        added = targets[..., None] * jnp.broadcast_to(self.weights, (*targets.shape, self.weights.shape[-1]))
        units = jax.nn.sigmoid(driven[..., None, :] + jnp.cumsum(added, axis=-2) - added)
        return visible.reshape(*visible.shape[:-1], len(self.weights), -1) + jnp.einsum(
            "...nu,nup->...np", units, self.readout
        )

    def loss_of(self, logits, targets):
        shares, means, log_spreads = _thirds(logits)
        losses = mixture_loss(shares, means[..., None], log_spreads[..., None], targets[..., None, None])
        return jnp.sum(losses, axis=-1)

    def sample(self, hidden, *, key):
        """Draw the numbers of a vector one after the other."""
        return self._one_by_one(hidden, jax.random.split(key, len(self.weights)), _draw_number)

    def likeliest(self, hidden):
        """The expectation of each number, given those of the numbers before it."""
        return self._one_by_one(hidden, jax.random.split(jax.random.key(0), len(self.weights)), _expected_number)

    def _one_by_one(self, hidden, keys: Key[Array, "..."], draw_number: Callable) -> Float[Array, "... number"]:
        visible = add_bias(hidden @ self.visible_weights, self.visible_bias)
        visible = jnp.moveaxis(visible.reshape(*hidden.shape[:-1], len(self.weights), -1), -2, 0)

        def draw(pre_activation, number):
            own, weights, readout, key = number
            parts = _thirds(own + jax.nn.sigmoid(pre_activation) @ readout)
            value = draw_number(parts, key)
            return pre_activation + value[..., None] * jnp.broadcast_to(weights, pre_activation.shape), value

        start = add_bias(hidden @ self.hidden_weights, self.hidden_bias)
        _, drawn = jax.lax.scan(draw, start, (visible, self.weights, self.readout, keys))
        return jnp.moveaxis(drawn, 0, -1)


def mixture_loss(
    shares: Float[Array, "... component"],
    means: Float[Array, "... component number"],
    log_spreads: Float[Array, "... component number"],
    targets: Float[Array, "... #component number"],
) -> Float[Array, "..."]:
    """Negative log-likelihood of vectors under mixtures with diagonal covariances, in nats."""
    squares = jnp.square((targets - means) * jnp.exp(-log_spreads))
    log_densities = -jnp.sum(0.5 * squares + log_spreads + 0.5 * math.log(2 * math.pi), axis=-1)
    return -jax.nn.logsumexp(jax.nn.log_softmax(shares) + log_densities, axis=-1)


def _limited(log_spreads: Float[Array, "..."]) -> Float[Array, "..."]:
    return jnp.maximum(log_spreads, math.log(SMALLEST_SPREAD))


def _thirds(logits: Float[Array, "... each"]):
    shares, means, log_spreads = jnp.split(logits, 3, axis=-1)
    return shares, means, _limited(log_spreads)


def _draw_number(parts, key: PRNGKeyArray) -> Float[Array, "..."]:
    shares, means, log_spreads = parts
    key_component, key_noise = jax.random.split(key)
    chosen = jax.random.categorical(key_component, shares)[..., None]
    mean, spread = (jnp.take_along_axis(values, chosen, axis=-1)[..., 0] for values in (means, jnp.exp(log_spreads)))
    return mean + spread * jax.random.normal(key_noise, mean.shape)


def _expected_number(parts, key: PRNGKeyArray) -> Float[Array, "..."]:
    shares, means, _ = parts
    return jnp.sum(jax.nn.softmax(shares) * means, axis=-1)


@register_output("normal", predicts="numbers")
def normal_output(config: TrainConfig, hidden_size: int, rates: Rates, *, key: PRNGKeyArray) -> Mixture:
    """Numbers with Gaussian noise of learned variance."""
    return Mixture.initial(hidden_size, jnp.asarray(rates, jnp.float32), 1, config.output_scale, key=key)


@register_output("mdn", predicts="numbers")
def mdn_output(config: TrainConfig, hidden_size: int, rates: Rates, *, key: PRNGKeyArray) -> Mixture:
    """Numbers from a mixture of Gaussians."""
    means = jnp.asarray(rates, jnp.float32)
    return Mixture.initial(hidden_size, means, config.components, config.output_scale, key=key)


@register_output("rnade", predicts="numbers")
def rnade_output(config: TrainConfig, hidden_size: int, rates: Rates, *, key: PRNGKeyArray) -> NumberNade:
    """Numbers one after the other, each from a mixture of Gaussians."""
    means = jnp.asarray(rates, jnp.float32)
    return NumberNade.initial(hidden_size, config.nade_size, means, config.components, config.output_scale, key=key)
