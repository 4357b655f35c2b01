"""What a temperature does to music: silence, notes, likelihood and variety of samples of trained runs.

    python -m benchmarks.sampling RUN... [--memory] [--temperatures 1 0.5 0] [--seeds 0 1]

For every run and temperature, 16 samples of 256 frames for each seed; means over the seeds. The likelihood is that of
the model at temperature 1, with which the samples were not drawn unless that is theirs.
"""

import argparse
import json
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

from longspan.memory import proposal_of
from longspan.sampling.generate import generate
from longspan.training.runs import Run
from longspan.training.setup import trained_model

SAMPLES, FRAMES = 16, 256


def figures(model, drawn: np.ndarray) -> dict[str, float]:
    """Shares and means over the frames of some samples, samples x time x keys."""
    steps = jnp.asarray(np.moveaxis(drawn, 1, 0))
    inputs = jnp.concatenate([jnp.zeros_like(steps[:1]), steps[:-1]])
    length = jnp.asarray(len(steps), jnp.int32)
    _, hidden = model.run(model.start(len(drawn)), inputs, jnp.zeros(inputs.shape[:2], bool), length)
    likelihood = model.output.log_prob(hidden, steps, length, key=jax.random.key(0))
    sounding = drawn.any(axis=2)
    return {
        "silent": float(1 - sounding.mean()),
        "notes": float(drawn.sum(axis=2).mean()),
        "log_likelihood": float(likelihood.mean()),
        "distinct": len(np.unique(drawn.reshape(-1, drawn.shape[2]), axis=0)),
        "still": float((drawn[:, 1:] == drawn[:, :-1]).all(axis=2).mean()),
    }


def measure(run: Run, temperature: float, seeds: list[int], *, memory: bool) -> dict[str, float]:
    """Means over seeds."""
    model, proposal = trained_model(run), proposal_of(run) if memory else None
    each = [
        figures(
            model,
            generate(
                model,
                length=FRAMES,
                num=SAMPLES,
                key=jax.random.key(seed),
                temperature=temperature,
                proposal=proposal,
            ),
        )
        for seed in seeds
    ]
    return {name: float(np.mean([one[name] for one in each])) for name in each[0]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("runs", type=Path, nargs="+")
    parser.add_argument("--memory", action="store_true")
    parser.add_argument("--temperatures", type=float, nargs="+", default=[1.0, 0.5, 0.0])
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1])
    given = parser.parse_args()
    rows = [
        {"data": run.config.data, "temperature": temperature, "memory": given.memory}
        | measure(run, temperature, given.seeds, memory=given.memory)
        for run in map(Run.open, given.runs)
        for temperature in given.temperatures
    ]
    json.dump(rows, sys.stdout, indent=1)


if __name__ == "__main__":
    main()
