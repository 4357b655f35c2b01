"""Test perplexity on `ptb-words` after equal time on as many threads: ours, and faster-rnnlm where it is named.

Each is a fresh process that gets the same seconds from its start, reading, compiling and validating included. Ours
plans its updates by `--budget` and ends by itself; faster-rnnlm anneals its rate by itself, writes its best weights
after every epoch, and is stopped when the time is up. Perplexities are of the same words: the test split with the ends
of sentences. With `--clock processor`, for a machine that others use too, seconds are those that the processor gave,
and ours gets as many updates as its plan would have made on a quiet machine.
"""

import dataclasses
import os
import re
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from longspan import data as data_room
from longspan import recipes
from longspan.data.text import TextData
from longspan.library import open_run
from longspan.training.planning import Pace, planned
from longspan.training.setup import ChunkSource

from . import ours
from .__main__ import variable
from .contest import on_processor_clock, seconds_per_update
from .words import ARGUMENTS, OURS, SQUARE_ROOT, config_of, write_texts

SECONDS = (60, 300)
START, VALIDATION = 6.0, 0.3
"""Processor seconds until the first update, and of a validation."""
PEER = "faster-rnnlm"
FOUR_STREAMS = {**SQUARE_ROOT, "lanes": 4, "learning_rate": 6.0}
ON_ONE_THREAD = {name: OURS[name] for name in ("longspan, 100 square-root classes", "longspan, tree")}
ON_THREADS = {
    "longspan, 100 square-root classes": OURS["longspan, 100 square-root classes"],
    "longspan, four streams": ("sgd+c", FOUR_STREAMS),
    "longspan, four streams in replicas": ("sgd+c", {**FOUR_STREAMS, "block": 256}),
}
"""On more threads than one: one stream, four whose updates the threads share, and a replica for each thread."""


def measure() -> dict:
    """Perplexities and the seconds that each took, by budget."""
    data = data_room.load("ptb-words")
    assert isinstance(data, TextData)
    program, found = os.environ.get(variable(PEER)), []
    threads = int(os.environ["LONGSPAN_THREADS"])
    with tempfile.TemporaryDirectory() as folder:
        write_texts(data, Path(folder), whole=True)
        for seconds in SECONDS:
            for name, (recipe, changes) in (ON_ONE_THREAD if threads == 1 else ON_THREADS).items():
                shared = {"replicas": threads} if name.endswith("replicas") else {"threads": threads}
                path = Path(folder) / f"{name}-{seconds}"
                score = train_ours(recipe, changes | shared, data, seconds, path)
                found.append({"program": name, "budget": seconds, **score})
            if program:
                score = train_peer(program, seconds, Path(folder), threads)
                found.append({"program": PEER, "budget": seconds, **score})
    return {"runs": found, "not_run": [] if program else [PEER]}


def train_ours(recipe: str, changes: dict[str, Any], data: TextData, seconds: int, path: Path) -> dict:
    """Train in a process of its own, as a user would, with the shipped settings and some changes."""
    flags = {f"--{setting.replace('_', '-')}": str(value) for setting, value in changes.items()}
    flags |= {"--data": "ptb-words", "--run-dir": str(path)}
    if on_processor_clock():
        flags |= flags_of_plan(recipe, changes, data, seconds)
    else:
        flags["--budget"] = f"{seconds}s"
    command = [sys.executable, "-m", "longspan", "train", recipe, *(part for flag in flags.items() for part in flag)]
    began = spent()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return {"seconds": spent() - began, "test_perplexity": open_run(path).evaluate("test").perplexity}


def flags_of_plan(recipe: str, changes: dict[str, Any], data: TextData, seconds: int) -> dict[str, str]:
    """What `--budget` would set if the machine were quiet; nothing where the recipe ends earlier by itself."""
    update = seconds_per_update({recipe: ours.training(config_of(recipe, **changes), data)})[recipe]
    config = dataclasses.replace(recipes.settings(recipe, "ptb-words"), **changes)
    updates = len(ChunkSource(config, data).epoch(0).lengths)
    plan = planned(config, Pace(START, update, VALIDATION, updates), seconds)
    fields = ("max_updates", "cooldown", "learning_rate_schedule")
    now = {field: getattr(plan, field) for field in fields if getattr(plan, field) != getattr(config, field)}
    return {f"--{field.replace('_', '-')}": str(value) for field, value in now.items()}


def train_peer(program: str, seconds: int, folder: Path, threads: int) -> dict:
    """Train for so many seconds, or until it ends by itself, and score the best weights that it wrote."""
    model = folder / f"{PEER}-{seconds}"
    files = {split: folder / f"{split}.txt" for split in ("train", "valid", "test")}
    settings = ARGUMENTS[PEER].replace("-threads 1", f"-threads {threads}").split()
    training = [program, "-train", files["train"], "-valid", files["valid"], "-rnnlm", model, *settings]
    began = spent()
    if on_processor_clock():
        limited = ["sh", "-c", 'ulimit -t "$0"; exec "$@"', str(seconds), *training]
        subprocess.run(limited, stderr=subprocess.DEVNULL)
    else:
        with subprocess.Popen(training, stderr=subprocess.DEVNULL) as running:
            try:
                running.wait(timeout=seconds)
            except subprocess.TimeoutExpired:
                running.terminate()
    took = spent() - began
    scoring = [program, "-rnnlm", model, "-test", files["test"]]
    scored = subprocess.run(scoring, capture_output=True, text=True, check=True)
    entropy = re.search(r"Test entropy ([\d.]+)", scored.stderr)
    if entropy is None:
        raise SystemExit(f"{PEER} printed no entropy: {scored.stderr[-300:]}")
    return {"seconds": took, "test_perplexity": 2 ** float(entropy[1])}


def spent() -> float:
    """Seconds so far: of the wall's clock, or of the processor for processes that have ended."""
    if not on_processor_clock():
        return time.perf_counter()
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def table(figures: dict) -> list[list[str]]:
    """Perplexities by budget."""
    rows = [["budget", "program", "seconds", "test perplexity"]]
    for run in figures["runs"]:
        rows.append([f"{run['budget']} s", run["program"], f"{run['seconds']:.0f}", f"{run['test_perplexity']:.1f}"])
    return rows + [["", name, "", "not run: its program was not named"] for name in figures["not_run"]]
