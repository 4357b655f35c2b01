"""Atomic, verified checkpoints: arrays, progress and a manifest of checksums in one folder, renamed into place."""

import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

import msgspec
import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load_file, save

from longspan.errors import InputError
from longspan.files import folder_written_whole, sha256_of, temporary_name, write_atomic

Progress = TypeVar("Progress", bound=msgspec.Struct)

CHECKED = ("arrays.safetensors", "progress.json")
"""The files a manifest must name, no more and no fewer: an empty manifest would accept anything."""
KEPT = 2
"""Number of checkpoints kept, so that if one is damaged on disk, the one before it is left."""


def write(folder: Path, number: int, arrays: dict[str, np.ndarray], progress: msgspec.Struct) -> None:
    """Write checkpoint `number` and remove the oldest ones."""
    target = folder / f"{number:09d}"
    if target.exists():  # of the same update, before the epoch that it ends was judged, or before the run was resumed
        _remove(target)
    with folder_written_whole(target) as temporary:
        write_atomic(temporary / "arrays.safetensors", save(arrays))
        write_atomic(temporary / "progress.json", msgspec.json.encode(progress))
        manifest = {name: sha256_of(temporary / name) for name in CHECKED}
        write_atomic(temporary / "manifest.json", msgspec.json.encode(manifest))
    for old in _numbered(folder)[:-KEPT]:
        _remove(old)


@dataclass(frozen=True)
class Checkpoint(Generic[Progress]):
    """The contents of a checkpoint."""

    arrays: dict[str, np.ndarray]
    progress: Progress


def read_newest(folder: Path, progress_type: type[Progress]) -> Checkpoint[Progress] | None:
    """Read the newest intact checkpoint, skipping damaged ones; None if none was ever written."""
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


def newest_number(folder: Path) -> int:
    """Number of the newest checkpoint, intact or not; -1 if there is none."""
    return max((int(path.name) for path in _numbered(folder)), default=-1)


def discard_newer(folder: Path, number: int) -> None:
    """Remove checkpoints after `number`; a resumed run will write them again."""
    for path in _numbered(folder):
        if int(path.name) > number:
            _remove(path)


def _verify(folder: Path) -> None:
    manifest = msgspec.json.decode((folder / "manifest.json").read_bytes(), type=dict[str, str])
    if manifest != {name: sha256_of(folder / name) for name in CHECKED}:
        raise ValueError(f"the files of {folder} do not have the checksums of its manifest")


def _remove(folder: Path) -> None:
    """Rename first, so that being killed during removal does not leave a partial checkpoint under its name."""
    doomed = temporary_name(folder)
    folder.rename(doomed)
    shutil.rmtree(doomed)


def _numbered(folder: Path) -> list[Path]:
    if not folder.is_dir():
        return []
    return sorted(path for path in folder.iterdir() if path.name.isdigit())
