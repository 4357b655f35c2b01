"""The plan of the house holds: imports point one way, only the command line prints, help does not wait for JAX."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import longspan

SOURCE = Path(longspan.__file__).parent
MODULES = sorted(SOURCE.rglob("*.py"))

# A room may import from rooms on its own level only where it says so here, and from all lower levels.
LEVELS = [
    {"errors"},
    {"files", "config", "paper", "kernels"},
    {"data", "models", "optim"},
    {"training", "evaluation", "diagnostics", "sampling"},
    {"search", "recipes"},
    {"reporting", "library"},
    {"cli"},
    {"__main__"},
]
WITHIN_LEVEL = {("training", "evaluation"), ("search", "recipes")}


def room_of(path: Path) -> str:
    return path.relative_to(SOURCE).with_suffix("").parts[0]


def level_of(room: str) -> int:
    return next(number for number, rooms in enumerate(LEVELS) if room in rooms)


def imported_rooms(path: Path) -> set[str]:
    names = []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            names += (
                [f"{node.module}.{alias.name}" for alias in node.names] if node.module == "longspan" else [node.module]
            )
    rooms = {name.split(".")[1] for name in names if name.startswith("longspan.")}
    return rooms - {"__version__"}


@pytest.mark.parametrize(
    "path", [p for p in MODULES if p.parent != SOURCE or p.stem != "__init__"], ids=lambda p: str(p.relative_to(SOURCE))
)
def test_imports_point_one_way(path):
    room = room_of(path)
    for imported in imported_rooms(path) - {room}:
        allowed = level_of(imported) < level_of(room) or (room, imported) in WITHIN_LEVEL
        assert allowed, f"{room} must not import {imported}"


def test_optimizers_know_no_model():
    for path in (SOURCE / "optim").rglob("*.py"):
        assert imported_rooms(path) <= {"optim", "kernels", "errors"}, path


def test_only_the_command_line_prints():
    for path in MODULES:
        if room_of(path) == "cli":
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            named = isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "print"
            assert not named, f"{path}:{node.lineno} prints"


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
