"""How perturbations and gradients travel through time: the paper's section 2, measured on the driven states.

The gradient that the loss of step t sends to the state k steps earlier is `(ds_t/ds_{t-k})' dC_t/ds_t`, a product of k
Jacobians. The same Jacobians, applied forwards and orthogonalized at every step, give the Lyapunov exponents: by how
much a small change of the state grows per step, direction by direction.
"""

import math
from typing import Annotated

import equinox as eqx
import jax
import jax.numpy as jnp
import msgspec
import numpy as np
from jaxtyping import Array, Float, Int

from longspan.bounds import Whole
from longspan.models.model import SequenceModel
from longspan.probes.steps import FlatCell, Steps, Walk, spread

FEWEST = 5
"""A lag is reported if at least this many of the chosen steps reach back that far."""
SMALLEST = 1e-10
"""Stretching of a direction below which float32 cannot tell it from zero."""
LARGEST = 700.0
"""Logarithm beyond which numbers are not told apart; states that overflowed have it."""
Norm = Annotated[float, msgspec.Meta(ge=0, le=1.1 * math.exp(LARGEST))]
Exponent = Annotated[float, msgspec.Meta(ge=-100, le=100)]
"""Within the logarithms of what single precision can tell apart."""


class GradientByLag(msgspec.Struct, frozen=True):
    """Mean length of the gradient that a counted step's loss sends k steps back, for k = 0, 1, ..."""

    norms: Annotated[list[Norm], msgspec.Meta(min_length=1)]
    steps: Whole
    """Number of counted steps examined."""

    @property
    def half_life(self) -> int | None:
        """First lag at which half is gone; None if that is beyond the lags examined."""
        return next((lag for lag, norm in enumerate(self.norms) if norm <= self.norms[0] / 2), None)

    @property
    def left(self) -> float:
        """What is left at the last lag, as a multiple of the gradient at lag 0."""
        return self.norms[-1] / self.norms[0] if self.norms[0] > 0 else 0.0


class Lyapunov(msgspec.Struct, frozen=True):
    """The largest Lyapunov exponents of the driven states, in nats per step, largest first."""

    exponents: Annotated[list[Exponent], msgspec.Meta(min_length=1)]
    sequences: Whole
    steps: Whole
    """Number of steps over which they were measured in each sequence."""


def gradient_by_lag(model: SequenceModel, steps: Steps, walked: Walk, *, lags: int, most: int = 512) -> GradientByLag:
    """Measure the gradient by lag over at most `most` counted steps."""
    chosen = steps.counted(most)
    deepest = int(np.sort(steps.past[chosen])[-min(FEWEST, len(chosen))])
    sizes = _log_sizes(
        model,
        jnp.asarray(steps.inputs),
        walked.before,
        jnp.asarray(steps.targets[chosen]),
        jnp.asarray(chosen),
        max(0, min(lags, deepest)),
    )
    reached = steps.past[chosen] >= np.arange(len(sizes))[:, None]
    means = [_mean_of_logs(row[valid]) for row, valid in zip(np.asarray(sizes, np.float64), reached, strict=True)]
    return GradientByLag(means, len(chosen))


@eqx.filter_jit
def _log_sizes(model, inputs, before, targets, chosen: Int[Array, " chosen"], lags: int):
    """Logarithms of the gradients' lengths, (lag, chosen step); lengths may lie far beyond the range of float32."""
    flat = FlatCell(model.cell)

    def loss(states):
        length = jnp.asarray(len(chosen), jnp.int32)
        seen = jax.vmap(flat.hidden)(states)[:, None]
        return jnp.sum(model.output.loss(seen, targets[:, None], length, key=jax.random.key(0)))

    def pull(state, inputs, vector):
        return jax.vjp(lambda state: flat.step(state, inputs), state)[1](vector)[0]

    def back(carry, lag):
        vectors, size = carry
        at = jnp.maximum(chosen - lag, 0)
        vectors, growth = _normalized(jax.vmap(pull)(before[at], inputs[at], vectors))
        return (vectors, size + growth), size + growth

    after = jax.vmap(flat.step)(before[chosen], inputs[chosen])
    first, size = _normalized(jax.grad(loss)(after))
    _, sizes = jax.lax.scan(back, (first, size), jnp.arange(lags))
    return jnp.concatenate([size[None], sizes])


def _normalized(vectors: Float[Array, "chosen state"]) -> tuple[Float[Array, "chosen state"], Float[Array, " chosen"]]:
    largest = jnp.max(jnp.abs(vectors), axis=-1)  # first, because squares of small numbers underflow
    scaled = vectors / jnp.where(largest > 0, largest, 1)[:, None]
    norms = jnp.linalg.norm(scaled, axis=-1)
    return scaled / jnp.where(norms > 0, norms, 1)[:, None], jnp.log(largest) + jnp.log(jnp.where(norms > 0, norms, 1))


def _mean_of_logs(logs: np.ndarray) -> float:
    """The mean of values given by their logarithms, of which some may be minus infinity."""
    logs = np.nan_to_num(logs, nan=LARGEST, posinf=LARGEST, neginf=-math.inf)
    largest = logs.max()
    if largest == -math.inf:
        return 0.0
    return float(np.exp(min(largest + np.log(np.mean(np.exp(logs - largest))), LARGEST)))


def lyapunov(
    model: SequenceModel, steps: Steps, walked: Walk, *, exponents: int = 32, length: int = 200, most: int = 8
) -> Lyapunov:
    """Measure the largest exponents over excerpts of at most `length` steps; the first quarter only aligns."""
    begins, length = excerpts(steps, length, most)
    size = walked.before.shape[1]
    basis = first_basis(size, min(exponents, size))
    growth = _growth(model, jnp.asarray(steps.inputs), walked.before, jnp.asarray(begins), length, jnp.asarray(basis))
    sizes = np.nan_to_num(np.abs(np.asarray(growth, np.float64)), nan=1 / SMALLEST, posinf=1 / SMALLEST)
    logs = np.log(np.maximum(sizes, SMALLEST))
    kept = logs[length // 4 :]
    return Lyapunov(sorted(kept.mean(axis=(0, 1)).tolist(), reverse=True), len(begins), len(kept))


def first_basis(size: int, count: int) -> np.ndarray:
    """`count` random orthogonal directions to start from, always the same."""
    random = np.random.default_rng(0).standard_normal((size, count))
    return np.linalg.qr(random)[0].astype(np.float32)


def excerpts(steps: Steps, longest: int, most: int) -> tuple[np.ndarray, int]:
    """First steps of at most `most` excerpts, and their common length: that of a longer sequence of these."""
    lengths = np.array([end - begin for begin, end in steps.bounds])
    length = int(min(longest, np.quantile(lengths, 0.75, method="higher")))
    begins = np.concatenate([np.arange(begin, end - length + 1, length) for begin, end in steps.bounds])
    return spread(begins, most).astype(np.int32), length


@eqx.filter_jit
def _growth(model, inputs, before, begins, length: int, basis):
    """Diagonals of R of every step, (time, excerpt, exponent)."""
    flat = FlatCell(model.cell)

    def push(state, inputs, basis):
        def tangent(column):
            return jax.jvp(lambda state: flat.step(state, inputs), (state,), (column,))[1]

        return jnp.linalg.qr(jax.vmap(tangent, 1, 1)(basis))

    def step(bases, time):
        at = begins + time
        bases, triangles = jax.vmap(push)(before[at], inputs[at], bases)
        return bases, jnp.diagonal(triangles, axis1=-2, axis2=-1)

    return jax.lax.scan(step, jnp.broadcast_to(basis, (len(begins), *basis.shape)), jnp.arange(length))[1]
