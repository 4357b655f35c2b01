"""The driver of first-order methods: a whole block of chunks in one compiled call, one update a chunk.

At one sequence a time an update takes a fraction of a millisecond, so the cost of leaving compiled code between
updates would dominate; inside a block nothing does.
"""

import math
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PyTree

from longspan.kernels.update import clip_descend, clip_nesterov, clipped_rate
from longspan.optim.gradients import Gradient
from longspan.optim.interface import Info
from longspan.optim.nesterov import Schedule, as_schedule

Params = TypeVar("Params")
Carry = TypeVar("Carry")
Value = tuple[Float[Array, ""], tuple[Carry, Any]]
Loss = Callable[[Params, Carry, Any, Any], Value]
ValueAndGradient = Callable[[Params, Carry, Any, Any], tuple[Value, Gradient]]


class FirstOrderState(NamedTuple):
    """What the next update needs: how many there were, the velocity, and a factor on the learning rate.

    Without momentum there is no velocity.
    """

    step: Int[Array, ""]
    velocity: PyTree
    scale: Float[Array, ""]


class FirstOrder:
    """Clipped stochastic gradient descent with Nesterov momentum over chunks of sequences.

    One update is what the Optax chain `clip_by_norm`, `nesterov` does, computed in a single pass over the parameters.

    Args:
        loss: `(params, carry, chunk, context) -> (loss, (carry, observed))`; `carry` is handed from chunk to
            chunk, `context` is anything that stays the same, `observed` is reported in `Info`.
        learning_rate: a number or a schedule.
        momentum: a number or a schedule; zero for plain descent.
        threshold: largest gradient norm, infinity for no clipping.
        by_rows: loss and gradient where some leaves are better served by rows than by what JAX derives from `loss`.
            It is used without momentum only: a velocity moves every row at every step, touched or not.
    """

    def __init__(
        self,
        loss: Loss,
        learning_rate: float | Schedule,
        momentum: float | Schedule = 0.0,
        threshold: float = math.inf,
        by_rows: ValueAndGradient | None = None,
    ):
        self.learning_rate = as_schedule(learning_rate)
        self.momentum = None if momentum == 0 else as_schedule(momentum)
        self.threshold = threshold
        self.value_and_gradient = by_rows if by_rows and self.momentum is None else _derived(loss)
        self._advance = jax.jit(self._advance_block, donate_argnums=(0, 1))

    def init(self, params: PyTree) -> FirstOrderState:
        """The state before the first update."""
        velocity = None if self.momentum is None else jax.tree.map(jnp.zeros_like, params)
        return FirstOrderState(jnp.zeros((), jnp.int32), velocity, jnp.ones(()))

    def rescaled(self, state: FirstOrderState, scale: float) -> FirstOrderState:
        """The state with the learning rate at `scale` times what the schedule says."""
        return state._replace(scale=jnp.asarray(scale, jnp.float32))

    def restarted(self, state: FirstOrderState) -> FirstOrderState:
        """The state at rest, for parameters that were put somewhere else."""
        return state._replace(velocity=jax.tree.map(jnp.zeros_like, state.velocity))

    def advance(
        self,
        params: Params,
        state: FirstOrderState,
        carry: Carry,
        chunks: PyTree,
        count: int,
        context: PyTree,
    ) -> tuple[Params, FirstOrderState, Carry, Info]:
        """One update for each of the first `count` chunks; what `Info` holds beyond them is zero.

        `params` and `state` are consumed.
        """
        return self._advance(params, state, carry, chunks, jnp.asarray(count, jnp.int32), context)

    def _advance_block(self, params, state, carry, chunks, count: Int[Array, ""], context):
        def update(params, state, carry, chunk):
            (loss, (carry, observed)), gradient = self.value_and_gradient(params, carry, chunk, context)
            params, state, figures = self._step(params, state, gradient)
            return (params, state, carry), (observed, {"objective": loss, **figures})

        def body(index, loop):
            (params, state, carry), seen = loop
            running, one = update(params, state, carry, jax.tree.map(lambda leaf: leaf[index], chunks))
            return running, jax.tree.map(lambda all_, one: all_.at[index].set(one), seen, one)

        first = jax.tree.map(lambda leaf: leaf[0], chunks)
        _, shapes = jax.eval_shape(update, params, state, carry, first)
        block = jax.tree.leaves(chunks)[0].shape[0]
        nothing = jax.tree.map(lambda leaf: jnp.zeros((block, *leaf.shape), leaf.dtype), shapes)
        running, seen = jax.lax.fori_loop(0, count, body, ((params, state, carry), nothing))
        observed, figures = seen
        return *running, Info(observed, figures, count)

    def _step(self, params, state, gradient: Gradient):
        learning_rate = self.learning_rate(state.step) * state.scale
        if self.momentum is None:
            velocity = None
            params, norm, clipped = self._descend(params, gradient, learning_rate)
        else:
            leaves, structure = jax.tree.flatten(params)
            leaves, velocity, norm, clipped = clip_nesterov(
                leaves,
                jax.tree.leaves(state.velocity),
                jax.tree.leaves(gradient.whole),
                learning_rate=learning_rate,
                momentum_previous=self.momentum(state.step),
                momentum_next=self.momentum(state.step + 1),
                threshold=self.threshold,
            )
            params, velocity = structure.unflatten(leaves), structure.unflatten(velocity)
        figures = {"gradient_norm": norm, "clipped": clipped, "learning_rate": jnp.asarray(learning_rate)}
        return params, FirstOrderState(state.step + 1, velocity, state.scale), figures

    def _descend(self, params, gradient: Gradient, learning_rate):
        leaves, structure = jax.tree.flatten(params)
        whole = structure.flatten_up_to(gradient.whole)
        chosen = [number for number, leaf in enumerate(whole) if leaf is not None]
        moved, norm, clipped = clip_descend(
            [leaves[number] for number in chosen],
            [whole[number] for number in chosen],
            learning_rate=learning_rate,
            threshold=self.threshold,
            other_squares=sum((table.gradient.squares() for table in gradient.tables), jnp.zeros(())),
        )
        for number, leaf in zip(chosen, moved, strict=True):
            leaves[number] = leaf
        params = structure.unflatten(leaves)
        rate = clipped_rate(learning_rate, norm, clipped, self.threshold)
        for where, by_rows in gradient.tables:
            params = eqx.tree_at(where, params, by_rows.descend(where(params), rate))
        return params, norm, clipped


def _derived(loss: Loss) -> ValueAndGradient:
    def value_and_gradient(*arguments):
        value, gradient = jax.value_and_grad(loss, has_aux=True)(*arguments)
        return value, Gradient(gradient)

    return value_and_gradient
