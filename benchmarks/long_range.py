"""Who bridges a long lag: Hessian-free optimization and plain SGD on a synthetic task, with the same budget.

    python benchmarks/long_range.py --span 100 --seeds 4 --output results/temporal-order.json

Hessian-free runs first, until it has solved the task or used up `--minutes`. Plain SGD then has, at each of several
learning rates, twice as much time as the longest of the runs that solved it. Time is that of the processor, so that
other work on the machine changes nothing; a result is the share of wrong sequences among 10,000 that nobody was trained
or chosen on. Runs that the output file already holds are not made again.
"""

import os

os.environ["NPROC"] = os.environ["LONGSPAN_THREADS"] = "1"  # as many as the recorded settings say

import dataclasses
import json
import time
from pathlib import Path
from tempfile import TemporaryDirectory

import tyro

from longspan import recipes, runtime
from longspan.config import TrainConfig, as_dict
from longspan.data.synthetic import WRONG_SHARE
from longspan.data.tasks import TaskData
from longspan.evaluation import SplitEvaluator
from longspan.training.loop import train
from longspan.training.runs import Run

LEARNING_RATES = (0.1, 0.03)
START = {"recurrent_init": "normal", "recurrent_scale": 0.8, "input_scale": 0.12, "output_scale": 0.12}
"""Of both methods, so that they differ in nothing but the optimizer."""
NO_END = {"patience": 1_000_000, "max_epochs": 1_000_000}
"""Only a solution or the budget ends a run."""


def attempt(config: TrainConfig, data: TaskData, seconds: float) -> dict:
    """Train until solved or for that much time of the processor, and judge the best weights on the test split."""
    began = time.process_time()
    with TemporaryDirectory() as folder:
        run = Run.create(Path(folder) / "run", config, data.record, {})
        outcome = train(run, data, interrupted=lambda: time.process_time() - began > seconds)
        epochs = run.metrics()
    spent = time.process_time() - began
    error_rate = SplitEvaluator(data, "test").errors(outcome.model)["error_rate"]
    return {
        "seed": config.seed,
        "learning_rate": config.learning_rate if config.optimizer == "sgd" else None,
        "solved": error_rate < WRONG_SHARE,
        "error_rate": error_rate,
        "status": outcome.status,
        "updates": epochs[-1]["step"] if epochs else 0,
        "sequences": len(epochs) * 1000,
        "seconds": round(spent, 1),
    }


def compare(
    task: str = "temporal-order",
    span: int = 100,
    seeds: int = 4,
    minutes: float = 20.0,
    output: Path = Path("results/temporal-order.json"),
) -> None:
    """Write who solved the task from which seed.

    Args:
        task: a synthetic data set.
        span: about how long its sequences are.
        seeds: number of runs of each method, from seed 0 on.
        minutes: time of the processor for one Hessian-free run at most.
        output: file of the results, rewritten after every run.
    """
    data = TaskData(task, span)
    settings = {
        method: dataclasses.replace(recipes.settings(method, task, data.kind), span=span, **START, **NO_END)
        for method in ("hf", "sgd")
    }
    results: dict[str, list[dict]] = {"hf": [], "sgd": []}
    if output.exists():
        earlier = json.loads(output.read_text())
        if (earlier["task"], earlier["span"]) == (task, span):
            results = earlier["runs"]

    def record(method: str, config: TrainConfig, seconds: float) -> None:
        rate = config.learning_rate if method == "sgd" else None
        if any((run["seed"], run["learning_rate"]) == (config.seed, rate) for run in results[method]):
            return
        results[method].append(attempt(config, data, seconds))
        print(method, results[method][-1], flush=True)
        solved = {name: _solved(runs) for name, runs in results.items()}
        document = {
            "task": task,
            "span": span,
            "seeds_solved": solved,
            "runs": results,
            "settings": {name: as_dict(config) for name, config in settings.items()},
            "machine": runtime.describe(1),
        }
        output.parent.mkdir(parents=True, exist_ok=True)
        output.write_text(json.dumps(document, indent=1) + "\n")

    for seed in range(seeds):
        record("hf", dataclasses.replace(settings["hf"], seed=seed), 60 * minutes)
    longest = max((run["seconds"] for run in results["hf"] if run["solved"]), default=60 * minutes)
    for rate in LEARNING_RATES:
        for seed in range(seeds):
            record("sgd", dataclasses.replace(settings["sgd"], seed=seed, learning_rate=rate), 2 * longest)


def _solved(runs: list[dict]) -> str:
    seeds = {run["seed"] for run in runs}
    return f"{len({run['seed'] for run in runs if run['solved']})} of {len(seeds)}"


if __name__ == "__main__":
    tyro.cli(compare)
