"""Output models: the distribution of the next frame, symbol or number, given the hidden state.

An exact output splits its likelihood into logits and a convex loss of them, as Gauss-Newton products require. Here are
independent Bernoulli keys, NADE (keys in ascending order, each predicted from the hidden state and the keys below it:
section 3.3 of the paper), the full softmax, and numbers with Gaussian noise.
"""

import math
from abc import abstractmethod
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray, PyTree, Shaped

from longspan.config import TrainConfig
from longspan.models import draws
from longspan.models.parts import Candidates, ExactOutput, Rates, Targets, register_output
from longspan.ops import outputs as output_ops
from longspan.ops.linear import add_bias, affine

RAREST_SYMBOL, RAREST_KEY = 1e-7, 1e-4
"""Initial rates of a symbol and a key that never occur in training."""

FREE, OFF, ON = -1, 0, 1
"""Values of `held`: whether a key is free, or has to be off or on; a symbol may be free or off."""


class AffineOutput(ExactOutput):
    """An exact output that sees the hidden state through affine maps alone.

    `maps` names the weights and the bias of each of them.
    """

    maps: ClassVar[tuple[tuple[str, str], ...]] = (("weights", "bias"),)

    def logits(self, hidden, targets, length):
        mapped = tuple(
            affine(hidden, getattr(self, weights), getattr(self, bias), length) for weights, bias in self.maps
        )
        return self.logits_of(mapped, targets, length)

    def logits_of(
        self, mapped: tuple[Float[Array, "time lane ..."], ...], targets: Targets, length: Int[Array, ""]
    ) -> PyTree:
        """The logits, given what the affine maps make of the hidden state; with one map, just that."""
        del targets, length
        return mapped[0]


class KeyOutput(ExactOutput):
    """Keys on or off, each with a logit that may depend on the keys before it."""

    holds_keys: ClassVar[bool] = True

    @abstractmethod
    def sample(self, hidden, *, key, held: Int[Array, " key"] | None = None) -> Shaped[Array, "... key"]:
        """Draw a frame for every hidden vector; keys that are not free in `held` have the value given there."""

    def loss_of(self, logits, targets):
        return bernoulli_loss(logits, targets)

    def held_log_weight(self, hidden, targets, held):
        """The log-probability of the held keys, each given the keys before it.

        Keys are drawn one after the other with held ones as they are, so each of these brings its probability as a
        factor. If keys are independent of each other, the weights are all alike.
        """
        logits = self.logits(hidden, targets, jnp.asarray(len(targets), jnp.int32))
        log_probs = jax.nn.log_sigmoid(jnp.where(targets == ON, logits, -logits))
        return jnp.sum(jnp.where(held == FREE, 0, log_probs), axis=-1)


class SymbolOutput(ExactOutput):
    """One symbol of a vocabulary, all of whose probabilities can be listed.

    `vector_axis` tells along which axis of its `weights` there is one vector per symbol; None if it has no such matrix.
    """

    vector_axis: ClassVar[int | None] = None

    @abstractmethod
    def log_probs(self, hidden: Float[Array, "... hidden"]) -> Float[Array, "... symbol"]:
        """Log-probability of every symbol."""

    def sample(self, hidden, *, key):
        return jax.random.categorical(key, self.log_probs(hidden)).astype(jnp.int32)

    def likeliest(self, hidden):
        return jnp.argmax(self.log_probs(hidden), axis=-1).astype(jnp.int32)

    def candidates(self, hidden, count, *, keys, held=None):
        """All symbols."""
        del count, keys
        log_probs = self.log_probs(hidden)
        steps = jnp.broadcast_to(jnp.arange(log_probs.shape[1], dtype=jnp.int32), log_probs.shape)
        log_weight = log_probs if held is None else jnp.where(held == OFF, -jnp.inf, log_probs)
        return Candidates(steps, log_probs, log_weight)


class Bernoulli(KeyOutput, AffineOutput):
    """Each key on or off independently of the others, given the hidden state."""

    weights: Float[Array, "hidden key"]
    bias: Float[Array, " key"]

    @staticmethod
    def initial(hidden_size: int, bias: Float[Array, " key"], scale: float, *, key: PRNGKeyArray) -> "Bernoulli":
        """Weights drawn from a normal distribution of standard deviation `scale`."""
        return Bernoulli(draws.normal(key, (hidden_size, len(bias)), scale), bias)

    def sample(self, hidden, *, key, held=None):
        logits = add_bias(hidden @ self.weights, self.bias)
        return (logits > noise_of_keys(logits.shape, key, held)).astype(jnp.uint8)


class Softmax(SymbolOutput, AffineOutput):
    """One symbol of a vocabulary, by a softmax over all of it."""

    vector_axis = 1
    weights: Float[Array, "hidden symbol"]
    bias: Float[Array, " symbol"]

    @staticmethod
    def initial(hidden_size: int, bias: Float[Array, " symbol"], scale: float, *, key: PRNGKeyArray) -> "Softmax":
        """Weights drawn from a normal distribution of standard deviation `scale`."""
        return Softmax(draws.normal(key, (hidden_size, len(bias)), scale), bias)

    def loss_of(self, logits, targets):
        return output_ops.softmax_loss(logits, targets, jnp.ones(targets.shape, bool))

    def log_probs(self, hidden):
        return jax.nn.log_softmax(add_bias(hidden @ self.weights, self.bias), axis=-1)


class Gaussian(AffineOutput):
    """Numbers with Gaussian noise of unit variance around an affine function of the hidden state."""

    weights: Float[Array, "hidden number"]
    bias: Float[Array, " number"]

    @staticmethod
    def initial(hidden_size: int, bias: Float[Array, " number"], scale: float, *, key: PRNGKeyArray) -> "Gaussian":
        """Weights drawn from a normal distribution of standard deviation `scale`."""
        return Gaussian(draws.normal(key, (hidden_size, len(bias)), scale), bias)

    def loss_of(self, logits, targets):
        return 0.5 * jnp.sum(jnp.square(logits - targets) + math.log(2 * math.pi), axis=-1)

    def sample(self, hidden, *, key):
        means = self.likeliest(hidden)
        return means + jax.random.normal(key, means.shape)

    def likeliest(self, hidden):
        return add_bias(hidden @ self.weights, self.bias)


@register_output("bernoulli", predicts="keys")
def bernoulli_output(config: TrainConfig, hidden_size: int, rates: Rates, *, key: PRNGKeyArray) -> Bernoulli:
    """Independent keys."""
    return Bernoulli.initial(hidden_size, log_odds(rates), config.output_scale, key=key)


@register_output("softmax", predicts="symbols")
def softmax_output(config: TrainConfig, hidden_size: int, rates: Rates, *, key: PRNGKeyArray) -> Softmax:
    """All symbols evaluated."""
    bias = jnp.asarray(np.log(above_zero(rates)), jnp.float32)
    return Softmax.initial(hidden_size, bias, config.output_scale, key=key)


@register_output("gaussian", predicts="numbers")
def gaussian_output(config: TrainConfig, hidden_size: int, rates: Rates, *, key: PRNGKeyArray) -> Gaussian:
    """Numbers with noise of unit variance."""
    return Gaussian.initial(hidden_size, jnp.asarray(rates, jnp.float32), config.output_scale, key=key)


def log_odds(rates: Rates) -> Float[Array, " key"]:
    """Biases that predict keys at their rates, kept away from zero and one."""
    rates = np.clip(rates, RAREST_KEY, 1 - RAREST_KEY)
    return jnp.asarray(np.log(rates / (1 - rates)), jnp.float32)


def above_zero(rates: Rates) -> Rates:
    """The rates of symbols, slightly above zero for those that never occur in training."""
    return np.maximum(rates, RAREST_SYMBOL)


def bernoulli_loss(logits: Float[Array, "time lane key"], targets: Targets) -> Float[Array, "time lane"]:
    """Negative log-likelihood of on/off targets, summed over keys, in nats."""
    return output_ops.bernoulli_loss(logits, targets, jnp.ones(targets.shape[:2], bool))


def noise_of_keys(shape: tuple[int, ...], key: PRNGKeyArray, held: Int[Array, " key"] | None) -> Float[Array, "..."]:
    """Noise to draw keys with: a key is on if its logit exceeds it. Held keys have no choice."""
    noise = jax.random.logistic(key, shape)
    if held is None:
        return noise
    return jnp.where(held == ON, -jnp.inf, jnp.where(held == OFF, jnp.inf, noise))


class Nade(KeyOutput, AffineOutput):
    r"""Neural autoregressive distribution estimator whose biases are affine in the hidden state `h`.

    .. math::
        p(x_i = 1 \mid x_{<i}, h) = \sigma\big(b_i(h) + V_{\cdot i} \cdot \sigma(c(h) + x_{<i} W_{<i})\big)

    Reference: Larochelle and Murray, *The Neural Autoregressive Distribution Estimator*, 2011.
    """

    visible_weights: Float[Array, "hidden key"]
    visible_bias: Float[Array, " key"]
    hidden_weights: Float[Array, "hidden unit"]
    hidden_bias: Float[Array, " unit"]
    weights: Float[Array, "key unit"]
    readout: Float[Array, "unit key"]
    maps: ClassVar = (("visible_weights", "visible_bias"), ("hidden_weights", "hidden_bias"))

    @staticmethod
    def initial(
        hidden_size: int, units: int, visible_bias: Float[Array, " key"], scale: float, *, key: PRNGKeyArray
    ) -> "Nade":
        """Weights drawn from a normal distribution of standard deviation `scale`."""
        keys = len(visible_bias)
        shapes = [(hidden_size, keys), (hidden_size, units), (keys, units), (units, keys)]
        visible_weights, hidden_weights, weights, readout = (
            draws.normal(one, shape, scale) for one, shape in zip(jax.random.split(key, 4), shapes, strict=True)
        )
        return Nade(visible_weights, visible_bias, hidden_weights, draws.zeros(units), weights, readout)

    def logits_of(self, mapped, targets, length):
        visible_bias, hidden_bias = mapped
        return output_ops.nade_logits(visible_bias, hidden_bias, self.weights, self.readout, targets, length)

    def sample(self, hidden, *, key, held=None):
        """Ancestral sampling, with one round per note instead of one per key.

        Key i is on if its logit exceeds logistic noise. The hidden units change only when a key is on, so each round
        finds the next note of every frame from one matrix product.
        """
        leading = hidden.shape[:-1]
        visible_bias, pre_activation = self.biases(hidden.reshape(-1, hidden.shape[-1]))
        noise = noise_of_keys(visible_bias.shape, key, held)
        keys = jnp.arange(visible_bias.shape[1])[None]

        def next_note(progress):
            pre_activation, last, frames, _ = progress
            logits = visible_bias + jax.nn.sigmoid(pre_activation) @ self.readout
            candidates = (logits > noise) & (keys > last[:, None])
            note = jnp.argmax(candidates, axis=1)
            found = jnp.any(candidates, axis=1)
            pre_activation = pre_activation + jnp.where(found[:, None], self.weights[note], 0)
            frames = frames | (found[:, None] & (keys == note[:, None]))
            return pre_activation, jnp.where(found, note, keys.size), frames, jnp.any(found)

        start = (
            pre_activation,
            jnp.full(len(visible_bias), -1),
            jnp.zeros(visible_bias.shape, bool),
            jnp.ones((), bool),
        )
        _, _, frames, _ = jax.lax.while_loop(lambda progress: progress[-1], next_note, start)
        return frames.astype(jnp.uint8).reshape(*leading, -1)

    def biases(self, hidden: Float[Array, "... hidden"]) -> tuple[Float[Array, "... key"], Float[Array, "... unit"]]:
        """Visible and hidden biases given the hidden state."""
        visible = add_bias(hidden @ self.visible_weights, self.visible_bias)
        return visible, add_bias(hidden @ self.hidden_weights, self.hidden_bias)


@register_output("nade", predicts="keys")
def nade_output(config: TrainConfig, hidden_size: int, rates: Rates, *, key: PRNGKeyArray) -> Nade:
    """A NADE over the keys of a frame."""
    return Nade.initial(hidden_size, config.nade_size, log_odds(rates), config.output_scale, key=key)
