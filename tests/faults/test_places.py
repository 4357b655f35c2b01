"""Places that documents and names of folders lead to: files of others, whole disks, and databases beside the folder."""

import json
import os
import struct
from pathlib import Path

import msgspec
import numpy as np
import pytest
from safetensors.numpy import save

from longspan import files
from longspan.arms.records import SlotResult, WinnerResult, write_lines
from longspan.cli import run as command
from longspan.data import load, music_folder
from longspan.errors import InputError
from longspan.library import train
from longspan.playing.packing import measure_if_here, pack
from longspan.search.storage import default_url, normalized
from longspan.training import records
from longspan.training.runs import Run
from longspan.training.seals import arrays_of
from tests.faults.bombs import good_midi
from tests.support.catalog import tiny_music

SLOT = SlotResult("jsb", 0, "sgd", "done", -1.0, -1.0, 1, 1, 1, "", {}, "0" * 8, "1", "avx2")
WINNER = WinnerResult("jsb", 0, "sgd", 1, "done", -1.0, -1.0, {"log_likelihood": -1.0}, 1, "0" * 8, "1", "avx2")


@pytest.mark.parametrize("ending", ["winners", "timing"])
def test_a_data_set_cannot_be_named_like_the_file_of_another(tmp_path, capfd, ending):
    kept = tmp_path / "merged" / f"jsb.{ending}.jsonl"
    write_lines(kept, [WINNER])
    before = kept.read_bytes()
    document = msgspec.to_builtins(SLOT) | {"data": f"jsb.{ending}"}
    (tmp_path / "shard.jsonl").write_text(json.dumps(document) + "\n")
    assert command(["merge", str(tmp_path / "shard.jsonl"), "-o", str(tmp_path / "merged")]) == 2
    assert "which has a dot" in capfd.readouterr().err
    assert kept.read_bytes() == before


def test_results_on_data_that_are_not_compared_are_not_merged(tmp_path, capfd):
    document = msgspec.to_builtins(SLOT) | {"data": "other"}
    (tmp_path / "shard.jsonl").write_text(json.dumps(document) + "\n")
    assert command(["merge", str(tmp_path / "shard.jsonl"), "-o", str(tmp_path / "merged")]) == 2
    assert "methods are not compared on 'other'" in capfd.readouterr().err
    assert not (tmp_path / "merged").exists()


@pytest.mark.parametrize("name", ["what?", "a?timeout=0"])
def test_the_storage_of_a_folder_is_in_that_folder(tmp_path, name):
    assert default_url(tmp_path) == f"sqlite:///{tmp_path}/study.db"
    for url in (lambda: default_url(tmp_path / name), lambda: normalized(f"sqlite:///{tmp_path}/{name}/study.db")):
        with pytest.raises(InputError, match="cannot have a question mark"):
            url()


def test_a_folder_that_is_a_whole_disk_is_not_searched_for_music(tmp_path, monkeypatch):
    for number in range(3):
        good_midi(tmp_path / f"{number}.mid", number)
    monkeypatch.setattr(music_folder, "FOLDER_ENTRIES", 3)
    assert load(str(tmp_path)).target_kind == "frames"
    (tmp_path / "notes.txt").touch()
    with pytest.raises(InputError, match="more than 3 files and subfolders"):
        load(str(tmp_path))


def test_a_report_reads_no_data_from_the_path_that_a_run_names(tmp_path, monkeypatch):
    trained = train("sgd", tiny_music(), run_dir=tmp_path / "run", hidden_size=3, max_epochs=1)
    description = json.loads((tmp_path / "run" / "config.json").read_text())
    description["config"]["data"] = str(tmp_path)
    (tmp_path / "run" / "config.json").write_text(json.dumps(description))
    Run.seal(trained.run.path)
    stranger = Run.open(tmp_path / "run")
    monkeypatch.setattr("longspan.data.music_folder._entries", lambda folder: pytest.fail(f"searched {folder}"))
    assert measure_if_here(stranger, pack(stranger).precision) is None


def test_a_span_is_refused_whose_sequences_would_fill_the_memory():
    with pytest.raises(InputError, match="span must be"):
        load("temporal-order", span=100_000)


def test_weights_whose_header_names_a_flood_of_arrays_are_refused(tmp_path):
    names = {str(number): {"dtype": "F32", "shape": [0], "data_offsets": [0, 0]} for number in range(20_000)}
    header = json.dumps(names).encode()
    with pytest.raises(InputError, match="more than that of any model"):
        arrays_of(struct.pack("<Q", len(header)) + header, tmp_path / "model.safetensors", "restore it")
    assert arrays_of(save({"a": np.zeros(3)}), tmp_path, "").keys() == {"a"}  # the control


def test_a_file_that_is_swapped_for_a_link_in_the_meantime_is_not_written_through(tmp_path, monkeypatch):
    (tmp_path / "precious").write_bytes(b"precious")
    (tmp_path / "metrics.jsonl").symlink_to(tmp_path / "precious")
    monkeypatch.setattr(files, "_detach", lambda path: None)  # it looked before the swap
    with pytest.raises(InputError), files.changing(tmp_path / "metrics.jsonl", "ab") as file:
        file.write(b"more")
    (tmp_path / "other.jsonl").hardlink_to(tmp_path / "precious")
    with pytest.raises(InputError, match="somebody else"), files.changing(tmp_path / "other.jsonl", "ab") as file:
        file.write(b"more")
    assert (tmp_path / "precious").read_bytes() == b"precious"


def test_no_more_memory_is_asked_for_than_a_file_has_bytes(tmp_path):
    (tmp_path / "small").write_bytes(b"small")
    with pytest.raises(MemoryError):
        bytes(2**60)  # the control
    assert files.read_limited(tmp_path / "small", 2**60) == b"small"


def test_a_file_that_grows_while_it_is_read_is_read_to_its_end(tmp_path, monkeypatch):
    (tmp_path / "growing").write_bytes(b"more than was there" * 200_000)
    real = os.fstat
    monkeypatch.setattr(os, "fstat", lambda number: os.stat_result((*real(number)[:6], 5, *tuple(real(number)[7:]))))
    assert len(files.read_limited(tmp_path / "growing", 10**8)) == 19 * 200_000
    with pytest.raises(InputError, match="more than the 100 allowed"):
        files.read_limited(tmp_path / "growing", 100)


def test_lines_of_metrics_have_what_is_relied_on():
    (line,) = records.lines(b'{"epoch": 1, "valid_log_likelihood": -1.0}\n', records.Validation, Path("metrics.jsonl"))
    assert (line["exact"], line["step"], line["train_log_likelihood"]) == (True, 0, None)
