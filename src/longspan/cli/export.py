"""`longspan export`: a trained model for other programs."""

import re
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from longspan import cli, runtime
from longspan.cli import print_json
from longspan.cli.options import parse
from longspan.errors import InputError
from longspan.export.writers import Format
from longspan.files import explain_disk_errors, write_atomic
from longspan.terminal import say
from longspan.training.runs import Run

USES = {
    "onnx": "onnxruntime.InferenceSession({first!r})",
    "torch": "from {stem} import load; model = load({first!r})",
    "numpy": "python {first} --help",
}
SHADOWED = sys.stdlib_module_names | {"numpy", "safetensors", "torch"}
"""Modules that an exported Python file may import: it cannot have the name of one."""


@dataclass(frozen=True)
class ExportOptions:
    """Write a trained model for other programs.

    onnx: standard operators, for onnxruntime and others. torch: a state dict in PyTorch's names and a Python file that
    loads it. numpy: one Python file with the weights in it, which scores and samples and needs nothing but NumPy.
    """

    path: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="RUN")]
    """Folder of the run, or the name of a model that comes with longspan."""
    format: Format = "onnx"
    """What to write."""
    output: Annotated[Path, tyro.conf.arg(aliases=["-o"], metavar="FOLDER")] = Path()
    """Folder of the files; by default the current one."""
    name: str | None = None
    """What the files are called; by default like the run."""
    replace: bool = False
    """Replace files that are already there."""
    json: bool = False
    """Print only the names and sizes of the files, as JSON."""


def run(arguments: list[str]) -> int:
    options = parse(ExportOptions, arguments, "longspan export")
    exported = Run.open(options.path)
    name = options.name or re.sub(r"\W+", "_", exported.path.resolve().name)
    if not name.isidentifier():
        raise InputError(f"--name must be a name that Python could import, of letters, digits and _: got {name!r}")
    if options.format != "onnx" and name in SHADOWED:
        raise InputError(
            f"--name cannot be {name!r}, a module that the exported file would shadow: choose another name"
        )
    runtime.prepare(exported.config.threads)
    from longspan.export.portable import to_portable
    from longspan.export.writers import export
    from longspan.training.setup import trained_model

    model = to_portable(trained_model(exported), exported.data, exported.config.recipe)
    files = {options.output / file: content for file, content in export(model, options.format, name).items()}
    taken = [path for path in files if path.exists()]
    if taken and not options.replace:
        raise InputError(f"{taken[0]} is already there: choose another --name or --output, or --replace it")
    with explain_disk_errors(options.output):
        options.output.mkdir(parents=True, exist_ok=True)
        for path, content in files.items():
            write_atomic(path, content)
    sizes = {str(path): len(content) for path, content in files.items()}
    if options.json:
        print_json({"run": str(options.path), "format": options.format, "files": sizes})
    else:
        written = ", ".join(f"{path} ({size / 1000:,.0f} kB)" for path, size in sizes.items())
        say(f"Wrote {written}.\nUse:  {USES[options.format].format(first=next(iter(sizes)), stem=name)}\n")
    return cli.DONE
