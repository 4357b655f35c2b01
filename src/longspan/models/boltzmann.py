"""Restricted Boltzmann machines that share weights and differ in their biases: energies, Gibbs steps, log Z.

    E(v, h) = -b.v - c.h - v W h

Every function takes a batch of machines, one per row of `Biases`. How the biases depend on the history is up to `rbm`.
"""

import itertools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from longspan.ops import gibbs as gibbs_ops
from longspan.ops import outputs


class Biases(NamedTuple):
    """Visible and hidden biases of a batch of machines."""

    visible: Float[Array, "machine key"]
    hidden: Float[Array, "machine unit"]


Weights = Float[Array, "key unit"]
Frames = Float[Array, "machine key"]

MOST_UNITS_TO_ENUMERATE = 15


def free_energy(weights: Weights, biases: Biases, frames: Frames) -> Float[Array, " machine"]:
    r"""`F(v) = -b.v - sum_j softplus(c_j + v W_j)`, so that `p(v) = exp(-F(v)) / Z`."""
    hidden = jnp.sum(gibbs_ops.softplus(biases.hidden + frames @ weights), axis=-1)
    return -jnp.sum(biases.visible * frames, axis=-1) - hidden


def gibbs(weights: Weights, biases: Biases, frames: Frames, steps: int, *, key: PRNGKeyArray) -> Frames:
    """Frames after `steps` Gibbs steps: hidden units are sampled given frames, then frames given hidden units."""
    return _gibbs(weights, biases, frames, jnp.ones(steps, weights.dtype), key)


def tempered_transition(
    weights: Weights, biases: Biases, frames: Frames, levels: int, weakest: float, *, key: PRNGKeyArray
) -> Frames:
    r"""Move chains through weaker weights and back; a chain whose proposal is rejected keeps its frame.

    Weaker machines have lower barriers between their modes, so a chain can reach modes that Gibbs steps never reach.
    The end of the path is accepted with probability `min(1, w)`, which leaves the distribution of each machine
    invariant:

    .. math:: w = \prod_{i=1}^n \frac{p_i(\hat v_{i-1})}{p_{i-1}(\hat v_{i-1})}
        \frac{p_{i-1}(\check v_{i-1})}{p_i(\check v_{i-1})}

    with `p_0` the machine itself, `p_n` the one with the weakest weights, and a Gibbs step at each level in both
    directions.

    Args:
        weights: shared by all machines.
        biases: one row per machine.
        frames: the current states of the chains.
        levels: number of steps to the weakest weights, and as many back.
        weakest: factor on the weights at the last level.
        key: randomness.

    Reference: Neal, *Sampling from multimodal distributions using tempered transitions*, 1996.
    """
    key_down, key_up, key_accept = jax.random.split(key, 3)
    strengths = 1 - (1 - weakest) * jnp.arange(levels + 1, dtype=weights.dtype) / levels
    far, gain_down = _anneal(weights, biases, frames, strengths, key_down)
    # On the way back a chain moves first and is weighted then: it begins at the level at which it stands, and what the
    # last step to the machine itself adds is left.
    upwards = jnp.concatenate([strengths[-1:], strengths[:0:-1]])
    back, gain_up = _anneal(weights, biases, far, upwards, key_up)
    log_weight = gain_down + gain_up + gibbs_ops.log_ratio(biases.hidden, back @ weights, strengths[1], strengths[0])
    accepted = jnp.log(outputs.hashed_uniform(key_accept, log_weight.shape)) < log_weight
    return jnp.where(accepted[:, None], back, frames)


def sample(weights: Weights, biases: Biases, annealed: int, plain: int, *, key: PRNGKeyArray) -> Frames:
    """Sample frames of each machine: from independent keys, through growing weights, to plain Gibbs steps.

    Growing the weights step by step keeps a chain from getting trapped in the first mode it meets. They grow with the
    square root of the step, because chains mix slowly where the weights are strong.
    """
    key_start, key_steps = jax.random.split(key)
    start = _switch_on(biases.visible, key_start)
    growing = jnp.sqrt(jnp.minimum(jnp.arange(1, annealed + plain + 1, dtype=weights.dtype) / annealed, 1))
    return _gibbs(weights, biases, start, growing, key_steps)


def log_partition(weights: Weights, biases: Biases) -> Float[Array, " machine"]:
    r"""Exact `log Z`, by summing over all states of the hidden units, of which there may be at most 15.

    .. math:: Z = \sum_h e^{c \cdot h} \prod_i (1 + e^{b_i + W_i h})
    """
    units = weights.shape[1]
    if units > MOST_UNITS_TO_ENUMERATE:
        raise ValueError(f"expected at most {MOST_UNITS_TO_ENUMERATE} hidden units to enumerate, got {units}")
    states = jnp.asarray(np.array(list(itertools.product((0, 1), repeat=units)), np.float32))

    def one(machine: Biases):
        return jax.nn.logsumexp(
            states @ machine.hidden + jnp.sum(gibbs_ops.softplus(machine.visible[None] + states @ weights.T), axis=1)
        )

    return jax.lax.map(one, biases)


def annealed_log_partition(
    weights: Weights, biases: Biases, temperatures: int, chains: int, *, key: PRNGKeyArray
) -> Float[Array, " machine"]:
    """`log Z` by annealed importance sampling: an estimate whose exponential is unbiased.

    Chains start at the machine without weights, whose Z is known. The weights then grow with the square root of the
    step, so that steps are small where the weights are strong and the chains mix slowly. The importance weight of a
    chain is updated *before* it moves, by the ratio of the unnormalized probabilities of its frame under the next and
    the current machine.

    Args:
        weights: shared by all machines.
        biases: one row per machine.
        temperatures: number of steps from zero to full weights.
        chains: importance samples per machine.
        key: randomness.

    Reference: Salakhutdinov and Murray, *On the quantitative analysis of deep belief networks*, 2008.
    """
    repeated = Biases(*(jnp.repeat(bias, chains, axis=0) for bias in biases))
    key_start, key_steps = jax.random.split(key)
    start = _switch_on(repeated.visible, key_start)

    growing = jnp.sqrt(jnp.arange(temperatures + 1, dtype=weights.dtype) / temperatures)
    _, log_weight = _anneal(weights, repeated, start, growing, key_steps)
    base = jnp.sum(gibbs_ops.softplus(biases.visible), axis=1) + jnp.sum(gibbs_ops.softplus(biases.hidden), axis=1)
    return base + jax.nn.logsumexp(log_weight.reshape(-1, chains), axis=1) - jnp.log(chains)


def _gibbs(weights, biases: Biases, frames, strengths, key: PRNGKeyArray):
    return gibbs_ops.gibbs_walk(weights, *biases, frames.astype(jnp.uint8), strengths, _seed(key))


def _anneal(weights, biases: Biases, frames, strengths, key: PRNGKeyArray):
    return gibbs_ops.annealed_walk(weights, *biases, frames.astype(jnp.uint8), strengths, _seed(key))


def _seed(key: PRNGKeyArray):
    return jax.random.bits(key, (2,), jnp.uint32)


def _switch_on(log_odds, key: PRNGKeyArray):
    """Sample units that are on with these log-odds."""
    return (outputs.hashed_uniform(key, log_odds.shape) < jax.nn.sigmoid(log_odds)).astype(log_odds.dtype)
