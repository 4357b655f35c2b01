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
    hidden = jnp.sum(_softplus(biases.hidden + frames @ weights), axis=-1)
    return -jnp.sum(biases.visible * frames, axis=-1) - hidden


def gibbs_step(weights: Weights, biases: Biases, frames: Frames, *, key: PRNGKeyArray) -> Frames:
    """Sample hidden units given frames, then frames given hidden units."""
    key_hidden, key_visible = jax.random.split(key)
    hidden = _switch_on(biases.hidden + frames @ weights, key_hidden)
    return _switch_on(biases.visible + hidden @ weights.T, key_visible)


def gibbs(weights: Weights, biases: Biases, frames: Frames, steps: int, *, key: PRNGKeyArray) -> Frames:
    """Frames after `steps` Gibbs steps."""
    return jax.lax.fori_loop(
        0, steps, lambda step, now: gibbs_step(weights, biases, now, key=jax.random.fold_in(key, step)), frames
    )


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

    def strength(level):
        return 1 - (1 - weakest) * level / levels

    def gain(frames, level, next_level):
        return _log_ratio(biases.hidden, frames @ weights, strength(level), strength(next_level))

    def move(frames, level, key):
        return gibbs_step(strength(level) * weights, biases, frames, key=jax.random.fold_in(key, level))

    def down(number, running):
        frames, log_weight = running
        log_weight = log_weight + gain(frames, number, number + 1)
        return move(frames, number + 1, key_down), log_weight

    def up(number, running):
        frames, log_weight = running
        level = levels - number
        frames = move(frames, level, key_up)
        return frames, log_weight + gain(frames, level, level - 1)

    far = jax.lax.fori_loop(0, levels, down, (frames, jnp.zeros(len(frames), frames.dtype)))
    back, log_weight = jax.lax.fori_loop(0, levels, up, far)
    accepted = jnp.log(outputs.hashed_uniform(key_accept, log_weight.shape)) < log_weight
    return jnp.where(accepted[:, None], back, frames)


def sample(weights: Weights, biases: Biases, annealed: int, plain: int, *, key: PRNGKeyArray) -> Frames:
    """Sample frames of each machine: from independent keys, through growing weights, to plain Gibbs steps.

    Growing the weights step by step keeps a chain from getting trapped in the first mode it meets. They grow with the
    square root of the step, because chains mix slowly where the weights are strong.
    """
    key_start, key_steps = jax.random.split(key)
    start = _switch_on(biases.visible, key_start)

    def step(number, frames):
        strength = jnp.sqrt(jnp.minimum((number + 1) / annealed, 1))
        step_key = jax.random.fold_in(key_steps, number)
        return gibbs_step(strength * weights, biases, frames, key=step_key)

    return jax.lax.fori_loop(0, annealed + plain, step, start)


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
            states @ machine.hidden + jnp.sum(_softplus(machine.visible[None] + states @ weights.T), axis=1)
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

    def step(number, running):
        frames, log_weight = running
        key_hidden, key_visible = jax.random.split(jax.random.fold_in(key_steps, number))
        input_ = frames @ weights
        weaker, strength = (jnp.sqrt(done / temperatures) for done in (number, number + 1))
        log_weight = log_weight + _log_ratio(repeated.hidden, input_, weaker, strength)
        hidden = _switch_on(repeated.hidden + strength * input_, key_hidden)
        frames = _switch_on(repeated.visible + strength * (hidden @ weights.T), key_visible)
        return frames, log_weight

    _, log_weight = jax.lax.fori_loop(0, temperatures, step, (start, jnp.zeros(len(start), start.dtype)))
    base = jnp.sum(_softplus(biases.visible), axis=1) + jnp.sum(_softplus(biases.hidden), axis=1)
    return base + jax.nn.logsumexp(log_weight.reshape(-1, chains), axis=1) - jnp.log(chains)


def _log_ratio(hidden_bias, input_, share, other_share):
    """Log ratio of unnormalized probabilities at two scales of the weights; `input_` is the input at full weights."""
    before, after = (_softplus(hidden_bias + each * input_) for each in (share, other_share))
    return jnp.sum(after - before, axis=1)


def _softplus(values):
    """`log(1 + e^x)`, which dominates an annealing step; `jax.nn.softplus` takes more than twice as long."""
    return jnp.maximum(values, 0) + jnp.log1p(jnp.exp(-jnp.abs(values)))


def _switch_on(log_odds, key: PRNGKeyArray):
    """Sample units that are on with these log-odds."""
    return (outputs.hashed_uniform(key, log_odds.shape) < jax.nn.sigmoid(log_odds)).astype(log_odds.dtype)
