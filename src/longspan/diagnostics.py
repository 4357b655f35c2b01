"""How gradients travel through time in a trained model (section 2 of the paper): whether they vanish or explode.

The gradient that the loss of step t sends to the state k steps earlier is `(dh_t/dh_{t-k})' dC_t/dh_t`, a product of k
Jacobians. Its mean length over a song, lag by lag, is the profile computed here, for any cell and any output.
"""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Bool, Float

from longspan.data.dataset import Chunks, Dataset
from longspan.models.cells import LeakyCell
from longspan.models.model import SequenceModel
from longspan.ops.recurrence import ACTIVATIONS

SPANS = 4
"""Length of the examined excerpt, as a multiple of the largest lag."""
SATURATED = 0.1
"""A unit counts as saturated at a step where its slope is below this fraction of the steepest slope."""


@dataclass(frozen=True)
class GradientFlow:
    """Gradient statistics of a model on one sequence.

    Attributes:
        profile: mean norm of the gradient that a step's loss sends k steps back, for k = 0, 1, ...
        half_life: lag at which the profile has fallen to half its value at lag 0; None if it does not within the lags.
        spectral_radius: largest absolute eigenvalue of the recurrent matrix.
        mean_jacobian_radius: the same for the mean one-step Jacobian, which is what actually multiplies gradients.
        saturated: fraction of units and steps with a nearly flat slope; for rectifiers, those switched off.
        dead: fraction of units whose slope is zero throughout the sequence.
    """

    profile: list[float]
    half_life: int | None
    spectral_radius: float | None
    mean_jacobian_radius: float
    saturated: float | None
    dead: float | None

    @property
    def verdict(self) -> str:
        """Describe the profile in one sentence."""
        start, end = self.profile[0], self.profile[-1]
        lag = len(self.profile) - 1
        if end > start:
            return f"gradients grow: after {lag} steps they are {end / start:.3g} times as long"
        if self.half_life is None:
            return f"gradients last: after {lag} steps {end / start:.0%} of their length is left"
        return (
            f"gradients vanish: half is gone after {self.half_life} steps, {end / start:.2g} of them left after {lag}"
        )


def gradient_flow(model: SequenceModel, chunk: Chunks, lags: int) -> GradientFlow:
    """Examine a model on one lane of one chunk.

    Args:
        model: any cell with any output.
        chunk: a single chunk (no chunk axis) of one lane, from the start of a song.
        lags: how many steps back to look.
    """
    length = int(chunk.lengths)
    cell = _FlatCell(model)
    states = _walk(cell, chunk.inputs[:length, 0])
    jacobians = jax.vmap(jax.jacobian(cell.step))(states[:-1], jnp.asarray(chunk.inputs[:length, 0]))
    sent = _loss_gradients(cell, states, chunk, length)
    profile = _profile(sent, jacobians, np.asarray(chunk.mask)[:length, 0], min(lags, length - 1))
    halved = [lag for lag, value in enumerate(profile) if value <= profile[0] / 2]
    saturated, dead = _flatness(model, states, chunk, length)
    return GradientFlow(
        profile=profile,
        half_life=halved[0] if halved else None,
        spectral_radius=_radius(model.cell.recurrent) if isinstance(model.cell, LeakyCell) else None,
        mean_jacobian_radius=_radius(jnp.mean(jacobians, axis=0)),
        saturated=saturated,
        dead=dead,
    )


def longest_chunk(data: Dataset, split: str, lags: int) -> Chunks:
    """A long sequence of a split as one chunk, long enough to contain each lag many times."""
    return data.excerpt(split, SPANS * (lags + 1))


class _FlatCell:
    """A cell whose state, whatever its tree structure, is flattened to one vector."""

    def __init__(self, model: SequenceModel):
        self.model = model
        self.first, self.unravel = ravel_pytree(model.cell.initial_state())

    def step(self, state: Float[Array, " state"], inputs) -> Float[Array, " state"]:
        return ravel_pytree(self.model.cell.step(self.unravel(state), inputs))[0]

    def hidden(self, state: Float[Array, " state"]) -> Float[Array, " hidden"]:
        return self.model.cell.output(self.unravel(state))


def _walk(cell: _FlatCell, inputs) -> Float[Array, "time state"]:
    """All states of one sequence, including the initial one."""

    def step(state, now):
        state = cell.step(state, now)
        return state, state

    _, states = jax.lax.scan(step, cell.first, jnp.asarray(inputs))
    return jnp.concatenate([cell.first[None], states])


def _loss_gradients(cell: _FlatCell, states, chunk: Chunks, length: int) -> Float[Array, "time state"]:
    """The gradient of each step's own loss in the state after that step; zero where nothing is predicted."""
    targets, mask = jnp.asarray(chunk.targets[:length]), jnp.asarray(chunk.mask[:length])

    def total(states):
        hidden = jax.vmap(cell.hidden)(states)[:, None]
        losses = cell.model.output.loss(hidden, targets, jnp.asarray(length), key=jax.random.key(0))
        return jnp.sum(jnp.where(mask, losses, 0))

    return jax.grad(total)(states[1:])


def _profile(
    sent: Float[Array, "time state"],
    jacobians: Float[Array, "time state state"],
    asked: Bool[np.ndarray, " time"],
    lags: int,
) -> list[float]:
    """Mean norms at lags 0 to `lags`, each over the predicting steps that have at least that many steps before them."""
    norms, pulled = [_mean_norm(sent, asked)], sent
    for lag in range(1, lags + 1):
        # The gradient of step t, now at lag - 1, goes through the Jacobian of step t - lag + 1.
        pulled = jnp.einsum("ti,tij->tj", pulled[1:], jacobians[1 : len(sent) - lag + 1])
        if not asked[lag:].any():
            break
        norms.append(_mean_norm(pulled, asked[lag:]))
    return norms


def _mean_norm(gradients: Float[Array, "time state"], asked: Bool[np.ndarray, " time"]) -> float:
    return float(np.linalg.norm(np.asarray(gradients)[asked], axis=-1).mean())


def _flatness(model: SequenceModel, states, chunk: Chunks, length: int) -> tuple[float | None, float | None]:
    if not isinstance(model.cell, LeakyCell):
        return None, None
    cell = model.cell
    drive = cell.drive(jnp.asarray(chunk.inputs[:length, 0]))
    pre_activation = states[:-1] @ cell.recurrent + drive
    function = ACTIVATIONS[cell.activation]
    slope = np.asarray(function.slope(pre_activation, function.value(pre_activation))) / function.steepest
    return float(np.mean(slope < SATURATED)), float(np.mean(slope.max(axis=0) == 0))


def _radius(matrix: Float[Array, "state state"]) -> float:
    return float(np.abs(np.linalg.eigvals(np.asarray(matrix, np.float64))).max())
