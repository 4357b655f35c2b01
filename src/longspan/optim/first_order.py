"""The driver of first-order methods: a whole block of chunks in one compiled call, one update a chunk.

At one sequence a time an update takes a fraction of a millisecond, so the cost of leaving compiled code between
updates would dominate; inside a block nothing does.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, Float, Int, PyTree

from longspan.optim.clip import ClipState, clip_by_norm
from longspan.optim.nesterov import NesterovState, Schedule, nesterov

Loss = Callable[[Any, Any, Any, Any], tuple[Float[Array, ""], tuple[Any, Any]]]


class Info(NamedTuple):
    """What an observer wants to know of each update of a block."""

    loss: Float[Array, " chunk"]
    norm: Float[Array, " chunk"]
    clipped: Bool[Array, " chunk"]
    observed: PyTree


class FirstOrderState(NamedTuple):
    """What the next update needs."""

    clip: ClipState
    nesterov: NesterovState


class FirstOrder:
    """Clipped stochastic gradient descent with Nesterov momentum over chunks of sequences.

    Args:
        loss: `(params, carry, chunk, context) -> (loss, (carry, observed))`; `carry` is handed from chunk to
            chunk, `context` is anything that stays the same, `observed` is reported in `Info`.
        learning_rate: a number or a schedule.
        momentum: a number or a schedule; zero for plain descent.
        threshold: largest gradient norm, infinity for no clipping.
    """

    def __init__(self, loss: Loss, learning_rate: float | Schedule, momentum: float | Schedule, threshold: float):
        self.loss = loss
        self.clip = clip_by_norm(threshold)
        self.nesterov = nesterov(learning_rate, momentum)
        self._advance = jax.jit(self._advance_block, donate_argnums=(0, 1))

    def init(self, params: optax.Params) -> FirstOrderState:
        """The state before the first update."""
        return FirstOrderState(self.clip.init(params), self.nesterov.init(params))

    def advance(
        self,
        params: optax.Params,
        state: FirstOrderState,
        carry: PyTree,
        chunks: PyTree,
        count: int,
        context: PyTree,
    ) -> tuple[optax.Params, FirstOrderState, PyTree, Info]:
        """One update for each of the first `count` chunks; entries of `Info` beyond `count` are zero.

        `params` and `state` are consumed.
        """
        return self._advance(params, state, carry, chunks, jnp.asarray(count, jnp.int32), context)

    def _advance_block(self, params, state, carry, chunks, count: Int[Array, ""], context):
        value_and_gradient = jax.value_and_grad(self.loss, has_aux=True)

        def update(params, state, carry, chunk):
            (loss, (carry, observed)), gradient = value_and_gradient(params, carry, chunk, context)
            gradient, clip = self.clip.update(gradient, state.clip)
            updates, momentum = self.nesterov.update(gradient, state.nesterov)
            params = optax.apply_updates(params, updates)
            return (
                params,
                FirstOrderState(clip, momentum),
                carry,
                Info(loss, clip.norm, clip.clipped, observed),
            )

        def body(index, loop):
            *running, infos = loop
            *running, info = update(*running, jax.tree.map(lambda leaf: leaf[index], chunks))
            return *running, jax.tree.map(lambda all_, one: all_.at[index].set(one), infos, info)

        first = jax.tree.map(lambda leaf: leaf[0], chunks)
        shapes = jax.eval_shape(lambda *running: update(*running, first)[-1], params, state, carry)
        block = jax.tree.leaves(chunks)[0].shape[0]
        infos = jax.tree.map(lambda leaf: jnp.zeros((block, *leaf.shape), leaf.dtype), shapes)
        return jax.lax.fori_loop(0, count, body, (params, state, carry, infos))
