"""From the iterates of conjugate gradient to a step that lowers the objective, or to none.

The quadratic is minimised further and further along the iterates, the objective need not be: first walk back
over the saved iterates while the objective falls, then shorten the step until it falls enough.
"""

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

from jaxtyping import PyTree

from longspan.optim.conjugate_gradient import Iterate


class Chosen(NamedTuple):
    """The iterate to step along, and how many saved ones were left behind it."""

    iterate: Iterate
    backtracks: int


class LineSearch(NamedTuple):
    """The share of the step that is taken, the objective there, and the objective after the whole step.

    A share of zero means that the step is rejected.
    """

    share: float
    value: float
    whole: float


def backtrack(iterates: Sequence[Iterate], objective: Callable[[PyTree], float]) -> Chosen | None:
    """Walk from the last iterate to earlier ones for as long as the objective falls.

    Only iterates where the quadratic is negative are looked at: with positive semi-definite curvature these
    are the ones certain to be directions of descent. `None` if there is none. An objective that is not a
    number loses against any other.

    Args:
        iterates: in the order they were made.
        objective: of a step from the current parameters.
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
    """The largest share `shrink^j` of a step that lowers the objective by enough.

    Enough is a part of what the slope promises (Armijo): `objective(share) <= before + sufficient * share *
    slope`.

    Args:
        objective: of a share of the step, 1 being all of it.
        before: the objective without a step.
        slope: its derivative along the whole step, negative.
        shrink: factor between two shares tried.
        tries: shares tried before the step is rejected.
        sufficient: the part of the slope that must be achieved.

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
