"""A file written by longspan is whole or not there."""

import errno
import os
from pathlib import Path

import platformdirs
import pytest

from longspan.data.benchmarks import data_directory, imported_directory
from longspan.errors import InputError
from longspan.files import cache_directory, replacing


def test_replacing_writes_and_leaves_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "file.bin"
    with replacing(path) as file:
        file.write(b"content")
        assert not path.exists()
    assert path.read_bytes() == b"content"
    assert os.listdir(path.parent) == ["file.bin"]


def write(path: Path, content: bytes, then: BaseException | None = None) -> None:
    with replacing(path) as file:
        file.write(content)
        if then is not None:
            raise then


@pytest.mark.parametrize("interruption", [KeyboardInterrupt(), ValueError()])
def test_an_interrupted_write_keeps_what_was_there(tmp_path: Path, interruption: BaseException) -> None:
    path = tmp_path / "file.bin"
    path.write_bytes(b"old")
    with pytest.raises(type(interruption)):
        write(path, b"new and unfinished", then=interruption)
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["file.bin"]


def test_a_full_disk_is_one_clear_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(InputError, match=r"cannot write .*file\.bin: No space left.*writable folder"):
        write(tmp_path / "file.bin", b"x")
    assert os.listdir(tmp_path) == []


def test_an_unwritable_folder_is_one_clear_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("a file where a folder should be")
    with pytest.raises(InputError, match="cannot write"):
        write(tmp_path / "file" / "data.npz", b"x")


def test_data_directory_prefers_argument_then_variable_then_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(platformdirs, "user_cache_dir", lambda *_, **__: str(tmp_path / "cache"))
    monkeypatch.setenv("LONGSPAN_DATA", str(tmp_path / "variable"))
    assert data_directory(tmp_path / "argument") == tmp_path / "argument"
    assert data_directory() == tmp_path / "variable"
    assert imported_directory() == tmp_path / "variable" / "imported"
    monkeypatch.delenv("LONGSPAN_DATA")
    assert data_directory() == cache_directory() == tmp_path / "cache"
