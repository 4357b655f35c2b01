"""The plan of the house holds: imports point one way, rooms are neither tiny nor huge, and a chunk has a short way."""

import ast
import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import longspan
from longspan.data.archive import write_set
from tests.support.catalog import tiny_music
from tests.support.real_data import needs_benchmarks

SOURCE = Path(longspan.__file__).parent
MODULES = sorted(path for path in SOURCE.rglob("*.py") if "assets" not in path.parts)  # assets are for other programs

# A room may import from rooms on its own level only where it says so here, and from all lower levels.
LEVELS = [
    {"errors", "limits", "bounds", "metrics", "reproduction.tables"},
    {"registry", "pretrained", "terminal", "webpage"},
    {"files", "config", "ops"},
    {"data", "models", "optim", "layers", "runtime"},
    {"training", "evaluation", "probes", "sampling"},
    {"progress", "memory", "export", "recipe_tables"},
    {"search", "recipes"},
    {"diagnostics", "playing"},
    {"library", "arms"},
    {"reporting"},
    {"reproduction"},
    {"report"},
    {"cli"},
    {"__main__"},
]
WITHIN_LEVEL = {("training", "evaluation"), ("training", "probes"), ("search", "recipes")}
SHOWS = {"cli", "progress", "terminal"}
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


def test_whatever_is_written_to_a_terminal_passes_through_one_place():
    """There it is escaped; elsewhere nobody writes to a stream or makes a console of rich."""
    for path in MODULES:
        if module_of(path) == "terminal":
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            printed = isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "print"
            written = isinstance(node, ast.Attribute) and node.attr == "write" and _is_standard_stream(node.value)
            drawn = isinstance(node, ast.ImportFrom) and node.module == "rich.console"
            drawn = drawn and any(name.name == "Console" for name in node.names)
            past = printed or written or drawn
            assert not past, f"{path}:{node.lineno} writes past `terminal`"


def _is_standard_stream(node: ast.AST) -> bool:
    return isinstance(node, ast.Attribute) and node.attr in ("stdout", "stderr") and _is_sys(node.value)


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


SMALL, LARGE = 60, 420
"""Lines below which a module needs a second user, and above which it needs to be divided."""


def importers() -> dict[str, set[str]]:
    """The modules that import each module of the package."""
    names = {".".join(["longspan", *_parts(path)]): path for path in MODULES}
    found: dict[str, set[str]] = {name: set() for name in names}
    for importer, path in names.items():
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                targets = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom) and node.module:
                targets = [f"{node.module}.{alias.name}" for alias in node.names] + [node.module]
            else:
                continue
            for target in targets:
                if target in found and target != importer:
                    found[target].add(importer)
    return found


def _parts(path: Path) -> list[str]:
    parts = path.relative_to(SOURCE).with_suffix("").parts
    return list(parts[:-1] if parts[-1] == "__init__" else parts)


def test_no_small_module_has_a_single_user():
    for name, users in importers().items():
        path = SOURCE.joinpath(*name.split(".")[1:]).with_suffix(".py")
        if path.is_file() and len(users) == 1:
            lines = len(path.read_text().splitlines())
            assert lines >= SMALL, f"{path}: {lines} lines for {users}: fold it in"


@pytest.mark.parametrize("path", MODULES, ids=lambda p: str(p.relative_to(SOURCE)))
def test_no_module_is_huge(path):
    assert len(path.read_text().splitlines()) <= LARGE


BENCHMARK_WALK, OWN_WALK = 50, 54
"""Files, of Python and of C++, on the way of a chunk from a file of music to the changed weights. From a benchmark file
it is 39 and 11, about a third fewer than the 55 and 17 before the rooms were made fuller; an archive of the user's is
read by four more.
"""


def walk_of(data: str, folder: Path) -> list[str]:
    """The files that the training of one tiny model passes."""
    command = ["train", "nade:sgd+crm", "--data", data, "--run-dir", str(folder / "run")]
    sizes = ["--max-epochs", "1", "--hidden-size", "4", "--nade-size", "3"]
    started = [sys.executable, "-m", "tests.support.walk", *command, *sizes]
    walked = subprocess.run(started, capture_output=True, text=True, cwd=Path(__file__).parents[1])
    found = json.loads(walked.stdout.splitlines()[-1])
    assert found["exit"] == 0, walked.stderr
    assert {"training/loop.py", "ops/recurrence.py", "ops/update.py"} <= set(found["files"])
    assert {"ops/native/bindings.cc", "ops/native/recurrence.cc", "ops/native/simd.h"} <= set(found["kernels"])
    return found["files"] + found["kernels"]


@needs_benchmarks
def test_the_walk_of_a_chunk_touches_few_files(tmp_path):
    files = walk_of("jsb", tmp_path)
    assert len(files) <= BENCHMARK_WALK, files


def test_the_walk_of_a_chunk_of_own_data_touches_few_files(tmp_path):
    write_set(tmp_path / "tiny.npz", tiny_music())
    files = walk_of(str(tmp_path / "tiny.npz"), tmp_path)
    assert len(files) <= OWN_WALK, files


def test_kernels_have_the_names_of_the_modules_that_call_them():
    families = {path.stem for path in (SOURCE / "ops").glob("*.py")}
    shared = {"bindings", "threads"}
    assert {path.stem for path in (SOURCE / "ops/native").glob("*.cc")} <= families | shared


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


NEED_OPTUNA = {"longspan.search.attempts", "longspan.search.trial", "longspan.arms.hosted"}
"""Imported by searches as they begin, after the user has been told what is missing."""


def test_everything_is_imported_without_the_extras():
    """`pip install longspan` brings none of them, and nothing but the commands that need one may miss it."""
    project = tomllib.loads((SOURCE.parents[1] / "pyproject.toml").read_text())["project"]
    named = [name for names in project["optional-dependencies"].values() for name in names]
    extras = {re.split(r"\W", name)[0] for name in named} - {"longspan"} | {"sqlalchemy"}
    names = {f"longspan.{module_of(path)}".removesuffix(".__init__") for path in MODULES if path.stem != "__main__"}
    modules = sorted(names - NEED_OPTUNA)
    probe = f"""
import importlib, sys
class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {extras!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
sys.meta_path.insert(0, Missing())
for name in {modules!r}:
    importlib.import_module(name)
"""
    tried = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True)
    assert tried.returncode == 0, tried.stderr
