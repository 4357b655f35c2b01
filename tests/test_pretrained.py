"""The models that come with the package: usable by name right after installation, and never changed."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

import longspan
from longspan import pretrained
from longspan.cli import run
from longspan.data import load
from longspan.evaluation import SplitEvaluator
from longspan.training.rounding import Rows, restored, rounded
from longspan.training.runs import Run
from longspan.training.setup import trained_model
from tests.support.catalog import TINY, tiny_music

NAMES = pretrained.names()
TEXTS = [name for name in NAMES if Run.open(Path(name)).data.kind == "text"]
MUSIC = [name for name in NAMES if name not in TEXTS]


def rounding_of(name: str) -> dict[str, float]:
    return json.loads((pretrained.HOME / name / "result.json").read_text())["rounding"]


def test_there_are_some():
    assert "bach" in NAMES


@pytest.mark.parametrize("name", NAMES)
def test_each_is_small_and_says_where_it_comes_from(name: str):
    folder = pretrained.HOME / name
    assert (folder / "model.safetensors").stat().st_size < 200_000
    card = (folder / "README.md").read_text()
    assert "## License of the data" in card
    rounding = rounding_of(name)
    assert 0 <= abs(rounding["exact"] - rounding["rounded"]) < 0.01
    assert f"{rounding['rounded']:.4f}" in card


@pytest.mark.parametrize("name", MUSIC)
def test_music_is_sampled_by_name(name: str, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert run(["sample", name, "--length", "8", "--json"]) == 0
    assert Path(json.loads(capsys.readouterr().out)["written"][0]).read_bytes().startswith(b"MThd")


@pytest.mark.parametrize("name", TEXTS)
def test_text_is_sampled_by_name(name: str, capsys):
    assert run(["sample", name, "--length", "40"]) == 0
    assert len(capsys.readouterr().out) >= 40


@pytest.mark.parametrize("name", NAMES)
def test_each_becomes_a_page_and_a_file_by_name(name: str, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert run(["play", name, "-o", "play.html"]) == 0
    assert run(["export", name, "--format", "numpy"]) == 0
    assert {path.name for path in tmp_path.iterdir()} == {"play.html", f"{name}.py"}


def test_the_recorded_score_is_that_of_the_rounded_weights():
    shipped = Run.open(Path("bach"))
    found = SplitEvaluator(load("bach"), "valid").log_likelihood(trained_model(shipped))
    assert found == pytest.approx(rounding_of("bach")["rounded"], abs=1e-4)


def test_a_run_folder_of_that_name_comes_first(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    longspan.train("sgd+c", tiny_music(), run_dir="bach", **{**TINY, "max_epochs": 1})
    assert Run.open(Path("bach")).config.data == "tiny"
    shutil.rmtree("bach")
    Path("bach").mkdir()
    assert Run.open(Path("bach")).config.data == "bach"
    assert Run.open(Path("./bach")).config.data == "bach"


@pytest.mark.parametrize("arguments", [["resume", "bach"], ["remember", "bach"]])
def test_nothing_writes_to_them(arguments: list[str], capsys):
    before = {path: path.read_bytes() for path in (pretrained.HOME / "bach").iterdir()}
    assert run(arguments) == 2
    assert "is not changed" in capsys.readouterr().err
    assert {path: path.read_bytes() for path in (pretrained.HOME / "bach").iterdir()} == before


def test_an_unknown_name_is_told_the_known_ones(capsys):
    assert run(["sample", "bahc"]) == 2
    assert "bach" in capsys.readouterr().err


def test_rounding_is_at_most_half_a_step_of_a_row():
    matrix = np.random.default_rng(0).normal(size=(7, 5)).astype(np.float32) * 10.0 ** np.arange(-3, 4)[:, None]
    arrays = {"matrix": matrix.astype(np.float32), "vector": np.arange(3, dtype=np.float32)}
    found = restored(rounded(arrays))
    steps = np.abs(arrays["matrix"]).max(axis=1, keepdims=True) / 127
    assert np.all(np.abs(found["matrix"] - arrays["matrix"]) <= 0.501 * steps)
    np.testing.assert_array_equal(found["vector"], arrays["vector"])
    again = Rows.of(found["matrix"])
    np.testing.assert_allclose(again.restored(), found["matrix"], rtol=1e-6)
