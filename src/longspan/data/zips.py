"""Untrusted zip archives (`.npz`, `.mxl`, wheels): every size is checked before anything is unpacked.

The table of contents may lie. Its sizes are checked first; `zipfile` then returns no more of a member than the table
says, and a checksum reveals if there is more.
"""

from __future__ import annotations

import io
import os
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from longspan.errors import InputError
from longspan.files import opened
from longspan.limits import ARCHIVE_BYTES, DIRECTORY_BYTES, MEMBERS, most_unpacked

PACKINGS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
ENCRYPTED = 1
BLOCK_BYTES = 2**16


class _Bounded(io.BufferedReader):
    """A file of which `zipfile` gets no more at once than the largest allowed table of contents."""

    opening = True
    """Whether that table is read, which cannot be had in parts."""

    def read(self, size: int | None = -1, /) -> bytes:
        content = super().read(DIRECTORY_BYTES + 1 if size is None or size < 0 else min(size, DIRECTORY_BYTES + 1))
        if self.opening and len(content) > DIRECTORY_BYTES:
            raise ValueError(
                f"its table of contents has more than {DIRECTORY_BYTES} bytes; put several arrays into one"
            )
        return content


@contextmanager
def open_zip(path: Path, what: str) -> Iterator[zipfile.ZipFile]:
    """Open an archive that unpacks to an allowed size; any damage found within the block becomes an `InputError`.

    Args:
        path: the archive.
        what: the expected kind of file as messages call it, such as `.npz file`.
    """
    with opened(path) as file:
        try:
            with _Bounded(file.raw) as bounded, zipfile.ZipFile(bounded) as archive:
                bounded.opening = False
                _check_sizes(archive, os.fstat(file.fileno()).st_size)
                yield archive
        # Damage raises many kinds of exception, from `zipfile`, from decompression and from reading the contents.
        except (OSError, ValueError, EOFError, LookupError, zipfile.BadZipFile, zlib.error, RuntimeError) as error:
            raise InputError(f"{path} is not a readable {what}: {error}") from error


def _check_sizes(archive: zipfile.ZipFile, packed: int) -> None:
    members = archive.infolist()
    if packed > ARCHIVE_BYTES:
        raise ValueError(f"it has {packed} bytes, more than the {ARCHIVE_BYTES} allowed; split it up")
    if len(members) > MEMBERS:
        raise ValueError(f"it has {len(members)} members, more than the {MEMBERS} allowed; put several into one")
    for member in members:
        if member.compress_type not in PACKINGS or member.flag_bits & ENCRYPTED:
            raise ValueError(f"{member.filename} is encrypted or compressed in an unusual way; save it again")
    unpacked, most = sum(member.file_size for member in members), most_unpacked(packed)
    if unpacked > most:
        raise ValueError(
            f"it unpacks to {unpacked} bytes, more than the {most} allowed for its {packed}; "
            "split it up, or save it without compression"
        )


def read_member(archive: zipfile.ZipFile, member: zipfile.ZipInfo, most: int) -> bytes:
    """The content of a member of at most `most` bytes."""
    if member.file_size > most:
        raise ValueError(f"{member.filename} has {member.file_size} bytes, more than the {most} allowed")
    with archive.open(member) as file:
        return b"".join(iter(lambda: file.read(BLOCK_BYTES), b""))
