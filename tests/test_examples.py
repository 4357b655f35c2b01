"""The examples run as they stand and come to what they promise."""

import os
import runpy
import subprocess
import sys
from pathlib import Path

import mido
import pytest

pytestmark = pytest.mark.usefixtures("as_users_write")
ROOT = Path(__file__).parents[1]


def run(script: str, *arguments: str) -> str:
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    command = [sys.executable, str(ROOT / "examples" / script), *arguments]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout


def test_music_is_continued(tmp_path):
    said = run("sample_music.py", str(tmp_path))
    assert int(said.partition("%")[0]) >= 90
    assert {path.name for path in tmp_path.iterdir()} == {f"cadences.{kind}" for kind in ("mid", "wav", "png", "svg")}
    assert mido.MidiFile(tmp_path / "cadences.mid").length > 60 / 90 * 31


def test_a_sentence_is_finished():
    continued = run("sample_text.py").strip().split("\n\n")
    assert len(continued) == 3
    assert all(text.startswith("the cat never finds the mouse\nmy neighbour ") for text in continued)


def test_the_autoencoder_learns_better_than_with_momentum(capsys):
    main = runpy.run_path(str(ROOT / "examples" / "hessian_free_autoencoder.py"))["main"]
    errors = main(updates=5, count=60)
    momentum = [error for name, error in errors.items() if name.startswith("momentum")]
    assert errors["Hessian-free"] < min(momentum)
    table = capsys.readouterr().out.splitlines()
    assert len(table) == 3 + len(momentum)
    assert f"{errors['Hessian-free']:.3f}" in table[2]


def test_a_network_under_dales_law_learns_to_decide(tmp_path, capsys):
    example = runpy.run_path(str(ROOT / "examples" / "decision.py"))
    right = example["main"](tmp_path, trials=1200, max_epochs=8, hidden_size=20)
    assert right[0.4] > 0.9
    assert right[0.4] > right[0.1] > 0.5
    assert "right" in capsys.readouterr().out
    assert (tmp_path / "decision.svg").read_text().count("<path") == 2 * len(right)
