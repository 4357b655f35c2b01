"""Seconds from the command to the first update of `longspan train`, without and with the compilation cache."""

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

COMMAND = ["train", "sgd+c", "--data", "jsb", "--max-epochs", "1"]


def seconds_to_first_block(cache: Path, runs: Path) -> dict:
    """Start training; the first line of its progress appears when a block of updates is done."""
    environment = os.environ | {"JAX_COMPILATION_CACHE_DIR": str(cache)}
    run = runs / "run"
    began = time.perf_counter()
    process = subprocess.Popen(
        [sys.executable, "-m", "longspan", *COMMAND, "--run-dir", str(run), "--json"],
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    timing = run / "timing.jsonl"
    while process.poll() is None and not timing.exists():
        time.sleep(0.02)
    epoch = json.loads(timing.read_text().splitlines()[0])["seconds"]
    first_epoch = time.perf_counter() - began
    process.wait()
    return {"to_end_of_first_epoch": first_epoch, "first_epoch": epoch, "whole_command": time.perf_counter() - began}


def measure() -> dict:
    """A first start, which compiles everything, and two that find the compiled programs."""
    with tempfile.TemporaryDirectory() as folder:
        cache = Path(folder) / "cache"
        found = {}
        for name in ("cold", "warm", "warm again"):
            runs = Path(folder) / name.replace(" ", "-")
            runs.mkdir()
            found[name] = seconds_to_first_block(cache, runs)
        return {"command": " ".join(["longspan", *COMMAND]), "seconds": found}


def table(figures: dict) -> list[list[str]]:
    """Seconds of each start."""
    rows = [["start", "to the end of the first epoch s", "of which the epoch s", "whole command s"]]
    for name, found in figures["seconds"].items():
        rows.append([name, *(f"{value:.1f}" for value in found.values())])
    return rows
