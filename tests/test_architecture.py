"""The plan of the house holds: imports point one way, only the command line prints, help does not wait for JAX."""

import ast
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import longspan

SOURCE = Path(longspan.__file__).parent
MODULES = sorted(SOURCE.rglob("*.py"))

# A room may import from rooms on its own level only where it says so here, and from all lower levels.
LEVELS = [
    {"errors", "limits", "metrics", "reproduction.tables"},
    {"names", "registry"},
    {"files", "config", "ops"},
    {"locks"},
    {"data", "models", "optim", "layers"},
    {"training", "evaluation", "diagnostics", "sampling", "runtime"},
    {"progress"},
    {"search", "recipes"},
    {"reporting", "library", "arms"},
    {"reproduction"},
    {"report"},
    {"cli"},
    {"__main__"},
]
WITHIN_LEVEL = {("training", "evaluation"), ("search", "recipes")}
SHOWS = {"cli", "progress"}
"""Rooms that may write to a terminal; `progress` does where it is asked to."""


def room_of(module: str) -> str:
    """The first folder of a module; the paper's numbers, which need nothing, are a room of their own."""
    return "reproduction.tables" if module == "reproduction.tables" else module.split(".")[0]


def module_of(path: Path) -> str:
    return ".".join(path.relative_to(SOURCE).with_suffix("").parts)


def level_of(room: str) -> int:
    return next(number for number, rooms in enumerate(LEVELS) if room in rooms)


def imported_rooms(path: Path) -> set[str]:
    names = []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            inside = node.module in ("longspan", "longspan.reproduction")
            names += [f"{node.module}.{alias.name}" for alias in node.names] if inside else [node.module]
    rooms = {room_of(name.removeprefix("longspan.")) for name in names if name.startswith("longspan.")}
    return rooms - {"__version__"}


@pytest.mark.parametrize(
    "path", [p for p in MODULES if p.parent != SOURCE or p.stem != "__init__"], ids=lambda p: str(p.relative_to(SOURCE))
)
def test_imports_point_one_way(path):
    room = room_of(module_of(path))
    for imported in imported_rooms(path) - {room}:
        allowed = level_of(imported) < level_of(room) or (room, imported) in WITHIN_LEVEL
        assert allowed, f"{room} must not import {imported}"


def test_optimizers_know_no_model():
    for path in (SOURCE / "optim").rglob("*.py"):
        assert imported_rooms(path) <= {"optim", "ops", "errors"}, path


def test_only_the_command_line_and_the_progress_display_write_to_a_terminal():
    for path in MODULES:
        if room_of(module_of(path)) in SHOWS:
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            printed = isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "print"
            streamed = isinstance(node, ast.Attribute) and node.attr in ("stdout", "stderr") and _is_sys(node.value)
            drawn = isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "rich"
            writes = printed or streamed or drawn
            assert not writes, f"{path}:{node.lineno} writes to a terminal"


def _is_sys(node: ast.AST) -> bool:
    return isinstance(node, ast.Name) and node.id == "sys"


def test_no_message_below_the_command_line_names_a_flag():
    """A user of Python has no flags: messages name fields, and the command line translates them."""
    for path in MODULES:
        if room_of(module_of(path)) in ("cli", "__main__"):
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "InputError":
                said = " ".join(
                    n.value for n in ast.walk(node) if isinstance(n, ast.Constant) and isinstance(n.value, str)
                )
                flags = re.findall(r"(?<!\w)--[a-z][a-z-]*", said.replace("pip install --force-reinstall", ""))
                assert not flags, f"{path}:{node.lineno} names {flags}"


def test_there_is_one_version_number():
    root = Path(__file__).parents[1]
    project = tomllib.loads((root / "pyproject.toml").read_text())
    assert "version" not in project["project"]
    assert project["tool"]["setuptools"]["dynamic"]["version"] == {"attr": "longspan.__version__"}
    cited = re.findall(r"^version: *(.+)$", (root / "CITATION.cff").read_text(), re.MULTILINE)
    assert cited == [longspan.__version__]


def test_every_module_says_what_it_is_for():
    for path in MODULES:
        assert ast.get_docstring(ast.parse(path.read_text())), path


def test_help_and_bad_input_do_not_import_jax():
    probe = (
        "import sys; from longspan.cli import run; "
        "assert run(['--help']) == 0; assert run(['nonsense']) == 2; "
        "assert run(['train', 'sgd+x']) == 2; assert run(['train', '--learning-rate', '-1']) == 2; "
        "sys.exit('jax' in sys.modules)"
    )
    asked = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True)
    assert asked.returncode == 0, asked.stderr
