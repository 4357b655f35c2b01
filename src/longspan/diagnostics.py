"""How gradients travel through time in a trained model (section 2 of the paper): do they vanish, do they explode?

The gradient that the loss of step t sends to the state k steps earlier is `(dh_t/dh_{t-k})' dC_t/dh_t`, a product of k
Jacobians. Its mean length over a song, lag by lag, is the profile computed here, for any cell and any output.
"""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from longspan.data.kinds import Data
from longspan.data.music import MusicData
from longspan.data.sequences import Chunks, arrange
from longspan.data.tasks import TaskData
from longspan.models.cells import LeakyCell
from longspan.models.sequence import SequenceModel

SPANS = 4
"""A song is looked at over this many times the largest lag."""
SATURATED = 0.1
"""A unit counts as saturated at a step where its slope is below this share of the steepest."""
STEEPEST = {"tanh": 1.0, "sigmoid": 0.25, "rectifier": 1.0}


@dataclass(frozen=True)
class GradientFlow:
    """What a look inside finds.

    Attributes:
        profile: mean norm of the gradient that a step's loss sends k steps back, for k = 0, 1, ...
        half_life: lag at which it has fallen to half of what it is at lag 0; None if it never does within the lags.
        spectral_radius: largest absolute eigenvalue of the recurrent matrix.
        mean_jacobian_radius: that of the mean one-step Jacobian, which is what actually multiplies gradients.
        saturated: share of units and steps whose slope is nearly flat; for rectifiers, those switched off.
        dead: share of units that never had a slope in the whole song.
    """

    profile: list[float]
    half_life: int | None
    spectral_radius: float | None
    mean_jacobian_radius: float
    saturated: float | None
    dead: float | None

    @property
    def verdict(self) -> str:
        """The profile in a sentence."""
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
    states, hidden = _walk(model, chunk.inputs[:length, 0])
    sent = _loss_gradients(model, states, hidden, chunk, length)
    jacobians = jax.vmap(jax.jacobian(model.cell.step))(
        jax.tree.map(lambda leaf: leaf[:-1], states), jnp.asarray(chunk.inputs[:length, 0])
    )
    profile = _profile(sent, jacobians, min(lags, length - 1))
    halved = [lag for lag, value in enumerate(profile) if value <= profile[0] / 2]
    saturated, dead = _flatness(model, states, chunk, length)
    recurrent = getattr(model.cell, "recurrent", None)
    return GradientFlow(
        profile=profile,
        half_life=halved[0] if halved else None,
        spectral_radius=None if recurrent is None else _radius(recurrent),
        mean_jacobian_radius=_radius(jnp.mean(jacobians, axis=0)),
        saturated=saturated,
        dead=dead,
    )


def longest_chunk(data: Data, split: str, lags: int) -> Chunks:
    """The longest song of a split, or the beginning of its text, as one chunk that shows each lag many times.

    Of a synthetic task it is a single sequence, however short.
    """
    steps = SPANS * (lags + 1)
    if isinstance(data, TaskData):
        chunks = data.judged_chunks(split, lanes=1)
    elif isinstance(data, MusicData):
        chunks = arrange([max(data.splits[split], key=len)[:steps]], steps)
    else:
        chunks = arrange(data.splits[split][:steps], steps, end_token=data.end_token)
    return Chunks(*(leaf[0] for leaf in chunks))


def _walk(model: SequenceModel, inputs):
    """All states of one sequence, the first one included, and the hidden vectors after each step."""

    def step(state, now):
        state = model.cell.step(state, now)
        return state, (state, model.cell.output(state))

    first = model.cell.initial_state()
    _, (states, hidden) = jax.lax.scan(step, first, jnp.asarray(inputs))
    return jax.tree.map(lambda one, rest: jnp.concatenate([one[None], rest]), first, states), hidden


def _loss_gradients(model: SequenceModel, states, hidden, chunk: Chunks, length: int) -> Float[Array, "time state"]:
    """What each step's own loss says to the state after that step."""
    targets = jnp.asarray(chunk.targets[:length])

    def total(states):
        hidden = jax.vmap(model.cell.output)(states)[:, None]
        return jnp.sum(model.output.loss(hidden, targets, jnp.asarray(length), key=jax.random.key(0)))

    return jax.grad(total)(jax.tree.map(lambda leaf: leaf[1:], states))


def _profile(sent: Float[Array, "time state"], jacobians: Float[Array, "time state state"], lags: int) -> list[float]:
    """Mean norms at lags 0 to `lags`, each over the steps that have that many before them."""
    norms = [float(jnp.mean(jnp.linalg.norm(sent, axis=-1)))]
    pulled = sent
    for lag in range(1, lags + 1):
        # The gradient of step t, now at lag - 1, goes through the Jacobian of step t - lag + 1.
        pulled = jnp.einsum("ti,tij->tj", pulled[1:], jacobians[1 : len(sent) - lag + 1])
        norms.append(float(jnp.mean(jnp.linalg.norm(pulled, axis=-1))))
    return norms


def _flatness(model: SequenceModel, states, chunk: Chunks, length: int) -> tuple[float | None, float | None]:
    if not isinstance(model.cell, LeakyCell):
        return None, None
    cell = model.cell
    drive = cell.drive(jnp.asarray(chunk.inputs[:length, 0]))
    pre_activation = states[:-1] @ cell.recurrent + drive
    slope = np.asarray(jax.vmap(jax.vmap(jax.grad(cell.activate)))(pre_activation)) / STEEPEST[cell.activation]
    return float(np.mean(slope < SATURATED)), float(np.mean(slope.max(axis=0) == 0))


def _radius(matrix: Float[Array, "state state"]) -> float:
    return float(np.abs(np.linalg.eigvals(np.asarray(matrix, np.float64))).max())
