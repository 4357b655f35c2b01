"""Output models: what distribution the next frame or symbol has, given the hidden state.

Every one splits its likelihood into logits and a convex loss of them, which is the cut that a Gauss-Newton product
needs. Here are the abstract seam and the simple outputs: independent Bernoulli keys, the full softmax, numbers with
Gaussian noise.
"""

import math
from abc import abstractmethod
from typing import Any, ClassVar, Literal, TypeAlias

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray, PyTree, Shaped

from longspan.kernels import bernoulli, softmax
from longspan.kernels.matmul import affine

Hidden = Float[Array, "time lane hidden"]
Targets = Shaped[Array, "time lane ..."]


class Output(eqx.Module):
    """A conditional distribution over targets.

    `exact` tells whether `log_prob` is the likelihood itself or an estimate of it, so that whoever prints it can say.
    """

    exact: ClassVar[bool] = True

    @abstractmethod
    def log_prob(
        self, hidden: Hidden, targets: Targets, length: Int[Array, ""], *, key: PRNGKeyArray
    ) -> Float[Array, "time lane"]:
        """Log-likelihood of each step's target in nats: what is reported; `key` serves those that estimate it."""

    @abstractmethod
    def loss(
        self, hidden: Hidden, targets: Targets, length: Int[Array, ""], *, key: PRNGKeyArray
    ) -> Float[Array, "time lane"]:
        """What is descended; `key` serves the outputs whose gradient is stochastic."""

    @abstractmethod
    def sample(
        self, hidden: Float[Array, "... hidden"], *, key: PRNGKeyArray, temperature: float = 1.0
    ) -> Shaped[Array, "..."]:
        """Draw a target for every hidden vector; a temperature of zero takes the likeliest, greedily."""


class ExactOutput(Output):
    """An output whose likelihood is a convex function of logits; they may depend on the target."""

    @abstractmethod
    def logits(self, hidden: Hidden, targets: Targets, length: Int[Array, ""]) -> PyTree:
        """The pre-activations the loss is a convex function of."""

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
    """An exact output that touches few rows of its largest parameters, its tables, in a chunk."""

    @staticmethod
    @abstractmethod
    def tables(output: PyTree) -> tuple[Array, ...]:
        """The tables among the parameters of such an output."""

    @abstractmethod
    def loss_by_rows(
        self, hidden: Hidden, targets: Targets, length: Int[Array, ""], scale: Float[Array, "time lane"]
    ) -> tuple[Float[Array, "time lane"], Any]:
        """`loss`, without a derivative in the tables, and their gradient of `sum(scale * loss)` by rows."""


Effort: TypeAlias = Literal["comparable", "accurate"]
"""Enough to tell better weights from worse after every epoch, or to report."""


class EstimatedOutput(Output):
    """An output whose likelihood can only be estimated: roughly for every step, well for a few."""

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
        """What `log_prob` estimates, at a cost that only some hundreds of steps can bear."""


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
    """One symbol out of a vocabulary, all of which is evaluated."""

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
        return softmax.loss(logits, targets, jnp.ones(targets.shape, bool))

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


def bernoulli_loss(logits: Float[Array, "time lane key"], targets: Targets) -> Float[Array, "time lane"]:
    """Negative log-likelihood of on/off targets, summed over keys, in nats."""
    return bernoulli.loss(logits, targets, jnp.ones(targets.shape[:2], bool))


def sample_bernoulli(logits: Float[Array, "..."], key: PRNGKeyArray, temperature: float) -> Shaped[Array, "..."]:
    """On/off draws at a temperature; zero means on where on is likelier."""
    if temperature == 0:
        return (logits > 0).astype(jnp.uint8)
    return jax.random.bernoulli(key, jax.nn.sigmoid(logits / temperature)).astype(jnp.uint8)
