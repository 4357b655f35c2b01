"""Walks through time and the gradient of U where few rectifiers are on, beside the same with every unit active.

One lane of 100 steps. `fresh`: every step draws its active units anew, so that their rows come from far away;
`lasting`: they stay the same, so that the rows stay in a near cache. Trained networks are in between. The walk itself
chooses between the active rows and the whole matrix.
"""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from longspan.ops import recurrence

from .contest import Turn, seconds_per_update

TIME = 100
CASES: list[tuple[int, float, str]] = [
    (200, 1.0, "all"),
    (200, 0.2, "fresh"),
    (200, 0.04, "fresh"),
    (400, 1.0, "all"),
    (1000, 1.0, "all"),
    (1000, 0.05, "fresh"),
    (1000, 0.05, "lasting"),
    (2000, 0.05, "fresh"),
    (2000, 0.05, "lasting"),
]


def turns(units: int, share: float, which: str) -> dict[str, Turn]:
    """Forward walk, walk back, and the gradient of U, each a turn."""
    rng = np.random.default_rng(0)
    on = rng.random((1 if which == "lasting" else TIME, 1, units)) < share
    drive = np.where(on, 1.0, -5.0) + 0.01 * rng.normal(size=(TIME, 1, units))
    recurrent = 0.1 * rng.normal(size=(units, units)) / units**0.5
    steps, matrix, cotangent = (jnp.asarray(a, jnp.float32) for a in (drive, recurrent, rng.normal(size=drive.shape)))
    nothing, resets, length = jnp.zeros((1, units)), jnp.zeros((TIME, 1), bool), jnp.asarray(TIME, jnp.int32)
    leak = jnp.zeros(units)
    forward = jax.jit(partial(recurrence.forward, activation="rectifier" if share < 1 else "tanh"))
    back, outer = jax.jit(recurrence.adjoint), jax.jit(recurrence.previous_outer)
    walked = (steps, nothing, matrix, leak, resets, length)
    hidden, gain = forward(*walked)
    errors = back(matrix, leak, gain, resets, length, cotangent)

    def turn(function, *operands) -> int:
        jax.block_until_ready(function(*operands))
        return 1

    return {
        "forward": partial(turn, forward, *walked),
        "backward": partial(turn, back, matrix, leak, gain, resets, length, cotangent),
        "gradient": partial(turn, outer, nothing, hidden, resets, length, errors),
    }


def measure() -> dict:
    """Seconds of each part, by units, share of active ones, and how they are chosen."""
    return {
        "walks": [
            {"units": units, "active": share, "which": which, "seconds": seconds_per_update(turns(units, share, which))}
            for units, share, which in CASES
        ]
    }


def table(figures: dict) -> list[list[str]]:
    """Microseconds."""
    rows = [["units", "active", "which", "forward us", "backward us", "gradient us", "together us"]]
    for walk in figures["walks"]:
        parts = [1e6 * seconds for seconds in walk["seconds"].values()]
        shown = [f"{part:,.0f}" for part in (*parts, sum(parts))]
        rows.append([str(walk["units"]), f"{walk['active']:.0%}", walk["which"], *shown])
    return rows
