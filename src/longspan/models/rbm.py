"""RBM conditional on the hidden state: a joint distribution of a frame's keys whose likelihood can only be estimated.

The biases of the machine are affine in the hidden state (section 3.3 of the paper; Boulanger-Lewandowski, Bengio and
Vincent, *Modeling temporal dependencies in high-dimensional sequences*, 2012). The machine itself is in `boltzmann`.
"""

from abc import abstractmethod
from typing import ClassVar, Literal, NamedTuple, TypeAlias

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray, Shaped

from longspan.config import TrainConfig
from longspan.models import boltzmann, draws
from longspan.models.boltzmann import Biases
from longspan.models.outputs import OFF, ON, log_odds
from longspan.models.parts import Output, Rates, register_output
from longspan.ops.linear import add_bias

WEAKEST_WEIGHTS = 0.7
"""Factor on the weights at the last level of tempered transitions. On nottingham, with ten levels down to 0.7, 62 % of
the proposals are accepted and 9 % of the chains move to frames that differ in three or more keys; a hundred levels down
to 0.3 move as many."""
SURE = 1e4
"""Bias that holds a key: far more than all weights to it together."""
FRAMES_AT_A_TIME = 128
"""Frames whose chains run together in the better estimates: enough for a matrix product, few enough for the cache."""


Effort: TypeAlias = Literal["comparable", "accurate"]
"""Effort of an estimate: enough to compare the weights of different epochs, or enough to report."""


class Budget(NamedTuple):
    """How much of a split is looked at where every look is expensive."""

    glance_steps: int = 400
    """Steps whose likelihood is estimated after every epoch: always the same steps and the same draws, because models
    are compared with each other. On nottingham the mean over 400 steps differs from that over all steps by 0.17 nats
    (standard deviation)."""
    accurate_steps: int = 800
    """Steps whose likelihood is estimated accurately, to correct the rough estimate over all steps."""
    chains: int = 10_000
    """Frames sampled for an accuracy when each needs a long Markov chain: its standard error is at most 0.5 %."""


class EstimatedOutput(Output):
    """An output whose likelihood can only be estimated: roughly for every step, accurately for a few."""

    exact: ClassVar[bool] = False

    @property
    def budget(self) -> Budget:
        """How many steps of a split are estimated better than roughly, and how many samples are drawn."""
        return Budget()

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


class Annealing(NamedTuple):
    """Effort of an estimate of the partition function."""

    temperatures: int
    chains: int


class Chains(NamedTuple):
    """Lengths and numbers of the Markov chains behind samples and estimates."""

    annealed_steps: int = 4000
    """Gibbs steps of a sample with growing weights. With an earlier, linear growth, expected accuracy on chorales was
    28 % after 25 steps, 32 % after 400 and at most 32.5 % after 1000; on nottingham, where weights are strong, 46 %
    after 400. With the present growth it is 62 % on nottingham after 2000, 66 % after 4000 and 69 % after 10,000."""
    plain_steps: int = 25
    """Gibbs steps of a sample with full weights, after those."""
    crude: Annealing = Annealing(1000, 1)
    """Effort of `log_prob`, which is useful only if corrected: the log of a noisy Z is too small on average. A machine
    with strong weights, such as after 13 epochs on nottingham, looks 2.4 nats better than it is."""
    comparable: Annealing = Annealing(2000, 5)
    """With less effort, the epoch whose Z is hardest to estimate would look best."""
    accurate: Annealing = Annealing(20_000, 5)
    """Fewer chains than the 100 of 2012, but enough temperatures that few chains suffice: compared with 20 chains of
    60,000 temperatures, the machine above looks 0.47 nats better by `comparable` and 0.04 by `accurate`. On the other
    data sets the two agree to 0.04 nats, and `accurate` agrees to 0.01 with chains that start elsewhere."""
    budget: Budget = Budget()


class Rbm(EstimatedOutput):
    r"""Restricted Boltzmann machine whose biases are affine in the hidden state `h`.

    .. math:: p(v \mid h) \propto \exp\big(b(h) \cdot v\big) \prod_j \big(1 + e^{c_j(h) + v W_j}\big)
    """

    holds_keys: ClassVar[bool] = True
    candidates_if_held: ClassVar[int] = 8  # each is the end of a long chain that knows what is held

    visible_weights: Float[Array, "hidden key"]
    visible_bias: Float[Array, " key"]
    hidden_weights: Float[Array, "hidden unit"]
    hidden_bias: Float[Array, " unit"]
    weights: Float[Array, "key unit"]
    divergence_steps: int = eqx.field(static=True)
    """The k of contrastive divergence."""
    tempering: int = eqx.field(static=True, default=0)
    """Levels of a tempered transition halfway through those steps; 0 for none."""
    chains: Chains = eqx.field(static=True, default=Chains())

    @staticmethod
    def initial(
        hidden_size: int,
        units: int,
        visible_bias: Float[Array, " key"],
        scale: float,
        divergence_steps: int,
        tempering: int = 0,
        *,
        key: PRNGKeyArray,
    ) -> "Rbm":
        """Weights drawn from a normal distribution of standard deviation `scale`."""
        keys = len(visible_bias)
        shapes = [(hidden_size, keys), (hidden_size, units), (keys, units)]
        visible_weights, hidden_weights, weights = (
            draws.normal(key_one, shape, scale)
            for key_one, shape in zip(jax.random.split(key, len(shapes)), shapes, strict=True)
        )
        biases = (visible_bias, hidden_weights, draws.zeros(units))
        return Rbm(visible_weights, *biases, weights, divergence_steps, tempering)

    @property
    def budget(self) -> Budget:
        return self.chains.budget

    def loss(self, hidden, targets, length, *, key):
        """Contrastive divergence: the free energy of the frame minus that of the end of a short Gibbs chain from it.

        The end of the chain is treated as a constant, so the gradient is the usual one and continues through the biases
        into the recurrent network. The value is not a likelihood.
        """
        del length
        biases, frames = self._machines(hidden), _flat(targets, self.weights)
        ends = self._chain_ends(*jax.lax.stop_gradient((self.weights, biases)), frames, key)
        difference = boltzmann.free_energy(self.weights, biases, frames) - boltzmann.free_energy(
            self.weights, biases, ends
        )
        return difference.reshape(targets.shape[:-1])

    def _chain_ends(self, weights, biases: Biases, frames, key):
        if self.tempering == 0:
            return boltzmann.gibbs(weights, biases, frames, self.divergence_steps, key=key)
        key_before, key_between, key_after = jax.random.split(key, 3)
        half = self.divergence_steps // 2
        frames = boltzmann.gibbs(weights, biases, frames, half, key=key_before)
        frames = boltzmann.tempered_transition(
            weights, biases, frames, self.tempering, WEAKEST_WEIGHTS, key=key_between
        )
        return boltzmann.gibbs(weights, biases, frames, self.divergence_steps - half, key=key_after)

    def log_prob(self, hidden, targets, length, *, key):
        del length
        biases, frames = self._machines(hidden), _flat(targets, self.weights)
        log_partition = boltzmann.annealed_log_partition(self.weights, biases, *self.chains.crude, key=key)
        return (-boltzmann.free_energy(self.weights, biases, frames) - log_partition).reshape(targets.shape[:-1])

    def estimated_log_prob(self, hidden, targets, effort, *, key):
        biases = self._machines(hidden)
        annealing = self.chains.accurate if effort == "accurate" else self.chains.comparable

        def one(machine):
            biases, key = machine
            single = Biases(*(bias[None] for bias in biases))
            return boltzmann.annealed_log_partition(self.weights, single, *annealing, key=key)[0]

        keys = jax.random.split(key, len(biases.visible))
        log_partition = jax.lax.map(one, (biases, keys), batch_size=FRAMES_AT_A_TIME)
        return -boltzmann.free_energy(self.weights, biases, _flat(targets, self.weights)) - log_partition

    def sample(self, hidden, *, key, held=None):
        """Frames at the ends of annealed Gibbs chains, in which held keys never move."""
        machines = self._machines(hidden)
        if held is not None:
            bias = jnp.where(held == ON, SURE, jnp.where(held == OFF, -SURE, machines.visible))
            machines = machines._replace(visible=bias)
        frames = boltzmann.sample(self.weights, machines, self.chains.annealed_steps, self.chains.plain_steps, key=key)
        return frames.astype(jnp.uint8).reshape(*hidden.shape[:-1], -1)

    def relative_log_prob(self, hidden, targets):
        """Minus the free energy: the partition function is the constant."""
        energies = boltzmann.free_energy(self.weights, self._machines(hidden), _flat(targets, self.weights))
        return -energies.reshape(targets.shape[:-1])

    def _machines(self, hidden: Float[Array, "... hidden"]) -> Biases:
        rows = hidden.reshape(-1, hidden.shape[-1])
        visible = add_bias(rows @ self.visible_weights, self.visible_bias)
        return Biases(visible, add_bias(rows @ self.hidden_weights, self.hidden_bias))


def _flat(frames, like: Float[Array, "..."]):
    return frames.reshape(-1, frames.shape[-1]).astype(like.dtype)


@register_output("rbm", predicts="keys")
def rbm_output(config: TrainConfig, hidden_size: int, rates: Rates, *, key: PRNGKeyArray) -> Rbm:
    """An RBM over the keys of a frame."""
    scale, steps, tempering = config.output_scale, config.cd_steps, config.tempering
    return Rbm.initial(hidden_size, config.rbm_size, log_odds(rates), scale, steps, tempering, key=key)
