"""A memory as part of a run: by a letter of the recipe, in the folder, sealed, scored and refused when stale."""

import json
import shutil

import pytest

from longspan import recipes
from longspan.cli import run
from longspan.data.archive import write_set
from longspan.errors import InputError
from longspan.library import open_run, train
from longspan.memory import memory_of
from longspan.reporting.charts import memory_charts
from longspan.reporting.run_report import run_report
from longspan.training.runs import Run
from tests.support.catalog import tiny_music

SMALL = {"hidden_size": 6, "chunk_length": 20, "max_epochs": 2}


@pytest.fixture(scope="module")
def remembering(tmp_path_factory):
    """A run whose recipe asks for memory."""
    return train("sgd+cw", tiny_music(), run_dir=tmp_path_factory.mktemp("runs") / "run", **SMALL)


@pytest.fixture
def folder(remembering, tmp_path):
    shutil.copytree(remembering.run.path, tmp_path / "run")
    return tmp_path / "run"


def test_w_adds_a_memory_and_changes_nothing_else():
    with_memory, without = (recipes.settings(name, "jsb") for name in ("nade:sgd+crmw", "nade:sgd+crm"))
    differing = {name for name in vars(without) if getattr(without, name) != getattr(with_memory, name)}
    assert differing == {"recipe", "memory"}
    assert with_memory.memory == "recall"
    assert recipes.settings("hf+w", "jsb").hidden_size == recipes.settings("hf", "jsb").hidden_size


def test_w_is_refused_where_nothing_can_be_recalled():
    with pytest.raises(InputError, match="no past to recall"):
        recipes.settings("hf+w", "temporal-order")


def test_t_tells_a_network_of_music_of_its_past_and_changes_nothing_else():
    told, plain = (recipes.settings(name, "jsb") for name in ("nade:sgd+t", "nade:sgd"))
    differing = {name for name in vars(plain) if getattr(plain, name) != getattr(told, name)}
    assert differing == {"recipe", "cues"}
    assert told.cues == "recall"
    with pytest.raises(InputError, match="past of songs"):
        recipes.settings("sgd+ct", "ptb-words")


def test_an_unknown_memory_is_refused_before_a_folder_is_made(tmp_path):
    with pytest.raises(InputError, match=r"unknown memory 'recal'.*did you mean recall"):
        train("sgd", tiny_music(), run_dir=tmp_path / "run", memory="recal", **SMALL)
    assert not (tmp_path / "run").exists()


def test_a_run_keeps_its_memory_and_is_scored_with_it(remembering):
    opened = open_run(remembering.run.path)
    found = opened.recollect("test", data=tiny_music())
    assert found.scores == remembering.recollect("test").scores
    assert found.scores.log_likelihood != remembering.evaluate("test").log_likelihood


def test_samples_of_a_run_use_its_memory(remembering, folder):
    drawn = remembering.sample(30, num=2, seed=1)
    without = remembering.sample(30, num=2, seed=1, memory=False)
    assert (drawn != without).any()
    (folder / "memory.json").unlink()
    Run.seal(folder)
    assert (open_run(folder).sample(30, num=2, seed=1) == without).all()


def test_a_damaged_memory_is_refused(folder):
    content = (folder / "memory.json").read_bytes()
    (folder / "memory.json").write_bytes(content.replace(b"any", b"ANY", 1))
    with pytest.raises(InputError, match=r"memory\.json.*checksum"):
        memory_of(Run.open(folder))


def test_a_memory_of_other_weights_is_refused(folder):
    opened = Run.open(folder)
    changed = {name: 2 * value for name, value in opened.read_model().items()}
    opened.write_model(changed)
    with pytest.raises(InputError, match="longspan remember"):
        memory_of(Run.open(folder))


def test_remember_attaches_a_memory_to_a_trained_run(tmp_path, capsys):
    write_set(tmp_path / "tiny.npz", tiny_music())
    flags = [f"--{name.replace('_', '-')}={value}" for name, value in SMALL.items()]
    path = str(tmp_path / "run")
    assert run(["train", "sgd+c", "--data", str(tmp_path / "tiny.npz"), "--run-dir", path, *flags]) == 0
    assert "with memory" not in capsys.readouterr().out
    assert run(["remember", path]) == 0
    assert "with memory (recall)" in capsys.readouterr().out
    assert run(["evaluate", path, "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    kept = json.loads((tmp_path / "run" / "result.json").read_text())
    assert document["with_memory"].items() <= kept["with_memory"].items()
    report = run_report(Run.open(tmp_path / "run"))
    assert report.memory is not None
    assert report.memory.test["log_likelihood"] == document["with_memory"]["test"]["log_likelihood"]
    for trail, chart in zip(report.memory.trails, memory_charts(report.memory), strict=True):
        assert all(place < step < trail.length for step, place in zip(trail.steps, trail.places, strict=True))
        assert len(chart.series[0].points) == len(trail.steps) > 0
    assert document["with_memory"]["test"]["log_likelihood"] == kept["with_memory"]["test"]["log_likelihood"]
