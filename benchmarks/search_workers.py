"""Slots an hour of a search with one worker and with K: whole studies, in turns, on the same slots.

    python -m benchmarks.search_workers --rounds 3 -o results/benchmarks/search_workers.json

Slots draw their sizes and rates, so most are compiled anew, or with `--same-sizes` their rates alone. Every study
begins with a copy of one cache of compiled programs, which a search of one slot on other sizes has left: what every
later search on a machine finds. What is given of each study has everything in it that belongs to one: starting Python
and JAX, compiling, evaluation, scoring the winner, idling at the end.

- slots an hour, by the clock on the wall, and how many times as many K workers end as one. A machine that is busy with
  other work shows smaller ratios than an idle one: look at the load.
- processor seconds a slot, summed over the command and its workers, which other work disturbs little;
- the share of them that is training: epochs times what an epoch takes once everything is compiled;
- where the seconds went, as a mean over workers: until the first slot, in slots, between them, without a slot while
  others still had one, and from the end of the last slot to that of the command.

A study has 40 slots by default, twice those of `longspan search`, because they are short: some three seconds each with
30 epochs, where those of a real search take minutes. Start, end and idling cost the same seconds whatever the number of
slots and their length, so fewer or shorter ones show smaller ratios. A file of rounds that exists is added to, if they
were of the same study by the same version, so that the rounds may be spread over hours.
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
from datetime import UTC
from pathlib import Path

import optuna

import longspan
from longspan.search.storage import default_url
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


def where_seconds_went(folder: Path, began: float, ended: float, workers: int) -> dict[str, float]:
    """The seconds of a study, as a mean over its workers, by what the storage says of their attempts."""
    [study] = optuna.get_all_study_names(default_url(folder))
    attempts: dict[str, list[tuple[float, float]]] = {}
    for trial in optuna.load_study(study_name=study, storage=default_url(folder)).trials:
        assert trial.datetime_start is not None
        assert trial.datetime_complete is not None
        times = [time.replace(tzinfo=UTC).timestamp() for time in (trial.datetime_start, trial.datetime_complete)]
        attempts.setdefault(trial.user_attrs["worker"], []).append((times[0], times[1]))
    assert len(attempts) == workers, f"{len(attempts)} of {workers} workers had a slot: try more slots"
    last = max(end for own in attempts.values() for _, end in own)
    inside = [sum(end - start for start, end in own) for own in attempts.values()]
    firsts = [own[0][0] for own in attempts.values()]
    lasts = [own[-1][1] for own in attempts.values()]
    spans = [end - start for start, end in zip(firsts, lasts, strict=True)]
    found = {
        "start": statistics.mean(firsts) - began,
        "slots": statistics.mean(inside),
        "between": statistics.mean(spans) - statistics.mean(inside),
        "idle": last - statistics.mean(lasts),
        "end": ended - last,
    }
    return {name: round(seconds, 2) for name, seconds in found.items()}


def run_study(arguments: argparse.Namespace, cache: Path, workers: int) -> dict:
    """Figures of a study of all slots with so many workers."""
    with tempfile.TemporaryDirectory() as place:
        folder, own_cache = Path(place) / "study", Path(place) / "cache"
        folder.mkdir()
        shutil.copytree(cache, own_cache)
        began, spent_before = time.time(), spent()
        space = SPACE if arguments.same_sizes else SPACE + SIZES
        search(arguments, folder, own_cache, workers, arguments.slots, space)
        ended = time.time()
        seconds, processor = ended - began, spent() - spent_before
        runs = [Run.open(path) for path in sorted(folder.glob("trials/*"))]
        epochs = [(typical_epoch_seconds(run, "processor_seconds") or 0.0) * len(run.metrics()) for run in runs]
        return {
            "slots_an_hour": round(3600 * arguments.slots / seconds, 1),
            "seconds": round(seconds, 2),
            "processor_seconds_a_slot": round(processor / arguments.slots, 3),
            "training_share": round(sum(epochs) / processor, 3),
            "where": where_seconds_went(folder, began, ended, workers),
        }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--recipe", default="sgd+c")
    parser.add_argument("--data", default="jsb")
    parser.add_argument("--slots", type=int, default=40, help="a multiple of the workers")
    parser.add_argument("--epochs", type=int, default=30)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--same-sizes", action="store_true", help="draw learning rates alone")
    parser.add_argument("-o", "--output", type=Path, help="a file that exists is added to")
    arguments = parser.parse_args()
    same = {
        "version": longspan.__version__,
        "workers": arguments.workers,
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "recipe": arguments.recipe,
        "data": arguments.data,
        "slots": arguments.slots,
        "sizes": "the same" if arguments.same_sizes else "drawn",
        "epochs": arguments.epochs,
    }
    measured: dict[str, list[dict]] = {"1": [], str(arguments.workers): []}
    if arguments.output is not None and arguments.output.exists():
        before = json.loads(arguments.output.read_text())
        if {name: before.get(name) for name in same} == same:
            measured = before["rounds"]
    with tempfile.TemporaryDirectory() as place:
        cache, first = Path(place) / "cache", Path(place) / "first"
        first.mkdir()
        search(arguments, first, cache, 1, 1, "hidden_size = 99\n")
        for _ in range(arguments.rounds):
            number = len(measured["1"])
            for workers in sorted(measured, reverse=number % 2 == 1):
                measured[workers].append(run_study(arguments, cache, int(workers)))
                measured[workers][-1]["load"] = round(os.getloadavg()[0], 2)
                sys.stderr.write(f"round {number + 1}, {workers} workers: {measured[workers][-1]}\n")
    one, many = measured["1"], measured[str(arguments.workers)]

    def ratio(name: str) -> float:
        return round(statistics.median(b[name] / a[name] for a, b in zip(one, many, strict=True)), 3)

    report = {
        **same,
        "rounds": measured,
        "median_ratio": {name: ratio(name) for name in ("slots_an_hour", "processor_seconds_a_slot")},
    }
    text = json.dumps(report, indent=2) + "\n"
    if arguments.output is None:
        sys.stdout.write(text)
    else:
        arguments.output.write_text(text)


if __name__ == "__main__":
    main()
