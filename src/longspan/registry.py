"""Registries of named parts of a model or a training run: the package's and the user's.

A run folder keeps names, never code. So before you open a run trained with a part of your own, import the module that
registers it (on the command line: `--plugin FILE_OR_MODULE`).

What a config calls its `cell` names one or more layers, each a cell and settings of its own:

    lstm                          one layer of LSTM units
    gru,reset=before              a setting of the GRU's own
    2xlstm,size=100               two layers of 100 units each
    delayed,lags=1:4:16+lstm      a layer with delayed connections, and an LSTM that reads it

A setting without a value is switched on; several values are separated by colons. Which settings there are, and what
values they take, is known to the cells (`models/`), so it is checked when a model is built. Nothing of it needs quoting
in a shell.
"""

import difflib
import importlib
import importlib.util
import os
import pkgutil
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

from longspan.errors import PLUGINS, InputError

Part = TypeVar("Part")

PLUGINS_VARIABLE = "LONGSPAN_PLUGINS"


class Registry(Generic[Part]):
    """Named parts of one kind.

    Args:
        what: the kind, as error messages call it.
        package: all modules of this package are imported before a part is looked up, so that a module in it need
            only register its parts.
    """

    def __init__(self, what: str, package: str):
        self.what = what
        self.package = package
        self._parts: dict[str, Part] = {}

    def register(self, name: str) -> Callable[[Part], Part]:
        """A decorator that registers a part under a name; a different part with the same name is refused."""

        def add(part: Part) -> Part:
            known = self._parts.setdefault(name, part)
            if known is not part and _home(known) != _home(part):
                raise InputError(f"the name {name!r} is taken by another {self.what}: choose another one")
            self._parts[name] = part
            return part

        return add

    def names(self) -> list[str]:
        """All names, sorted."""
        self._load()
        return sorted(self._parts)

    def __getitem__(self, name: str) -> Part:
        self._load()
        if name in self._parts:
            return self._parts[name]
        close = difflib.get_close_matches(name, self._parts, n=1)
        hint = f"; did you mean {close[0]}?" if close else ""
        raise InputError(
            f"unknown {self.what} {name!r}: expected one of {', '.join(self.names())}, or one of your own whose module "
            f"is imported first (plugin MODULE){hint}",
            fields=["plugin"],
        )

    def _load(self) -> None:
        package = importlib.import_module(self.package)
        for module in pkgutil.iter_modules(getattr(package, "__path__", [])):
            importlib.import_module(f"{self.package}.{module.name}")


@contextmanager
def loaded_plugins(names: Sequence[str]) -> Iterator[None]:
    """Import a user's modules; while the block lasts, worker processes that are started import them, too.

    So do commands that are advised meanwhile, unless the environment names them anyway.
    """
    for name in names:
        load_plugin(name)
    told = PLUGINS.set(tuple(name for name in names if name not in plugins_of_environment()))
    before = os.environ.get(PLUGINS_VARIABLE)
    os.environ[PLUGINS_VARIABLE] = os.pathsep.join(names)
    try:
        yield
    finally:
        PLUGINS.reset(told)
        os.environ.pop(PLUGINS_VARIABLE)
        if before is not None:
            os.environ[PLUGINS_VARIABLE] = before


def plugins_of_environment() -> list[str]:
    """The plugins that the environment names."""
    return [name for name in os.environ.get(PLUGINS_VARIABLE, "").split(os.pathsep) if name]


def child_command(module: str, *arguments: str) -> list[str]:
    """The command that runs a module in a process of its own, which imports from where this process does.

    Without `-P`, `python -m` looks into the current folder first. That may be full of files of somebody else, such as
    songs to import with a `numpy.py` among them.
    """
    try:
        looks_here = bool({"", os.getcwd()} & set(sys.path))
    except OSError:  # the current folder is gone
        looks_here = False
    return [sys.executable, *([] if looks_here else ["-P"]), "-m", module, *arguments]


def load_plugin(name: str) -> None:
    """Import a user's module, given by name or as a file, so that it registers its parts."""
    path = Path(name)
    if path.suffix != ".py" and name.startswith("."):  # relative to nothing
        raise InputError(f"there is no plugin {name}: expected a Python file or the name of a module")
    try:
        if path.suffix != ".py":
            importlib.import_module(name)
            return
        spec = importlib.util.spec_from_file_location(path.stem, path)
        if spec is None or spec.loader is None or not path.is_file():
            raise InputError(f"there is no plugin {name}: expected a Python file or the name of a module")
        module = importlib.util.module_from_spec(spec)
        sys.modules[path.stem] = module
        spec.loader.exec_module(module)
    except ImportError as error:
        raise InputError(f"cannot import the plugin {name}: {error}") from error


def _home(part: object) -> tuple[str, str]:
    """Where a part is defined: a cell of a notebook that is run again registers the same part again."""
    made_by = getattr(part, "make", part)
    return getattr(made_by, "__module__", ""), getattr(made_by, "__qualname__", repr(part))


LAYER = re.compile(r"(?:(?P<count>[1-9][0-9]?)x)?(?P<name>[a-z][a-z0-9_-]*)(?P<options>(?:,[^,+]+)*)", re.IGNORECASE)
OPTION = re.compile(r"(?P<name>[a-z][a-z0-9_]*)(?:=(?P<value>[^=]+))?", re.IGNORECASE)
MOST_LAYERS = 64


@dataclass(frozen=True)
class LayerSpec:
    """One layer: the name of its cell, and settings as text."""

    name: str
    options: tuple[tuple[str, str], ...] = ()

    def __str__(self) -> str:
        return ",".join([self.name, *(f"{name}={value}" if value else name for name, value in self.options)])


def parse_cell(text: str) -> list[LayerSpec]:
    """The layers that a `cell` describes, the one that reads the input first.

    Example:
        >>> [str(layer) for layer in parse_cell("2xgru,size=50+lstm,peepholes")]
        ['gru,size=50', 'gru,size=50', 'lstm,peepholes']
    """
    if not isinstance(text, str):
        raise InputError(
            f"expected a cell as text, such as 'lstm', got {type(text).__name__}: register one of your own, or hand it "
            "in as part of a model",
            fields=["cell"],
        )
    layers: list[LayerSpec] = []
    for part in text.split("+"):
        found = LAYER.fullmatch(part)
        if found is None:
            raise _bad(text, part)
        layer = LayerSpec(found["name"], tuple(_option(text, option) for option in found["options"].split(",")[1:]))
        names = [name for name, _ in layer.options]
        if len(set(names)) < len(names):
            raise InputError(f"cell {text!r} gives a setting of {layer.name} twice", fields=["cell"])
        layers += [layer] * int(found["count"] or 1)
    if len(layers) > MOST_LAYERS:
        raise InputError(f"cell {text!r} has {len(layers)} layers: expected at most {MOST_LAYERS}", fields=["cell"])
    return layers


def _option(text: str, option: str) -> tuple[str, str]:
    found = OPTION.fullmatch(option)
    if found is None:
        raise _bad(text, option)
    return found["name"], found["value"] or ""


def _bad(text: str, part: str) -> InputError:
    return InputError(
        f"cell {text!r} cannot be read at {part!r}: expected a name such as lstm, with settings as in "
        "gru,reset=before and layers as in 2xlstm or delayed,lags=1:4+gru",
        fields=["cell"],
    )
