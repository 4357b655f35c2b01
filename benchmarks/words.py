"""Words a second of `longspan train sgd+c --data ptb-words --dropout 0`: 200 units, 30 classes, one stream, one thread.

Beside it, in turns, the programs of others that the command line names: Mikolov's rnnlm (`--rnnlm PATH`) with the same
units, classes and steps back, and faster-rnnlm (`--faster-rnnlm PATH`), whose output is a Huffman tree. Each reads the
first words of the same training text and says itself how many words a second it trains. Who is not named is not run.
"""

import dataclasses
import os
import re
import subprocess
import tempfile
from pathlib import Path
from statistics import median

from longspan import data as data_room
from longspan import recipes
from longspan.data.text import TextData

from . import ours
from .__main__ import PEERS, variable
from .contest import seconds_per_update

ROUNDS, WORDS, CHECKED = 5, 100_000, 5_000
ARGUMENTS = {
    "rnnlm": "-hidden 200 -class 30 -bptt 4 -bptt-block 10 -rand-seed 1",
    "faster-rnnlm": "-hidden 200 -hidden-type sigmoid -bptt 4 -bptt-skip 10 -threads 1 -nce 0 -direct 0",
}
SPEED = {"rnnlm": (r"Words/sec: *([\d.]+)", 1), "faster-rnnlm": (r"([\d.]+) *Kwords/sec", 1000)}
"""How each prints its speed, and in which unit."""


def measure() -> dict:
    """Words a second: medians over rounds, in which everybody takes a turn."""
    config = dataclasses.replace(recipes.settings("sgd+c", "ptb-words"), dropout=0.0)  # the others have none
    data = data_room.load("ptb-words")
    assert isinstance(data, TextData)
    named = {name: path for name in PEERS if (path := os.environ.get(variable(name)))}
    found: dict[str, list[float]] = {name: [] for name in ("longspan", *named)}
    training = ours.training(config, data)
    with tempfile.TemporaryDirectory() as folder:
        write_texts(data, Path(folder))
        for _ in range(ROUNDS):
            seconds = seconds_per_update({"longspan": training}, rounds=3)["longspan"]
            found["longspan"].append(config.chunk_length / seconds)
            for name, path in named.items():
                found[name].append(speed_of(name, path, Path(folder)))
    speeds = {name: median(values) for name, values in found.items()}
    return {
        "words_per_second": speeds,
        "ratios": {name: speeds["longspan"] / speed for name, speed in speeds.items() if name != "longspan"},
        "not_run": [name for name in PEERS if name not in named],
    }


def write_texts(data: TextData, folder: Path) -> None:
    """The first words of training and validation, a sentence a line, as the others read them."""
    for split, words in (("train", WORDS), ("valid", CHECKED)):
        names = (data.vocabulary[number] for number in data.splits[split][:words])
        lines = " ".join("\n" if name == data.vocabulary[data.end_token] else name for name in names)
        (folder / f"{split}.txt").write_text(lines + "\n")


def speed_of(name: str, program: str, folder: Path) -> float:
    """Words a second that a program prints for its first pass, after which it is stopped."""
    model = folder / name
    for old in folder.glob(f"{name}*"):
        old.unlink()
    files = ["-train", str(folder / "train.txt"), "-valid", str(folder / "valid.txt"), "-rnnlm", str(model)]
    command = [program, *files, *ARGUMENTS[name].split()]
    pattern, unit = SPEED[name]
    text = ""
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, cwd=folder) as running:
        assert running.stdout is not None
        while not re.search(f"{pattern}.*valid", text, re.DOTALL | re.IGNORECASE) and (
            some := os.read(running.stdout.fileno(), 4096)
        ):
            text += some.decode(errors="replace")
        running.terminate()
    speeds = re.findall(pattern, text)
    if not speeds:
        raise SystemExit(f"{name} printed no speed: {text[-300:]}")
    return unit * float(speeds[-1])


def table(figures: dict) -> list[list[str]]:
    """Words a second, and how many times as many ours are."""
    rows = [["program", "words/s", "ours to it"]]
    for name, speed in figures["words_per_second"].items():
        ratio = figures["ratios"].get(name)
        rows.append([name, f"{speed:,.0f}", "" if ratio is None else f"{ratio:.2f}x"])
    return rows + [[name, "not run: its program was not named", ""] for name in figures["not_run"]]
