"""A hook of MkDocs: notebooks, kept as scripts without outputs, are executed and become pages with their outputs.

A notebook is a file `docs/notebooks/*.py` in the percent format of Jupytext (`# %%` begins a cell, `# %% [markdown]` a
cell of text); Jupyter opens it as it is. The page offers it for download as `.ipynb`, outputs included. A cell that
fails ends the build.
"""

import ast
import base64
import contextlib
import functools
import io
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

import jupytext
import nbformat
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files
from nbformat import v4

DOTS_PER_INCH = 144


class Rendered(NamedTuple):
    """A page of Markdown and the pictures it shows, by file name."""

    markdown: str
    pictures: dict[str, bytes]


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Replace every script below `notebooks/` by its page, its pictures and the notebook to download."""
    scripts = [file for file in files if file.src_uri.startswith("notebooks/") and file.src_uri.endswith(".py")]
    for script in scripts:
        files.remove(script)
        stem = Path(script.src_uri).stem
        notebook = executed(script.content_string)
        page = rendered(notebook, stem)
        files.append(File.generated(config, f"notebooks/{stem}.md", content=page.markdown))
        files.append(File.generated(config, f"notebooks/{stem}.ipynb", content=nbformat.writes(notebook)))
        for name, content in page.pictures.items():
            files.append(File.generated(config, f"notebooks/{name}", content=content))
    return files


@functools.cache  # `mkdocs serve` builds again after every change
def executed(script: str) -> nbformat.NotebookNode:
    """The notebook with the outputs of all of its cells, run in a process and a folder of its own."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, __file__]
        ran = subprocess.run(command, input=script, cwd=folder, capture_output=True, text=True, encoding="utf-8")
    if ran.returncode or ran.stderr:
        raise PluginError(f"a cell of a notebook failed or wrote to standard error: {ran.stderr}")
    return nbformat.reads(ran.stdout, as_version=4)


def execute(script: str) -> nbformat.NotebookNode:
    """Run the cells one after the other, here. A kernel of Jupyter would do the same behind sockets and time limits."""
    import matplotlib.pyplot as plt

    plt.switch_backend("agg")
    plt.show = lambda: None  # a picture is shown when its cell has ended
    notebook = jupytext.reads(script, fmt="py:percent")
    notebook.metadata["kernelspec"] = {"name": "python3", "display_name": "Python 3", "language": "python"}
    names = {"__name__": "__main__"}
    for number, cell in enumerate((cell for cell in notebook.cells if cell.cell_type == "code"), start=1):
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            _run_cell(cell.source, names)
        cell.execution_count = number
        if printed.getvalue():
            cell.outputs.append(v4.new_output("stream", name="stdout", text=printed.getvalue()))
        cell.outputs += [_picture(plt.figure(figure)) for figure in plt.get_fignums()]
        plt.close("all")
    return notebook


def _run_cell(source: str, names: dict) -> None:
    """Run a cell; the value of an expression at its end is printed."""
    tree = ast.parse(source)
    *others, last = tree.body
    if isinstance(last, ast.Expr):
        tree.body = others
    exec(compile(tree, "<cell>", "exec"), names)
    if isinstance(last, ast.Expr):
        value = eval(compile(ast.Expression(last.value), "<cell>", "eval"), names)
        print("" if value is None else repr(value), end="")


def _picture(figure) -> nbformat.NotebookNode:
    content = io.BytesIO()
    figure.savefig(content, format="png", dpi=DOTS_PER_INCH, bbox_inches="tight")
    return v4.new_output("display_data", data={"image/png": base64.b64encode(content.getvalue()).decode()})


def rendered(notebook: nbformat.NotebookNode, stem: str) -> Rendered:
    """The page of an executed notebook."""
    parts, pictures = [], {}
    for cell in notebook.cells:
        parts.append(cell.source if cell.cell_type == "markdown" else f"```python\n{cell.source}\n```")
        for output in cell.get("outputs", []):
            if output.output_type == "stream":
                parts.append(f'<div class="output" markdown="1">\n\n```text\n{output.text.rstrip()}\n```\n\n</div>')
            else:
                name = f"{stem}-{len(pictures) + 1}.png"
                pictures[name] = base64.b64decode(output.data["image/png"])
                parts.append(f'<p class="figure" markdown="span">![Output of the cell above]({name})</p>')
    title, *rest = parts
    download = f'[Download this notebook]({stem}.ipynb){{ download="{stem}.ipynb" }}'
    return Rendered("\n\n".join([title, download, *rest]) + "\n", pictures)


if __name__ == "__main__":
    sys.stdout.write(nbformat.writes(execute(sys.stdin.read())))
