"""One update of a tanh network: forward, loss, backward, clip, Nesterov; for each regime of batch and units.

Music has 88 keys and chunks of 100 frames, characters 50 symbols and chunks of 150.
"""

import dataclasses
from collections.abc import Sequence

from longspan import recipes

from . import ours, peers, plain_jax
from .contest import ratios, seconds_per_update

MUSIC = [(1, 100), (1, 200), (1, 400), (8, 200), (16, 200), (64, 200)]
CHARACTERS = [(1, 500), (16, 500), (64, 500)]
SYMBOLS = 50
NAMES = ("longspan", "longspan in XLA", "JAX scan", "PyTorch eager")


def contestants(batch: int, units: int, characters: bool) -> dict:
    """The same work for everybody, on the same numbers."""
    length, outputs = (150, SYMBOLS) if characters else (100, 88)
    chunks = 32 if batch == 1 else 8 if batch < 64 else 4
    config = dataclasses.replace(
        recipes.settings("sgd+cm", "random", "characters" if characters else "frames"),
        activation="tanh",
        dropout=0.0,
        learning_rate_schedule="constant",
        hidden_size=units,
        lanes=batch,
        block=chunks,
        chunk_length=length,
    )
    steps = chunks * length
    data = ours.random_text(SYMBOLS, batch * steps) if characters else ours.random_songs(batch, steps)
    source = ours.ChunkSource(config, data).epoch(0)
    sizes = (source.inputs, source.targets, units, outputs)
    return {
        "longspan": ours.training(config, data),
        "longspan in XLA": ours.training(config, data, "xla"),
        "JAX scan": plain_jax.training(*sizes),
        "PyTorch eager": peers.training(*sizes),
        "PyTorch compiled": peers.training(*sizes, compiled=True),
    }


def gigaflop(batch: int, units: int, characters: bool) -> float:
    """Multiplications and additions of the matrix products of one step, without the sparse input."""
    length, outputs = (150, SYMBOLS) if characters else (100, 88)
    return 6e-9 * length * batch * units * (units + outputs)


def regime(batch: int, units: int, characters: bool, names: Sequence[str], peak: float) -> dict:
    """One regime: seconds, ratios, and which share of the machine's peak ours reaches."""
    everybody = contestants(batch, units, characters)
    seconds = seconds_per_update({name: everybody[name] for name in names})
    return {
        "data": "characters" if characters else "music",
        "batch": batch,
        "units": units,
        "seconds": seconds,
        "ratios": ratios(seconds),
        "share_of_peak": gigaflop(batch, units, characters) / seconds["longspan"] / peak,
    }


def measure(names: Sequence[str] = NAMES) -> dict:
    """Seconds of one update by regime and contestant."""
    peak = peers.gigaflops()
    sizes = [(*size, False) for size in MUSIC] + [(*size, True) for size in CHARACTERS]
    return {"peak_gigaflops": peak, "regimes": [regime(*size, names, peak) for size in sizes]}


def table(figures: dict) -> list[list[str]]:
    """Milliseconds of ours and how many times as long the others take."""
    others = [name for name in figures["regimes"][0]["seconds"] if name != "longspan"]
    rows = [["batch", "units", "data", "longspan ms", *others, "of peak"]]
    for regime in figures["regimes"]:
        cells = [f"{regime['ratios'][name]:.1f}x" for name in others]
        own = f"{1e3 * regime['seconds']['longspan']:.2f}"
        share = f"{100 * regime['share_of_peak']:.0f} %"
        rows.append([str(regime["batch"]), str(regime["units"]), regime["data"], own, *cells, share])
    return rows
