"""Training on several cores at once: replicas of the parameters, each on its share of the lanes, joined after a block.

Threads that write to the same weights while others read them (Hogwild) end in other bytes every time. Replicas do not:
what they compute depends on their number, never on their pace.
"""

import operator
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property, partial, reduce
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PyTree

from longspan.optim.blocks import FirstOrder, Info


class Replicas:
    """A first-order driver on several shares of the lanes at once, each in a thread of its own.

    Every share is trained from the same parameters for a block. Then an entry of a parameter takes the mean of the
    changes of those replicas that changed it: matrices that every chunk uses are averaged, and the row of a word that
    one replica alone has met moves as far as it was moved.

    Args:
        driver: trains one share.
        count: number of replicas; it must divide the number of lanes.
    """

    update_is_a_block = False

    def __init__(self, driver: FirstOrder, count: int):
        self.driver, self.count = driver, count

    @cached_property
    def _threads(self) -> ThreadPoolExecutor:
        return ThreadPoolExecutor(self.count, "replica")

    def init(self, params: PyTree) -> Any:
        """The state before the first update; replicas join theirs like the parameters."""
        return self.driver.init(params)

    def rescaled(self, state: Any, scale: float) -> Any:
        """The state with the learning rate at `scale` times that of the schedule."""
        return self.driver.rescaled(state, scale)

    def restarted(self, state: Any) -> Any:
        """The state without momentum, for parameters that were replaced."""
        return self.driver.restarted(state)

    def advance(self, params: Any, state: Any, carry: Any, chunks: Any, count: int, context: Any):
        """Make one update of every replica for each of the first `count` chunks, and join them.

        Leaves of `carry` have the lane as their first axis, those of `chunks` as their third, unless they have fewer.
        """
        before = (params, state)

        def train(number: int):
            own_params, own_state = jax.tree.map(jnp.copy, before)  # the driver consumes what it is given
            seen, share = self._share(carry, 0, number), self._share(chunks, 2, number)
            own_context = _of_replica(context, number)
            return jax.block_until_ready(self.driver.advance(own_params, own_state, seen, share, count, own_context))

        after = list(self._threads.map(train, range(self.count)))
        params, state = _joined(before, [each[:2] for each in after])
        carry = jax.tree.map(_beside, *(each[2] for each in after))
        return params, state, carry, _reported([each[3] for each in after])

    def _share(self, tree: PyTree, axis: int, number: int) -> PyTree:
        """The lanes of one replica."""

        def of(leaf):
            if leaf.ndim <= axis:
                return leaf
            lanes = leaf.shape[axis] // self.count
            return leaf[(slice(None),) * axis + (slice(number * lanes, (number + 1) * lanes),)]

        return jax.tree.map(of, tree)


def _of_replica(context: Any, number: int) -> Any:
    """The context with random keys of the replica's own."""

    def of(leaf):
        is_key = isinstance(leaf, jax.Array) and jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)
        return jax.random.fold_in(leaf, number) if is_key else leaf

    return jax.tree.map(of, context)


@partial(jax.jit, donate_argnums=0)
def _joined(before: PyTree, after: list[PyTree]) -> PyTree:
    def join(old: Array, *new: Array) -> Array:
        if not jnp.issubdtype(old.dtype, jnp.floating):  # counts of updates, which are the same for all
            return new[0]
        changes = [each - old for each in new]  # summed one by one, XLA makes a single pass of it
        changed = reduce(operator.add, ((change != 0).astype(old.dtype) for change in changes))
        return old + reduce(operator.add, changes) / jnp.maximum(changed, 1)

    return jax.tree.map(join, before, *after)


def _beside(*leaves: Array) -> Array:
    return leaves[0] if leaves[0].ndim == 0 else jnp.concatenate(leaves)


def _reported(infos: list[Info]) -> Info:
    """What the replicas observed, summed, and the mean of their figures."""
    observed = jax.tree.map(lambda *values: np.sum(values, axis=0), *(info.observed for info in infos))
    figures = jax.tree.map(lambda *values: np.mean(values, axis=0), *(info.figures for info in infos))
    return Info(observed, figures, infos[0].updates)
