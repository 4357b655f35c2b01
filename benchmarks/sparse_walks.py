"""Walks through time, the gradient of U and its update where few rectifiers are on, beside the same with every unit on.

One lane, or several, of 100 steps. `fresh`: every step draws its active units anew, so that their rows come from far
away and all rows are reached; `lasting`: they stay the same, so that the rows stay in a near cache, and no others are
reached. Trained networks are in between: in a chunk of 100 steps they reach 4 to 15 % of 2,000 units, of which 0.5 to
1 % are on at a step. The walk itself chooses between the active rows and the whole matrix. "Bound" is the least time
that all of it can take with float32: the bytes that must move, by how fast a core reads them from where they lie.

`updates` are those of training: RNN-NADE with rectifiers on JSB after some epochs, beside a dense network with tanh.
"""

import dataclasses
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from longspan import data as data_room
from longspan import recipes
from longspan.data.music import MusicData
from longspan.ops import lagging, recurrence, update

from . import bounds, ours
from .contest import Turn, on_processor_clock, seconds_per_update, threads

TIME = 100
DENSE = 400
"""Units of the dense walk that larger sparse ones are compared with."""
CASES: list[tuple[int, int, float, str]] = [
    (1, 200, 1.0, "all"),
    (1, 200, 0.04, "fresh"),
    (1, DENSE, 1.0, "all"),
    (1, 1000, 1.0, "all"),
    (1, 1000, 0.05, "fresh"),
    (1, 1000, 0.05, "lasting"),
    (1, 2000, 0.05, "fresh"),
    (1, 2000, 0.05, "lasting"),
    (1, 2000, 0.01, "fresh"),
    (8, 200, 1.0, "all"),
    (8, 200, 0.04, "fresh"),
    (8, 1000, 1.0, "all"),
    (8, 1000, 0.05, "fresh"),
]
TRAINED_EPOCHS = 12
UPDATES: list[tuple[int, str]] = [(200, "rectifier"), (DENSE, "tanh"), (1000, "rectifier"), (2000, "rectifier")]


def turns(lanes: int, units: int, share: float, which: str) -> dict[str, Turn]:
    """Forward walk, walk back, gradient of U, and update of U, each a turn."""
    rng = np.random.default_rng(0)
    on = rng.random((1 if which == "lasting" else TIME, 1 if which == "lasting" else lanes, units)) < share
    drive = np.where(on, 1.0, -5.0) + 0.01 * rng.normal(size=(TIME, lanes, units))
    recurrent = 0.1 * rng.normal(size=(units, units)) / units**0.5
    steps, matrix, cotangent = (jnp.asarray(a, jnp.float32) for a in (drive, recurrent, rng.normal(size=drive.shape)))
    nothing, resets = jnp.zeros((lanes, units)), jnp.zeros((TIME, lanes), bool)
    length, leak = jnp.asarray(TIME, jnp.int32), jnp.zeros(units)
    forward = jax.jit(partial(recurrence.forward, activation="rectifier" if share < 1 else "tanh"))
    back = jax.jit(recurrence.adjoint)
    walked = (steps, nothing, matrix, leak, resets, length)
    hidden, gain = forward(*walked)
    errors = back(matrix, leak, gain, resets, length, cotangent)
    before = recurrence.previous_states(nothing, hidden, resets)

    def turn(function, *operands) -> int:
        jax.block_until_ready(function(*operands))
        return 1

    outer = jax.jit(lagging.outer_rows if share < 1 else recurrence.previous_outer)
    operands = (before, length, errors) if share < 1 else (nothing, hidden, resets, length, errors)
    return {
        "forward": partial(turn, forward, *walked),
        "backward": partial(turn, back, matrix, leak, gain, resets, length, cotangent),
        "gradient": partial(turn, outer, *operands),
        "update": _updating(matrix, outer(*operands), sparse=share < 1),
    }


def _updating(matrix, gradient, *, sparse: bool) -> Turn:
    """Updates of U with momentum, in place as in training."""
    momenta = jnp.asarray([[0.81, 0.9]])
    numbers = {"learning_rate": 1e-4, "momentum_previous": 0.9, "momentum_next": 0.9, "threshold": 1.0}

    def by_rows(weights, velocity, rows, reached):
        moved, now = jnp.zeros(len(weights), jnp.int32), jnp.zeros((), jnp.int32)
        rate_and_stride = jnp.asarray([1e-4, 1.9e-4])
        return lagging.descend_rows(weights, velocity, moved, momenta, now, rows, reached, rate_and_stride)[:2]

    def whole(weights, velocity, gradient):
        moved, faster, *_ = update.clip_nesterov([weights], [velocity], [gradient], **numbers)
        return moved[0], faster[0]

    step = jax.jit(by_rows if sparse else whole, donate_argnums=(0, 1))
    running = (jnp.array(matrix), jnp.zeros_like(matrix))
    given = (gradient[0], gradient[2]) if sparse else (gradient,)

    def turn() -> int:
        nonlocal running
        running = jax.block_until_ready(step(*running, *given))
        return 1

    return turn


def training(units: int, activation: str) -> Turn:
    """Updates of a network that was trained a little, until its rectifiers are as sparse as they will be."""
    recipe = "nade:sgd+crm" if activation == "rectifier" else "nade:sgd+cm"
    config = dataclasses.replace(recipes.settings(recipe, "jsb"), hidden_size=units, threads=threads())
    data = data_room.load("jsb")
    assert isinstance(data, MusicData)
    contestant = ours.training(config, data, fresh=True)
    chunks = len(ours.ChunkSource(config, data).epoch(0).lengths)
    done = 0
    while done < TRAINED_EPOCHS * chunks:
        done += contestant()
    return contestant.turn


def least_seconds(units: int, share: float, which: str) -> float:
    """The least time of both walks and the update of U, for one lane with some units active at every step.

    Forward a step reads the rows of its active units; back it needs, of these rows, the lines of a cache that hold one
    of its active columns. The update reads and writes weights and velocities of the rows that any step reached. That
    the gradient is formed at all, and what else a step reads and writes, counts nothing.
    """
    active = share * units
    line = 16  # numbers
    lines = units / line * (1 - (1 - share) ** line)
    rows = active if which == "lasting" else units * (1 - (1 - share) ** TIME)
    of_walks = bounds.gigabytes(int(4 * (active if which == "lasting" else units) * units))
    of_update = bounds.gigabytes(int(2 * 4 * rows * units))
    read = 4e-9 * TIME * active * (units + line * lines)
    return read / of_walks + 4 * 4e-9 * rows * units / of_update


def measure() -> dict:
    """Seconds of each part, by lanes, units, share of active ones and how they are chosen; seconds of an update."""
    walks = []
    for lanes, units, share, which in CASES:
        seconds = seconds_per_update(turns(lanes, units, share, which))
        walks.append(
            {
                "lanes": lanes,
                "units": units,
                "active": share,
                "which": which,
                "seconds": seconds,
                "bound_seconds": least_seconds(units, share, which) if lanes == 1 and share < 1 else None,
            }
        )
    contest = {f"{units} {activation}": training(units, activation) for units, activation in UPDATES}
    return {"walks": walks, "updates": seconds_per_update(contest), "processor_clock": on_processor_clock()}


def table(figures: dict) -> list[list[str]]:
    """Microseconds, and how often a sparse case fits into the dense one of its size and into that of 400 units."""
    rows = [["lanes", "units", "active", "which", "forward", "backward", "gradient", "update", "together us"]]
    rows[0] += ["dense", f"dense {DENSE}", "bound"]
    together = {
        (walk["lanes"], walk["units"]): sum(walk["seconds"].values())
        for walk in figures["walks"]
        if walk["active"] == 1
    }
    for walk in figures["walks"]:
        parts = [1e6 * seconds for seconds in walk["seconds"].values()]
        shown = [f"{part:,.0f}" for part in (*parts, sum(parts))]
        dense = together.get((walk["lanes"], walk["units"]))
        ratios = [
            f"{1e6 * one / sum(parts):.2f}x" if one else "" for one in (dense, together.get((walk["lanes"], DENSE)))
        ]
        bound = f"{1e6 * walk['bound_seconds']:,.0f}" if walk["bound_seconds"] else ""
        rows.append(
            [str(walk["lanes"]), str(walk["units"]), f"{walk['active']:.0%}", walk["which"], *shown, *ratios, bound]
        )
    for name, seconds in figures["updates"].items():
        rows.append(["", name.split()[0], "", f"{name.split()[1]} training", "", "", "", "", f"{1e6 * seconds:,.0f}"])
    return rows
