"""Checkpoints that are whole or refused: arrays, progress and a manifest of checksums in one renamed folder."""

import os
import shutil
from pathlib import Path
from typing import Generic, NamedTuple, TypeVar

import msgspec
import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load_file, save

from longspan.errors import InputError
from longspan.files import folder_written_whole, sha256_of, write_atomic

Progress = TypeVar("Progress", bound=msgspec.Struct)

KEPT = 2
"""Checkpoints kept, so that one damaged on disk still leaves the one before it."""


def write(folder: Path, number: int, arrays: dict[str, np.ndarray], progress: msgspec.Struct) -> None:
    """Write checkpoint `number` and drop the oldest ones."""
    target = folder / f"{number:09d}"
    if target.exists():  # a resumed run comes by here again, with the same content
        _remove(target)
    with folder_written_whole(target) as temporary:
        write_atomic(temporary / "arrays.safetensors", save(arrays))
        write_atomic(temporary / "progress.json", msgspec.json.encode(progress))
        manifest = {name: sha256_of(temporary / name) for name in ("arrays.safetensors", "progress.json")}
        write_atomic(temporary / "manifest.json", msgspec.json.encode(manifest))
    for old in _numbered(folder)[:-KEPT]:
        _remove(old)


class Checkpoint(NamedTuple, Generic[Progress]):
    """What a checkpoint holds."""

    arrays: dict[str, np.ndarray]
    progress: Progress


def read_newest(folder: Path, progress_type: type[Progress]) -> Checkpoint[Progress] | None:
    """The newest good checkpoint, None if none was ever written; damaged ones are passed over."""
    candidates = _numbered(folder)
    for candidate in reversed(candidates):
        try:
            _verify(candidate)
            arrays = load_file(candidate / "arrays.safetensors")
            progress = msgspec.json.decode((candidate / "progress.json").read_bytes(), type=progress_type)
        except (OSError, ValueError, SafetensorError):
            continue
        return Checkpoint(arrays, progress)
    if candidates:
        raise InputError(f"all {len(candidates)} checkpoints in {folder} are damaged; restore one or start a new run")
    return None


def discard_newer(folder: Path, number: int) -> None:
    """Remove checkpoints after `number`: damaged ones that a resumed run will write again."""
    for path in _numbered(folder):
        if int(path.name) > number:
            _remove(path)


def _verify(folder: Path) -> None:
    manifest = msgspec.json.decode((folder / "manifest.json").read_bytes(), type=dict[str, str])
    for name, checksum in manifest.items():
        if sha256_of(folder / name) != checksum:
            raise ValueError(f"{folder / name} does not have the checksum of its manifest")


def _remove(folder: Path) -> None:
    """Rename first: a kill in the middle of the removal must not leave half a checkpoint under its name."""
    doomed = folder.with_name(f".{folder.name}.removed.{os.getpid()}")
    folder.rename(doomed)
    shutil.rmtree(doomed)


def _numbered(folder: Path) -> list[Path]:
    if not folder.is_dir():
        return []
    return sorted(path for path in folder.iterdir() if path.name.isdigit())
