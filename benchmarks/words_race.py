"""Test perplexity on `ptb-words` after equal time on one thread: ours, and faster-rnnlm where its program is named.

Each is a fresh process that gets the same seconds of wall-clock time from its start, reading, compiling and validating
included. Ours plans its updates by `--budget` and ends by itself; faster-rnnlm anneals its rate by itself, writes its
best weights after every epoch, and is stopped when the time is up. Perplexities are of the same words: the test split
with the ends of sentences. Quiet machines only: whoever runs while others work gets fewer seconds than the other.
"""

import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from longspan import data as data_room
from longspan.data.text import TextData
from longspan.library import open_run

from .__main__ import variable
from .words import ARGUMENTS, write_texts

SECONDS = (60, 300)
PEER = "faster-rnnlm"
OURS = {
    "longspan, 100 square-root classes": "sgd+c --class-rule square-root --classes 100",
    "longspan, tree": "tree:sgd+c",
}


def measure() -> dict:
    """Perplexities and the seconds that each took, by budget."""
    data = data_room.load("ptb-words")
    assert isinstance(data, TextData)
    program, found = os.environ.get(variable(PEER)), []
    with tempfile.TemporaryDirectory() as folder:
        write_texts(data, Path(folder), whole=True)
        for seconds in SECONDS:
            for name, arguments in OURS.items():
                found.append({"program": name, "budget": seconds, **train_ours(arguments, seconds, Path(folder))})
            if program:
                found.append({"program": PEER, "budget": seconds, **train_peer(program, seconds, Path(folder))})
    return {"runs": found, "not_run": [] if program else [PEER]}


def train_ours(arguments: str, seconds: int, folder: Path) -> dict:
    """Train in a process of its own, as a user would."""
    path = folder / f"run-{len(list(folder.iterdir()))}"
    options = f"--data ptb-words --budget {seconds}s --threads 1 --run-dir {path}"
    began = time.perf_counter()
    subprocess.run(
        [sys.executable, "-m", "longspan", "train", *arguments.split(), *options.split()],
        check=True,
        stdout=subprocess.DEVNULL,
    )
    took = time.perf_counter() - began
    return {"seconds": took, "test_perplexity": open_run(path).evaluate("test").perplexity}


def train_peer(program: str, seconds: int, folder: Path) -> dict:
    """Train for so many seconds, or until it ends by itself, and score the best weights that it wrote."""
    model = folder / f"{PEER}-{seconds}"
    files = {split: folder / f"{split}.txt" for split in ("train", "valid", "test")}
    began = time.perf_counter()
    training = [program, "-train", files["train"], "-valid", files["valid"], "-rnnlm", model]
    with subprocess.Popen([*training, *ARGUMENTS[PEER].split()], stderr=subprocess.DEVNULL) as running:
        try:
            running.wait(timeout=seconds)
        except subprocess.TimeoutExpired:
            running.terminate()
    took = time.perf_counter() - began
    scored = subprocess.run(
        [program, "-rnnlm", model, "-test", files["test"]], capture_output=True, text=True, check=True
    )
    entropy = re.search(r"Test entropy ([\d.]+)", scored.stderr)
    if entropy is None:
        raise SystemExit(f"{PEER} printed no entropy: {scored.stderr[-300:]}")
    return {"seconds": took, "test_perplexity": 2 ** float(entropy[1])}


def table(figures: dict) -> list[list[str]]:
    """Perplexities by budget."""
    rows = [["budget", "program", "seconds", "test perplexity"]]
    for run in figures["runs"]:
        rows.append([f"{run['budget']} s", run["program"], f"{run['seconds']:.0f}", f"{run['test_perplexity']:.1f}"])
    return rows + [["", name, "", "not run: its program was not named"] for name in figures["not_run"]]
