"""Verified files of a run folder: damaged files and checkpoints are refused, never used.

Seals. For each file, `checksums.json` lists the contents it may have. Before a file changes, its next content is added
beside the present one, so that being killed between the two writes leaves a file that still matches; before its first
write, absence is listed as allowed, too, until the file exists. A file that grows by lines may end in a part that is
not listed yet; readers see the longest prefix that is.

Checkpoints. Arrays, progress and a manifest of checksums are written to one folder, which is renamed into place, so
that a checkpoint is there whole or not at all.
"""

import hashlib
import os
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Generic, TypeVar

import msgspec
import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load, save

from longspan.errors import InputError, to_paste
from longspan.files import (
    changing,
    decode_json,
    discard,
    explain_disk_errors,
    folder_written_whole,
    read_json,
    read_limited,
    refuse_link,
    temporary_name,
    write_atomic,
)
from longspan.limits import JSON_BYTES, RESULTS_BYTES, RUN_FILE_BYTES, WEIGHTS_HEADER_BYTES
from longspan.pretrained import HOME

FILE = "checksums.json"
GROWING = ("metrics.jsonl", "timing.jsonl")
READINGS = 1000
"""Attempts to read a file of a run that another process is training, each of which a write may have come between."""
WHOLE = (
    "config.json",
    "environment.json",
    "start.safetensors",
    "status.json",
    "model.safetensors",
    "memory.json",
    "result.json",
    "diagnosis.json",
)


def most_bytes(name: str) -> int:
    """Size that a file of a run may have: only weights are large."""
    if name.endswith(".safetensors"):
        return RUN_FILE_BYTES
    return RESULTS_BYTES if name in GROWING else JSON_BYTES


class Content(msgspec.Struct, frozen=True):
    """An allowed content of a file: its size in bytes and its checksum."""

    size: int
    sha256: str

    @staticmethod
    def of(content: bytes) -> "Content":
        return Content(len(content), hashlib.sha256(content).hexdigest())

    def begins(self, content: bytes) -> bool:
        """Whether `content` starts with this content."""
        return len(content) >= self.size and Content.of(content[: self.size]) == self


ABSENT = Content(0, "absent")
"""Listed in place of a content while a file is written for the first time."""

Seals = dict[str, Annotated[list[Content], msgspec.Meta(max_length=8)]]
"""By file; being killed leaves no more than three contents of any."""


class SealedFolder:
    """The files of a folder, each read and written together with its checksum.

    One process at a time may write, and must hold the run's lock; any number may read meanwhile. A folder from a
    version without checksums is read and written without them; `seal` adds them.
    """

    def __init__(self, path: Path):
        self.path = path
        self._may_link = path.parent == HOME  # installers may link the files of a package to a cache of theirs
        self._completed: dict[str, Content] = {}

    @property
    def sealed(self) -> bool:
        """Whether the folder has checksums."""
        return os.path.lexists(self.path / FILE)

    def seal(self) -> list[str]:
        """Write checksums of the files as they are now; return their names."""
        found = {name: self._content(name) for name in (*WHOLE, *GROWING)}
        contents = {name: content for name, content in found.items() if content is not None}
        self._write_seals({name: [Content.of(content)] for name, content in contents.items()})
        return list(contents)

    def write(self, name: str, content: bytes) -> None:
        """Replace a file so that it matches its checksum even if this is interrupted at any moment."""
        found = self._content(name)
        present = ABSENT if found is None else Content.of(found)
        known = self._read_seals().get(name, [ABSENT]) if self.sealed else []
        self._announce(name, [present] if present in known else [], content)  # a damaged content is not vouched for
        write_atomic(self.path / name, content)
        self._complete(name, present, content)

    def append(self, name: str, line: bytes) -> int:
        """Append a line to a growing file, replacing a line torn by a crash; return the file's size."""
        present = self.read(name)
        before, file = present or b"", self.path / name
        if present is not None and file.stat().st_size > len(before):
            # First, because a new line that is shorter than the torn one would be taken for damaged until written.
            _truncate(file, len(before))
        vouched = ABSENT if present is None else Content.of(before)
        self._announce(name, [vouched], before + line)
        with changing(file, "ab") as opened:
            opened.write(line)
        self._complete(name, vouched, before + line)
        return len(before) + len(line)

    def truncate(self, name: str, size: int) -> None:
        """Truncate a growing file to its first `size` bytes."""
        before = self._content(name) or b""
        known = self._read_seals().get(name, []) if self.sealed else [Content.of(before)]
        if not any(0 <= size <= seal.size and seal.begins(before) for seal in known):
            raise InputError(f"the first {size} bytes of {self.path / name} are damaged: restore it or start again")
        self._announce(name, [], before[:size])
        _truncate(self.path / name, size)

    def remove(self, name: str) -> None:
        """Remove a file and its checksum."""
        if self.sealed:
            seals = self._read_seals()
            self._write_seals({**seals, name: list(dict.fromkeys([*seals.get(name, []), ABSENT]))})
        with explain_disk_errors(self.path):
            (self.path / name).unlink(missing_ok=True)

    def read(self, name: str, remedy: str = "") -> bytes | None:
        """The content of a file; None if it does not exist.

        A file that does not match its checksum is refused, with the advice `remedy`, by default to restore it.
        """
        file = self.path / name
        for _ in range(READINGS):
            seals = self._read_seals() if self.sealed else None
            content = self._content(name)
            if seals is None:
                return content
            size = self._known_size(name, content, seals.get(name, []))
            if size is not None:
                return content if content is None else content[:size]
            if self._read_seals() == seals:  # otherwise the file was changed while it was read
                break
        what = "does not have its checksum, so it is damaged or was edited" if file.exists() else "is missing"
        accept = f"restore it, or accept it as it is by `{to_paste('seal', self.path)}`"
        raise InputError(f"{file} {what}: {remedy or accept}")

    def _content(self, name: str) -> bytes | None:
        """The content of a file as it is, vouched for or not; None if it does not exist."""
        file = self.path / name
        return read_limited(file, most_bytes(name), follow=self._may_link) if os.path.lexists(file) else None

    def _known_size(self, name: str, content: bytes | None, known: list[Content]) -> int | None:
        """Size of the part of a file that matches a checksum; None if the file is damaged."""
        may_be_absent = not known or ABSENT in known
        if content is None:
            return 0 if may_be_absent else None
        if name in GROWING:
            # Longer ones were never written completely.
            whole = [seal for seal in known if seal.size <= len(content) and seal != ABSENT]
            longest = max(whole, key=lambda seal: seal.size, default=None)
            if longest is None:
                return 0 if may_be_absent else None
            return longest.size if longest.begins(content) else None
        return len(content) if Content.of(content) in known else None

    def _announce(self, name: str, vouched: list[Content], following: bytes) -> None:
        """List the next content of a file beside those that it may have until then."""
        if self.sealed:
            self._write_seals({**self._read_seals(), name: list(dict.fromkeys([*vouched, Content.of(following)]))})

    def _complete(self, name: str, before: Content, content: bytes) -> None:
        """Note that a file is written: after its first write at once, otherwise with the next change of any file."""
        if not self.sealed:
            return
        self._completed[name] = Content.of(content)
        if before == ABSENT:
            self._write_seals(self._read_seals())

    def _read_seals(self) -> Seals:
        advice = f"recreate it by `{to_paste('seal', self.path)}`"
        return read_json(self.path / FILE, Seals, advice, follow=self._may_link)

    def _write_seals(self, seals: Mapping[str, list[Content]]) -> None:
        # Of a file whose last write is complete, earlier contents are no longer valid.
        settled = {
            name: [content] for name, content in self._completed.items() if content == seals.get(name, [ABSENT])[-1]
        }
        self._completed = {}
        content = msgspec.json.encode({**seals, **settled})
        write_atomic(self.path / FILE, msgspec.json.format(content, indent=2) + b"\n")


def arrays_of(content: bytes, file: Path, remedy: str) -> dict[str, np.ndarray]:
    """The arrays in the content of a safetensors file; `remedy` says what to do if there are none."""
    header = int.from_bytes(content[:8], "little")
    if header > WEIGHTS_HEADER_BYTES:
        raise InputError(f"{file} is damaged (its header has {header} bytes, more than that of any model): {remedy}")
    try:
        return load(content)
    # Types that NumPy lacks, such as BF16, are a KeyError.
    except (SafetensorError, KeyError, ValueError, TypeError, OverflowError) as error:
        raise InputError(f"{file} is damaged ({type(error).__name__}: {error}): {remedy}") from error


def _truncate(file: Path, size: int) -> None:
    with changing(file, "r+b") as opened:
        opened.truncate(size)


Progress = TypeVar("Progress", bound=msgspec.Struct)

CHECKED = {"arrays.safetensors": RUN_FILE_BYTES, "progress.json": JSON_BYTES}
"""The files a manifest must name, no more and no fewer, with the most bytes each may have: an empty manifest would
accept anything."""
_NUMBER = re.compile(r"[0-9]{9,18}")
KEPT = 2
"""Number of checkpoints kept, so that if one is damaged on disk, the one before it is left."""


def write_checkpoint(folder: Path, number: int, arrays: dict[str, np.ndarray], progress: msgspec.Struct) -> None:
    """Write checkpoint `number` and remove the oldest ones."""
    target = folder / f"{number:09d}"
    if os.path.lexists(
        target
    ):  # of the same update, before the epoch that it ends was judged, or before the run was resumed
        _remove(target)
    with folder_written_whole(target) as temporary:
        contents = {"arrays.safetensors": save(arrays), "progress.json": msgspec.json.encode(progress)}
        for name, content in contents.items():
            write_atomic(temporary / name, content)
        write_atomic(temporary / "manifest.json", msgspec.json.encode(_checksums(contents)))
    for old in _numbered(folder)[:-KEPT]:
        _remove(old)


@dataclass(frozen=True)
class Checkpoint(Generic[Progress]):
    """The contents of a checkpoint."""

    arrays: dict[str, np.ndarray]
    progress: Progress


def newest_checkpoint(folder: Path, progress_type: type[Progress]) -> Checkpoint[Progress] | None:
    """Read the newest intact checkpoint, skipping damaged ones; None if none was ever written."""
    candidates = _numbered(folder)
    for candidate in reversed(candidates):
        with suppress(InputError):
            return _read_checkpoint(candidate, progress_type)
    if candidates:
        raise InputError(f"all {len(candidates)} checkpoints in {folder} are damaged; restore one or start a new run")
    return None


def newest_checkpoint_number(folder: Path) -> int:
    """Number of the newest checkpoint, intact or not; -1 if there is none."""
    return max((int(path.name) for path in _numbered(folder)), default=-1)


def discard_newer_checkpoints(folder: Path, number: int) -> None:
    """Remove checkpoints after `number`; a resumed run will write them again."""
    for path in _numbered(folder):
        if int(path.name) > number:
            _remove(path)


def _read_checkpoint(folder: Path, progress_type: type[Progress]) -> Checkpoint[Progress]:
    """Read a checkpoint, refusing one that is damaged or is a link."""
    refuse_link(folder)
    manifest = read_json(folder / "manifest.json", dict[str, str], _RESTORE, follow=False)
    contents = {name: read_limited(folder / name, most, follow=False) for name, most in CHECKED.items()}
    if manifest != _checksums(contents):
        raise InputError(f"the files of {folder} do not have the checksums of its manifest: {_RESTORE}")
    arrays, progress = (folder / name for name in CHECKED)
    return Checkpoint(
        arrays_of(contents[arrays.name], arrays, _RESTORE),
        decode_json(contents[progress.name], progress_type, progress, _RESTORE),
    )


_RESTORE = "restore the checkpoint or start a new run"


def _checksums(contents: Mapping[str, bytes]) -> dict[str, str]:
    return {name: hashlib.sha256(content).hexdigest() for name, content in contents.items()}


def _remove(path: Path) -> None:
    """Rename first, so that being killed during removal does not leave a partial checkpoint under its name."""
    doomed = temporary_name(path)
    path.rename(doomed)
    discard(doomed)


def _numbered(folder: Path) -> list[Path]:
    """What is named like a checkpoint, even a link, which is never intact; the rest is not ours to read or remove."""
    if not refuse_link(folder).is_dir():
        return []
    return sorted(path for path in folder.iterdir() if _NUMBER.fullmatch(path.name))
