"""The tutorials run as they stand, in order, on less data and for one epoch; commands everywhere name flags that exist.

What is cut: every training ends after one epoch of few units, and a corpus of music21 has a dozen files.
"""

import importlib
import re
import shlex
import subprocess
from pathlib import Path
from typing import NamedTuple

import pytest

import longspan
from longspan.cli import COMMANDS, run
from longspan.cli.data import ACTIONS
from longspan.models.parts import CELLS
from tests.support.catalog import tiny_music
from tools.pages import help_of

ROOT = Path(__file__).parents[2]
TUTORIALS = sorted((ROOT / "docs" / "tutorial").glob("*.md"))
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
FENCE = re.compile(r"^```(\w+)(?: title=\"([^\"\n]+)\")?\n(.*?)^```$", re.DOTALL | re.MULTILINE)
SMALL = {"max_epochs": 1, "hidden_size": 12}
OF_THE_READER = ("python3 -m venv",)
"""Commands that set up what the tests already have."""


class Block(NamedTuple):
    language: str
    title: str
    text: str


def blocks_of(page: Path) -> list[Block]:
    return [Block(*found) for found in FENCE.findall(page.read_text(encoding="utf-8"))]


def cut(words: list[str]) -> list[str]:
    """The words of a command, with less to do where it trains."""
    if words[0] != "train":
        return words
    for flag in ("--budget", "--max-epochs", "--hidden-size"):
        if flag in words:
            del words[words.index(flag) : words.index(flag) + 2]
    sizes = [] if "--from" in words else ["--hidden-size", str(SMALL["hidden_size"])]
    return [*words, "--max-epochs", str(SMALL["max_epochs"]), *sizes]


@pytest.fixture
def reader(tmp_path, monkeypatch):
    """A reader in an empty folder, with little patience and a data folder of their own."""
    from music21 import corpus

    everything = corpus.getComposer
    monkeypatch.setattr(
        corpus, "getComposer", lambda name: [one for one in everything(name) if "Reel" in one.stem][:12]
    )
    train = longspan.train
    monkeypatch.setattr(longspan, "train", lambda *given, **named: train(*given, **{**named, **SMALL}), raising=False)
    monkeypatch.setenv("LONGSPAN_DATA", str(tmp_path / "data"))
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.chdir(tmp_path)
    CELLS.names()  # all of the package's are there, so that what is forgotten afterwards is the page's
    monkeypatch.setattr(CELLS, "_parts", dict(CELLS._parts))
    return tmp_path


@pytest.mark.parametrize("page", TUTORIALS, ids=lambda page: page.stem)
def test_a_tutorial_runs_from_top_to_bottom(reader, page):
    names, commands = {"__name__": "tutorial"}, 0
    for block in blocks_of(page):
        if block.title:
            (reader / block.title).write_text(block.text)
            importlib.invalidate_caches()
        elif block.language == "python":
            exec(compile(block.text, str(page), "exec"), names)
        elif block.language == "bash":
            for line in block.text.splitlines():
                if line.startswith("longspan "):
                    assert run(cut(shlex.split(line, comments=True)[1:])) == 0, line
                    commands += 1
                elif not line.startswith(OF_THE_READER):
                    subprocess.run(line, shell=True, check=True)
    assert commands > 0


@pytest.mark.usefixtures("as_users_write")
def test_the_python_of_the_readme_runs(reader, monkeypatch):
    train = longspan.train

    def on_little_music(recipe, data, **named):
        assert data == "jsb"
        return train(recipe, tiny_music(), **named)

    monkeypatch.setattr(longspan, "train", on_little_music)
    blocks = [block.text for block in blocks_of(ROOT / "README.md") if block.language == "python"]
    assert len(blocks) == 4
    for block in blocks:
        exec(compile(block, "README.md", "exec"), {"__name__": "readme"})


def commands_of(page: Path) -> list[str]:
    """Lines of a page that call longspan: in blocks of code, indented, or at the beginning of a line of a fence."""
    text = page.read_text(encoding="utf-8").replace("\\\n", " ")
    return re.findall(rf"^ *(?:\.venv/bin/)?longspan ((?:{'|'.join(COMMANDS)})\b.*)$", text, re.MULTILINE)


def flags_of(command: str) -> set[str]:
    return set(re.findall(r"(?<![\w-])--?[a-z][\w-]*", help_of(command))) | {"--plugin"}


def test_commands_in_the_pages_name_flags_that_exist():
    unknown, seen, known = [], 0, {}
    for page in PAGES:
        for line in commands_of(page):
            words = shlex.split(re.split(r"[;&|]{1,2} | # |`|\)$", line)[0], comments=True)
            command = " ".join(words[:2]) if words[0] == "data" and words[1] in ACTIONS else words[0]
            known.setdefault(command, flags_of(command))
            used = [word.partition("=")[0] for word in words if re.match(r"--?[a-z]", word)]
            unknown += [(page.name, line, flag) for flag in used if flag not in known[command]]
            seen += 1
    assert unknown == []
    assert seen > 60
