"""Files of a run folder are read only with their checksums, whatever was interrupted; older folders still open."""

import random
import shutil
import subprocess
import sys
import warnings
from pathlib import Path

import msgspec
import numpy as np
import pytest
from safetensors.numpy import load

from longspan.cli import run as command
from longspan.errors import InputError
from longspan.library import open_run, resume
from longspan.training import seals
from longspan.training.runs import Run, UnsealedRun
from longspan.training.seals import SealedFolder, newest_checkpoint
from longspan.training.state import Progress

FOLDERS = Path(__file__).parent / "folders"
SCORE = -1.3178191
"""Test log-likelihood of both kept folders, printed by the version that made the first one."""


@pytest.fixture
def run_path(tmp_path):
    return Path(shutil.copytree(FOLDERS / "format-2", tmp_path / "run"))


@pytest.fixture
def old_path(tmp_path):
    return Path(shutil.copytree(FOLDERS / "format-1", tmp_path / "old"))


def flip(file: Path, position: int, bit: int = 0) -> None:
    content = bytearray(file.read_bytes())
    content[position] ^= 1 << bit
    file.write_bytes(content)


def test_a_folder_of_this_format_opens_without_a_warning_and_scores_the_same(run_path):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert open_run(run_path).evaluate("test").log_likelihood == pytest.approx(SCORE, abs=1e-5)


def test_a_folder_of_the_first_format_warns_scores_the_same_and_can_be_sealed(old_path):
    with pytest.warns(UnsealedRun, match="longspan seal"):
        assert open_run(old_path).evaluate("test").log_likelihood == pytest.approx(SCORE, abs=1e-5)
    assert command(["seal", str(old_path)]) == 0
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert open_run(old_path).evaluate("test").log_likelihood == pytest.approx(SCORE, abs=1e-5)
    flip(old_path / "model.safetensors", -1)
    with pytest.raises(InputError, match=r"model\.safetensors does not have its checksum"):
        open_run(old_path)


def test_a_folder_of_the_first_format_resumes(old_path):
    with pytest.warns(UnsealedRun):
        run = Run.open(old_path)
    assert not run.files.sealed
    config = msgspec.json.decode((old_path / "config.json").read_bytes())
    config["config"]["max_epochs"] = 4
    (old_path / "config.json").write_bytes(msgspec.json.encode(config))
    with pytest.warns(UnsealedRun):
        resumed = resume(old_path)
    assert [record["epoch"] for record in resumed.run.metrics()] == [1, 2, 3, 4]


@pytest.mark.parametrize("name", ["model.safetensors", "config.json", "metrics.jsonl", "result.json", "timing.jsonl"])
def test_no_flipped_bit_of_a_deciding_file_goes_unnoticed(run_path, name):
    def read():
        run = Run.open(run_path)
        return run.read_model(), run.metrics(), run.timings(), run.result()

    read()
    file, generator = run_path / name, random.Random(name)
    whole = file.read_bytes()
    for _ in range(60):
        flip(file, generator.randrange(len(whole)), generator.randrange(8))
        with pytest.raises(InputError, match=name):
            read()
        file.write_bytes(whole)


def test_without_its_check_damage_would_be_computed_with(run_path, monkeypatch):
    """The control arm: what the checksums are for does happen without them."""
    before = Run.open(run_path).read_model()
    flip(run_path / "model.safetensors", -1, 6)
    monkeypatch.setattr(seals.SealedFolder, "sealed", property(lambda _: False))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        after = SealedFolder(run_path).read("model.safetensors")
    assert after is not None
    assert after != SealedFolder(FOLDERS / "format-2").read("model.safetensors")
    assert before


@pytest.mark.parametrize("damage", ["flip", "delete"])
def test_resuming_restores_a_damaged_model_of_a_finished_run(run_path, damage):
    file = run_path / "model.safetensors"
    whole = load(file.read_bytes())
    flip(file, -1) if damage == "flip" else file.unlink()
    with pytest.raises(InputError, match="longspan resume"):
        open_run(run_path)
    resume(run_path)
    restored = load(file.read_bytes())  # beside the arrays the file names the version that wrote it
    assert {name: array.tobytes() for name, array in restored.items()} == {
        name: array.tobytes() for name, array in whole.items()
    }


def test_removing_the_checksums_does_not_switch_the_check_off(run_path):
    (run_path / "checksums.json").unlink()
    with pytest.raises(InputError, match=r"no checksums\.json"):
        Run.open(run_path)


@pytest.mark.parametrize("content", [b"", b"{}", b"[]", b'{"model.safetensors": [1]}', b"\xff", b'{"a":' * 3000])
def test_checksums_that_name_nothing_or_are_torn_are_refused(run_path, content):
    (run_path / "checksums.json").write_bytes(content)
    with pytest.raises(InputError):
        open_run(run_path)


class Killed(Exception):
    """Stands for a process that ends between two writes."""


@pytest.mark.parametrize("name", ["config.json", "model.safetensors", "result.json", "status.json"])
def test_a_kill_between_checksum_and_file_leaves_the_old_content_readable(run_path, name, monkeypatch):
    files = SealedFolder(run_path)
    before = files.read(name)
    written = seals.write_atomic

    def write_checksums_alone(path, content):
        if path.name == name:
            raise Killed
        written(path, content)

    monkeypatch.setattr(seals, "write_atomic", write_checksums_alone)
    with pytest.raises(Killed):
        files.write(name, b"new")
    assert files.read(name) == before
    monkeypatch.undo()
    files.write(name, b"new")
    assert files.read(name) == b"new"


@pytest.mark.parametrize("name", ["timing.jsonl", "status.json"])
def test_a_kill_at_any_moment_of_a_files_first_write_leaves_a_folder_that_goes_on(run_path, name, monkeypatch):
    files = SealedFolder(run_path)
    first_write = files.append if name in seals.GROWING else files.write
    (run_path / name).unlink()
    moments = 0
    for moment in range(20):
        moments = moment
        files.seal()
        with monkeypatch.context() as patch:
            patch.setattr("os.fsync", killing_at(moment))
            try:
                first_write(name, b"new\n")
            except Killed:
                assert files.read(name) in (None, b"", b"new\n")
                (run_path / name).unlink(missing_ok=True)
            else:
                break
    assert moments >= 3
    assert files.read(name) == b"new\n"
    (run_path / name).unlink()
    with pytest.raises(InputError, match=f"{name} is missing"):
        files.read(name)


def killing_at(moment: int):
    """An `fsync` whose process is killed at a call."""
    left = iter(range(moment, -1, -1))

    def fsync(_):
        if next(left, None) == 0:
            raise Killed

    return fsync


def test_a_torn_last_line_is_neither_read_nor_kept(run_path):
    files = SealedFolder(run_path)
    before = files.read("metrics.jsonl")
    assert before
    with (run_path / "metrics.jsonl").open("ab") as file:
        file.write(b'{"epoch": 4, "valid')
    assert files.read("metrics.jsonl") == before
    assert files.append("metrics.jsonl", b"{}\n") == len(before) + 3
    assert (run_path / "metrics.jsonl").read_bytes() == before + b"{}\n" == files.read("metrics.jsonl")
    files.truncate("metrics.jsonl", len(before))
    assert files.read("metrics.jsonl") == before


def test_a_damaged_file_is_not_vouched_for_when_it_is_replaced(run_path):
    files = SealedFolder(run_path)
    flip(run_path / "result.json", 3)
    damaged = (run_path / "result.json").read_bytes()
    files.write("result.json", b"{}")
    (run_path / "result.json").write_bytes(damaged)
    with pytest.raises(InputError, match=r"result\.json"):
        files.read("result.json")


@pytest.mark.parametrize("manifest", ["{}", "missing one", "one too many"])
def test_a_manifest_must_name_exactly_the_files_of_a_checkpoint(run_path, manifest):
    (newest,) = (run_path / "checkpoints").iterdir()
    assert newest_checkpoint(newest.parent, Progress) is not None
    names = msgspec.json.decode((newest / "manifest.json").read_bytes(), type=dict[str, str])
    changed = {
        "{}": {},
        "missing one": {name: names[name] for name in names if name != "arrays.safetensors"},
        "one too many": names | {"../../config.json": names["progress.json"]},
    }[manifest]
    (newest / "manifest.json").write_bytes(msgspec.json.encode(changed))
    flip(newest / "arrays.safetensors", -1)
    with pytest.raises(InputError, match="damaged"):
        newest_checkpoint(newest.parent, Progress)


def test_a_refused_resume_leaves_the_config_of_the_run_being_trained(run_path):
    before = (run_path / "config.json").read_bytes()
    with Run.open(run_path).locked():
        arguments = [sys.executable, "-m", "longspan", "resume", str(run_path), "--max-epochs", "11"]
        refused = subprocess.run(arguments, capture_output=True, text=True)
    assert refused.returncode == 2
    assert "another process" in refused.stderr
    assert (run_path / "config.json").read_bytes() == before


def test_weights_of_the_kept_folders_are_the_same():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        old, new = (Run.open(FOLDERS / name).read_model() for name in ("format-1", "format-2"))
    for name in old:
        np.testing.assert_allclose(old[name], new[name], atol=1e-6)
