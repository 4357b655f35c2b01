"""One HTML page about runs, studies, compared methods and the paper's tables, given their paths."""

from pathlib import Path

import msgspec

from longspan.arms.records import DEFINITION, read_studies
from longspan.errors import InputError, to_paste
from longspan.playing.packing import measure_if_here, pack
from longspan.pretrained import located
from longspan.reporting.methods_pages import methods_content
from longspan.reporting.methods_report import MethodsReport, methods_report
from longspan.reporting.pages import Section, render_page, run_content, study_content, together_content
from longspan.reporting.run_report import RunReport, run_report
from longspan.reporting.samples import draw_samples
from longspan.reporting.study_report import StudyReport, study_report
from longspan.reproduction.cells import read_results
from longspan.reproduction.html_page import results_content
from longspan.reproduction.past import read_past
from longspan.reproduction.values import (
    LETTERS,
    PAPER_ROWS,
    ResultsValues,
    methods_beside,
    read_remarks,
    results_values,
)
from longspan.search.result import StudyFolder
from longspan.training.runs import Run

MOST_PLAYED = 3_000_000
"""Characters of packed weights above which a report does not contain the model."""
Found = Run | StudyFolder | MethodsReport | ResultsValues
"""What a path may contain, read once."""
Report = RunReport | StudyReport | MethodsReport | ResultsValues
"""The values that a page shows."""


def find_all(path: Path) -> list[Found]:
    """What is at a path; results of the paper's tables are followed by the compared methods beside them."""
    found = find(path)
    if not isinstance(found, ResultsValues):
        return [found]
    methods = [methods_beside(path, name) for name in (PAPER_ROWS, LETTERS)]
    return [found, *(each for each in methods if each is not None)]


def find(path: Path) -> Found:
    """The run, study, compared methods or results at a path, or the shipped model of that name."""
    path = located(path)
    if (path / "config.json").is_file():
        return Run.open(path)
    if (path / "trials").is_dir() or (path / "result.json").is_file():
        return StudyFolder.read(path)
    if any(path.glob(f"*{DEFINITION}")):
        return methods_report(read_studies(path))
    results = read_results(path)
    if not results:
        raise InputError(
            f"expected the folder of a run, a study, compared methods or results, got {path}; `longspan train` "
            "makes a run"
        )
    return results_values(results, read_remarks(path), methods_beside(path, PAPER_ROWS), read_past(path))


def run_to_sample(found: Found) -> Run | None:
    """The run to draw samples from: the run itself or a study's winner; None if there is none."""
    if isinstance(found, StudyFolder):
        return found.winning.run if found.winning else None
    return found if isinstance(found, Run) else None


def report_of(found: Found, *, samples: int = 0, seed: int = 0, player: bool = False) -> Report:
    """The values to show, with samples and the model itself to play with, if there is one and they are asked for."""
    run = run_to_sample(found)
    drawn = draw_samples(run, samples, seed) if run else []
    if isinstance(found, Run):
        return _with_player(run_report(found, drawn), found) if player else run_report(found, drawn)
    if not isinstance(found, StudyFolder):
        return found
    report = study_report(found, drawn)
    if run is None or report.best is None or not player:
        return report
    return msgspec.structs.replace(report, best=_with_player(report.best, run))


def _with_player(report: RunReport, run: Run) -> RunReport:
    """The report with the model of its run, unless that has no weights yet or is too large for a part of a page."""
    if not (run.path / "model.safetensors").exists():
        return report
    try:
        packed = pack(run)
    except InputError as error:
        return msgspec.structs.replace(report, no_player=str(error))
    if len(packed.content) > MOST_PLAYED:
        return msgspec.structs.replace(report, no_player=f"it is large; `{to_paste('play', run.path)}` makes its own")
    return msgspec.structs.replace(report, player=packed.measured(measure_if_here(run, packed.precision)))


def read_report(path: Path, *, samples: int = 0, seed: int = 0) -> Report:
    """The values to show about a path."""
    return report_of(find(path), samples=samples, seed=seed)


def render_report(reports: list[Report], *, tempo: float = 100.0) -> str:
    """Render the page as HTML; `tempo` is that of music samples, in quarter notes per minute."""
    return render_page([*_together(reports), *(_section(report, tempo) for report in reports)])


def _together(reports: list[Report]) -> list[Section]:
    """One section for each data set of which there are several runs."""
    runs = [report for report in reports if isinstance(report, RunReport)]
    by_data = {run.data: [other for other in runs if other.data == run.data] for run in runs}
    return [
        Section(f"{len(alike)} runs", f"{data}, side by side", together_content(alike))
        for data, alike in by_data.items()
        if len(alike) > 1
    ]


def _section(report: Report, tempo: float) -> Section:
    if isinstance(report, RunReport):
        return Section(f"Run {report.name}", f"{report.recipe} on {report.data}", run_content(report, tempo))
    if isinstance(report, StudyReport):
        heading = f"{report.recipe} on {report.data}, searched"
        return Section(f"Study {report.name}", heading, study_content(report, tempo))
    if isinstance(report, MethodsReport):
        heading = "Which methods help" if report.judgments else "Letter by letter"
        return Section("Equal budgets, paired slots", heading, methods_content(report))
    paper = "Advances in Optimizing Recurrent Networks"
    return Section(paper, "The paper’s tables", results_content(report))
