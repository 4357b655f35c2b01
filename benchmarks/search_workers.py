"""Slots an hour of a search with one worker and with K: whole studies, in turns, on the same slots.

    python -m benchmarks.search_workers --workers 2 --slots 8 --rounds 3 > results/benchmarks/search_workers.json

Slots draw their sizes and rates, so most are compiled anew, or with `--same-sizes` their rates alone. Every study
begins with a copy of one cache of compiled programs, which a search of one slot on other sizes has left: what every
later search on a machine finds. Three figures are given of each study, with everything that belongs to it: starting
Python and JAX, compiling, evaluation, scoring the winner, idling at the end.

- slots an hour, by the clock on the wall, and how many times as many K workers end as one. A machine that is busy with
  other work shows smaller ratios than an idle one: look at the load.
- processor seconds a slot, summed over the command and its workers, which other work disturbs little;
- the share of them that is training: epochs times what an epoch takes once everything is compiled.
"""

import argparse
import json
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import longspan
from longspan.training.runs import Run
from longspan.training.timing import typical_epoch_seconds

SPACE = "learning_rate = { low = 0.1, high = 1.0, log = true }\n"
SIZES = "hidden_size = { low = 100, high = 300 }\n"


def search(arguments: argparse.Namespace, folder: Path, cache: Path, workers: int, slots: int, space: str) -> None:
    """Run the command to its end."""
    file = folder / "space.toml"
    file.write_text(space)
    command = [sys.executable, "-m", "longspan", "search", arguments.recipe, "--data", arguments.data]
    command += ["--trials", str(slots), "--workers", str(workers), "--study-dir", str(folder), "--json"]
    command += ["--max-epochs", str(arguments.epochs), "--patience", "1000", "--space", str(file)]
    environment = os.environ | {"JAX_COMPILATION_CACHE_DIR": str(cache)}
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, env=environment)


def spent() -> float:
    """Processor seconds of all processes that were started here and have ended, and of those they had started."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def run_study(arguments: argparse.Namespace, cache: Path, workers: int) -> dict:
    """Figures of a study of all slots with so many workers."""
    with tempfile.TemporaryDirectory() as place:
        folder, own_cache = Path(place) / "study", Path(place) / "cache"
        folder.mkdir()
        shutil.copytree(cache, own_cache)
        began, spent_before = time.monotonic(), spent()
        space = SPACE if arguments.same_sizes else SPACE + SIZES
        search(arguments, folder, own_cache, workers, arguments.slots, space)
        seconds, processor = time.monotonic() - began, spent() - spent_before
        runs = [Run.open(path) for path in sorted(folder.glob("trials/*"))]
        epochs = [(typical_epoch_seconds(run, "processor_seconds") or 0.0) * len(run.metrics()) for run in runs]
        return {
            "slots_an_hour": round(3600 * arguments.slots / seconds, 1),
            "seconds": round(seconds, 2),
            "processor_seconds_a_slot": round(processor / arguments.slots, 3),
            "training_share": round(sum(epochs) / processor, 3),
        }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--recipe", default="sgd+c")
    parser.add_argument("--data", default="jsb")
    parser.add_argument("--slots", type=int, default=8, help="more than workers; a multiple, so that none idles")
    parser.add_argument("--epochs", type=int, default=30)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--same-sizes", action="store_true", help="draw learning rates alone")
    arguments = parser.parse_args()
    measured: dict[int, list[dict]] = {1: [], arguments.workers: []}
    with tempfile.TemporaryDirectory() as place:
        cache, first = Path(place) / "cache", Path(place) / "first"
        first.mkdir()
        search(arguments, first, cache, 1, 1, "hidden_size = 99\n")
        for number in range(arguments.rounds):
            order = (1, arguments.workers) if number % 2 == 0 else (arguments.workers, 1)
            for workers in order:
                measured[workers].append(run_study(arguments, cache, workers))
                sys.stderr.write(f"round {number + 1}, {workers} workers: {measured[workers][-1]}\n")
    one, many = measured[1], measured[arguments.workers]

    def ratio(name: str) -> float:
        return round(statistics.median(b[name] / a[name] for a, b in zip(one, many, strict=True)), 3)

    report = {
        "version": longspan.__version__,
        "workers": arguments.workers,
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "recipe": arguments.recipe,
        "data": arguments.data,
        "slots": arguments.slots,
        "sizes": "the same" if arguments.same_sizes else "drawn",
        "epochs": arguments.epochs,
        "load": os.getloadavg()[0],
        "rounds": measured,
        "median_ratio": {name: ratio(name) for name in ("slots_an_hour", "processor_seconds_a_slot")},
    }
    sys.stdout.write(json.dumps(report, indent=2) + "\n")


if __name__ == "__main__":
    main()
