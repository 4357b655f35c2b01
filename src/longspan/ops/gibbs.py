"""Gibbs chains of restricted Boltzmann machines that share their weights, and weighted ones for importance sampling.

    E(v, h) = -b.v - c.h - s v W h

A step draws the hidden units given the frame and the frame given the hidden units, at a strength s of the weights. All
random bits follow from two words: both paths toss the same coins, and the same chains come out but for a coin that
rounding decides. A chain is a constant: no derivative flows through it.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, UInt8, UInt32

from longspan.ops import backend
from longspan.ops.backend import operation_on
from longspan.ops.outputs import hashed

Weights = Float[Array, "key unit"]
VisibleBias = Float[Array, "machine key"]
HiddenBias = Float[Array, "machine unit"]
Start = UInt8[Array, "machine key"]
Strengths = Float[Array, " level"]
Seed = UInt32[Array, "2"]
Frames = Float[Array, "machine key"]
LogWeights = Float[Array, " machine"]


@operation_on("level")
def gibbs_walk(
    weights: Weights,
    visible_bias: VisibleBias,
    hidden_bias: HiddenBias,
    frames: Start,
    strengths: Strengths,
    seed: Seed,
) -> Frames:
    """The frames of all machines after a Gibbs step at every strength.

    Args:
        weights: W.
        visible_bias: b, of each machine.
        hidden_bias: c, of each machine.
        frames: where the chains start: keys on (not 0) or off.
        strengths: s of each step.
        seed: random words.
    """
    result = jax.ShapeDtypeStruct(visible_bias.shape, visible_bias.dtype)
    operands = (weights, visible_bias, hidden_bias, frames, strengths, seed)
    return backend.run("gibbs_walk", _gibbs_twin, [result], *operands)


@operation_on("level")
def annealed_walk(
    weights: Weights,
    visible_bias: VisibleBias,
    hidden_bias: HiddenBias,
    frames: Start,
    strengths: Strengths,
    seed: Seed,
) -> tuple[Frames, LogWeights]:
    r"""The frames after a Gibbs step at every strength but the first, and the log-weights of the chains.

    A frame is weighted before it moves, by the ratio of its unnormalized probabilities:

    .. math:: \log w = \sum_{t \ge 1} \sum_j \mathrm{softplus}(c_j + s_t\, v_{t-1} W_j)
        - \mathrm{softplus}(c_j + s_{t-1}\, v_{t-1} W_j)

    Arguments as for `gibbs_walk`, but the first strength is where the chains stand.
    """
    results = [jax.ShapeDtypeStruct(shape, weights.dtype) for shape in (visible_bias.shape, visible_bias.shape[:1])]
    operands = (weights, visible_bias, hidden_bias, frames, strengths, seed)
    return backend.run("annealed_walk", _annealed_twin, results, *operands)


def log_ratio(hidden_bias: HiddenBias, input_: Float[Array, "machine unit"], share, other_share) -> LogWeights:
    """Log ratio of unnormalized probabilities at two scales of the weights; `input_` is `v W` at full weights."""
    before, after = (softplus(hidden_bias + each * input_) for each in (share, other_share))
    return jnp.sum(after - before, axis=1)


def softplus(values: Float[Array, "..."]) -> Float[Array, "..."]:
    """`log(1 + e^x)`, which dominates an annealing step in XLA; `jax.nn.softplus` takes more than twice as long."""
    return jnp.maximum(values, 0) + jnp.log1p(jnp.exp(-jnp.abs(values)))


def _gibbs_twin(weights, visible_bias, hidden_bias, frames, strengths, seed):
    def step(number, frames):
        return _move(weights, visible_bias, hidden_bias, frames @ weights, strengths[number], _words(seed, number))

    return jax.lax.fori_loop(0, len(strengths), step, _on(frames, weights.dtype))


def _annealed_twin(weights, visible_bias, hidden_bias, frames, strengths, seed):
    def step(number, running):
        frames, log_weight = running
        input_ = frames @ weights
        strength = strengths[number]
        log_weight = log_weight + log_ratio(hidden_bias, input_, strengths[number - 1], strength)
        return _move(weights, visible_bias, hidden_bias, input_, strength, _words(seed, number)), log_weight

    start = (_on(frames, weights.dtype), jnp.zeros(len(frames), weights.dtype))
    return jax.lax.fori_loop(1, len(strengths), step, start)


def _move(weights, visible_bias, hidden_bias, input_, strength, words):
    hidden = _toss(hidden_bias + strength * input_, words[:2])
    return _toss(visible_bias + strength * (hidden @ weights.T), words[2:])


def _on(frames, dtype):
    return (frames != 0).astype(dtype)


def _words(seed, number):
    """Two words for the hidden units of a step, and two for its keys."""
    return hashed(seed, 4 * jnp.uint32(number) + jnp.arange(4, dtype=jnp.uint32))


def _toss(log_odds, words):
    """Units that are on. Numbers are odd multiples of 2^-24, neither 0 nor 1, so that what is held never moves."""
    number = jax.lax.iota(jnp.uint32, log_odds.size).reshape(log_odds.shape)
    uniform = ((hashed(words, number) >> 9).astype(log_odds.dtype) + 0.5) * 2.0**-23
    return (uniform < jax.nn.sigmoid(log_odds)).astype(log_odds.dtype)
