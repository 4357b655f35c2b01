"""Paths and names from outside: too long, not UTF-8, of the wrong kind, or with codes that move a terminal's cursor."""

import io
import os
from contextlib import suppress
from pathlib import Path

import pytest
from rich.console import Console

from longspan.cli import run
from longspan.data import catalog, import_path, load, target_kind
from longspan.data.benchmarks import BENCHMARKS, verified_file
from longspan.errors import InputError, printable
from longspan.files import read_json, read_limited, read_toml
from longspan.recipes import read_settings
from tests.faults import bombs

ESCAPE = "\x1b[31mred\x1b[0m\nsecond line.mid"
LONG = "x" * 5_000


@pytest.fixture
def places(tmp_path: Path) -> list[Path]:
    """What is no readable file: nothing, a folder, a pipe, a loop, under a file, too long, with a null byte."""
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").write_text("x")
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    os.mkfifo(tmp_path / "pipe")
    names = ["nothing", "folder", "loop", "pipe", "file/below", LONG, "a\0b", "a\ud800b", ESCAPE]
    return [tmp_path / name for name in names]


def test_no_path_makes_a_reader_raise_anything_else(places):
    for path in places:
        for read in (
            lambda path: read_limited(path, 10),
            lambda path: read_toml(path, "expected settings"),
            lambda path: read_json(path, dict, "restore it"),
            read_settings,
            lambda path: load(str(path) + ".npz"),
            lambda path: load(f"words:{path}"),
            lambda path: load("mine", path),
            lambda path: import_path(path, name="x", data_dir=path.parent / "data"),
            lambda path: verified_file(BENCHMARKS["jsb"].files[0], path.parent / "file"),
        ):
            with pytest.raises(InputError) as caught:
                read(path)
            assert str(caught.value).isprintable()
        with suppress(InputError):  # a folder or a file has a kind, nothing has none
            target_kind(str(path))
        catalog(path)


@pytest.mark.parametrize("name", ["~\0x", "words:~\0x", "~root\0.txt", "~\ud800/x.npz"])
def test_the_home_of_nobody_who_can_be_is_a_path_that_is_not_there(name):
    """A run folder names its data."""
    with pytest.raises(InputError, match=r"unknown data set|does not exist"):
        load(name)


def test_a_home_that_does_not_exist_is_a_folder_that_is_not_there():
    with pytest.raises(InputError, match="does not exist"):
        load("~nobody-of-this-name/rolls.npz")
    with pytest.raises(RuntimeError):  # the control: this is what it replaces
        Path("~nobody-of-this-name/rolls.npz").expanduser()


@pytest.mark.parametrize("name", ["x" * 101, "x" * 300, "../x", "a/b", "", "x\n"])
def test_a_name_that_is_no_file_name_is_refused(name, tmp_path):
    with pytest.raises(InputError, match="cannot name a data set"):
        import_path(tmp_path, name=name, data_dir=tmp_path)


def test_names_of_files_cannot_move_the_cursor_or_begin_a_line(tmp_path, capfd):
    folder = tmp_path / "midi"
    folder.mkdir()
    for number in range(4):
        bombs.good_midi(folder / f"good{number}.mid", number)
    (folder / ESCAPE).write_bytes(b"no music")
    (folder / os.fsdecode(b"latin \xe9.mid")).write_bytes((folder / "good1.mid").read_bytes())
    bombs.good_midi(folder / os.fsdecode(b"good \xff.mid"), 7)
    assert run(["data", "import", str(folder), "--name", "mine", "--data-dir", str(tmp_path)]) == 0
    assert run(["data", "info", "mine", "--data-dir", str(tmp_path)]) == 0
    assert run(["data", "list", "--data-dir", str(tmp_path)]) == 0
    assert run(["data", "info", str(folder / ESCAPE)]) == 2
    told = capfd.readouterr()
    shown = told.out + told.err
    assert "\x1b" not in shown
    assert "\\x1b[31mred" in shown.replace("\n", "")
    assert told.err.count("\n") == 1


def test_control_rich_lets_escapes_through():
    console = Console(file=io.StringIO(), width=200)
    console.print(ESCAPE, markup=False)
    assert "\x1b" in console.file.getvalue()
    console.print(printable(ESCAPE), markup=False, end="")
    assert console.file.getvalue().count("\x1b") == 2


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain é 音 🎵", "plain é 音 🎵"),
        ("a\tb\r\n", r"a\tb\r\n"),
        ("\x9b31m", r"\x9b31m"),
        ("\u202egpj.exe", r"\u202egpj.exe"),
        ("bad \udcff byte", r"bad \udcff byte"),
    ],
)
def test_what_is_shown_of_text_from_outside(text, shown):
    assert printable(text) == shown
    assert str(InputError(text)) == shown
