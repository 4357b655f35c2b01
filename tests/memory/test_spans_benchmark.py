"""The measures behind the tables of repeats and of memory, on a run of one's own."""

import json

import numpy as np
import pytest

from benchmarks import spans
from benchmarks.themes_picture import returns, share_of_returns
from longspan.cli import run as command
from longspan.data.archive import write_set
from longspan.training.runs import Run
from tests.support.catalog import tiny_music

SMALL = {"hidden_size": 6, "chunk_length": 20, "max_epochs": 1}


@pytest.fixture
def run(tmp_path, monkeypatch):
    """A run with memory on an imported set, in an empty folder of results."""
    (tmp_path / "data" / "imported").mkdir(parents=True)
    write_set(tmp_path / "data" / "imported" / "tiny.npz", tiny_music())
    monkeypatch.setenv("LONGSPAN_DATA", str(tmp_path / "data"))
    monkeypatch.chdir(tmp_path)
    flags = [f"--{name.replace('_', '-')}={value}" for name, value in SMALL.items()]
    assert command(["train", "sgd+cw", "--data", "tiny", "--run-dir", "run", *flags]) == 0
    return Run.open(tmp_path / "run")


def test_a_network_is_named_without_its_memory_and_by_what_differs(run):
    name, changes = spans.network_of(run)
    assert name == "sgd+c"
    assert {key: changes[key] for key in SMALL} == SMALL
    assert not {"memory", "recipe", "seed"} & changes.keys()


def test_a_run_measured_again_takes_the_place_of_its_row(run, monkeypatch):
    monkeypatch.setattr("sys.argv", ["spans", str(run.path)])
    spans.main()
    first = json.loads((spans.REPEATS / "tiny.json").read_text())
    spans.main()
    assert json.loads((spans.REPEATS / "tiny.json").read_text()) == first
    (row,) = first["runs"]
    assert row["test"] == pytest.approx(run.result()["test"]["log_likelihood"], rel=1e-5)
    (seed,) = json.loads((spans.MEMORY / "tiny.json").read_text())["seeds"]
    assert seed["test_with_memory"]["log_likelihood"] != seed["test"]["log_likelihood"]


def test_a_frame_returns_if_it_continues_four_frames_as_they_went_on_before():
    theme = np.eye(88, dtype=np.uint8)[:6]
    song = np.concatenate([theme, theme[:5], np.eye(88, dtype=np.uint8)[40:42]])
    # The fifth frame of the second theme follows four that were heard before, the ones before it fewer.
    assert returns(song) == [(10.0, 4.0)]
    assert share_of_returns([song, theme]) == 1 / 19
