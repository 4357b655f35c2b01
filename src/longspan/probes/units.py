"""What the recurrent units do on a split: whether they respond, move, and span more than a few directions.

`Watch` measures some of it after every epoch.
"""

from typing import Literal, Protocol, runtime_checkable

import equinox as eqx
import jax
import jax.numpy as jnp
import msgspec
import numpy as np
from jaxtyping import Array, Float, PyTree, Shaped

from longspan.bounds import Share, Size, Text, Whole
from longspan.data.dataset import Dataset
from longspan.models.model import SequenceModel
from longspan.models.parts import Cell
from longspan.probes.gradients import gradient_by_lag
from longspan.probes.steps import FlatCell, Steps, Walk, steps_of, walk

FLAT = 0.1
"""A unit counts as flat at a step where its slope is below this fraction of the steepest slope."""
STILL = 1e-5
"""A unit whose output stays within this range over all steps never moves."""
WATCHED_STEPS, WATCHED_GRADIENTS = 2000, 128


@runtime_checkable
class Sloped(Protocol):
    """A cell that can say how steep its units are; any cell may, and training never asks."""

    def slopes(self, state: PyTree, inputs: Shaped[Array, "..."]) -> Float[Array, " unit"]:
        """How steep each nonlinearity is in this step, from 0 (flat) to 1 (its steepest)."""
        ...

    @property
    def flat_means(self) -> Literal["saturated", "off"]:
        """What a flat slope says about a unit: a rectifier is off, which is its way to be sparse."""
        ...


class Units(msgspec.Struct, frozen=True):
    """The hidden units over all steps examined.

    Attributes:
        count: number of units the output sees.
        dead: fraction of units that never move.
        effective_rank: number of directions the hidden vectors span, exp of the entropy of their singular values.
        flat: fraction of units and steps with a nearly flat slope; None if the cell does not say.
        flat_means: what a flat slope is for this cell: `saturated`, or `off` for rectifiers.
        typical_size: root of the mean square of a unit's output.
    """

    count: Whole
    dead: Share
    effective_rank: Size
    flat: Share | None
    flat_means: Text
    typical_size: Size


def units(model: SequenceModel, steps: Steps, walked: Walk) -> Units:
    """Measure what the units do, at steps where no state overflowed."""
    everywhere = np.asarray(walked.hidden, np.float64)
    hidden = everywhere[np.isfinite(everywhere).all(axis=1)]
    sloped = model.cell if isinstance(model.cell, Sloped) else None
    slopes = None if sloped is None else np.asarray(_slopes(model.cell, jnp.asarray(steps.inputs), walked.before))
    return Units(
        count=hidden.shape[1],
        dead=dead_share(hidden),
        effective_rank=effective_rank(hidden),
        flat=None if slopes is None else float(np.mean(slopes < FLAT)),
        flat_means="saturated" if sloped is None else sloped.flat_means,
        typical_size=float(np.sqrt(np.mean(np.square(hidden)))) if len(hidden) else 0.0,
    )


def dead_share(hidden: np.ndarray) -> float:
    """Fraction of units whose output is the same at all steps."""
    return 0.0 if len(hidden) == 0 else float(np.mean(np.ptp(hidden, axis=0) <= STILL))


def effective_rank(hidden: np.ndarray) -> float:
    """The exponential of the entropy of the normalized singular values of the centered states (Roy and Vetterli)."""
    if len(hidden) == 0:
        return 0.0
    values = np.sqrt(
        np.maximum(np.linalg.eigvalsh(np.cov(hidden, rowvar=False, bias=True).reshape(hidden.shape[1], -1)), 0)
    )
    if values.sum() <= 0:
        return 0.0
    shares = values[values > 0] / values.sum()
    return float(np.exp(-np.sum(shares * np.log(shares))))


@eqx.filter_jit
def _slopes(cell: Cell, inputs, before):
    assert isinstance(cell, Sloped)
    flat = FlatCell(cell)
    return jax.vmap(lambda state, inputs: cell.slopes(flat.unravel(state), inputs))(before, inputs)


class Watch:
    """Measures the gradient by lag and the dead units of a model in training, always on the same steps.

    Args:
        data: the data set, of which the validation split is used.
        lags: how many steps back gradients are followed.
    """

    def __init__(self, data: Dataset, lags: int):
        self.steps, self.lags = steps_of(data, "valid", WATCHED_STEPS), lags

    def __call__(self, model: SequenceModel) -> dict:
        """The figures of a model, for the record of an epoch."""
        walked = walk(model, self.steps)
        norms = gradient_by_lag(model, self.steps, walked, lags=self.lags, most=WATCHED_GRADIENTS).norms
        shown = [0, *(2**power for power in range(len(norms).bit_length()))]
        return {
            "gradient_by_lag": {str(lag): float(f"{norms[lag]:.6g}") for lag in shown if lag < len(norms)},
            "dead_units": dead_share(np.asarray(walked.hidden)),
        }
