"""Pages in the Chromium that is installed, which must neither complain nor ask the network for anything."""

import shutil
import time
from contextlib import contextmanager

import pytest

PHONE, DESKTOP = {"width": 390, "height": 844}, {"width": 1280, "height": 900}


@contextmanager
def launched_browser():
    """The browser; a test that needs it is skipped where there is none."""
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    program = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if program is None:
        pytest.skip("no Chromium on this machine: apt-get install chromium")
    with playwright.sync_playwright() as running:
        launched = running.chromium.launch(executable_path=program, args=["--no-sandbox"])
        yield launched
        launched.close()


@contextmanager
def quiet_pages(browser):
    """Gives a function that opens pages; afterwards none must have complained or asked the network for anything."""
    said, contexts = [], []

    def open_one(address, **options):
        contexts.append(browser.new_context(**{"viewport": DESKTOP, **options}))
        page = contexts[-1].new_page()
        page.on("console", lambda message: said.append(message.text))
        page.on("pageerror", lambda error: said.append(str(error)))
        page.on(
            "request", lambda request: request.url.startswith(("file:", "data:", "blob:")) or said.append(request.url)
        )
        page.goto(address)
        return page

    yield open_one
    for context in contexts:
        context.close()
    assert said == [], said


def wait_until(page, expression: str) -> None:
    """Wait until an expression holds; asked from outside, because the page's policy lets nobody evaluate text in it."""
    deadline = time.monotonic() + 30
    while not page.evaluate(expression):
        assert time.monotonic() < deadline, expression
        page.wait_for_timeout(50)
