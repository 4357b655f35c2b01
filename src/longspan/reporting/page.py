"""One self-contained HTML page of reports: values are computed elsewhere, here they become markup and embedded JSON.

Style and scripts are the files in `assets/`; they are put into the page, which asks nothing of the network.
"""

from html import escape
from importlib import resources

from longspan import __version__
from longspan.reporting.page_results import results_content
from longspan.reporting.page_run import run_content
from longspan.reporting.page_study import study_content
from longspan.reporting.report import Report
from longspan.reporting.run_report import RunReport
from longspan.reporting.study_report import StudyReport


def render_report(reports: list[Report], *, tempo: float = 100.0) -> str:
    """The page as HTML; `tempo`, in quarter notes a minute, is that of music samples."""
    headings = [_heading(report) for report in reports]
    alone = len(reports) == 1
    over, title = headings[0] if alone else ("longspan", "Report")
    sections, links = [], []
    for number, (report, (kicker, heading)) in enumerate(zip(reports, headings, strict=True), 1):
        above = "" if alone else f'<p class="kicker">{escape(kicker)}</p><h2>{escape(heading)}</h2>'
        sections.append(f'<section class="report" id="part-{number}">{above}{_content(report, tempo)}</section>')
        links.append(f'<a href="#part-{number}">{escape(heading)}</a>')
    parts = {
        "{kicker}": escape(over),
        "{title}": escape(title),
        "{version}": __version__,
        "{navigation}": "" if alone else f'<nav aria-label="Parts">{"".join(links)}</nav>',
        "{style}": _asset("page.css"),
        "{script}": f'"use strict";\n{_asset("charts.js")}\n{_asset("music.js")}',
        "{body}": "\n".join(sections),
    }
    page = _asset("page.html")
    for name, content in parts.items():  # the body comes last, for a text sample may hold anything
        page = page.replace(name, content)
    return page


def _heading(report: Report) -> tuple[str, str]:
    """What stands small above the heading, and the heading."""
    if isinstance(report, RunReport):
        return f"Run {report.name}", f"{report.recipe} on {report.data}"
    if isinstance(report, StudyReport):
        return f"Study {report.name}", f"{report.recipe} on {report.data}, searched"
    return "Advances in Optimizing Recurrent Networks", "The paper’s tables, reproduced"


def _content(report: Report, tempo: float) -> str:
    if isinstance(report, RunReport):
        return run_content(report, tempo)
    if isinstance(report, StudyReport):
        return study_content(report, tempo)
    return results_content(report)


def _asset(name: str) -> str:
    return resources.files("longspan.reporting").joinpath("assets", name).read_text(encoding="utf-8")
