"""The running mean of weights: where updates are noisy, the middle of their path is better than its end.

Polyak and Juditsky, *Acceleration of stochastic approximation by averaging*, 1992. Not of the paper.
"""

from typing import TypeVar

import jax

Params = TypeVar("Params")

SHARE_OF_ALL = 1 / 4
"""Of all updates so far the mean reaches back over no more than this, for the first ones come from far away."""


def running_mean(mean: Params, params: Params, *, made: int, since: int, reach: float) -> Params:
    r"""The mean, moved towards newer weights as far as its reach allows.

    .. math:: \bar\theta \leftarrow \bar\theta + s (\theta - \bar\theta), \quad
        s = \min\big(1, \text{since} / \min(\text{reach}, \text{made} / 4)\big)

    Args:
        mean: so far.
        params: the weights now.
        made: updates made in all.
        since: how many of them the mean has not seen yet.
        reach: over about how many updates to average, once there were four times as many.

    Example:
        >>> float(running_mean(0.0, 1.0, made=100, since=1, reach=4.0))
        0.25
    """
    return _moved(mean, params, min(1.0, since / min(reach, SHARE_OF_ALL * made)))


@jax.jit
def _moved(mean, params, share):
    return jax.tree.map(lambda old, new: old + share * (new - old), mean, params)
