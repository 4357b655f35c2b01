"""A hook of MkDocs: diagrams written in Mermaid are shown as pictures, so that readers need no script from elsewhere.

`python -m tools.diagrams` draws those that have changed, by the npm package `mermaid` in the installed Chromium, and
removes pictures of which there is no diagram any more. A picture is named after its diagram's text, so that one that
was not drawn again ends the build.
"""

import hashlib
import posixpath
import re
import subprocess
import tempfile
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[1]
FOLDER = "assets/diagrams"
FENCE = re.compile(r"^```mermaid\n(.*?)^```$", re.DOTALL | re.MULTILINE)


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Put the picture of each diagram in its place."""

    def picture(found: re.Match) -> str:
        place = picture_of(found[1])
        if files.get_file_from_path(place) is None:
            raise PluginError(f"a diagram of {page.file.src_uri} has not been drawn: run python -m tools.diagrams")
        return f"![Diagram]({posixpath.relpath(place, posixpath.dirname(page.file.src_uri) or '.')}){{ .diagram }}"

    return FENCE.sub(picture, markdown)


def picture_of(diagram: str) -> str:
    """Where the picture of a diagram is, below `docs/`."""
    return f"{FOLDER}/{hashlib.sha256(diagram.encode()).hexdigest()[:12]}.svg"


def draw_all() -> None:
    """Draw every diagram that has no picture, and remove pictures without a diagram."""
    pages = (ROOT / "docs").rglob("*.md")
    diagrams = {picture_of(text): text for page in pages for text in FENCE.findall(page.read_text(encoding="utf-8"))}
    for old in (ROOT / "docs" / FOLDER).glob("*.svg"):
        if f"{FOLDER}/{old.name}" not in diagrams:
            old.unlink()
    missing = {place: text for place, text in diagrams.items() if not (ROOT / "docs" / place).exists()}
    for place, svg in zip(missing, drawn(list(missing.values())), strict=True):
        (ROOT / "docs" / place).parent.mkdir(exist_ok=True)
        (ROOT / "docs" / place).write_text(svg, encoding="utf-8")


def drawn(diagrams: list[str]) -> list[str]:
    """The diagrams as SVG, with text instead of embedded HTML, on a light card that suits dark pages too."""
    from playwright.sync_api import sync_playwright

    if not diagrams:
        return []
    options = "{startOnLoad: false, theme: 'neutral', htmlLabels: false, flowchart: {htmlLabels: false}}"
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as browsers:
        subprocess.run(["npm", "install", "--silent", "--no-save", "--prefix", folder, "mermaid@11"], check=True)
        browser = browsers.chromium.launch(executable_path="/usr/bin/chromium", args=["--no-sandbox"])
        page = browser.new_page()
        page.add_script_tag(path=f"{folder}/node_modules/mermaid/dist/mermaid.min.js")
        page.evaluate(f"mermaid.initialize({options})")
        return [
            page.evaluate("([name, text]) => mermaid.render(name, text).then(made => made.svg)", [f"d{i}", text])
            for i, text in enumerate(diagrams)
        ]


if __name__ == "__main__":
    draw_all()
