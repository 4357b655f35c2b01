"""Registries of named parts of a model or a training run: the package's and the user's.

A run folder keeps names, never code. So before you open a run trained with a part of your own, import the module that
registers it (on the command line: `--plugin FILE_OR_MODULE`).
"""

import difflib
import importlib
import importlib.util
import pkgutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Generic, TypeVar

from longspan.errors import InputError

Part = TypeVar("Part")


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


def load_plugin(name: str) -> None:
    """Import a user's module, given by name or as a file, so that it registers its parts."""
    path = Path(name)
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
