"""This version beside another one: the same updates in turns, each in a process of its own.

    git worktree add ../before COMMIT && (cd ../before && python setup.py build_ext --inplace)
    python -m benchmarks.versions ../before

A worker imports the package and the benchmarks of its tree and does a turn whenever it is asked to, so that whatever
else the machine does falls on both. Figures are medians over rounds of the processor time of an update, and of their
ratios, new over old. They go to results/benchmarks/versions.json.
"""

import argparse
import dataclasses
import json
import os
import subprocess
import sys
import time
from datetime import UTC, datetime
from pathlib import Path
from statistics import median, quantiles
from typing import Any

HERE = Path(__file__).parents[1]
PLAIN = {
    "activation": "tanh",
    "loss": "mean",
    "learning_rate": 0.05,
    "learning_rate_schedule": "constant",
    "momentum": 0.9,
    "clip": 0.5,
    "chunk_length": 100,
    "dropout": 0.0,
}
WORDS = {"output": "factored", "classes": 30, "hidden_size": 200, "chunk_length": 10, "block": 500, "momentum": 0.0}
REGIMES: dict[str, dict] = {
    "1 x 200": PLAIN | {"hidden_size": 200, "lanes": 1, "block": 32},
    "16 x 200": PLAIN | {"hidden_size": 200, "lanes": 16, "block": 8},
    "1 x 500": PLAIN | {"hidden_size": 500, "lanes": 1, "block": 8},
    "NADE, 1 x 200": PLAIN | {"hidden_size": 200, "lanes": 1, "block": 16, "output": "nade", "nade_size": 150},
    "RBM, 1 x 150": PLAIN | {"hidden_size": 150, "lanes": 1, "block": 16, "output": "rbm", "rbm_size": 150},
    "words": PLAIN | WORDS,
}
"""Settings that both versions must know."""
WORKER = "--worker"
LEAST = 0.3
"""Seconds of a turn, at least."""


def work() -> None:
    """Read names of regimes from standard input, and answer each with the seconds of one update."""
    from benchmarks import ours
    from longspan import data as data_room
    from longspan.config import TrainConfig

    trainings: dict = {}
    for line in sys.stdin:
        name = line.strip()
        if name not in trainings:
            config = TrainConfig(**REGIMES[name])
            data: Any = data_room.load("ptb-words") if name == "words" else None
            if data is None:
                data = ours.random_songs(config.lanes, config.block * config.chunk_length)
            trainings[name] = ours.training(config, data)
            trainings[name]()  # compiles
        start, updates = time.process_time(), 0
        while time.process_time() - start < LEAST:
            updates += trainings[name]()
        sys.stdout.write(f"{(time.process_time() - start) / updates}\n")
        sys.stdout.flush()


class Worker:
    """A process that trains with the sources of a tree."""

    def __init__(self, tree: Path):
        environment = {**os.environ, "PYTHONPATH": f"{tree / 'src'}{os.pathsep}{tree}", "NPROC": "1"}
        environment |= {"LONGSPAN_KERNELS": "native", "LONGSPAN_THREADS": "1", "BENCHMARK_CLOCK": "processor"}
        command = [sys.executable, "-P", __file__, WORKER]  # -P: modules of that tree, not of the folder of this file
        self.process = subprocess.Popen(
            command, env=environment, cwd=tree, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def seconds(self, regime: str) -> float:
        """Of one update."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(f"{regime}\n")
        self.process.stdin.flush()
        return float(self.process.stdout.readline())

    def close(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait()


@dataclasses.dataclass(frozen=True)
class Compared:
    """Median seconds of an update, and the ratio new over old with its quartiles."""

    old: float
    new: float
    ratio: float
    quartiles: tuple[float, float]


def compare(old: Worker, new: Worker, regime: str, rounds: int) -> Compared:
    """Take turns; who begins alternates."""
    pairs = []
    for number in range(rounds + 1):
        first, second = (old, new) if number % 2 else (new, old)
        taken = {first: first.seconds(regime), second: second.seconds(regime)}
        pairs.append((taken[old], taken[new]))
    pairs = pairs[1:]  # the first one warms up
    ratios = [after / before for before, after in pairs]
    low, middle, high = quantiles(ratios, n=4)
    return Compared(median(each[0] for each in pairs), median(each[1] for each in pairs), middle, (low, high))


def commit_of(tree: Path) -> str:
    return subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], cwd=tree, capture_output=True, text=True, check=True
    ).stdout.strip()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("old", type=Path, help="a checkout of the other version, with its kernels built")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--regimes", nargs="*", default=list(REGIMES), choices=list(REGIMES))
    parser.add_argument("--output", type=Path, default=HERE / "results/benchmarks/versions.json")
    arguments = parser.parse_args()
    old, new = Worker(arguments.old.resolve()), Worker(HERE)
    figures = {}
    for regime in arguments.regimes:
        found = compare(old, new, regime, arguments.rounds)
        figures[regime] = dataclasses.asdict(found)
        low, high = found.quartiles
        print(
            f"{regime:14} old {1e3 * found.old:8.3f} ms  new {1e3 * found.new:8.3f} ms  "
            f"new/old {found.ratio:.3f} ({low:.3f} to {high:.3f})",
            flush=True,
        )
    old.close()
    new.close()
    from benchmarks.bounds import processor

    record = {
        "date": datetime.now(UTC).isoformat(timespec="minutes"),
        "load": os.getloadavg()[0],
        "clock": "processor",
        "threads": 1,
        "rounds": arguments.rounds,
        "processor": processor(),
        "old": commit_of(arguments.old),
        "new": commit_of(HERE),
        "regimes": figures,
    }
    arguments.output.write_text(json.dumps(record, indent=2) + "\n")


if __name__ == "__main__":
    work() if sys.argv[1:] == [WORKER] else main()
