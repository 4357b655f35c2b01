"""How much faster a search is with K workers than with one: whole studies, interleaved, on the same slots.

    python benchmarks/search_workers.py --workers 2 --data jsb --rounds 3 > results/benchmarks/search_workers.json

Every round runs the same slots twice, by one worker and by K, in alternating order, so that whatever else the machine
does falls on both. Two ratios are given: of the wall-clock time of the whole command (with starting Python, compiling
and idling at the end) and of the training itself (frames per second of all workers together, from the runs' own
timing). A machine that is busy with other work shows smaller ratios than an idle one: look at the load it prints.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from longspan.training.runs import Run
from longspan.training.timing import typical_epoch_seconds


def run_study(arguments: argparse.Namespace, workers: int) -> dict:
    """Run all slots with so many workers; seconds, and epochs per second of all workers together."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "longspan", "search", arguments.recipe, "--data", arguments.data]
        command += ["--trials", str(arguments.slots), "--workers", str(workers), "--study-dir", folder, "--json"]
        command += ["--max-epochs", str(arguments.epochs), "--patience", "1000", "--hidden-size", "200"]
        space = Path(folder) / "space.toml"
        space.write_text("seed = { start = 0 }\n")  # the same work in every slot
        began = time.monotonic()
        subprocess.run([*command, "--space", str(space)], check=True, stdout=subprocess.DEVNULL)
        seconds = time.monotonic() - began
        runs = [Run.open(path) for path in sorted(Path(folder).glob("trials/*"))]
        speeds = [1 / (typical_epoch_seconds(run, "seconds") or float("inf")) for run in runs]
        return {"seconds": seconds, "epochs_per_second": workers * statistics.mean(speeds)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--recipe", default="sgd+c")
    parser.add_argument("--data", default="jsb")
    parser.add_argument("--slots", type=int, default=4, help="a multiple of the workers, so that none idles")
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    measured: dict[int, list[dict]] = {1: [], arguments.workers: []}
    for number in range(arguments.rounds):
        order = (1, arguments.workers) if number % 2 == 0 else (arguments.workers, 1)
        for workers in order:
            measured[workers].append(run_study(arguments, workers))
            sys.stderr.write(f"round {number + 1}, {workers} workers: {measured[workers][-1]}\n")
    one, many = measured[1], measured[arguments.workers]
    ratios = {
        "whole_study": [a["seconds"] / b["seconds"] for a, b in zip(one, many, strict=True)],
        "training": [b["epochs_per_second"] / a["epochs_per_second"] for a, b in zip(one, many, strict=True)],
    }
    report = {
        "workers": arguments.workers,
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "recipe": arguments.recipe,
        "data": arguments.data,
        "slots": arguments.slots,
        "epochs": arguments.epochs,
        "load": os.getloadavg()[0],
        "rounds": measured,
        "ratios": ratios,
        "median_ratio": {name: statistics.median(values) for name, values in ratios.items()},
    }
    print(json.dumps(report, indent=2))


if __name__ == "__main__":
    main()
