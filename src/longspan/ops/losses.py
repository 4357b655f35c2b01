"""Negative log-likelihoods from logits: independent keys (section 4.1 of the paper) and one symbol of many (4.2).

Bernoulli: -log p(x | l) = sum_i softplus(l_i) - x_i l_i, with gradient p - x and Hessian p (1 - p) on the diagonal.
Softmax: -log p(y | l) = logsumexp(l) - l_y, with gradient p - onehot(y) and Hessian diag(p) - p p^T. Both are in nats
and convex in the logits, and JAX can take both derivatives, so a loss can close a Gauss-Newton product.
"""

from typing import TypeAlias

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Integer, UInt8

from longspan.ops import backend
from longspan.ops.contracts import operation

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
