"""Strange values in the documents of folders: every JSON value replaced in turn, and what each command then does."""

import copy
import hashlib
import io
import json
import re
import shutil
import warnings
from collections.abc import Callable, Iterator
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any, NamedTuple

from longspan.cli import run as command
from longspan.training.seals import CHECKED, SealedFolder

VALUES: dict[str, Any] = {
    "null": None,
    "list": [],
    "object": {},
    "text": "x",
    "negative": -1,
    "zero": 0,
    "large": 2**52,
    "huge": 1e308,
    "whole": 10**30,
    "nan": float("nan"),
    "long": "x" * 100_000,
}
NO_NUMBER = re.compile(r"(?<![\w.-])[-+]?(?:nan|inf(?:inity)?)(?![\w-])", re.IGNORECASE)
LONGEST_OUTPUT = 40_000
"""Characters that a command may print: what has 100,000 is refused and not repeated."""


class Case(NamedTuple):
    """One value of one document replaced."""

    file: str
    line: int
    path: tuple[str | int, ...]
    value: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{'.'.join(map(str, self.path))}={self.value}"


class Subject(NamedTuple):
    """A folder, patterns of the documents in it that are changed, and what is done with it."""

    folder: Path
    documents: tuple[str, ...]
    commands: Callable[[Path], list[list[str]]]


def cases(subject: Subject) -> Iterator[Case]:
    """Every case of a folder, in the same order every time."""
    files = sorted({file for pattern in subject.documents for file in subject.folder.glob(pattern)})
    for file in files:
        documents = _read(file)
        for line in _few(range(len(documents))):
            for path in _paths(documents[line]):
                yield from (Case(str(file.relative_to(subject.folder)), line, path, value) for value in VALUES)


def _paths(document: Any, path: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    yield path
    if isinstance(document, dict):
        for key, part in document.items():
            yield from _paths(part, (*path, key))
    elif isinstance(document, list):
        for place in _few(range(len(document))):
            yield from _paths(document[place], (*path, place))


def _few(places: range) -> list[int]:
    """The first two and the last: the others are treated as these are."""
    return sorted({*places[:2], *places[-1:]})


def _read(file: Path) -> list[Any]:
    texts = file.read_text().splitlines() if file.suffix == ".jsonl" else [file.read_text()]
    return [json.loads(text) for text in texts]


def replace_value(folder: Path, case: Case) -> None:
    """Replace the value in a folder, and give its files the checksums that they then have."""
    file = folder / case.file
    documents = [_read(file)]
    holder, (*way, last) = documents, (0, case.line, *case.path)
    for key in way:
        holder = holder[key]
    holder[last] = copy.deepcopy(VALUES[case.value])
    file.write_text("".join(json.dumps(document) + "\n" for document in documents[0]))
    if file.name == "progress.json":
        sums = {name: hashlib.sha256((file.parent / name).read_bytes()).hexdigest() for name in CHECKED}
        (file.parent / "manifest.json").write_text(json.dumps(sums))
    for seals in folder.rglob("checksums.json"):
        SealedFolder(seals.parent).seal()


def troubles(subject: Subject, case: Case, work: Path) -> list[str]:
    """Do to a changed copy of the folder what is done with it; return what ends neither well nor in one line."""
    folder = work / "case"
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(subject.folder, folder)
    replace_value(folder, case)
    found = [(words[0], _trouble(words)) for words in subject.commands(folder)]
    return [f"{case}, {name}: {what}" for name, what in found if what is not None]


def _trouble(words: list[str]) -> str | None:
    said, refused = io.StringIO(), io.StringIO()
    try:
        with redirect_stdout(said), redirect_stderr(refused), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            code = command(words)
    except Exception as error:
        return f"{type(error).__name__}: {str(error)[:200]}"
    printed, lines = said.getvalue(), refused.getvalue().splitlines()
    if len(printed) + len(refused.getvalue()) > LONGEST_OUTPUT:
        return f"{len(printed)} and {len(refused.getvalue())} characters"
    if code:
        return None if len(lines) == 1 else f"refused in {len(lines)} lines: {lines[:3]}"
    odd = NO_NUMBER.search(printed)
    return None if odd is None else f"printed {odd.group()} in {printed[max(0, odd.start() - 80) : odd.end()]!r}"
