"""Updates a second of several training processes at once, beside those of one: how well a search fills the cores.

python -m benchmarks.processes 5    # what one such process runs: it prepares, waits for a line, works 5 seconds
"""

import os
import subprocess
import sys
import time
from statistics import median

SECONDS, ROUNDS = 4.0, 5


def work(seconds: float) -> None:
    """Train, one sequence at a time with 200 units, and print updates a second."""
    from .scaling import music

    turn = music(hidden_size=200)
    turn(), turn()
    print("ready", flush=True)
    sys.stdin.readline()
    began, updates = time.perf_counter(), 0
    while time.perf_counter() - began < seconds:
        updates += turn()
    print(updates / (time.perf_counter() - began), flush=True)


def rate_of(processes: list[subprocess.Popen]) -> float:
    """Updates a second of all of them together."""
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    return sum(float(process.stdout.readline()) for process in processes if process.stdout is not None)


def start(count: int) -> list[subprocess.Popen]:
    """Processes that are ready to work."""
    command = [sys.executable, "-m", "benchmarks.processes", str(SECONDS)]
    started = [
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for _ in range(count)
    ]
    for process in started:
        assert process.stdout is not None
        process.stdout.readline()
    return started


def measure() -> dict:
    """Rates by number of processes, alternating."""
    cores = os.cpu_count() or 1
    counts = sorted({1, 2, cores})
    rates: dict[int, list[float]] = {count: [] for count in counts}
    for _ in range(ROUNDS):
        for count in counts:
            processes = start(count)
            rates[count].append(rate_of(processes))
            for process in processes:
                process.communicate()
    rate = {count: median(values) for count, values in rates.items()}
    return {
        "cores": cores,
        "updates_per_second": {str(count): value for count, value in rate.items()},
        "times_one": {str(count): value / rate[1] for count, value in rate.items()},
    }


def table(figures: dict) -> list[list[str]]:
    """Rates and speed-ups."""
    rows = [["processes", "updates/s", "times one"]]
    for count, rate in figures["updates_per_second"].items():
        rows.append([count, f"{rate:,.0f}", f"{figures['times_one'][count]:.2f}x"])
    return rows


if __name__ == "__main__":
    work(float(sys.argv[1]))
