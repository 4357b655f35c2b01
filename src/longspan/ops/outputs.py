"""Operations of output layers: negative log-likelihoods from logits, and the logits of NADE.

Independent keys (section 4.1 of the paper), Bernoulli: -log p(x | l) = sum_i softplus(l_i) - x_i l_i, with gradient p -
x and Hessian p (1 - p) on the diagonal. One symbol of many (4.2), softmax: -log p(y | l) = logsumexp(l) - l_y, with
gradient p - onehot(y) and Hessian diag(p) - p p^T. Both are in nats and convex in the logits, and JAX can take both
derivatives, so a loss can close a Gauss-Newton product.

NADE (3.3): key i of a frame x has the logit l_i = b_i + sigmoid(c + sum_{j<i} x_j W_j) . V_i, where the biases b and c
depend on the step and the weights W and V do not. The hidden vector changes only after a key that is on, so a frame
with m keys on needs m + 1 distinct ones instead of one per key, and both paths compute exactly those. The Bernoulli
loss of these logits is the likelihood.

Dropout before an output layer and the Gibbs steps of an RBM need random bits. The generators of `jax.random` are
stronger than a Bernoulli draw needs: they would cost 20 % of a training step with dropout and 75 % of a Gibbs step. So
bits are a hash of a key and a counter.
"""

import math
from collections.abc import Callable
from functools import partial
from typing import NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Integer, PRNGKeyArray, Shaped, UInt8, UInt32

from longspan.ops import backend
from longspan.ops.backend import operation, operation_on
from longspan.ops.linear import linear_map, shorten

Mask: TypeAlias = Bool[Array, "time lane"] | Float[Array, "time lane"]


@operation
def bernoulli_loss(
    logits: Float[Array, "time lane key"], targets: UInt8[Array, "time lane key"], mask: Mask
) -> Float[Array, "time lane"]:
    """Negative log-likelihood of each frame in nats, times the mask; where that is 0, so is the loss.

    Args:
        logits: l.
        targets: x, on (not 0) or off.
        mask: frames that count, or their weights; a constant, into which no derivative flows.
    """
    return _bernoulli(logits, targets, mask.astype(logits.dtype))


@operation
def softmax_loss(
    logits: Float[Array, "time lane symbol"], targets: Integer[Array, "time lane"], mask: Mask
) -> Float[Array, "time lane"]:
    """Negative log-likelihood of each symbol in nats, times the mask; where that is 0, so is the loss.

    Args:
        logits: l.
        targets: y, the index of the symbol that came; one out of range means the nearest.
        mask: steps that count, or their weights; a constant, into which no derivative flows.
    """
    return _softmax(logits, jnp.clip(targets, 0, logits.shape[-1] - 1), mask.astype(logits.dtype))


@jax.custom_jvp
def _bernoulli(logits, targets, mask):
    return backend.run("bernoulli_loss", _bernoulli_twin, [mask], logits, targets, mask)


@_bernoulli.defjvp
def _differentiate_bernoulli(primals, tangents):
    value, gradient = _bernoulli_and_gradient(*primals)
    return value, (gradient * tangents[0]).sum(-1)


@jax.custom_jvp
def _bernoulli_and_gradient(logits, targets, mask):
    results = [mask, logits]
    return backend.run("bernoulli_loss_gradient", _bernoulli_gradient_twin, results, logits, targets, mask)


@_bernoulli_and_gradient.defjvp
def _differentiate_bernoulli_gradient(primals, tangents):
    logits, _, mask = primals
    value, gradient = _bernoulli_and_gradient(*primals)
    probability = jax.nn.sigmoid(logits)
    curvature = _masked(mask, probability * (1 - probability))
    return (value, gradient), ((gradient * tangents[0]).sum(-1), curvature * tangents[0])


def _bernoulli_twin(logits, targets, mask):
    cost = jax.nn.softplus(jnp.where(targets != 0, -logits, logits))
    return jnp.where(mask != 0, mask * cost.sum(-1), 0)


def _bernoulli_gradient_twin(logits, targets, mask):
    gradient = jnp.where(targets != 0, -jax.nn.sigmoid(-logits), jax.nn.sigmoid(logits))
    return _bernoulli_twin(logits, targets, mask), _masked(mask, gradient)


@jax.custom_jvp
def _softmax(logits, targets, mask):
    return backend.run("softmax_loss", _softmax_twin, [mask], logits, targets, mask)


@_softmax.defjvp
def _differentiate_softmax(primals, tangents):
    value, gradient = _softmax_and_gradient(*primals)
    return value, (gradient * tangents[0]).sum(-1)


@jax.custom_jvp
def _softmax_and_gradient(logits, targets, mask):
    return backend.run("softmax_loss_gradient", _softmax_gradient_twin, [mask, logits], logits, targets, mask)


@_softmax_and_gradient.defjvp
def _differentiate_softmax_gradient(primals, tangents):
    logits, _, mask = primals
    value, gradient = _softmax_and_gradient(*primals)
    probability = _masked(mask, jax.nn.softmax(logits))
    scaled = jax.nn.softmax(logits) * tangents[0]
    curved = _masked(mask, scaled) - probability * scaled.sum(-1, keepdims=True)
    return (value, gradient), ((gradient * tangents[0]).sum(-1), curved)


def _softmax_twin(logits, targets, mask):
    chosen = jnp.take_along_axis(logits, targets[..., None], -1)[..., 0]
    return jnp.where(mask != 0, mask * (jax.nn.logsumexp(logits, -1) - chosen), 0)


def _softmax_gradient_twin(logits, targets, mask):
    gradient = jax.nn.softmax(logits) - jax.nn.one_hot(targets, logits.shape[-1], dtype=logits.dtype)
    return _softmax_twin(logits, targets, mask), _masked(mask, gradient)


def _masked(mask, rows):
    return jnp.where(mask[..., None] != 0, mask[..., None] * rows, 0)


Frames: TypeAlias = Float[Array, "time lane key"]
Biases: TypeAlias = Float[Array, "time lane hidden"]
Weights: TypeAlias = Float[Array, "key hidden"]
Readout: TypeAlias = Float[Array, "hidden key"]
KeysOn: TypeAlias = UInt8[Array, "time lane key"]
Length: TypeAlias = Integer[Array, ""]

BLOCK_ROWS = 128
"""Rows of the twin's matrix products: enough to be fast, few enough that the last block wastes little."""


@operation_on("time", "lane", "hidden", "key")
def nade_logits(
    visible_bias: Frames, hidden_bias: Biases, weights: Weights, readout: Readout, targets: KeysOn, length: Length
) -> Frames:
    """Logit of every key given the keys before it, for every step t < length.

    Args:
        visible_bias: b_t.
        hidden_bias: c_t.
        weights: W, a row for each key.
        readout: V, a column for each key.
        targets: x_t, the keys that are on.
        length: steps that count; the others have logits of zero.
    """
    return _logits(visible_bias, hidden_bias, weights, readout, targets, length)


@jax.custom_jvp
def _logits(visible_bias, *others):
    return backend.run("nade_logits", _logits_twin, [visible_bias], visible_bias, *others)


@_logits.defjvp
def _differentiate_nade(primals, tangents):
    return _logits(*primals), _push(*primals[1:], *tangents[:4])


def _tangent(*arrays):
    return backend.run("nade_tangent", _tangent_twin, [arrays[5]], *arrays)


def _adjoint(hidden_bias, weights, readout, targets, length, cotangent):
    fixed = (hidden_bias, weights, readout)
    pulled = backend.run("nade_adjoint", _adjoint_twin, fixed, *fixed, targets, length, cotangent)
    return shorten(cotangent, length), *pulled


_push = linear_map(_tangent, _adjoint, operands=4)

# The XLA twin: all distinct hidden vectors of a chunk, one row each, are computed in blocks of fixed size, as
# many as needed. The cost follows the notes, and a frame with every key on is merely more rows.


class Rows(NamedTuple):
    """A block of hidden vectors: whose they are, which keys feed them and which keys read them."""

    frame: Int[Array, " row"]
    """Number of the frame; past the last one where the block is not full."""
    feeds: Float[Array, "row key"]
    reads: Bool[Array, "row key"]


def _logits_twin(visible_bias, hidden_bias, weights, readout, targets, length):
    bias = _frames(hidden_bias)

    def add_block(total, rows: Rows):
        hidden = _hidden(rows, bias, weights)
        return _add_rows(total, rows, jnp.where(rows.reads, hidden @ readout, 0))

    total = jnp.zeros((len(bias), len(weights)), bias.dtype)
    from_hidden = _over_blocks(add_block, total, targets, length, bias.dtype).reshape(targets.shape)
    return shorten(visible_bias, length) + from_hidden


def _tangent_twin(hidden_bias, weights, readout, targets, length, visible_change, *changes):
    bias = _frames(hidden_bias)
    bias_change, weights_change, readout_change = changes
    bias_change = _frames(bias_change)

    def add_block(total, rows: Rows):
        hidden = _hidden(rows, bias, weights)
        change = bias_change[rows.frame] + rows.feeds @ weights_change
        row_change = (hidden * (1 - hidden) * change) @ readout + hidden @ readout_change
        return _add_rows(total, rows, jnp.where(rows.reads, row_change, 0))

    total = jnp.zeros((len(bias), len(weights)), bias.dtype)
    pushed = _over_blocks(add_block, total, targets, length, bias.dtype).reshape(targets.shape)
    return shorten(visible_change, length) + pushed


def _adjoint_twin(hidden_bias, weights, readout, targets, length, cotangent):
    bias, cotangent = _frames(hidden_bias), _frames(shorten(cotangent, length))

    def add_block(totals, rows: Rows):
        bias_total, weights_total, readout_total = totals
        hidden = _hidden(rows, bias, weights)
        pulled = jnp.where(rows.reads, cotangent[rows.frame], 0)
        change = hidden * (1 - hidden) * (pulled @ readout.T)
        return (
            _add_rows(bias_total, rows, change),
            weights_total + rows.feeds.T @ change,
            readout_total + hidden.T @ pulled,
        )

    totals = (jnp.zeros_like(bias), jnp.zeros_like(weights), jnp.zeros_like(readout))
    bias_total, *others = _over_blocks(add_block, totals, targets, length, bias.dtype)
    return bias_total.reshape(hidden_bias.shape), *others


def _over_blocks(add_block: Callable, total, targets, length, dtype):
    """Fold `add_block` over the rows of all frames before `length`."""
    inside = jnp.repeat(jnp.arange(targets.shape[0]) < length, targets.shape[1])
    frames = (_frames(targets) != 0).astype(jnp.int32)
    upto = jnp.cumsum(frames, axis=1)
    notes_below = upto - frames
    counts = jnp.where(inside, upto[:, -1] + 1, 0)
    ends = jnp.cumsum(counts)
    starts = ends - counts

    def add(block, total):
        row = block * BLOCK_ROWS + jnp.arange(BLOCK_ROWS)
        frame = jnp.searchsorted(ends, row, side="right")
        notes_before = (row - starts[frame])[:, None]
        used = (frame < len(frames))[:, None]
        below = notes_below[frame]
        feeds = (used & (below < notes_before) & (frames[frame] > 0)).astype(dtype)
        return add_block(total, Rows(frame, feeds, used & (below == notes_before)))

    return jax.lax.fori_loop(0, (jnp.sum(counts) + BLOCK_ROWS - 1) // BLOCK_ROWS, add, total)


def _hidden(rows: Rows, bias, weights):
    return jax.nn.sigmoid(bias[rows.frame] + rows.feeds @ weights)


def _add_rows(total, rows: Rows, values):
    return total.at[rows.frame].add(values, mode="drop", indices_are_sorted=True)


def _frames(array: Shaped[Array, "time lane key"]) -> Shaped[Array, "frame key"]:
    return array.reshape(-1, *array.shape[2:])


def hashed_bits(key: PRNGKeyArray, shape: tuple[int, ...]) -> UInt32[Array, "..."]:
    """32 random bits for every entry, from a hash of the key and a counter."""
    words = jax.random.bits(key, (2,), jnp.uint32)
    return hashed(words, jax.lax.iota(jnp.uint32, math.prod(shape)).reshape(shape))


def hashed(words: UInt32[Array, "2"], numbers: UInt32[Array, "..."]) -> UInt32[Array, "..."]:
    """32 random bits for every number, from a hash of two random words and the number."""
    return _mixed(_mixed(numbers + words[0]) ^ words[1])


class Dropout(NamedTuple):
    """Inverted dropout: some of the hidden units are seen, scaled so that their sum stays what it is on average.

    Attributes:
        threshold: a unit is kept where its 32 random bits are not below it.
        factor: what kept units are multiplied by.
    """

    threshold: np.uint32 | Array
    factor: np.float32 | Array

    @staticmethod
    def of(share: float) -> "Dropout":
        """Dropout of that fraction of the units."""
        return Dropout(np.uint32(share * 2**32), np.float32(1) / np.float32(1 - share))

    def mask(self, key: PRNGKeyArray, shape: tuple[int, ...]) -> Bool[Array, "..."]:
        """Which of the hidden units are seen."""
        return _mask(key, self.threshold, shape)

    def apply(
        self, hidden: Float[Array, "*time hidden"], kept: Bool[Array, "*time hidden"]
    ) -> Float[Array, "*time hidden"]:
        """The hidden units as they are seen."""
        return jnp.where(kept, hidden * self.factor, 0)


@partial(jax.jit, static_argnums=2)  # fused, or each of its many steps would fill memory
def _mask(key: PRNGKeyArray, threshold: np.uint32 | Array, shape: tuple[int, ...]) -> Bool[Array, "..."]:
    return hashed_bits(key, shape) >= threshold


def hashed_uniform(key: PRNGKeyArray, shape: tuple[int, ...]) -> Float[Array, "..."]:
    """Uniform multiples of 2^-24 in [0, 1)."""
    return (hashed_bits(key, shape) >> 8).astype(jnp.float32) * 2.0**-24


def _mixed(bits: UInt32[Array, "..."]) -> UInt32[Array, "..."]:
    """A bijection in which every bit depends on all bits: the finalizer of MurmurHash3."""
    bits = (bits ^ (bits >> 16)) * jnp.uint32(0x85EBCA6B)
    bits = (bits ^ (bits >> 13)) * jnp.uint32(0xC2B2AE35)
    return bits ^ (bits >> 16)
