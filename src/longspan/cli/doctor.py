"""`longspan doctor`: what this installation has, and how to get what is missing; `completion` for the shell."""

import os
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro
from rich.markup import escape
from rich.table import Table

from longspan import runtime
from longspan.cli import COMMANDS, print_json
from longspan.cli.options import parse
from longspan.data.benchmarks import data_directory
from longspan.files import cache_directory
from longspan.terminal import Console, say


@dataclass(frozen=True)
class DoctorOptions:
    """Show versions, devices, kernels, data found and write access."""

    data_dir: Path | None = None
    """Folder of data sets; by default $LONGSPAN_DATA, else the user's cache."""
    json: bool = False
    """Print only the findings, as JSON."""


def run(arguments: list[str]) -> int:
    options = parse(DoctorOptions, arguments, "longspan doctor")
    runtime.prepare(1)
    findings = examine(options.data_dir)
    if options.json:
        print_json(findings)
    else:
        _show(findings)
    return 0


def examine(data_dir: Path | None) -> dict:
    """Everything that helps to find out why something does not work."""
    import jax

    from longspan.data import catalog
    from longspan.ops import backend

    folder = data_directory(data_dir)
    return {
        **runtime.describe(1),
        "devices": [str(device) for device in jax.devices()],
        "kernels": backend.describe(),
        "data_folder": str(folder),
        "data_found": [entry.name for entry in catalog(data_dir) if entry.state == "ready"],
        "music21": runtime.version("music21"),
        "writable": {name: _writable(path) for name, path in _places(folder).items()},
    }


def _places(data_folder: Path) -> dict[str, Path]:
    return {"runs (here)": Path.cwd(), "cache": cache_directory(), "data": data_folder}


def _writable(folder: Path) -> bool:
    """Whether a file can be created in a folder or, if it does not exist yet, in its nearest existing parent."""
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent
    try:
        with tempfile.NamedTemporaryFile(dir=folder):
            return True
    except OSError:
        return False


def _show(findings: dict) -> None:
    console = Console(highlight=False)
    table = Table(show_header=False, box=None)
    versions = ", ".join(f"{name} {version}" for name, version in findings["versions"].items() if version)
    rows = {
        "python": findings["python"],
        "versions": versions,
        "machine": f"{findings['platform']}, {findings['cores']} cores",
        "devices": ", ".join(findings["devices"]),
        "kernels": _describe_kernels(**findings["kernels"]),
        "data folder": findings["data_folder"],
        "data found": ", ".join(findings["data_found"]) or "none yet; `longspan data get jsb` fetches one",
        "music21": findings["music21"] or "missing: pip install 'longspan[music]' for the default chorales",
        "writable": ", ".join(f"{name} {'yes' if ok else 'NO'}" for name, ok in findings["writable"].items()),
    }
    for name, value in rows.items():
        table.add_row(f"[bold]{name}[/]", escape(str(value)))
    console.print(table)
    if "NO" in rows["writable"]:
        console.print("A folder is not writable: change to another one, or set LONGSPAN_DATA or XDG_CACHE_HOME.")
    if os.environ.get("LONGSPAN_KERNELS"):
        console.print(f"LONGSPAN_KERNELS={os.environ['LONGSPAN_KERNELS']} is set.", markup=False)


def _describe_kernels(
    kernels: str, library: str | None, instruction_set: str | None, threads: int, reason: str | None
) -> str:
    """The kernels in a phrase, with what keeps them from being native."""
    if kernels == "native" and library:
        return f"native, for {instruction_set}, on {threads} thread{'s' * (threads != 1)} ({Path(library).name})"
    return f"{kernels}: {reason}" if reason else kernels


@dataclass(frozen=True)
class CompletionOptions:
    """Print a script that lets the shell complete commands and flags by Tab.

    Put `eval "$(longspan completion bash)"` into ~/.bashrc, or the same with zsh into ~/.zshrc.
    """

    shell: Annotated[Literal["bash", "zsh"], tyro.conf.Positional]
    """The shell."""


COMPLETION = """_longspan() {
    local word=${COMP_WORDS[COMP_CWORD]} command=${COMP_WORDS[1]}
    if [ "$COMP_CWORD" -eq 1 ]; then
        COMPREPLY=($(compgen -W "COMMANDS" -- "$word"))
    elif [[ $word == -* ]]; then
        if [ "$_longspan_command" != "$command" ]; then
            _longspan_flags=$(longspan "$command" --help-all 2>/dev/null | grep -oE -e '--[a-z][a-z-]+' | sort -u)
            _longspan_command=$command
        fi
        COMPREPLY=($(compgen -W "$_longspan_flags" -- "$word"))
    fi
}
complete -o default -F _longspan longspan
"""
"""Asks the program for the flags of a command once, and remembers them until another command is completed."""


def completion(arguments: list[str]) -> int:
    options = parse(CompletionOptions, arguments, "longspan completion")
    before = "autoload -U +X bashcompinit && bashcompinit\n" if options.shell == "zsh" else ""
    say(before + COMPLETION.replace("COMMANDS", " ".join(COMMANDS)))
    return 0
