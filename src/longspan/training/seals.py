"""Checksums of the files of a run folder, kept in `checksums.json`: damaged files are refused, never used.

For each file, `checksums.json` lists the contents it may have. Before a file changes, its next content is added beside
the present one, so that being killed between the two writes leaves a file that still matches; before its first write,
that it may be absent is listed too, until it is there. A file that grows by lines may end in a part that is not listed
yet; readers see the longest prefix that is.
"""

import hashlib
import os
from collections.abc import Mapping
from pathlib import Path

import msgspec

from longspan.errors import InputError
from longspan.files import explain_disk_errors, read_json, read_limited, write_atomic
from longspan.limits import RUN_FILE_BYTES

FILE = "checksums.json"
GROWING = ("metrics.jsonl", "timing.jsonl")
READINGS = 3
"""Attempts to read: a process that trains the run may change a file and its checksum between the reader's two reads."""
WHOLE = ("config.json", "environment.json", "status.json", "model.safetensors", "result.json")


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

Seals = dict[str, list[Content]]


class SealedFolder:
    """The files of a folder, each read and written together with its checksum.

    A folder from a version without checksums is read and written without them; `seal` adds them.
    """

    def __init__(self, path: Path):
        self.path = path

    @property
    def sealed(self) -> bool:
        """Whether the folder has checksums."""
        return (self.path / FILE).exists()

    def seal(self) -> list[str]:
        """Write checksums of the files as they are now; return their names."""
        contents = {name: (self.path / name).read_bytes() for name in (*WHOLE, *GROWING) if (self.path / name).exists()}
        self._write_seals({name: [Content.of(content)] for name, content in contents.items()})
        return list(contents)

    def write(self, name: str, content: bytes) -> None:
        """Replace a file so that it matches its checksum even if this is interrupted at any moment."""
        file = self.path / name
        present = file.read_bytes() if file.exists() else None
        self._announce(name, present, content)
        write_atomic(file, content)
        self._settle(name, present, content)

    def append(self, name: str, line: bytes) -> int:
        """Append a line to a growing file, replacing a line torn by a crash; return the file's size."""
        present = self.read(name)
        before = present or b""
        self._announce(name, present, before + line)
        with explain_disk_errors(self.path), (self.path / name).open("r+b" if before else "wb") as file:
            file.truncate(len(before))
            file.seek(len(before))
            file.write(line)
            file.flush()
            os.fsync(file.fileno())
        self._settle(name, present, before + line)
        return len(before) + len(line)

    def truncate(self, name: str, size: int) -> None:
        """Truncate a growing file to its first `size` bytes."""
        before = (self.path / name).read_bytes() if (self.path / name).exists() else b""
        known = self._read_seals().get(name, []) if self.sealed else [Content.of(before)]
        if not any(size <= seal.size and seal.begins(before) for seal in known):
            raise InputError(f"the first {size} bytes of {self.path / name} are damaged: restore it or start again")
        self._announce(name, before, before[:size])
        with explain_disk_errors(self.path):
            os.truncate(self.path / name, size)

    def read(self, name: str, remedy: str = "") -> bytes | None:
        """The content of a file; None if it does not exist.

        A file that does not match its checksum is refused, with the advice `remedy`, by default to restore it.
        """
        file, content = self.path / name, None
        for _ in range(READINGS):
            content = read_limited(file, RUN_FILE_BYTES) if file.exists() else None
            if not self.sealed:
                return content
            size = self._known_size(name, content, self._read_seals().get(name, []))
            if size is not None:
                return content if content is None else content[:size]
        what = "is missing" if content is None else "does not have its checksum, so it is damaged or was edited"
        accept = f"restore it, or accept it as it is by `longspan seal {self.path}`"
        raise InputError(f"{file} {what}: {remedy or accept}")

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

    def _announce(self, name: str, present: bytes | None, following: bytes) -> None:
        """List the next content of a file beside its present one, unless the present one is damaged."""
        if not self.sealed:
            return
        seals = self._read_seals()
        known = seals.get(name, [ABSENT])
        kept = [seal for seal in known if seal == (ABSENT if present is None else Content.of(present))]
        self._write_seals({**seals, name: list(dict.fromkeys([*kept, Content.of(following)]))})

    def _settle(self, name: str, before: bytes | None, content: bytes) -> None:
        """After a file's first write: it may no longer be absent."""
        if self.sealed and before is None:
            self._write_seals({**self._read_seals(), name: [Content.of(content)]})

    def _read_seals(self) -> Seals:
        return read_json(self.path / FILE, Seals, f"recreate it by `longspan seal {self.path}`")

    def _write_seals(self, seals: Mapping[str, list[Content]]) -> None:
        write_atomic(self.path / FILE, msgspec.json.format(msgspec.json.encode(seals), indent=2) + b"\n")
