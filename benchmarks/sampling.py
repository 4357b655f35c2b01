"""What a temperature does to music: silence, notes, likelihood and variety of samples of trained runs.

    python -m benchmarks.sampling RUN... [--temperatures 0.5 0] [--seeds 0 1 2] > results/sampling.json

For every run and temperature, 16 samples of 256 frames for each seed; means over the seeds. Runs with a memory are
sampled without and with it. The likelihood is that of the model, or of the model with its memory, at temperature 1.
Acceptance at each lower temperature, compared with 1: silent frames within 5 points, notes a frame within 10 %, a
higher likelihood, at least half as many distinct frames.
"""

import argparse
import json
import sys
from pathlib import Path

import jax
import numpy as np

from longspan.data.music import MusicData
from longspan.evaluation import SplitEvaluator
from longspan.memory import memory_of
from longspan.memory.interface import Memory
from longspan.models.model import SequenceModel
from longspan.sampling.generate import generate
from longspan.training.runs import Run
from longspan.training.setup import trained_model

SAMPLES, FRAMES = 16, 256


def figures(model: SequenceModel, memory: Memory | None, drawn: np.ndarray) -> dict[str, float]:
    """Shares and means over the frames of some samples, samples x time x keys."""
    songs = list(drawn)
    data = MusicData("samples", {"train": songs, "valid": songs, "test": songs}, frames_per_beat=1)
    if memory is None:
        log_likelihood = SplitEvaluator(data, "test").log_likelihood(model)
    else:
        log_likelihood = memory.recollect(model, data, "test").scores.log_likelihood
    return {
        "silent": float(1 - drawn.any(axis=2).mean()),
        "notes": float(drawn.sum(axis=2).mean()),
        "log_likelihood": log_likelihood,
        "distinct": len(np.unique(drawn.reshape(-1, drawn.shape[2]), axis=0)),
        "still": float((drawn[:, 1:] == drawn[:, :-1]).all(axis=2).mean()),
    }


def measure(model: SequenceModel, memory: Memory | None, temperature: float, seeds: list[int]) -> dict[str, float]:
    """Means over seeds."""
    proposal = None if memory is None else memory.proposal()
    options = {"length": FRAMES, "num": SAMPLES, "temperature": temperature, "proposal": proposal}
    drawn = [generate(model, key=jax.random.key(seed), **options) for seed in seeds]
    each = [figures(model, memory, one) for one in drawn]
    return {name: round(float(np.mean([one[name] for one in each])), 4) for name in each[0]}


def accepted(safer: dict[str, float], plain: dict[str, float]) -> bool:
    """Whether samples at a lower temperature are like those at 1, but likelier."""
    return (
        abs(safer["silent"] - plain["silent"]) <= 0.05
        and abs(safer["notes"] / plain["notes"] - 1) <= 0.1
        and safer["log_likelihood"] > plain["log_likelihood"]
        and safer["distinct"] >= plain["distinct"] / 2
    )


def rows_of(run: Run, temperatures: list[float], seeds: list[int]) -> list[dict]:
    """A row for every temperature, without and with memory; temperature 1 is always measured."""
    model, rows = trained_model(run), []
    for memory in (None,) if run.memory_name is None else (None, memory_of(run)):
        plain = measure(model, memory, 1.0, seeds)
        about = {"data": run.config.data, "recipe": run.config.recipe, "memory": memory is not None}
        rows.append(about | {"temperature": 1.0, "seeds": len(seeds)} | plain)
        for temperature in temperatures:
            found = measure(model, memory, temperature, seeds)
            row = about | {"temperature": temperature, "seeds": len(seeds)} | found
            rows.append(row | {"accepted": accepted(found, plain)})
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", type=Path, nargs="+")
    parser.add_argument("--temperatures", type=float, nargs="+", default=[0.5, 0.0], help="below 1")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    given = parser.parse_args()
    rows = [row for run in map(Run.open, given.runs) for row in rows_of(run, given.temperatures, given.seeds)]
    json.dump(rows, sys.stdout, indent=1)
    print()


if __name__ == "__main__":
    main()
