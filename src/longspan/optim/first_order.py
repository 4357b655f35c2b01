"""The driver of first-order methods: a whole block of chunks in one compiled call, one update a chunk.

At one sequence a time an update takes a fraction of a millisecond, so the cost of leaving compiled code between
updates would dominate; inside a block nothing does.
"""

import math
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PyTree

from longspan.optim.clip import ClipState, clip_by_norm
from longspan.optim.nesterov import NesterovState, Schedule, nesterov

Params = TypeVar("Params")
Carry = TypeVar("Carry")
Loss = Callable[[Params, Carry, Any, Any], tuple[Float[Array, ""], tuple[Carry, Any]]]


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

    def __init__(
        self,
        loss: Loss,
        learning_rate: float | Schedule,
        momentum: float | Schedule = 0.0,
        threshold: float = math.inf,
    ):
        self.loss = loss
        self.clip: Any = clip_by_norm(threshold)  # Optax types the states of transformations too loosely to use
        self.nesterov: Any = nesterov(learning_rate, momentum)
        self._advance = jax.jit(self._advance_block, donate_argnums=(0, 1))

    def init(self, params: PyTree) -> FirstOrderState:
        """The state before the first update."""
        return FirstOrderState(self.clip.init(params), self.nesterov.init(params))

    def rescaled(self, state: FirstOrderState, scale: float) -> FirstOrderState:
        """The state with the learning rate at `scale` times what the schedule says."""
        return state._replace(nesterov=state.nesterov._replace(scale=jnp.asarray(scale, jnp.float32)))

    def restarted(self, state: FirstOrderState) -> FirstOrderState:
        """The state at rest, for parameters that were put somewhere else."""
        velocity = jax.tree.map(jnp.zeros_like, state.nesterov.velocity)
        return state._replace(nesterov=state.nesterov._replace(velocity=velocity))

    def advance(
        self,
        params: Params,
        state: FirstOrderState,
        carry: Carry,
        chunks: PyTree,
        count: int,
        context: PyTree,
    ) -> tuple[Params, FirstOrderState, Carry, Info]:
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
            params = jax.tree.map(jnp.add, params, updates)
            return (params, FirstOrderState(clip, momentum), carry), Info(loss, clip.norm, clip.clipped, observed)

        def body(index, loop):
            (params, state, carry), infos = loop
            running, info = update(params, state, carry, jax.tree.map(lambda leaf: leaf[index], chunks))
            return running, jax.tree.map(lambda seen, one: seen.at[index].set(one), infos, info)

        first = jax.tree.map(lambda leaf: leaf[0], chunks)
        _, shapes = jax.eval_shape(update, params, state, carry, first)
        block = jax.tree.leaves(chunks)[0].shape[0]
        infos = jax.tree.map(lambda leaf: jnp.zeros((block, *leaf.shape), leaf.dtype), shapes)
        running, infos = jax.lax.fori_loop(0, count, body, ((params, state, carry), infos))
        return *running, infos
