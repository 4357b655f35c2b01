"""Packed models, and `longspan play` on small untrained runs: what it writes, prints and refuses."""

import base64
import dataclasses
import json

import equinox as eqx
import numpy as np
import pytest

import longspan
from longspan import cli, runtime
from longspan.cli.train import PLAYED
from longspan.data.dataset import DataRecord
from longspan.data.music import MusicData
from longspan.data.own import Sequences
from longspan.playing import page
from longspan.playing.packing import CELLS, OUTPUTS, Rounding, measure, pack, rounded
from longspan.recipes import settings
from longspan.training.runs import Run
from longspan.training.setup import initial_model
from longspan.training.state import to_named
from tests.playing.conftest import MUSIC, made
from tests.support.catalog import tiny_music


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(runtime, "prepare", lambda threads: None)


def make_run(path, record: DataRecord, recipe="nade:sgd+crm", **changes) -> Run:
    kind = "frames" if record.kind == "music" else "numbers"
    config = dataclasses.replace(settings(recipe, "mine", kind), hidden_size=8, data="mine", **changes)
    run = Run.create(path, config, record, {})
    run.write_model(to_named(initial_model(config, record, np.full(record.size, 0.05))))
    return run


def run_cli(capsys, *words):
    code = cli.run(["play", *map(str, words)])
    printed = capsys.readouterr()
    return code, printed.out, printed.err


def test_rounding_to_int8_errs_by_half_a_step_of_each_row():
    _, model = made(MUSIC, output="nade")
    exact, near = np.asarray(model.output.readout), np.asarray(rounded(model, "int8").output.readout)
    steps = np.abs(exact).max(axis=1, keepdims=True) / 127
    assert (np.abs(exact - near) <= 0.5001 * steps).all()
    assert np.abs(exact - np.asarray(rounded(model, "f16").output.readout)).max() < 1e-3
    np.testing.assert_array_equal(model.output.visible_bias, rounded(model, "int8").output.visible_bias)


def test_a_row_of_zeros_stays_zero():
    _, model = made(MUSIC, output="bernoulli")
    empty = eqx.tree_at(lambda each: each.output.weights, model, model.output.weights * 0)
    assert not np.asarray(rounded(empty, "int8").output.weights).any()


def test_what_rounding_costs_is_measured_on_validation(tmp_path):
    data = tiny_music()
    run = make_run(tmp_path / "run", data.record)
    fine, coarse = measure(run, "f16", data), measure(run, "int8", data)
    assert fine.exact == coarse.exact
    assert 0 < abs(fine.lost) < abs(coarse.lost) < 0.1


@pytest.mark.parametrize(
    ("after", "told"),
    [(-8.1243, "0.0013 lost"), (-8.1217, "0.0013 better"), (-8.12304, "nothing lost"), (-8.12296, "nothing lost")],
)
def test_what_rounding_gains_is_not_called_lost(after, told, tmp_path, capsys, monkeypatch):
    assert Rounding(-8.123, after).told == told
    make_run(tmp_path / "run", tiny_music().record)
    monkeypatch.setattr("longspan.cli.play._data_of", lambda *_: None)
    monkeypatch.setattr("longspan.playing.packing.measure", lambda *_: Rounding(-8.123, after))
    _, said, _ = run_cli(capsys, tmp_path / "run")
    assert said.endswith(f": {told}\n")


def test_the_page_is_one_file_with_a_tight_policy(tmp_path, capsys):
    make_run(tmp_path / "run", tiny_music().record)
    code, said, _ = run_cli(capsys, tmp_path / "run", "-o", "deep/play.html")
    assert code == 0
    assert "as int8" in said
    assert "was not measured" in said  # there is no data set of this name
    written = (tmp_path / "deep/play.html").read_text()
    assert "default-src 'none'; script-src 'sha256-" in written
    assert "unsafe-eval" not in written
    assert "http://" not in written.replace("http://www.w3.org/2000/svg", "")
    assert "https://" not in written
    code, said, _ = run_cli(capsys, tmp_path / "run", "--weights", "f16", "--json")
    described = json.loads(said)
    assert described["precision"] == "f16"
    assert described["bytes"] == len((tmp_path / "play.html").read_bytes())


def test_python_writes_the_same_page(tmp_path, capsys):
    data = tiny_music()
    make_run(tmp_path / "run", data.record)
    packed = longspan.open_run(tmp_path / "run", data=data).play("python.html")
    assert abs(packed.rounding.lost) < 0.1
    run_cli(capsys, tmp_path / "run", "-o", "shell.html")
    written, other = ((tmp_path / name).read_text() for name in ("python.html", "shell.html"))
    assert packed.content in written
    assert packed.content in other


def test_the_default_model_fits_into_400_kilobytes(tmp_path):
    config = settings("nade:sgd+crm", "bach", "frames")
    run = Run.create(tmp_path / "run", config, MUSIC, {})
    run.write_model(to_named(initial_model(config, MUSIC, np.full(88, 0.05))))
    packed = pack(run)
    assert packed.weights > 100_000
    assert len(base64.b64decode(packed.content)) < 1.1 * packed.weights
    assert len(page.render(packed).encode()) < 400_000


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"cell": "lru"}, "got lru"),
        ({"cell": "multiplicative"}, "got multiplicative"),
        ({"cell": "leaky,context=0.5"}, "got leaky,context=0.5"),
        ({"cell": "gru+rate"}, "got gru+rate"),
        ({"output": "rbm"}, "the outputs bernoulli, nade, softmax, factored, tree: got rbm"),
    ],
)
def test_other_parts_are_refused_by_name(tmp_path, capsys, changes, named):
    make_run(tmp_path / "run", tiny_music().record, **changes)
    code, _, said = run_cli(capsys, tmp_path / "run")
    assert code == 2
    assert named in said
    assert said.count("\n") == 1
    assert not (tmp_path / "play.html").exists()


def test_a_network_with_cues_is_refused(tmp_path, capsys):
    make_run(tmp_path / "run", tiny_music().with_cues("recall").record, cues="recall")
    code, _, said = run_cli(capsys, tmp_path / "run")
    assert code == 2
    assert "got cues recall" in said


def test_frames_with_onsets_are_refused(tmp_path, capsys):
    struck = {split: [np.hstack([song, 0 * song]) for song in songs] for split, songs in tiny_music().splits.items()}
    make_run(tmp_path / "run", MusicData("struck", struck, 1).record)
    code, _, said = run_cli(capsys, tmp_path / "run")
    assert code == 2
    assert "have onsets" in said


def test_other_data_and_broken_runs_are_refused_in_a_line(tmp_path, capsys):
    numbers = Sequences(np.sin(np.arange(90.0))[:, None], name="mine").record
    make_run(tmp_path / "waves", numbers, "sgd+c", output="gaussian")
    Run.create(tmp_path / "empty", settings("sgd+c", "mine", "frames"), tiny_music().record, {})
    for path, expected in (
        ("waves", "plays music and text"),
        ("empty", "has no weights yet"),
        ("nowhere", "expected a run folder"),
    ):
        code, _, said = run_cli(capsys, tmp_path / path)
        assert (code, said.count("\n")) == (2, 1)
        assert expected in said
    code, _, said = run_cli(capsys, tmp_path / "empty", "-o", tmp_path)
    assert code == 2
    assert "is a folder" in said


def test_a_page_is_suggested_for_what_it_runs():
    assert set(PLAYED["cell"]) == set(CELLS)
    assert set(PLAYED["output"]) == set(OUTPUTS)
