"""`longspan export`: files that others can load, whole or not at all."""

import json
from pathlib import Path

import pytest

import longspan
from longspan.cli import run
from tests.support.catalog import TINY, tiny_music


@pytest.fixture(scope="module")
def trained(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "my run"
    longspan.train("nade:sgd+c", tiny_music(), run_dir=folder, **{**TINY, "max_epochs": 1})
    return folder


@pytest.mark.parametrize(
    ("format_", "names"),
    [("onnx", {"my_run.onnx"}), ("torch", {"my_run.safetensors", "my_run.py"}), ("numpy", {"my_run.py"})],
)
def test_files_are_called_like_the_run(trained, tmp_path, capsys, format_, names):
    assert run(["export", str(trained), "--format", format_, "-o", str(tmp_path / "new"), "--json"]) == 0
    described = json.loads(capsys.readouterr().out)
    assert {path.name for path in (tmp_path / "new").iterdir()} == names
    assert {Path(path).name for path in described["files"]} == names


def test_a_file_that_is_there_is_replaced_only_on_request(trained, tmp_path, capsys):
    arguments = ["export", str(trained), "--format", "numpy", "-o", str(tmp_path)]
    (tmp_path / "my_run.py").write_text("mine")
    assert run(arguments) == 2
    assert "already there" in capsys.readouterr().err
    assert (tmp_path / "my_run.py").read_text() == "mine"
    assert run([*arguments, "--replace"]) == 0
    assert "nothing but NumPy" in (tmp_path / "my_run.py").read_text()


def test_a_name_that_python_could_not_import_is_refused(trained, tmp_path, capsys):
    assert run(["export", str(trained), "--name", "my-run", "-o", str(tmp_path)]) == 2
    assert "--name" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(("format_", "name"), [("numpy", "json"), ("numpy", "numpy"), ("torch", "torch")])
def test_an_exported_file_shadows_no_module_that_it_needs(trained, tmp_path, capsys, format_, name):
    assert run(["export", str(trained), "--format", format_, "--name", name, "-o", str(tmp_path / "new")]) == 2
    assert "would shadow" in capsys.readouterr().err
    assert not (tmp_path / "new").exists()
