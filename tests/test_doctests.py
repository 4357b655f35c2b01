"""Every example in a docstring of the package runs and prints what it says."""

import ast
import doctest
import importlib
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import longspan

SOURCE = Path(longspan.__file__).parent
IMPORTED = {"jax": jax, "jnp": jnp, "np": np, "longspan": longspan}
"""What an example may use without importing it."""


def examples(path: Path) -> list[doctest.DocTest]:
    """The examples of a module, found in its text: decorators hide functions from `doctest`'s own search."""
    tree = ast.parse(path.read_text())
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef)
    nodes = [node for node in ast.walk(tree) if isinstance(node, documented) and ast.get_docstring(node)]
    parser, name = doctest.DocTestParser(), str(path.relative_to(SOURCE))
    found = [
        parser.get_doctest(ast.get_docstring(node), {}, f"{name}:{getattr(node, 'name', '')}", name, 0)
        for node in nodes
    ]
    return [one for one in found if one.examples]


def modules_with_examples() -> list[str]:
    return sorted(str(path.relative_to(SOURCE)) for path in SOURCE.rglob("*.py") if ">>> " in path.read_text())


@pytest.mark.parametrize("module", modules_with_examples())
def test_the_examples_of_a_module_print_what_they_say(module, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    name = ".".join(["longspan", *Path(module).with_suffix("").parts]).removesuffix(".__init__")
    names = vars(importlib.import_module(name))
    found = examples(SOURCE / module)
    assert sum(len(one.examples) for one in found) == (SOURCE / module).read_text().count(">>> ")
    runner = doctest.DocTestRunner()
    for one in found:
        one.globs = IMPORTED | names
        runner.run(one)
    assert runner.summarize(verbose=False).failed == 0
