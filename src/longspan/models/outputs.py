"""Output models: the distribution of the next frame, symbol or number, given the hidden state.

An exact output splits its likelihood into logits and a convex loss of them, as Gauss-Newton products require. This
module has the abstract classes and the simple outputs: independent Bernoulli keys, the full softmax, and numbers with
Gaussian noise.
"""

import math
from abc import abstractmethod
from typing import Any, ClassVar, Literal, TypeAlias

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray, PyTree, Shaped

from longspan.config import TrainConfig
from longspan.models.parts import register_output
from longspan.ops import losses
from longspan.ops.matmul import affine

RAREST_SYMBOL, RAREST_KEY = 1e-7, 1e-4
"""Initial rates of a symbol and a key that never occur in training."""

Rates: TypeAlias = Float[np.ndarray, " target"]
Hidden = Float[Array, "time lane hidden"]
Targets = Shaped[Array, "time lane ..."]


class Output(eqx.Module):
    """A conditional distribution over targets.

    `exact` tells whether `log_prob` is the likelihood itself or an estimate, so that reports can say which.
    """

    exact: ClassVar[bool] = True

    @abstractmethod
    def log_prob(
        self, hidden: Hidden, targets: Targets, length: Int[Array, ""], *, key: PRNGKeyArray
    ) -> Float[Array, "time lane"]:
        """Log-likelihood of each step's target in nats, as reported; `key` is for outputs that estimate it."""

    @abstractmethod
    def loss(
        self, hidden: Hidden, targets: Targets, length: Int[Array, ""], *, key: PRNGKeyArray
    ) -> Float[Array, "time lane"]:
        """The loss to be minimized, per step; `key` is for outputs whose gradient is stochastic."""

    @abstractmethod
    def sample(
        self, hidden: Float[Array, "... hidden"], *, key: PRNGKeyArray, temperature: float = 1.0
    ) -> Shaped[Array, "..."]:
        """Draw a target for every hidden vector; temperature zero greedily takes the likeliest."""


class ExactOutput(Output):
    """An output whose likelihood is a convex function of logits, which may depend on the target."""

    @abstractmethod
    def logits(self, hidden: Hidden, targets: Targets, length: Int[Array, ""]) -> PyTree:
        """The pre-activations in which the loss is convex."""

    @abstractmethod
    def loss_of(self, logits: PyTree, targets: Targets) -> Float[Array, "time lane"]:
        """Negative log-likelihood of each step in nats, from the logits."""

    def loss(self, hidden, targets, length, *, key=None):
        del key
        return self.loss_of(self.logits(hidden, targets, length), targets)

    def log_prob(self, hidden, targets, length, *, key=None):
        del key
        return -self.loss(hidden, targets, length)


class OutputByRows(ExactOutput):
    """An exact output that uses only a few rows of its largest parameters, its tables, in a chunk."""

    @staticmethod
    @abstractmethod
    def tables(output: PyTree) -> tuple[Array, ...]:
        """The tables among the parameters of the output."""

    @abstractmethod
    def loss_by_rows(
        self, hidden: Hidden, targets: Targets, length: Int[Array, ""], scale: Float[Array, "time lane"]
    ) -> tuple[Float[Array, "time lane"], Any]:
        """`loss`, without a derivative in the tables, and the tables' gradient of `sum(scale * loss)` by rows."""


Effort: TypeAlias = Literal["comparable", "accurate"]
"""Effort of an estimate: enough to compare the weights of different epochs, or enough to report."""


class EstimatedOutput(Output):
    """An output whose likelihood can only be estimated: roughly for every step, accurately for a few."""

    exact: ClassVar[bool] = False

    @abstractmethod
    def estimated_log_prob(
        self,
        hidden: Float[Array, "step hidden"],
        targets: Shaped[Array, "step ..."],
        effort: Effort,
        *,
        key: PRNGKeyArray,
    ) -> Float[Array, " step"]:
        """A better estimate than `log_prob`, too expensive for more than a few hundred steps."""


class Bernoulli(ExactOutput):
    """Each key on or off independently of the others, given the hidden state."""

    weights: Float[Array, "hidden key"]
    bias: Float[Array, " key"]

    @staticmethod
    def initial(hidden_size: int, bias: Float[Array, " key"], scale: float, *, key: PRNGKeyArray) -> "Bernoulli":
        """Weights drawn from a normal distribution of standard deviation `scale`."""
        return Bernoulli(scale * jax.random.normal(key, (hidden_size, len(bias))), bias)

    def logits(self, hidden, targets, length):
        del targets
        return affine(hidden, self.weights, self.bias, length)

    def loss_of(self, logits, targets):
        return bernoulli_loss(logits, targets)

    def sample(self, hidden, *, key, temperature=1.0):
        return sample_bernoulli(hidden @ self.weights + self.bias, key, temperature)


class Softmax(ExactOutput):
    """One symbol of a vocabulary, by a softmax over all of it."""

    weights: Float[Array, "hidden symbol"]
    bias: Float[Array, " symbol"]

    @staticmethod
    def initial(hidden_size: int, bias: Float[Array, " symbol"], scale: float, *, key: PRNGKeyArray) -> "Softmax":
        """Weights drawn from a normal distribution of standard deviation `scale`."""
        return Softmax(scale * jax.random.normal(key, (hidden_size, len(bias))), bias)

    def logits(self, hidden, targets, length):
        del targets
        return affine(hidden, self.weights, self.bias, length)

    def loss_of(self, logits, targets):
        return losses.softmax_loss(logits, targets, jnp.ones(targets.shape, bool))

    def sample(self, hidden, *, key, temperature=1.0):
        logits = hidden @ self.weights + self.bias
        if temperature == 0:
            return jnp.argmax(logits, axis=-1).astype(jnp.int32)
        return jax.random.categorical(key, logits / temperature).astype(jnp.int32)


class Gaussian(ExactOutput):
    """Numbers with Gaussian noise of unit variance around an affine function of the hidden state."""

    weights: Float[Array, "hidden number"]
    bias: Float[Array, " number"]

    @staticmethod
    def initial(hidden_size: int, bias: Float[Array, " number"], scale: float, *, key: PRNGKeyArray) -> "Gaussian":
        """Weights drawn from a normal distribution of standard deviation `scale`."""
        return Gaussian(scale * jax.random.normal(key, (hidden_size, len(bias))), bias)

    def logits(self, hidden, targets, length):
        """The means."""
        del targets
        return affine(hidden, self.weights, self.bias, length)

    def loss_of(self, logits, targets):
        return 0.5 * jnp.sum(jnp.square(logits - targets) + math.log(2 * math.pi), axis=-1)

    def sample(self, hidden, *, key, temperature=1.0):
        means = hidden @ self.weights + self.bias
        return means if temperature == 0 else means + temperature * jax.random.normal(key, means.shape)


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
    return losses.bernoulli_loss(logits, targets, jnp.ones(targets.shape[:2], bool))


def sample_bernoulli(logits: Float[Array, "..."], key: PRNGKeyArray, temperature: float) -> Shaped[Array, "..."]:
    """Draw on/off values at a temperature; zero takes the likelier value."""
    if temperature == 0:
        return (logits > 0).astype(jnp.uint8)
    return jax.random.bernoulli(key, jax.nn.sigmoid(logits / temperature)).astype(jnp.uint8)
