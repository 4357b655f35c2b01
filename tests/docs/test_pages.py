"""What ends the build of the site: undocumented names, links to nowhere, failing notebooks, diagrams not drawn."""

import json
import re
from pathlib import Path

import griffe
import pytest
from mkdocs.exceptions import PluginError

from benchmarks import picture
from tools import notebooks, pages
from tools.diagrams import picture_of

ROOT = Path(__file__).parents[2]
DOCUMENTED = '''
__all__ = ["Public", "work"]


class Public:
    """A class."""

    def said(self):
        """A method."""

    def _own(self):
        pass


class Child(Public):
    """Another."""

    def said(self):
        pass


def work():
    """A function."""
'''


def undocumented(source: str) -> list[str]:
    with griffe.temporary_visited_module(source) as module:
        return list(pages.undocumented_in_module(module, "longspan.data"))


def test_a_public_name_needs_a_docstring():
    assert undocumented(DOCUMENTED) == []
    assert undocumented(DOCUMENTED.replace('"""A function."""', "pass")) == ["longspan.data.work"]
    assert undocumented(DOCUMENTED.replace('"""A method."""', "pass")) == ["longspan.data.Public.said"]
    assert undocumented(DOCUMENTED.replace('"Public", "work"', "")) == ["longspan.data.__all__"]


def test_a_method_says_what_its_parent_says():
    assert undocumented(DOCUMENTED.replace('"Public"', '"Child"')) == []


def test_links_point_to_the_place_on_the_site():
    assert pages.site_links("[a](../CONTRIBUTING.md#x)", "docs/design.md") == "[a](contributing.md#x)"
    assert pages.site_links("[a](../cells.md)", "docs/tutorial/own-cell.md") == "[a](../cells.md)"
    assert (
        pages.site_links("[a](https://arxiv.org/abs/1212.0901)", "README.md") == "[a](https://arxiv.org/abs/1212.0901)"
    )
    with pytest.raises(PluginError, match="no place on the site"):
        pages.site_links("[a](setup.py)", "README.md")


def test_a_notebook_whose_cell_fails_ends_the_build():
    with pytest.raises(PluginError, match="nothing of the kind"):
        notebooks.executed("# %%\nraise ValueError('nothing of the kind')\n")


def test_a_changed_diagram_has_another_picture():
    assert picture_of("flowchart TD\n a --> b\n") != picture_of("flowchart TD\n a --> c\n")


PACKAGE_PATH = re.compile(r"`(?:src/longspan/)?((?:\w+/)+\w+\.(?:py|cc|h))`")


@pytest.mark.parametrize("page", sorted(ROOT.glob("docs/*.md")), ids=lambda page: page.name)
def test_modules_that_a_page_names_are_there(page):
    for name in PACKAGE_PATH.findall(page.read_text()):
        places = [ROOT / name, ROOT / "src/longspan" / name]
        assert any(place.exists() for place in places), name


def test_the_picture_of_the_speed_shows_the_figures():
    figures = json.loads((ROOT / picture.FIGURES).read_text())
    assert (ROOT / picture.TARGET).read_text() == picture.draw(figures)
