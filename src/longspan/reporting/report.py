"""What is at a path, a run, a study or a folder of results, and the values to be reported of it."""

from pathlib import Path

from longspan.errors import InputError
from longspan.reporting.results_values import ResultsValues, read_remarks, results_values
from longspan.reporting.run_report import RunReport, run_report
from longspan.reporting.samples import draw_samples
from longspan.reporting.study_report import StudyReport, study_report, trial_runs, winning_slot
from longspan.search.cells import read_results
from longspan.training.runs import Run

Report = RunReport | StudyReport | ResultsValues


def read_report(path: Path, *, samples: int = 0, seed: int = 0) -> Report:
    """The values of whatever is at a path; so many `samples` are drawn of a run, or of a study's winner."""
    run = run_to_sample(path)
    drawn = draw_samples(run, samples, seed) if run else []
    if _is_run(path):
        return run_report(path, drawn)
    if _is_study(path):
        return study_report(path, drawn)
    results = read_results(path)
    if not results:
        raise InputError(f"expected the folder of a run, a study or results, got {path}; `longspan train` makes a run")
    return results_values(results, read_remarks(path))


def run_to_sample(path: Path) -> Run | None:
    """The run that stands for what is at a path, None where there is none."""
    if _is_run(path):
        return Run.open(path)
    slot = winning_slot(path) if _is_study(path) else None
    return None if slot is None else trial_runs(path).get(slot)


def _is_run(path: Path) -> bool:
    return (path / "config.json").is_file()


def _is_study(path: Path) -> bool:
    return (path / "trials").is_dir() or (path / "result.json").is_file()
