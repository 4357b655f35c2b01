"""The softmax loss of a symbol: one of many, each with its logit (section 4.2 of the paper).

-log p(y | l) = logsumexp(l) - l_y in nats, convex in the logits, with gradient p - onehot(y) and Hessian
diag(p) - p p^T; JAX can take both derivatives, so the loss can close a Gauss-Newton product.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from longspan.kernels import library


def loss(
    logits: Float[Array, "time lanes symbols"],
    targets: Int[Array, "time lanes"],
    mask: Bool[Array, "time lanes"] | Float[Array, "time lanes"],
) -> Float[Array, "time lanes"]:
    """Negative log-likelihood of each symbol in nats, times the mask; where that is 0, so is the loss.

    Args:
        logits: l.
        targets: y, the index of the symbol that came.
        mask: steps that count, or their weights.
    """
    targets = jnp.clip(targets, 0, logits.shape[-1] - 1).astype(jnp.int32)
    return _loss(logits, targets, mask.astype(logits.dtype))


@jax.custom_jvp
def _loss(logits, targets, mask):
    if not library.fits(logits):
        chosen = jnp.take_along_axis(logits, targets[..., None], -1)[..., 0]
        return jnp.where(mask != 0, mask * (jax.nn.logsumexp(logits, -1) - chosen), 0)
    return library.call("softmax_loss", (mask,), logits, targets, mask)[0]


@_loss.defjvp
def _differentiate_loss(primals, tangents):
    logits, targets, mask = primals
    value, gradient = _loss_and_gradient(logits, targets, mask)
    return value, (gradient * tangents[0]).sum(-1)


@jax.custom_jvp
def _loss_and_gradient(logits, targets, mask):
    if not library.fits(logits):
        gradient = jax.nn.softmax(logits) - jax.nn.one_hot(targets, logits.shape[-1], dtype=logits.dtype)
        return _loss(logits, targets, mask), _masked(mask, gradient)
    return tuple(library.call("softmax_loss_gradient", (mask, logits), logits, targets, mask))


@_loss_and_gradient.defjvp
def _differentiate_gradient(primals, tangents):
    logits, targets, mask = primals
    value, gradient = _loss_and_gradient(logits, targets, mask)
    probability = _masked(mask, jax.nn.softmax(logits))
    scaled = jax.nn.softmax(logits) * tangents[0]
    curved = _masked(mask, scaled) - probability * scaled.sum(-1, keepdims=True)
    return (value, gradient), ((gradient * tangents[0]).sum(-1), curved)


def _masked(mask, rows):
    return jnp.where(mask[..., None] != 0, mask[..., None] * rows, 0)
