"""Step size control: backtracking, line search, and adjustment of the damping."""

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

from jaxtyping import PyTree

from longspan.optim.conjugate_gradient import Iterate


class Chosen(NamedTuple):
    """The iterate chosen as the step, and the number of later saved iterates."""

    iterate: Iterate
    backtracks: int


class LineSearch(NamedTuple):
    """The fraction of the step that is taken, the objective there, and the objective after the whole step.

    A fraction of zero means that the step is rejected.
    """

    share: float
    value: float
    whole: float


def backtrack(iterates: Sequence[Iterate], objective: Callable[[PyTree], float]) -> Chosen | None:
    """Go back from the last iterate to earlier ones as long as the objective falls.

    Only iterates where the quadratic is negative are considered: with positive semi-definite curvature these are
    certain to be descent directions. Returns `None` if there are none. An objective of NaN is worse than any other.

    Args:
        iterates: in the order in which they were made.
        objective: the objective as a function of the step from the current parameters.
    """
    useful = [iterate for iterate in iterates if iterate.value < 0]
    if not useful:
        return None
    best = len(useful) - 1
    lowest = objective(useful[best].solution)
    while best > 0:
        value = objective(useful[best - 1].solution)
        if not value < lowest and math.isfinite(lowest):
            break
        best, lowest = best - 1, value
    return Chosen(useful[best], len(useful) - 1 - best)


def line_search(
    objective: Callable[[float], float],
    before: float,
    slope: float,
    *,
    shrink: float = 0.8,
    tries: int = 30,
    sufficient: float = 0.01,
) -> LineSearch:
    """Find the largest fraction `shrink^j` of a step that lowers the objective sufficiently.

    Sufficiently means (Armijo): `objective(share) <= before + sufficient * share * slope`.

    Args:
        objective: the objective as a function of the fraction of the step, from 0 to 1.
        before: the objective without a step.
        slope: its derivative along the whole step, negative.
        shrink: factor between successive fractions.
        tries: number of fractions tried before the step is rejected.
        sufficient: the fraction of the decrease predicted by the slope that must be achieved.

    Example:
        >>> line_search(lambda share: (3 * share - 1) ** 2, before=1.0, slope=-6.0, shrink=0.5)
        LineSearch(share=0.5, value=0.25, whole=4.0)
    """
    values: list[float] = []
    for attempt in range(tries):
        share = shrink**attempt
        values.append(objective(share))
        if values[-1] <= before + sufficient * share * slope:
            return LineSearch(share, values[-1], values[0])
    return LineSearch(0.0, before, values[0])


def reduction_ratio(before: float, after: float, predicted: float) -> float:
    """`rho = (after - before) / predicted`, the actual change over the one the undamped quadratic predicted.

    One means that the model was right, a negative ratio that the step did harm; NaN if no decrease was predicted.
    """
    return (after - before) / predicted if predicted < 0 else math.nan


def adjust_damping(
    damping: float,
    ratio: float,
    *,
    factor: float = 1.5,
    low: float = 0.25,
    high: float = 0.75,
    floor: float = 0.0,
) -> float:
    """The next damping: larger if the model predicted too much, smaller if it was about right.

    Args:
        damping: lambda of the update just made.
        ratio: its `reduction_ratio`; NaN counts as failure.
        factor: lambda is multiplied by it below `low`, divided by it above `high`.
        low: below this ratio the model is trusted less.
        high: above this ratio it is trusted more.
        floor: lower limit of lambda, so that it can recover within a few updates.

    Example:
        >>> adjust_damping(1.0, 0.9), adjust_damping(1.0, 0.5), adjust_damping(1.0, -2.0)
        (0.6666666666666666, 1.0, 1.5)
    """
    if not ratio >= low:
        return damping * factor
    if ratio > high:
        return max(damping / factor, floor)
    return damping
