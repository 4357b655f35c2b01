"""Optimizers that train on blocks of chunks: their interface, and the driver of first-order methods.

With one sequence at a time an update takes a fraction of a millisecond, so the cost of leaving compiled code between
updates would dominate; within a block, which is one compiled call, there is no such cost. The update rule of the driver
is a `Method`: clipped Nesterov descent, fused into one pass over the parameters, or any Optax transformation.
"""

import math
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple, Protocol, TypeVar, runtime_checkable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.tree_util import Partial
from jaxtyping import Array, Float, Int, PyTree, Shaped

from longspan.ops.lagging import Lagging, OuterGradient
from longspan.ops.update import clip_descend, clip_nesterov, clipped_rate
from longspan.optim.transforms import Schedule, as_schedule


class Info(NamedTuple):
    """Figures of a block of chunks, for monitoring.

    Attributes:
        observed: the loss's report on every chunk, with the weights it was computed with; chunks are the first axis.
        figures: figures of every update by name, such as `objective` and `gradient_norm`; only the first `updates`
            entries are meaningful.
        updates: number of updates made.
    """

    observed: PyTree
    figures: dict[str, Shaped[Array | np.ndarray, " update"]]
    updates: Int[Array, ""] | int

    def of_updates(self) -> dict[str, Any]:
        """The figures, restricted to the updates that were made."""
        return {name: values[: int(self.updates)] for name, values in self.figures.items()}


@runtime_checkable
class BlockOptimizer(Protocol):
    """Improves parameters block by block; its state is a tree of arrays, so that it can be saved."""

    @property
    def update_is_a_block(self) -> bool:
        """Whether there is one update per block of chunks; otherwise there is one per chunk."""
        ...

    def init(self, params: Any) -> Any:
        """The state before the first update."""
        ...

    def advance(
        self, params: Any, state: Any, carry: Any, chunks: Any, count: int, context: Any
    ) -> tuple[Any, Any, Any, Info]:
        """Train on the first `count` chunks, the others being filler; `params` and `state` may be consumed.

        `carry` is passed from the last of these chunks to the next block; `context` stays the same.
        """
        ...

    def rescaled(self, state: Any, scale: float) -> Any:
        """The state for steps of `scale` times their initial size, if the method has a step size."""
        ...

    def restarted(self, state: Any) -> Any:
        """The state without momentum or the like, for parameters that were replaced."""
        ...


@runtime_checkable
class ByRows(Protocol):
    """The gradient of one or several leaves, in a form that suits the rows in use."""

    def squares(self) -> Float[Array, ""]:
        """The sum of the squares of all its entries."""
        ...

    def descend(self, leaves: Any, rate: Float[Array, ""]) -> Any:
        """The leaves at which the gradient was taken, minus `rate` times the gradient."""
        ...


class Table(NamedTuple):
    """Leaves of the parameters and their gradient; `where` picks the leaves out of the parameters."""

    where: Callable[[Any], tuple]
    gradient: ByRows | OuterGradient


class Gradient(NamedTuple):
    """A gradient: `whole` is like the parameters, with None for the leaves in `tables`."""

    whole: PyTree
    tables: tuple[Table, ...] = ()


NUMBERS = (int, float, np.generic, np.ndarray, jax.Array)
Params = TypeVar("Params")
Carry = TypeVar("Carry")
Value = tuple[Float[Array, ""], tuple[Carry, Any]]
Loss = Callable[[Params, Carry, Any, Any], Value]
ValueAndGradient = Callable[[Params, Carry, Any, Any], tuple[Value, Gradient]]
Where = Callable[[Any], tuple]


class Sparse(NamedTuple):
    """Loss and gradient where states are sparse enough that some matrices may lag (`ops/lagging.py`).

    Attributes:
        matrices: which leaves of these parameters may lag, or None if none may.
        value_and_gradient: of parameters in which those leaves are `Lagging`; their gradients are tables.
    """

    matrices: Callable[[Any, Any], Where | None]
    value_and_gradient: ValueAndGradient


@runtime_checkable
class Method(Protocol):
    """An update rule; its state is a tree of arrays with a field `scale`, a factor on the learning rate."""

    @property
    def takes_rows(self) -> bool:
        """Whether gradients of large matrices may be given by the rows in use."""
        ...

    def init(self, params: Any) -> Any:
        """The state before the first update."""
        ...

    def step(self, params: Any, state: Any, gradient: Gradient) -> tuple[Any, Any, dict[str, Array]]:
        """Parameters and state after an update, and figures about it by name."""
        ...

    def restarted(self, state: Any) -> Any:
        """The state without momentum, for parameters that were replaced."""
        ...


class Rule(NamedTuple):
    """What a compiled block of updates does: a tree of the numbers and functions that decide it."""

    value_and_gradient: ValueAndGradient
    method: Method
    sparse: Sparse | None

    def advance(self, params, state, carry, chunks, count: Int[Array, ""], context):
        lagging = self.sparse.matrices(params, context) if self.sparse else None
        if self.sparse is None or lagging is None:
            return self._make_updates(self.value_and_gradient, params, state, carry, chunks, count, context)
        assert isinstance(self.method, ClippedNesterov)
        params, state = self.method.loosened(params, state, lagging, updates=jax.tree.leaves(chunks)[0].shape[0])
        params, state, carry, info = self._make_updates(
            self.sparse.value_and_gradient, params, state, carry, chunks, count, context
        )
        return *self.method.settled(params, state, lagging), carry, info

    def _make_updates(self, value_and_gradient: ValueAndGradient, params, state, carry, chunks, count, context):
        def update(params, state, carry, chunk):
            (loss, (carry, observed)), gradient = value_and_gradient(params, carry, chunk, context)
            params, state, figures = self.method.step(params, state, gradient)
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


def _advanced(rest: tuple, numbers: list, params, state, carry, chunks, count: Int[Array, ""], context):
    """The block of updates of a rule in two parts: `rest` says how to arrange its numbers."""
    structure, others = rest
    leaves = [other if number is None else number for number, other in zip(numbers, others, strict=True)]
    return jax.tree.unflatten(structure, leaves).advance(params, state, carry, chunks, count, context)


_shared = jax.jit(_advanced, static_argnums=0, donate_argnums=(2, 3))
"""The programs of all rules that differ in nothing but numbers; the numbers are arguments, even if nobody shares."""


class FirstOrder:
    """A first-order method over chunks of sequences.

    Args:
        loss: `(params, carry, chunk, context) -> (loss, (carry, observed))`; `carry` is passed from chunk to chunk,
            `context` stays the same, `observed` is reported in `Info`.
        method: the update rule.
        by_rows: loss and gradient with some leaves by rows, instead of the dense gradient that JAX derives from `loss`.
            It is used only with a method that takes rows.
        sparse: the same with matrices that lag. It is used only with momentum. All rows have caught up at the end of a
            block, so nobody outside sees one that lags.
    """

    update_is_a_block = False

    def __init__(
        self, loss: Loss, method: Method, by_rows: ValueAndGradient | None = None, sparse: Sparse | None = None
    ):
        self.method = method
        self.sparse = sparse if isinstance(method, ClippedNesterov) and method.momentum is not None else None
        self.value_and_gradient = by_rows if by_rows and method.takes_rows else Partial(_derived, loss)
        leaves, structure = jax.tree.flatten(Rule(self.value_and_gradient, method, self.sparse))
        self._numbers = [leaf if isinstance(leaf, NUMBERS) else None for leaf in leaves]
        self._rest = structure, tuple(None if isinstance(leaf, NUMBERS) else leaf for leaf in leaves)
        # Functions made for this driver alone are not worth keeping any longer than it lives.
        alone = any(leaf is not None for leaf in self._rest[1])
        self._advance = (
            jax.jit(partial(_advanced, self._rest), donate_argnums=(1, 2)) if alone else partial(_shared, self._rest)
        )

    def init(self, params: PyTree) -> Any:
        """The state before the first update."""
        return self.method.init(params)

    def rescaled(self, state: Any, scale: float) -> Any:
        """The state with the learning rate at `scale` times that of the schedule."""
        return state._replace(scale=jnp.asarray(scale, jnp.float32))

    def restarted(self, state: Any) -> Any:
        """The state without momentum, for parameters that were replaced."""
        return self.method.restarted(state)

    def advance(
        self, params: Params, state: Any, carry: Carry, chunks: PyTree, count: int, context: PyTree
    ) -> tuple[Params, Any, Carry, Info]:
        """Make one update for each of the first `count` chunks; entries of `Info` beyond them are zero.

        `params` and `state` are consumed.
        """
        return self._advance(self._numbers, params, state, carry, chunks, np.int32(count), context)


class DescentState(NamedTuple):
    """The state of `ClippedNesterov`; without momentum there is no velocity."""

    step: Int[Array, ""]
    velocity: PyTree
    scale: Float[Array, ""]


@jax.tree_util.register_pytree_node_class
class ClippedNesterov:
    """Clipped gradient descent with Nesterov momentum, in a single pass over the parameters.

    An update equals that of the Optax chain `clip_by_norm`, `nesterov`.

    Args:
        learning_rate: a number or a schedule.
        momentum: a number or a schedule; zero for plain descent.
        threshold: largest gradient norm; infinity for no clipping.
    """

    def __init__(self, learning_rate: float | Schedule, momentum: float | Schedule = 0.0, threshold: float = math.inf):
        self.learning_rate = as_schedule(learning_rate)
        self.momentum = None if momentum == 0 else as_schedule(momentum)
        self.threshold = threshold

    def tree_flatten(self) -> tuple[tuple, None]:
        return (self.learning_rate, self.momentum, self.threshold), None

    @classmethod
    def tree_unflatten(cls, _: None, children: tuple) -> "ClippedNesterov":
        made = object.__new__(cls)
        made.learning_rate, made.momentum, made.threshold = children
        return made

    @property
    def takes_rows(self) -> bool:
        """Only without momentum: a velocity moves every row at every step, in use or not."""
        return self.momentum is None

    def init(self, params: PyTree) -> DescentState:
        velocity = None if self.momentum is None else _zeros_like(params)
        return DescentState(jnp.zeros((), jnp.int32), velocity, jnp.ones(()))

    def restarted(self, state: DescentState) -> DescentState:
        return state._replace(velocity=_zeros_like(state.velocity))

    def loosened(self, params, state: DescentState, where: Where, updates: int) -> tuple[Any, DescentState]:
        """Parameters and state whose leaves at `where` lag, for so many updates."""
        schedule = self.momentum
        assert schedule is not None
        steps = state.step + jnp.arange(updates + 1, dtype=jnp.int32)
        momentum = jax.vmap(lambda step: jnp.asarray(schedule(step), jnp.float32))(steps)
        momenta = jnp.stack([momentum[1:] * momentum[:-1], momentum[:-1]], axis=1)
        pairs = zip(where(params), where(state.velocity), strict=True)
        matrices = tuple(Lagging.of(weights, velocity, momenta) for weights, velocity in pairs)
        velocity = eqx.tree_at(where, state.velocity, replace_fn=lambda _: None)
        return eqx.tree_at(where, params, matrices), state._replace(velocity=velocity)

    def settled(self, params, state: DescentState, where: Where) -> tuple[Any, DescentState]:
        """The reverse of `loosened`, with all rows caught up."""
        weights, velocities = zip(*(matrix.settled() for matrix in where(params)), strict=True)
        velocity = eqx.tree_at(where, state.velocity, velocities, is_leaf=lambda leaf: leaf is None)
        return eqx.tree_at(where, params, weights, is_leaf=_lags), state._replace(velocity=velocity)

    def step(self, params, state: DescentState, gradient: Gradient):
        learning_rate = self.learning_rate(state.step) * state.scale
        leaves, structure = jax.tree.flatten(params, is_leaf=_lags)
        gradients = structure.flatten_up_to(gradient.whole)
        chosen = [number for number, leaf in enumerate(gradients) if leaf is not None]
        whole = ([leaves[number] for number in chosen], [gradients[number] for number in chosen])
        settings = {
            "learning_rate": learning_rate,
            "threshold": self.threshold,
            "other_squares": sum((table.gradient.squares() for table in gradient.tables), jnp.zeros(())),
        }
        velocity, momentum = None, jnp.zeros(())
        if self.momentum is None:
            moved, norm, clipped = clip_descend(*whole, **settings)
        else:
            previous, momentum = self.momentum(state.step), self.momentum(state.step + 1)
            velocities = structure.flatten_up_to(state.velocity)
            moved, new, norm, clipped = clip_nesterov(
                whole[0],
                [velocities[number] for number in chosen],
                whole[1],
                momentum_previous=previous,
                momentum_next=momentum,
                **settings,
            )
            velocity = structure.unflatten(_replaced(velocities, chosen, new))
        params = structure.unflatten(_replaced(leaves, chosen, moved))
        rate = clipped_rate(learning_rate, norm, clipped, self.threshold)
        for where, by_rows in gradient.tables:
            if isinstance(by_rows, OuterGradient):
                params = eqx.tree_at(where, params, (by_rows.accelerate(rate, (1 + momentum) * rate),))
            else:
                params = eqx.tree_at(where, params, by_rows.descend(where(params), rate))
        figures = {"gradient_norm": norm, "clipped": clipped, "learning_rate": jnp.asarray(learning_rate)}
        return params, DescentState(state.step + 1, velocity, state.scale), figures


def _zeros_like(tree: PyTree) -> PyTree:
    """Zeros, made without compiling a program for each shape."""
    return jax.tree.map(lambda leaf: jax.device_put(np.zeros(leaf.shape, leaf.dtype)), tree)


def _lags(leaf: Any) -> bool:
    return isinstance(leaf, Lagging)


def _replaced(leaves: list, numbers: list[int], new: list) -> list:
    given = dict(zip(numbers, new, strict=True))
    return [given.get(number, leaf) for number, leaf in enumerate(leaves)]


class OptaxState(NamedTuple):
    """The state of a transformation and a factor on its updates."""

    transformation: PyTree
    scale: Float[Array, ""]


class OptaxMethod:
    """Any Optax transformation as a method.

    Args:
        transformation: such as `optax.adam(1e-3)`, or a chain that clips first.
    """

    takes_rows = False

    def __init__(self, transformation: optax.GradientTransformation):
        self.transformation = transformation

    def init(self, params: PyTree) -> OptaxState:
        with jax.numpy_dtype_promotion("standard"):
            return OptaxState(self.transformation.init(params), jnp.ones(()))

    def restarted(self, state: OptaxState) -> OptaxState:
        """The state unchanged: adaptive methods keep statistics of gradients, not of the path of the parameters."""
        return state

    def step(self, params, state: OptaxState, gradient: Gradient):
        # Optax raises numbers to the power of counts, also where the caller allows no mixed dtypes.
        with jax.numpy_dtype_promotion("standard"):
            updates, inner = self.transformation.update(gradient.whole, state.transformation, params)
        updates = jax.tree.map(lambda update: state.scale * update, updates)
        figures = {"gradient_norm": optax.tree.norm(gradient.whole), "update_norm": optax.tree.norm(updates)}
        return optax.apply_updates(params, updates), OptaxState(inner, state.scale), figures


def _derived(loss: Loss, *arguments) -> tuple[Value, Gradient]:
    value, gradient = jax.value_and_grad(loss, has_aux=True)(*arguments)
    return value, Gradient(gradient)
