"""One update of RNN-NADE, 200 units and NADE of 150, one sequence: against PyTorch in its dense and its ragged form."""

import dataclasses

from longspan import recipes

from . import ours, peers
from .contest import ratios, seconds_per_update

UNITS, NADE_UNITS, CHUNKS = 200, 150, 16


def measure() -> dict:
    """Seconds of one update."""
    config = dataclasses.replace(
        recipes.settings("nade:sgd+cm", "random", "frames"),
        activation="tanh",
        dropout=0.0,
        hidden_size=UNITS,
        nade_size=NADE_UNITS,
        block=CHUNKS,
    )
    data = ours.random_songs(1, CHUNKS * config.chunk_length)
    chunks = ours.ChunkSource(config, data).epoch(0)
    sizes = (chunks.inputs, chunks.targets, UNITS, NADE_UNITS)
    seconds = seconds_per_update(
        {
            "longspan": ours.training(config, data),
            "longspan in XLA": ours.training(config, data, "xla"),
            "PyTorch dense": peers.nade_training(*sizes, ragged=False),
            "PyTorch ragged": peers.nade_training(*sizes, ragged=True),
        }
    )
    return {"units": UNITS, "nade_units": NADE_UNITS, "seconds": seconds, "ratios": ratios(seconds)}


def table(figures: dict) -> list[list[str]]:
    """Milliseconds, and how many times ours."""
    rows = [["contestant", "ms", "times ours"]]
    for name, seconds in figures["seconds"].items():
        rows.append([name, f"{1e3 * seconds:.2f}", f"{seconds / figures['seconds']['longspan']:.1f}x"])
    return rows
