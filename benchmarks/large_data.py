"""Peak memory of importing and training on data sets that are larger than any of the paper.

Music of ten times Nottingham's frames (transposed songs, so that they are real ones) and a text of 100 MB of made-up
words with the frequencies of real ones, as characters and as words. Every command is a process of its own.
"""

import dataclasses
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

from longspan import data
from longspan.data.archive import write_set
from longspan.data.music import MusicData

TEXT_BYTES = 100_000_000
TRAIN_FOR = "30s"


def measure() -> dict:
    """Megabytes at the peak of each command."""
    found = {}
    with tempfile.TemporaryDirectory(prefix="longspan-large-") as place:
        folder = Path(place)
        environment = os.environ | {"LONGSPAN_DATA": str(folder / "data")}
        music, text = write_music(folder / "music.npz"), write_text(folder / "text.txt")
        commands = {
            f"train on {music:,} frames": ["train", "nade:sgd", "--data", str(folder / "music.npz")],
            f"import {text:,} bytes as characters": ["data", "import", place + "/text.txt", "--name", "characters"],
            "train on these characters": ["train", "sgd+c", "--data", "characters"],
            f"import {text:,} bytes as words": ["data", "import", place + "/text.txt", "--name", "words"],
            "train on these words": ["train", "sgd+c", "--data", "words"],
        }
        for number, (name, command) in enumerate(commands.items()):
            if command[0] == "train":
                command += ["--stop-after", TRAIN_FOR, "--run-dir", str(folder / str(number)), "--threads", "1"]
            else:
                command += ["--unit", "word" if command[-1] == "words" else "character"]
            found[name] = peak_megabytes(command, environment)
    return {"megabytes": found}


def write_music(file: Path) -> int:
    """Nottingham in ten keys; returns the number of its frames."""
    original = data.load("nottingham")
    assert isinstance(original, MusicData)
    splits = {
        name: [np.roll(song, shift, axis=1) for shift in range(-5, 5) for song in songs]
        for name, songs in original.splits.items()
    }
    write_set(file, dataclasses.replace(original, name="ten-nottinghams", splits=splits))
    return sum(len(song) for songs in splits.values() for song in songs)


def write_text(file: Path) -> int:
    """Lines of made-up words, the n-th as frequent as 1/n; returns the number of bytes."""
    random = np.random.default_rng(0)
    letters = np.array(list("etaoinshrdlucmfwypvbgkjqxz"))
    words = np.array(["".join(random.choice(letters, size)) for size in random.integers(1, 10, 20_000)])
    frequencies = 1 / np.arange(1, len(words) + 1)
    with file.open("w") as stream:
        while stream.tell() < TEXT_BYTES:
            drawn = random.choice(words, (2000, 12), p=frequencies / frequencies.sum())
            stream.write("".join(" ".join(line) + "\n" for line in drawn))
        return stream.tell()


def peak_megabytes(command: list[str], environment: dict[str, str]) -> float:
    """Of the largest process of a command."""
    started = subprocess.Popen([sys.executable, "-m", "longspan", *command], env=environment, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(started.pid, 0)
    if os.waitstatus_to_exitcode(status) not in (0, 130):  # 130: it stopped in time and can be continued
        raise SystemExit(f"longspan {' '.join(command)} failed")
    return round(usage.ru_maxrss / 1024)


def table(figures: dict) -> list[list[str]]:
    return [["command", "peak MB"], *([name, f"{peak:.0f}"] for name, peak in figures["megabytes"].items())]
