"""Checkpoints of slots, kept where workers on other machines find them: in the study's server, or at a URL of fsspec.

A slot that moves to a machine without its folder continues from here. What is kept is the run folder packed into one
object, with the checksums it has on disk, so it is verified like any other run folder; names in it are checked before
they become paths. The place is named by the user of a worker, never by the storage, whose owner could otherwise choose
where a worker writes.

A host that was cut off must not replace what others have kept of its slot since, not even by what it sent before. So
something is kept on behalf of a claim, and in the server by one statement that finds the claim's attempt still running.
"""

import hashlib
import io
import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Protocol

import msgspec

from longspan.errors import InputError
from longspan.files import (
    discard,
    folder_written_whole,
    read_limited,
    refuse_link,
    temporary_name,
    write_atomic,
)
from longspan.limits import ARTIFACT_BYTES, JSON_BYTES
from longspan.search import storage
from longspan.training.records import Environment, document
from longspan.training.runs import Run
from longspan.training.seals import CHECKED, GROWING, WHOLE, newest_checkpoint_number
from longspan.training.seals import FILE as CHECKSUMS

FORMAT = 2
PACKED = (*WHOLE, *GROWING, CHECKSUMS, "README.md")
SMALL_MAP = range(0x80, 0x90)
"""How MessagePack begins a map of at most 15 entries: the files of a run folder and the three of a checkpoint."""
_OF_A_CHECKPOINT = re.compile(r"checkpoints/[0-9]{9}/(arrays\.safetensors|progress\.json|manifest\.json)")


class Holder(Protocol):
    """Who may keep something of a slot: a claim of `longspan.search.study`."""

    slot: int
    attempt: int

    def check(self) -> None:
        """Raise an exception if the slot has been given to somebody else."""
        ...


class ArtifactStore(Protocol):
    """Objects by name, as in Optuna's artifact stores; one that is not there is a `FileNotFoundError`."""

    def open_reader(self, artifact_id: str) -> BinaryIO: ...

    def write(self, artifact_id: str, content_body: BinaryIO, holder: Holder) -> None:
        """Put an object in its place, unless what the holder's `check` says is that it must not."""
        ...

    def remove(self, artifact_id: str) -> None: ...


class Packed(msgspec.Struct, frozen=True):
    """A run folder with its newest checkpoint."""

    step: int
    """Number of that checkpoint."""
    files: dict[str, bytes]
    format: int = FORMAT

    @property
    def environment(self) -> dict:
        """The versions and machine of the process that left it."""
        content = self.files.get("environment.json", b"{}")
        if len(content) > JSON_BYTES:
            raise InputError("the environment of a packed run is larger than any")
        return document(content, Environment, Path("environment.json"))


class _Unread(msgspec.Struct, frozen=True):
    """What was packed, with the files still unread: a map may claim any number of them."""

    step: int
    files: msgspec.Raw
    format: int

    def read(self) -> Packed:
        if memoryview(self.files)[0] not in SMALL_MAP:
            raise msgspec.ValidationError("more files than a run folder has")
        return Packed(self.step, msgspec.msgpack.decode(self.files, type=dict[str, bytes]), self.format)


@dataclass(frozen=True)
class SlotArtifacts:
    """The packed run folders of a study's slots."""

    store: ArtifactStore
    study: str

    def save(self, holder: Holder, run: Run) -> None:
        """Keep the run folder of a claimed slot as it is now; the run must be locked."""
        content = pack(run)
        digest = hashlib.sha256(content).digest()
        self.store.write(self._name(holder.slot), io.BytesIO(digest + content), holder)

    def fetch(self, slot: int) -> Packed | None:
        """What was kept of a slot; None if nothing, or nothing usable, is there."""
        try:
            with self.store.open_reader(self._name(slot)) as reader:
                found = reader.read(ARTIFACT_BYTES + 1)
        except FileNotFoundError:
            return None
        if len(found) > ARTIFACT_BYTES or hashlib.sha256(found[32:]).digest() != found[:32]:
            return None
        try:
            packed = msgspec.msgpack.decode(memoryview(found)[32:], type=_Unread).read()
            _ = packed.environment  # which is needed, and may be anything
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, InputError):
            return None
        known = all(name in PACKED or _OF_A_CHECKPOINT.fullmatch(name) for name in packed.files)
        return packed if known and packed.format == FORMAT else None

    def forget(self, slot: int) -> None:
        """Remove what was kept of a slot."""
        with suppress(FileNotFoundError):
            self.store.remove(self._name(slot))

    def _name(self, slot: int) -> str:
        return f"{self.study}-slot-{slot:04d}"


def pack(run: Run, most: int = ARTIFACT_BYTES) -> bytes:
    """The files of a run folder and of its newest checkpoint, in less than `most` bytes."""
    step = newest_checkpoint_number(run.path / "checkpoints")
    names = [*PACKED, *(f"checkpoints/{step:09d}/{name}" for name in (*CHECKED, "manifest.json"))]
    refuse_link(run.path / "checkpoints" / f"{step:09d}")  # or what it leads to would be sent to others
    found = [name for name in names if os.path.lexists(run.path / name)]
    files = {name: read_limited(run.path / name, most, follow=False) for name in found}
    content = msgspec.msgpack.encode(Packed(step, files))
    if len(content) > most - 32:
        raise InputError(f"{run.path} takes {len(content)} bytes, more than the {most} that are kept for others")
    return content


def unpack(packed: Packed, path: Path) -> None:
    """Write a packed run folder to a path, in place of what is there; its files are verified when they are read."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with folder_written_whole(path) as folder:
        (folder / "checkpoints").mkdir()
        for name, content in packed.files.items():
            write_atomic(folder / name, content)
        if os.path.lexists(path):
            old = temporary_name(path)
            path.rename(old)
            discard(old)


def open_artifacts(url: str | None, storage_url: str, study: str, engine: Any) -> SlotArtifacts | None:
    """The place at a URL; without one the storage if it is a server, and none for a file, which is on this machine."""
    if url is not None:
        return SlotArtifacts(_FolderOfAnySystem(url), study)
    if storage_url.startswith(storage.SQLITE):
        return None
    table = _Table(engine)
    if not table.exists():
        with storage.claim_lock(storage_url, "tables", engine) as connection:
            table.table.create(connection, checkfirst=True)  # under a lock: two processes might create it at once
    return SlotArtifacts(table, study)


KEEP = """INSERT INTO longspan_artifacts (id, content)
    SELECT CAST(:id AS text), CAST(:content AS bytea) FROM trials
    WHERE trial_id = :attempt AND state = 'RUNNING' FOR SHARE
    ON CONFLICT (id) DO UPDATE SET content = excluded.content"""
"""Whoever ends the attempt waits for this, or this for them: it may arrive long after it was sent."""


class _Table:
    """Artifacts in a table of the study's database."""

    def __init__(self, engine: Any):
        from sqlalchemy import Column, LargeBinary, MetaData, Table, Text

        self.engine = storage.at_once(engine)
        columns = Column("id", Text, primary_key=True), Column("content", LargeBinary, nullable=False)
        self.table = Table("longspan_artifacts", MetaData(), *columns)

    def exists(self) -> bool:
        from sqlalchemy import text

        with self.engine.connect() as connection:  # SQLAlchemy's own question takes the server three times as long
            return connection.execute(text("SELECT to_regclass(:name)"), {"name": self.table.name}).scalar() is not None

    def open_reader(self, artifact_id: str) -> BinaryIO:
        from sqlalchemy import func, select

        with self.engine.connect() as connection:
            content = self.table.c.content
            query = select(content).where((self.table.c.id == artifact_id) & (func.length(content) <= ARTIFACT_BYTES))
            row = connection.execute(query).first()
        if row is None:
            raise FileNotFoundError(artifact_id)
        return io.BytesIO(row.content)

    def write(self, artifact_id: str, content_body: BinaryIO, holder: Holder) -> None:
        from sqlalchemy import text

        row = {"id": artifact_id, "content": content_body.read(), "attempt": holder.attempt}
        with self.engine.connect() as connection:
            written = connection.execute(text(KEEP), row).rowcount
        if not written:
            holder.check()

    def remove(self, artifact_id: str) -> None:
        with self.engine.connect() as connection:
            connection.execute(self.table.delete().where(self.table.c.id == artifact_id))


class _FolderOfAnySystem:
    """Artifacts in a folder of any file system or object store that fsspec knows."""

    def __init__(self, url: str):
        try:
            import fsspec
        except ImportError as error:
            raise InputError("keeping artifacts at a URL needs fsspec: pip install 'longspan[search]'") from error
        if "://" not in url:  # fsspec would make a folder of that name here, of a mistyped password, too
            raise InputError("artifacts must be kept at a URL, such as s3://BUCKET/FOLDER or file:///FOLDER")
        self.url = url
        with self._explained():
            self.system, self.folder = fsspec.core.url_to_fs(url)
            self.system.makedirs(self.folder, exist_ok=True)

    @contextmanager
    def _explained(self, *expected: type[Exception]) -> Iterator[None]:
        """Turn whatever a file system raises, which is of any kind, into one line without the secrets of the URL."""
        try:
            yield
        except expected:
            raise
        except Exception as error:
            reason = storage.reason_of(error, self.url) or type(error).__name__
            where = storage.hide_password(self.url)
            raise InputError(f"cannot keep artifacts at {where}: {reason}; check the URL") from error

    def open_reader(self, artifact_id: str) -> BinaryIO:
        with self._explained(FileNotFoundError), self.system.open(f"{self.folder}/{artifact_id}", "rb") as file:
            return io.BytesIO(file.read(ARTIFACT_BYTES + 1))

    def write(self, artifact_id: str, content_body: BinaryIO, holder: Holder) -> None:
        part = f"{self.folder}/{temporary_name(Path(artifact_id))}"
        try:
            with self._explained(), self.system.open(part, "wb") as file:
                shutil.copyfileobj(content_body, file)
            holder.check()  # as late as can be: no file system knows of attempts
            with self._explained():
                self.system.mv(part, f"{self.folder}/{artifact_id}")
        except BaseException:
            with suppress(Exception):
                self.system.rm_file(part)
            raise

    def remove(self, artifact_id: str) -> None:
        with self._explained(FileNotFoundError):
            self.system.rm_file(f"{self.folder}/{artifact_id}")
