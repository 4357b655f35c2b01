"""The built site: complete, closed in itself, and readable on a phone and on a desktop."""

import functools
import importlib
import re
import threading
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import nbformat
import pytest

from longspan.cli import COMMANDS
from tests.support.browser import DESKTOP, PHONE
from tools.pages import MODULES

ROOT = Path(__file__).parents[2]
ASKED_FOR = re.compile(
    r"""<(?:script|img|iframe|audio|source|link)\b[^>]*?\b(?:src|href)=["']?((?:https?:)?//[^"'\s>]+)"""
)


def pages_of(site: Path) -> list[Path]:
    return sorted(path for path in site.rglob("*.html") if path.name != "404.html")


def test_every_page_of_the_repository_is_in_the_navigation():
    """The strict build refuses a page that is not; this names it without building."""
    navigation = (ROOT / "mkdocs.yml").read_text().partition("\nnav:")[2]
    pages = {path.relative_to(ROOT / "docs").as_posix() for path in (ROOT / "docs").rglob("*.md")}
    assert {page for page in pages if not re.search(rf": {re.escape(page)}$", navigation, re.MULTILINE)} == set()


@pytest.mark.parametrize("module", MODULES)
def test_the_reference_has_every_public_name(site, module):
    page = (site / "reference" / f"{module}.html").read_text()
    names = [name for name in importlib.import_module(module).__all__ if f"{module}.{name}" not in MODULES]
    assert [name for name in names if name != "__version__" and f'id="{module}.{name}"' not in page] == []


def test_the_reference_has_every_command_and_its_flags(site):
    page = (site / "reference" / "command-line.html").read_text()
    assert [command for command in COMMANDS if f'id="{command}"' not in page] == []
    for flag in ("--hidden-size", "--temperature", "--frames-per-beat", "--watch-lags"):
        assert flag in page
    assert "╭" not in page


def test_notebooks_were_executed_and_can_be_downloaded(site):
    for script in (ROOT / "docs" / "notebooks").glob("*.py"):
        notebook = nbformat.read(site / "notebooks" / f"{script.stem}.ipynb", as_version=4)
        outputs = [output for cell in notebook.cells for output in cell.get("outputs", [])]
        assert any("image/png" in output.get("data", {}) for output in outputs)
        page = (site / "notebooks" / f"{script.stem}.html").read_text()
        printed = next(output.text for output in outputs if output.output_type == "stream")
        assert printed.split()[0] in page
        assert f"{script.stem}-1.png" in page
        assert (site / "notebooks" / f"{script.stem}-1.png").read_bytes().startswith(b"\x89PNG")


def test_formulas_and_diagrams_need_no_script(site):
    assert "<math" in (site / "notation.html").read_text()
    layers = (site / "reference" / "longspan.layers.html").read_text()
    assert "<math" in layers
    assert ":math:" not in layers
    design = (site / "design.html").read_text()
    assert "assets/diagrams/" in design
    assert "mermaid" not in design.partition("<article")[2].partition("</article")[0]


def test_no_page_names_something_to_fetch_from_elsewhere(site):
    assert {found for page in pages_of(site) for found in ASKED_FOR.findall(page.read_text())} == set()
    styles = "".join(path.read_text() for path in site.rglob("*.css"))
    assert re.findall(r"(?:url\(|@import )[\"']?(?:https?:)?//", styles) == []


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, format, *args):
        pass


@pytest.fixture(scope="module")
def address(site):
    with ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=str(site))) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


@pytest.mark.parametrize(("viewport", "scheme"), [(PHONE, "dark"), (DESKTOP, "light")], ids=["phone", "desktop"])
def test_pages_open_without_requests_complaints_or_sideways_scrolling(site, address, browser, viewport, scheme):
    asked, said, wide = set(), [], []
    page = browser.new_context(viewport=viewport, color_scheme=scheme).new_page()
    page.on("request", lambda request: asked.add(request.url))
    page.on("console", lambda message: said.append((page.url, message.text)))
    page.on("pageerror", lambda error: said.append((page.url, str(error))))
    for path in pages_of(site):
        page.goto(f"{address}/{path.relative_to(site).as_posix()}")
        if page.evaluate("document.documentElement.scrollWidth") > viewport["width"]:
            wide.append(path.name)
    assert {url for url in asked if not url.startswith((address, "data:", "blob:"))} == set()
    assert (said, wide) == ([], [])


def test_the_search_finds_a_setting(address, browser):
    page = browser.new_page(viewport=DESKTOP)
    page.goto(f"{address}/index.html")
    page.get_by_placeholder("Search").click()
    page.keyboard.type("structural damping")
    page.wait_for_selector(".md-search-result__link[href*='hessian-free']")
