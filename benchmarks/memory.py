"""Resident memory of a training process at its peak, each contestant in a process of its own.

python -m benchmarks.memory "longspan" 1 200    # what one such process runs
"""

import json
import resource
import subprocess
import sys
from pathlib import Path

REGIMES = [(1, 200), (64, 500)]
CONTESTANTS = ("longspan", "longspan in XLA", "JAX custom rule", "PyTorch eager", "PyTorch by hand")


def peak_megabytes() -> float:
    """Of this process until now. Linux's `getrusage` would also count the process that started this one."""
    status = Path("/proc/self/status")
    if status.exists():
        line = next(line for line in status.read_text().splitlines() if line.startswith("VmHWM"))
        return int(line.split()[1]) / 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024 / 1024  # bytes elsewhere


def train(name: str, batch: int, units: int) -> dict:
    """A few turns of one contestant: the peak before, when all is imported and the data are there, and after."""
    from .training_step import contestants

    turn = contestants(batch, units, [name])[1][name]
    before = peak_megabytes()
    turn(), turn()
    return {"before": before, "peak": peak_megabytes()}


def measure() -> dict:
    """Megabytes by regime and contestant."""
    found = {}
    for batch, units in REGIMES:
        for name in CONTESTANTS:
            command = [sys.executable, "-m", "benchmarks.memory", name, str(batch), str(units)]
            answer = subprocess.run(command, check=True, capture_output=True, text=True).stdout
            found.setdefault(f"batch {batch}, {units} units", {})[name] = json.loads(answer)
    return {"megabytes": found}


def table(figures: dict) -> list[list[str]]:
    """Peak, and how much of it training added."""
    rows = [["regime", "contestant", "peak MB", "of which training"]]
    for regime, contestants in figures["megabytes"].items():
        for name, found in contestants.items():
            rows.append([regime, name, f"{found['peak']:.0f}", f"{found['peak'] - found['before']:.0f}"])
    return rows


if __name__ == "__main__":
    name, batch, units = sys.argv[1:]
    print(json.dumps(train(name, int(batch), int(units))))
