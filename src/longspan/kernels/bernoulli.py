"""The Bernoulli loss of a frame: independent keys, each with its logit (section 4.1 of the paper).

-log p(x | l) = sum_i softplus(l_i) - x_i l_i in nats, convex in the logits, with gradient p - x and Hessian
p (1 - p) on the diagonal; JAX can take both derivatives, so the loss can close a Gauss-Newton product.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, UInt8

from longspan.kernels import library


def loss(
    logits: Float[Array, "time lanes keys"],
    targets: UInt8[Array, "time lanes keys"],
    mask: Bool[Array, "time lanes"] | Float[Array, "time lanes"],
) -> Float[Array, "time lanes"]:
    """Negative log-likelihood of each frame in nats, times the mask; where that is 0, so is the loss.

    Args:
        logits: l.
        targets: x, on (not 0) or off.
        mask: frames that count, or their weights.
    """
    return _loss(logits, targets, mask.astype(logits.dtype))


@jax.custom_jvp
def _loss(logits, targets, mask):
    if not library.fits(logits):
        cost = jax.nn.softplus(jnp.where(targets != 0, -logits, logits))
        return jnp.where(mask != 0, mask * cost.sum(-1), 0)
    return library.call("bernoulli_loss", (mask,), logits, targets, mask)[0]


@_loss.defjvp
def _differentiate_loss(primals, tangents):
    logits, targets, mask = primals
    value, gradient = _loss_and_gradient(logits, targets, mask)
    return value, (gradient * tangents[0]).sum(-1)


@jax.custom_jvp
def _loss_and_gradient(logits, targets, mask):
    if not library.fits(logits):
        gradient = jnp.where(targets != 0, -jax.nn.sigmoid(-logits), jax.nn.sigmoid(logits))
        return _loss(logits, targets, mask), _masked(mask, gradient)
    return tuple(library.call("bernoulli_loss_gradient", (mask, logits), logits, targets, mask))


@_loss_and_gradient.defjvp
def _differentiate_gradient(primals, tangents):
    logits, targets, mask = primals
    value, gradient = _loss_and_gradient(logits, targets, mask)
    probability = jax.nn.sigmoid(logits)
    curvature = _masked(mask, probability * (1 - probability))
    return (value, gradient), ((gradient * tangents[0]).sum(-1), curvature * tangents[0])


def _masked(mask, rows):
    return jnp.where(mask[..., None] != 0, mask[..., None] * rows, 0)
