"""Output models: the distribution of the next frame, symbol or number, given the hidden state.

An exact output splits its likelihood into logits and a convex loss of them, as Gauss-Newton products require. This
module has the abstract classes and the simple outputs: independent Bernoulli keys, the full softmax, and numbers with
Gaussian noise.

Samples are made from `Candidates`: steps with their probabilities, from which `sampling` chooses one. A distribution of
symbols lists them all; one of frames, of which there are 2^88, draws some.
"""

import math
from abc import abstractmethod
from typing import Any, ClassVar, Literal, NamedTuple, TypeAlias

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray, PyTree, Shaped

from longspan.config import TrainConfig
from longspan.errors import InputError
from longspan.models.parts import register_output
from longspan.ops import losses
from longspan.ops.matmul import affine

RAREST_SYMBOL, RAREST_KEY = 1e-7, 1e-4
"""Initial rates of a symbol and a key that never occur in training."""

FREE, OFF, ON = -1, 0, 1
"""Values of `held`: whether a key is free, or has to be off or on; a symbol may be free or off."""

Rates: TypeAlias = Float[np.ndarray, " target"]
Hidden = Float[Array, "time lane hidden"]
Targets = Shaped[Array, "time lane ..."]


Held: TypeAlias = Int[Array, "lane target"]


class Candidates(NamedTuple):
    """Possible next steps of each lane.

    Attributes:
        steps: frames or symbols.
        log_prob: their log-probabilities, up to a constant of the lane.
        log_weight: a step chosen with probability proportional to `exp(log_weight)` follows the distribution; zero for
            steps that were drawn from it.
    """

    steps: Shaped[Array, "lane candidate ..."]
    log_prob: Float[Array, "lane candidate"]
    log_weight: Float[Array, "lane candidate"]


class Output(eqx.Module):
    """A conditional distribution over targets.

    `exact` tells whether `log_prob` is the likelihood itself or an estimate, so that reports can say which.
    `holds_keys` tells whether `sample` takes `held`; `candidates_drawn` is the number of steps to draw where one is
    to be chosen among several.
    """

    exact: ClassVar[bool] = True
    holds_keys: ClassVar[bool] = False
    candidates_drawn: ClassVar[int] = 32

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
    def sample(self, hidden: Float[Array, "... hidden"], *, key: PRNGKeyArray) -> Shaped[Array, "..."]:
        """Draw a target for every hidden vector."""

    def likeliest(self, hidden: Float[Array, "... hidden"]) -> Shaped[Array, "..."]:
        """The likeliest target for every hidden vector; outputs of symbols and numbers are judged by it."""
        raise NotImplementedError(f"{type(self).__name__} has no `likeliest`, which symbols and numbers need")

    def candidates(
        self, hidden: Float[Array, "lane hidden"], count: int, *, keys: PRNGKeyArray, held: Held | None = None
    ) -> Candidates:
        """Possible next steps.

        Args:
            hidden: one vector per lane.
            count: number of steps to draw, for outputs that do not list them all.
            keys: one random key per lane.
            held: which keys or symbols are not free.
        """
        if held is not None and not self.holds_keys:
            raise InputError(f"a model with the output {type(self).__name__} cannot keep or forbid keys: use nade")
        rows = jnp.broadcast_to(hidden, (count, *hidden.shape))

        def draw(rows, key, held):
            options = {} if held is None else {"held": held}
            return self.sample(rows, key=key, **options)

        steps = jax.vmap(draw, in_axes=(1, 0, 0), out_axes=1)(rows, keys, held)
        log_prob = self.relative_log_prob(rows, steps)
        log_weight = jnp.zeros_like(log_prob) if held is None else self.held_log_weight(rows, steps, held)
        return Candidates(jnp.moveaxis(steps, 0, 1), log_prob.T, log_weight.T)

    def relative_log_prob(self, hidden: Hidden, targets: Targets) -> Float[Array, "time lane"]:
        """Log-likelihood up to a constant that depends on the hidden vector alone."""
        return self.log_prob(hidden, targets, jnp.asarray(len(targets), jnp.int32), key=jax.random.key(0))

    def held_log_weight(self, hidden: Hidden, targets: Targets, held: Held) -> Float[Array, "time lane"]:
        """Log-weights of frames drawn with held keys; zero if `sample` draws from the conditional distribution."""
        del hidden, held
        return jnp.zeros(targets.shape[:2])


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


class KeyOutput(ExactOutput):
    """Keys on or off, each with a logit that may depend on the keys before it."""

    holds_keys: ClassVar[bool] = True

    @abstractmethod
    def sample(self, hidden, *, key, held: Int[Array, " key"] | None = None) -> Shaped[Array, "... key"]:
        """Draw a frame for every hidden vector; keys that `held` does not leave free are as it says."""

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
    """One symbol of a vocabulary, all of whose probabilities can be listed."""

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


class Bernoulli(KeyOutput):
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

    def sample(self, hidden, *, key, held=None):
        logits = hidden @ self.weights + self.bias
        return (logits > noise_of_keys(logits.shape, key, held)).astype(jnp.uint8)


class Softmax(SymbolOutput):
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

    def log_probs(self, hidden):
        return jax.nn.log_softmax(hidden @ self.weights + self.bias, axis=-1)


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

    def sample(self, hidden, *, key):
        means = self.likeliest(hidden)
        return means + jax.random.normal(key, means.shape)

    def likeliest(self, hidden):
        return hidden @ self.weights + self.bias


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


def noise_of_keys(shape: tuple[int, ...], key: PRNGKeyArray, held: Int[Array, " key"] | None) -> Float[Array, "..."]:
    """Noise to draw keys with: a key is on if its logit exceeds it. Held keys have no choice."""
    noise = jax.random.logistic(key, shape)
    if held is None:
        return noise
    return jnp.where(held == ON, -jnp.inf, jnp.where(held == OFF, jnp.inf, noise))
