"""A run killed without warning, at any moment and any number of times, ends in the same bytes."""

import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from longspan.data.archive import write_set
from tests.support.catalog import tiny_music

SETTINGS = {
    "--hidden-size": 8,
    "--chunk-length": 10,
    "--block": 2,
    "--max-epochs": 10,
    "--learning-rate": 0.05,
    "--clip": "auto",
    "--patience": 100,
}
SAVE_AFTER_EVERY_BLOCK = ["--checkpoint-seconds", "0", "--json"]
RECIPE = "sgd+clrm"


@pytest.fixture(scope="module")
def data_file(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("data") / "tiny.npz"
    write_set(path, tiny_music())
    return path


@pytest.fixture(scope="module")
def uninterrupted(data_file, tmp_path_factory) -> tuple[Path, float]:
    """The run folder of a run left alone, and the seconds a second such run takes."""
    folder = tmp_path_factory.mktemp("whole")
    for name in ("first", "second"):
        began = time.monotonic()
        subprocess.run(command(data_file, folder / name), check=True, stdout=subprocess.DEVNULL)
    assert essence(folder / "first") == essence(folder / "second")
    return folder / "first", time.monotonic() - began


def command(data_file: Path, run: Path) -> list[str]:
    longspan = [sys.executable, "-m", "longspan"]
    if (run / "config.json").exists():
        return [*longspan, "resume", str(run), *SAVE_AFTER_EVERY_BLOCK]
    settings = [str(word) for pair in SETTINGS.items() for word in pair]
    where = ["--data", str(data_file), "--run-dir", str(run)]
    return [*longspan, "train", RECIPE, *where, *settings, *SAVE_AFTER_EVERY_BLOCK]


def essence(run: Path) -> dict[str, bytes]:
    newest = max(run.glob("checkpoints/[0-9]*"))
    files = [run / name for name in ("config.json", "metrics.jsonl", "model.safetensors", "result.json", "README.md")]
    return {str(file.relative_to(run)): file.read_bytes() for file in [*files, *sorted(newest.iterdir())]}


def kill_again_and_again(data_file, run: Path, kills: int, duration: float, random) -> None:
    """Let the run go for a random while and kill it, `kills` times, then let it end."""
    for _ in range(kills):
        process = subprocess.Popen(command(data_file, run), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        time.sleep(random.uniform(0.2, 1.1) * duration)
        process.send_signal(signal.SIGKILL)
        process.wait()
    subprocess.run(command(data_file, run), check=True, stdout=subprocess.DEVNULL)


def test_a_few_kills_end_in_the_same_bytes(data_file, uninterrupted, tmp_path):
    whole, duration = uninterrupted
    kill_again_and_again(data_file, tmp_path / "run", 3, duration, np.random.default_rng(0))
    assert essence(tmp_path / "run") == essence(whole)


@pytest.mark.slow
@pytest.mark.parametrize("attempt", range(10))
def test_fifty_kills_end_in_the_same_bytes(attempt, data_file, uninterrupted, tmp_path):
    whole, duration = uninterrupted
    kill_again_and_again(data_file, tmp_path / "run", 5, duration, np.random.default_rng(1 + attempt))
    assert essence(tmp_path / "run") == essence(whole)


def test_the_first_interrupt_saves_evaluates_and_says_how_to_go_on(data_file, uninterrupted, tmp_path):
    run = tmp_path / "run"
    arguments = [argument for argument in command(data_file, run) if argument != "--json"]
    process = subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True)
    while not (run / "metrics.jsonl").exists() or not (run / "metrics.jsonl").stat().st_size:
        assert process.poll() is None
        time.sleep(0.02)
    process.send_signal(signal.SIGINT)
    output, _ = process.communicate()
    assert process.returncode == 130
    assert "validation log-likelihood" in output
    assert f"longspan resume {run}" in output
    subprocess.run(command(data_file, run), check=True, stdout=subprocess.DEVNULL)
    assert essence(run) == essence(uninterrupted[0])
