"""Words a second of `longspan train --data ptb-words --dropout 0`: 200 units, one thread.

By output: 30 classes as in the paper, classes by the square root of frequency, a Huffman tree, and the tree with four
streams. Beside them, in turns, the programs of others that the command line names: Mikolov's rnnlm (`--rnnlm PATH`)
with the same units, classes and steps back, and faster-rnnlm (`--faster-rnnlm PATH`), whose output is a Huffman tree.
Each reads the first words of the same training text and says itself how many words a second it trains. Who is not named
is not run.
"""

import dataclasses
import os
import re
import subprocess
import tempfile
from pathlib import Path
from statistics import median
from typing import Any

from longspan import data as data_room
from longspan import recipes
from longspan.config import TrainConfig
from longspan.data.text import TextData

from . import ours
from .__main__ import PEERS, variable
from .contest import on_processor_clock, seconds_per_update

ROUNDS, WORDS, CHECKED = 5, 400_000, 5_000
SQUARE_ROOT = {"classes": 100, "class_rule": "square-root"}
OURS: dict[str, tuple[str, dict[str, Any]]] = {
    "longspan": ("sgd+c", {}),
    "longspan, 100 square-root classes": ("sgd+c", SQUARE_ROOT),
    "longspan, tree": ("tree:sgd+c", {}),
    "longspan, tree, four streams": ("tree:sgd+c", {"lanes": 4}),
}
"""Recipes, and what is changed in them."""
ARGUMENTS = {
    "rnnlm": "-hidden 200 -class 30 -bptt 4 -bptt-block 10 -rand-seed 1",
    "faster-rnnlm": "-hidden 200 -hidden-type sigmoid -bptt 4 -bptt-skip 10 -threads 1 -nce 0 -direct 0",
}
SPEED = {"rnnlm": (r"Words/sec: *([\d.]+)", 1), "faster-rnnlm": (r"([\d.]+) *Kwords/sec", 1000)}
"""How each prints its speed, and in which unit."""


def measure() -> dict:
    """Words a second: medians over rounds, in which everybody takes a turn."""
    data = data_room.load("ptb-words")
    assert isinstance(data, TextData)
    named = {name: path for name in PEERS if (path := os.environ.get(variable(name)))}
    found: dict[str, list[float]] = {name: [] for name in (*OURS, *named)}
    configs = {name: config_of(recipe, **changes) for name, (recipe, changes) in OURS.items()}
    trainings = {name: ours.training(config, data) for name, config in configs.items()}
    with tempfile.TemporaryDirectory() as folder:
        write_texts(data, Path(folder))
        for _ in range(ROUNDS):
            for name, seconds in seconds_per_update(trainings, rounds=3).items():
                found[name].append(configs[name].chunk_length * configs[name].lanes / seconds)
            for name, path in named.items():
                found[name].append(speed_of(name, path, Path(folder)))
    speeds = {name: median(values) for name, values in found.items()}
    return {
        "words_per_second": speeds,
        "ratios": {name: {peer: speeds[name] / speeds[peer] for peer in named} for name in OURS},
        "not_run": [name for name in PEERS if name not in named],
    }


def config_of(recipe: str, **changes: Any) -> TrainConfig:
    """The shipped settings without dropout, which the others have not."""
    return dataclasses.replace(recipes.settings(recipe, "ptb-words"), dropout=0.0, **changes)


def write_texts(data: TextData, folder: Path, *, whole: bool = False) -> None:
    """The first words of training and validation, or whole splits, a sentence a line, as the others read them."""
    for split, words in (("train", WORDS), ("valid", CHECKED), ("test", CHECKED)):
        names = (data.vocabulary[number] for number in data.splits[split][: None if whole else words])
        lines = " ".join("\n" if name == data.vocabulary[data.end_token] else name for name in names)
        (folder / f"{split}.txt").write_text(lines + "\n")


def speed_of(name: str, program: str, folder: Path) -> float:
    """Words a second of a program's first pass, after which it is stopped.

    By the wall's clock it is what the program prints; by the processor's it follows from the progress that it prints
    and from the time that its threads had by then.
    """
    for old in folder.glob(f"{name}*"):
        old.unlink()
    files = ["-train", str(folder / "train.txt"), "-valid", str(folder / "valid.txt"), "-rnnlm", str(folder / name)]
    command = [program, *files, *ARGUMENTS[name].split()]
    pattern, unit = SPEED[name]
    text, seen = "", []
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, cwd=folder) as running:
        assert running.stdout is not None
        while not re.search(f"{pattern}.*valid", text, re.DOTALL | re.IGNORECASE) and (
            some := os.read(running.stdout.fileno(), 4096)
        ):
            text += some.decode(errors="replace")
            if progress := re.findall(r"progress: *([\d.]+)%", text, re.IGNORECASE):
                seen.append((float(progress[-1]) / 100, processor_seconds(running.pid)))
        running.terminate()
    speeds = re.findall(pattern, text)
    if not speeds:
        raise SystemExit(f"{name} printed no speed: {text[-300:]}")
    if not on_processor_clock():
        return unit * float(speeds[-1])
    (from_share, from_seconds), (to_share, to_seconds) = seen[0], max(seen)
    return WORDS * (to_share - from_share) / (to_seconds - from_seconds)


def processor_seconds(process: int) -> float:
    """Time that the processor gave to all threads of a process; Linux alone tells it."""
    found = (path.read_text().split()[0] for path in Path(f"/proc/{process}/task").glob("*/schedstat"))
    return 1e-9 * sum(map(int, found))


def table(figures: dict) -> list[list[str]]:
    """Words a second, and how many times as many as each peer's ours are."""
    speeds, ratios = figures["words_per_second"], figures["ratios"]
    peers = [name for name in speeds if name not in ratios]
    rows = [["program", "words/s", *(f"to {peer}" for peer in peers)]]
    for name, speed in speeds.items():
        shares = [f"{ratios[name][peer]:.2f}x" if name in ratios else "" for peer in peers]
        rows.append([name, f"{speed:,.0f}", *shares])
    absent = ["" for _ in peers]
    return rows + [[name, "not run: its program was not named", *absent] for name in figures["not_run"]]
