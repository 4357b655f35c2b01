"""A hook of MkDocs: pages of the site that are made from something else, and links and formulas that need a site.

The home page is the README; contributing, changes and benchmarks are files outside of `docs/`. The reference of Python
names comes from docstrings, that of the command line from what each `--help` prints. A public name without a docstring
ends the build.
"""

import contextlib
import io
import os
import posixpath
import re
from collections.abc import Iterator
from html import unescape
from pathlib import Path

import griffe
from latex2mathml.converter import convert
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[1]
MODULES = ("longspan", *(f"longspan.{name}" for name in ("data", "layers", "memory", "models", "optim", "recipes")))
"""The modules whose `__all__` is the public interface."""

OUTSIDE = {
    "README.md": "index.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
    "benchmarks/README.md": "benchmarks.md",
    "LICENSE": "license.txt",
    "CITATION.cff": "citation.txt",
}
"""Files outside of `docs/` and their place on the site."""

LINK = re.compile(r"(\]\()(?![a-z]+:)([^)\s#]+)([^)\s]*\))")
CODE = re.compile(r"(```.*?```|`[^`\n]+`)", re.DOTALL)
FORMULA = re.compile(r"\$([^$\n]+)\$")
ROLE = re.compile(r":math:<code>(.+?)</code>")
WIDTH = "88"
"""Columns of the help texts."""


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that are not in `docs/`."""
    package = load_package()
    require_docstrings(package)
    for source, target in OUTSIDE.items():
        text = (ROOT / source).read_text(encoding="utf-8")
        files.append(File.generated(config, target, content=site_links(text, source) if ".md" in source else text))
    for module in MODULES:
        files.append(File.generated(config, f"reference/{module}.md", content=module_page(package, module)))
    files.append(File.generated(config, "reference/command-line.md", content=command_line_page()))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Point links out of `docs/` to their place on the site, and write formulas as MathML."""
    if page.file.generated_by is None:
        markdown = site_links(markdown, f"docs/{page.file.src_uri}")
    return with_mathml(markdown)


def on_page_content(html: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Write formulas of docstrings as MathML."""
    return ROLE.sub(lambda found: convert(unescape(found[1])), html)


def site_links(markdown: str, source: str) -> str:
    """Rewrite the links of a file of the repository for its place on the site.

    Example:
        >>> site_links("[a](docs/cells.md#speed) and [b](LICENSE)", "README.md")
        '[a](cells.md#speed) and [b](license.txt)'
    """
    own_place = OUTSIDE.get(source, source.removeprefix("docs/"))

    def rewritten(link: re.Match) -> str:
        before, path, after = link.groups()
        found = posixpath.normpath(posixpath.join(posixpath.dirname(source), path))
        place = found.removeprefix("docs/") if found.startswith("docs/") else OUTSIDE.get(found)
        if place is None:
            raise PluginError(f"{source} links to {path}, which has no place on the site: see OUTSIDE in {__file__}")
        return f"{before}{posixpath.relpath(place, posixpath.dirname(own_place) or '.')}{after}"

    return LINK.sub(rewritten, markdown)


def with_mathml(markdown: str) -> str:
    """Write `$...$` outside of code as MathML, which browsers draw without a script.

    Example:
        >>> with_mathml("`$HOME` and $x$")[:24]
        '`$HOME` and <math xmlns='
    """
    parts = CODE.split(markdown)
    parts[::2] = [FORMULA.sub(lambda found: convert(found[1]), part) for part in parts[::2]]
    return "".join(parts)


def load_package() -> griffe.Module:
    """The package as Griffe reads it, without running it."""
    package = griffe.load("longspan", search_paths=[ROOT / "src"], resolve_aliases=True)
    assert isinstance(package, griffe.Module)
    return package


def require_docstrings(package: griffe.Module) -> None:
    """Raise an error that lists the public names without a docstring."""
    missing = sorted(set(undocumented(package)))
    if missing:
        raise PluginError(f"these public names have no docstring: {', '.join(missing)}")


def undocumented(package: griffe.Module) -> Iterator[str]:
    """Public names, and public methods and classes of these, that have no docstring."""
    for path in MODULES:
        yield from undocumented_in_module(module_at(package, path), path)


def undocumented_in_module(module: griffe.Module, path: str) -> Iterator[str]:
    """Those of one module; without an `__all__`, that."""
    if not module.exports:
        yield f"{path}.__all__"
    for name in module.exports or ():
        if name != "__version__":
            yield from _undocumented_in(module[str(name)], f"{path}.{name}")


def module_at(package: griffe.Module, path: str) -> griffe.Module:
    """The package itself or one of its modules, by its full name."""
    return package if path == package.path else package[path.removeprefix(f"{package.path}.")]


def _undocumented_in(found: griffe.Object | griffe.Alias, path: str) -> Iterator[str]:
    if not found.has_docstring:
        yield path
    owner = found.final_target if isinstance(found, griffe.Alias) else found
    if isinstance(owner, griffe.Class):
        for name, member in owner.members.items():
            if (member.is_function or member.is_class) and not (name.startswith("_") or _inherits(owner, name)):
                yield from _undocumented_in(member, f"{path}.{name}")


def _inherits(owner: griffe.Class, name: str) -> bool:
    """Whether a parent says what the method does, so that the child need not repeat it."""
    return any(name in parent.members and parent.members[name].has_docstring for parent in owner.mro())


def module_page(package: griffe.Module, path: str) -> str:
    """The reference page of one module, which mkdocstrings fills: functions, then classes, the largest last."""
    module = module_at(package, path)
    names = [str(name) for name in module.exports or () if not module[str(name)].is_module and name != "__version__"]
    names.sort(key=lambda name: (module[name].is_class, len(module[name].members)))
    assert module.docstring is not None
    return "\n\n".join([f"# {path}", module.docstring.value, *(f"::: {path}.{name}" for name in names)]) + "\n"


def command_line_page() -> str:
    """What every command says about itself."""
    from longspan.cli import COMMANDS, overview
    from longspan.cli.data import ACTIONS

    parts = [
        "# Command line",
        "What `longspan COMMAND --help-all` prints; `--help` shows the common flags alone. "
        "[Commands](../commands.md) shows them by task.",
        f"```text\n{overview().strip()}\n```",
    ]
    for command in (*COMMANDS, *(f"data {action}" for action in ACTIONS)):
        parts += [f"## {command}", f"```text\n{unboxed(help_of(command))}\n```"]
    return "\n\n".join(parts) + "\n"


def help_of(command: str) -> str:
    """All that a command says about its flags, without color, at a fixed width."""
    from longspan.cli import run

    said = io.StringIO()
    before = os.environ.get("COLUMNS"), os.environ.get("NO_COLOR")
    os.environ.update(COLUMNS=WIDTH, NO_COLOR="1")
    try:
        with contextlib.redirect_stdout(said), contextlib.suppress(SystemExit):
            run([*command.split(), "--help" if command == "data" else "--help-all"])
    finally:
        for name, value in zip(("COLUMNS", "NO_COLOR"), before, strict=True):
            os.environ.pop(name) if value is None else os.environ.update({name: value})
    return said.getvalue()


def unboxed(text: str) -> str:
    """A help text without the boxes that a terminal shows around its groups.

    Example:
        >>> print(unboxed("╭─ options ──╮\\n│ -h   help  │\\n╰────────────╯"))
        options:
          -h   help
    """
    lines = []
    for line in text.splitlines():
        if line.startswith("╭"):
            lines.append(line.strip("╭─╮ ") + ":")
        elif line.startswith("│"):
            lines.append("  " + line.strip("│").strip(" ") if line[2:3] != " " else "  " + line[2:].rstrip("│ "))
        elif not line.startswith("╰"):
            lines.append(line)
    return "\n".join(lines).strip()
