"""The report in a real browser: curves are drawn, music sounds, keys work, nothing is said on the console."""

import re

import msgspec
import pytest

from longspan.report import read_report, render_report
from longspan.reporting.samples import MusicSample, Note, TextSample
from tests.support.browser import DESKTOP, PHONE, quiet_pages, wait_until
from tests.support.methods_results import methods_folder
from tests.support.report_folders import results_folder, run_folder, study_folder


@pytest.fixture(scope="module")
def page_file(tmp_path_factory):
    folder = tmp_path_factory.mktemp("report")
    notes = [Note(frame, frame + 2, 60 + 5 * voice) for frame in range(0, 32, 2) for voice in range(3)]
    run_folder(folder / "run", [-9.5, -8.7, -8.8], clip=5.0)
    run = msgspec.structs.replace(read_report(folder / "run"), samples=[MusicSample(notes, 32, 4)] * 2)
    text = msgspec.structs.replace(read_report(folder / "run"), samples=[TextSample("</pre><b>so they say</b>")])
    study = read_report(study_folder(folder / "study"))
    results = read_report(results_folder(folder / "results"))
    methods = read_report(methods_folder(folder / "claims"))
    (folder / "report.html").write_text(render_report([run, study, results, text, methods]))
    return folder / "report.html"


@pytest.fixture
def open_page(browser, page_file):
    with quiet_pages(browser) as open_one:

        def open_page(viewport=DESKTOP, scheme="light"):
            page = open_one(page_file.as_uri(), viewport=viewport, color_scheme=scheme)
            page.wait_for_selector("figure.chart svg path")
            return page

        yield open_page


def test_every_curve_is_drawn_and_lies_within_its_chart(open_page):
    page = open_page()
    curves = page.locator("#part-2 figure.chart").filter(has_text="Learning curves")
    lines = curves.locator("path.line").all()
    assert len(lines) == 2
    for line in lines:
        assert line.get_attribute("d").count(" ") == 3  # three epochs
        inner, outer = line.bounding_box(), curves.bounding_box()
        assert outer["x"] < inner["x"] < inner["x"] + inner["width"] < outer["x"] + outer["width"]
        assert inner["width"] > 200
    norm = page.locator("#part-2 figure.chart").filter(has_text="Gradient norm")
    assert norm.locator("text", has_text="clip 5").count() == 1
    rule, line = norm.locator(".rule").bounding_box(), norm.locator("path.line").bounding_box()
    assert line["y"] < rule["y"] < line["y"] + line["height"]  # norms 2, 4, 6 cross the clip line at 5
    empty = page.evaluate(
        "[...document.querySelectorAll('figure .plot')].filter((p) => !p.querySelector('svg > *')).length"
    )
    assert empty == 0
    assert page.locator("figure.pairs").count() == 6
    assert page.locator("figure.pairs").nth(3).locator("circle.ours-good, path.ours-bad").count() == 2


def test_the_play_button_starts_sound_and_stops_it(open_page):
    page = open_page()
    roll = page.locator("figure.roll").first
    loudest = """() => { const heard = new Float32Array(instrument.meter.fftSize);
        instrument.meter.getFloatTimeDomainData(heard); return Math.max(...heard.map(Math.abs)); }"""
    assert roll.locator("rect.note-bar").count() == 48
    button = roll.get_by_role("button")
    button.focus()
    page.keyboard.press("Enter")
    wait_until(page, f"({loudest})() > 0.01")
    assert button.inner_text().strip() == "Pause"
    assert page.evaluate("instrument.context.state") == "running"
    wait_until(page, "document.querySelector('figure.roll input').value > 0.2")
    assert roll.locator("rect.sounding").count() == 3
    other = page.locator("figure.roll").nth(1).get_by_role("button")
    other.click()  # one piece at a time
    assert (button.inner_text().strip(), other.inner_text().strip()) == ("Play", "Pause")
    other.click()
    wait_until(page, f"({loudest})() < 0.001")
    roll.get_by_role("slider").fill("4.7")
    assert roll.locator("output").inner_text() == "0:04 / 0:04"
    button.click()
    wait_until(page, "document.querySelector('figure.roll button').innerText.trim() === 'Play'")  # at its end


def test_charts_answer_to_mouse_and_keyboard(open_page):
    page = open_page()
    chart = page.locator("#part-2 figure.chart").filter(has_text="Learning curves")
    tip = chart.locator(".tip")
    chart.locator("svg").focus()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    assert tip.inner_text().split("\n") == ["epoch 2", "training: −8.5", "validation: −8.7"]
    page.keyboard.press("Escape")
    assert not tip.is_visible()
    box = chart.locator("svg").bounding_box()
    chart.locator("svg").hover(position={"x": box["width"] - 12, "y": 60})  # waits until the page has scrolled there
    assert tip.inner_text().startswith("epoch 3")
    chart.locator("summary").click()
    chart.locator("tbody tr").first.wait_for()  # the table is made when it is opened
    assert chart.locator("tbody tr").count() == 6
    scatter = page.locator("#part-3 figure.chart").filter(has_text="activation").first
    scatter.locator("svg").focus()
    page.keyboard.press("End")
    assert scatter.locator(".tip").inner_text().split("\n") == ["activation tanh", "slot 2: −8.5"]


def test_it_fits_a_phone_and_knows_the_dark(open_page):
    page = open_page(PHONE, "dark")
    assert page.evaluate("document.documentElement.scrollWidth") == PHONE["width"]
    brightness = "getComputedStyle(document.body).backgroundColor.match(/\\d+/g).map(Number)"
    assert max(page.evaluate(brightness)) < 60
    assert page.locator(".text-sample pre").inner_text() == "</pre><b>so they say</b>"
    assert page.get_by_role("button", name="Play").first.bounding_box()["height"] >= 40
    assert min(open_page(PHONE).evaluate(brightness)) > 200


def test_tables_on_a_phone_keep_the_margin_of_the_text(open_page):
    margins = """[...document.querySelectorAll('.table, .table-title')].map((box) => box.getBoundingClientRect())
        .map((box) => Math.min(box.left, document.documentElement.clientWidth - box.right))"""
    found = open_page(PHONE).evaluate(margins)
    assert len(found) > 10
    assert min(found) >= 15


@pytest.mark.parametrize("viewport", [DESKTOP, PHONE])
def test_a_table_that_does_not_fit_says_that_it_scrolls(open_page, viewport):
    page = open_page(viewport)
    boxes = page.evaluate(
        "[...document.querySelectorAll('.table')].map(table => [table.querySelector('.scroll'), table])"
        ".filter(([box]) => box.clientWidth).map(([box, table]) =>"
        " [box.scrollWidth > box.clientWidth + 1, table.classList.contains('scrolls')])"
    )
    assert all(beyond == says for beyond, says in boxes)
    assert viewport != PHONE or any(says for _, says in boxes)
    assert page.evaluate("document.documentElement.scrollWidth") == viewport["width"]


def test_bands_and_crosses_of_compared_methods_are_drawn(open_page):
    page = open_page()
    curves = page.locator("#part-6 figure.chart").filter(has_text="NADE: best of n slots")
    assert curves.locator("path.band").count() == 4
    rates = page.locator("#part-6 figure.chart", has=page.locator("figcaption", has_text=re.compile("^sgd$")))
    assert (rates.locator("circle.point").count(), rates.locator("path.cross").count()) == (11, 1)
