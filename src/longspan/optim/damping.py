"""How far the quadratic model is trusted: the Levenberg-Marquardt rule for the damping lambda."""

import math


def reduction_ratio(before: float, after: float, predicted: float) -> float:
    """`rho = (after - before) / predicted`: what a step did over what the undamped quadratic promised.

    One means the model was right, zero or less that the step did harm; not a number if nothing was promised.
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
    """The next damping: more where the model promised too much, less where it was about right.

    Args:
        damping: lambda of the update just made.
        ratio: its `reduction_ratio`; anything that is not a number counts as failure.
        factor: lambda is multiplied by it below `low`, divided by it above `high`.
        low: below this ratio the model is trusted less.
        high: above this ratio it is trusted more.
        floor: lambda never falls below this, so that it can come back within a few updates.

    Example:
        >>> adjust_damping(1.0, 0.9), adjust_damping(1.0, 0.5), adjust_damping(1.0, -2.0)
        (0.6666666666666666, 1.0, 1.5)
    """
    if not ratio >= low:
        return damping * factor
    if ratio > high:
        return max(damping / factor, floor)
    return damping
