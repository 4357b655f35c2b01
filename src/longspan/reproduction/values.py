"""The content of the page of results as plain values: every cell beside what is known of its like elsewhere."""

from pathlib import Path
from typing import Any, Literal

import msgspec

from longspan.arms.records import read_studies
from longspan.config import TrainConfig, as_dict
from longspan.errors import InputError
from longspan.files import read_toml
from longspan.metrics import METRICS, number
from longspan.recipes import parse
from longspan.reporting.methods_report import MethodsReport, WinnerValue, methods_report
from longspan.reproduction.cells import (
    Cell,
    CellResult,
    Figures,
    MetricName,
    behind,
    paper_figures,
    reaches_paper,
    table_cells,
)
from longspan.reproduction.past import Past, Remembering, Repeating, with_spread
from longspan.reproduction.tables import PUBLISHED, TABLES, TableName

REMARKS = "remarks.toml"
PAPER_ROWS, LETTERS = "claims", "letters"
"""Folders of compared methods beside the cells of the tables: the paper's rows, and letter by letter."""


class CellValue(msgspec.Struct, frozen=True, kw_only=True):
    """A cell as the page shows it."""

    table: TableName
    row: str
    data: str
    metric: MetricName
    ours: Figures | None = None
    """Means over the seeds of our best settings, which may have dropout and averaging."""
    spread: Figures | None = None
    """Standard deviations over those seeds; None with fewer than two."""
    seeds: int = 0
    tried: int = 0
    frames_per_second: float | None = None
    settings: dict = {}
    slot: int | None = None
    """Slot of the winner; the following fields are also the winner's."""
    epochs: int = 0
    time_limit: float | None = None
    """Processor seconds after which it was stopped; None if it ended by itself."""
    remark: str = ""

    @property
    def described_metric(self) -> str:
        """The metric of its figures, in words."""
        metric = METRICS[self.metric]
        unit = f" in {metric.unit} per frame" if metric.unit else ""
        return f"{metric.label}{unit}, {metric.direction}"


class PaperCellValue(CellValue, frozen=True, kw_only=True):
    """A cell of the paper's tables."""

    paper: Figures
    verdict: Literal["reaches", "behind", "diverged", "missing"]
    protocol: WinnerValue | None = None
    """The winner of equal budgets in the paper's own regime, on fresh seeds; None if there is none yet."""
    behind: float | None = None
    """Relative amount by which the paper's test figure is better than our mean, in nats."""
    remembering: Remembering | None = None
    """The same networks with a memory of the song or text; None if that was not measured."""


class GatedCellValue(CellValue, frozen=True, kw_only=True):
    """A cell of a network that the paper does not have, once it has a result."""

    published: float | None
    """The test figure of a network like it that others report."""
    plain: PaperCellValue | None
    """The cell with the best test mean of ours among those of the paper with the same output and data."""

    @property
    def gains(self) -> bool:
        """Whether its mean equals or beats that of the plain cell, rounded to the two decimals that are printed."""
        ours, plain = self.ours, self.plain.ours if self.plain else None
        return ours is not None and plain is not None and METRICS[self.metric].reaches(ours.test, plain.test)


class TrialPoint(msgspec.Struct, frozen=True):
    """A trial of a music cell: how far it is below the cell's best, and its settings."""

    row: str
    data: str
    slot: int
    gap: float
    """Its best validation score minus that of the cell's winner, in nats."""
    settings: dict[str, float]
    """Numeric settings only: all of the winner's, and for the others those that differ from slot 0."""


class ResultsValues(msgspec.Struct, frozen=True, tag="results", tag_field="report"):
    """The content of the page."""

    cells: list[PaperCellValue]
    environments: list[dict[str, str]]
    """Versions and machines with which the results were computed."""
    trials: list[TrialPoint] = []
    repeats: list[Repeating] = []
    gated: list[GatedCellValue] = []

    def of(self, table: TableName) -> list[PaperCellValue]:
        return [cell for cell in self.cells if cell.table == table]


def results_values(
    results: dict[Cell, CellResult],
    remarks: dict[str, str] | None = None,
    methods: MethodsReport | None = None,
    past: Past | None = None,
) -> ResultsValues:
    """Everything the page shows; `methods` has the winners of the paper's protocol."""
    remarks, past = remarks or {}, past or Past()
    winners = {(arm.arm, each.data): arm.winner for each in (methods.sets if methods else []) for arm in each.arms}
    cells = [
        _paper_value(cell, results.get(cell), winners.get((cell.row, cell.data)), past, remarks.get(cell.name, ""))
        for table in ("table1", "table2")
        for cell in table_cells(table)
    ]
    gated = [
        _gated_value(results[cell], cells, remarks.get(cell.name, ""))
        for cell in table_cells("gated")
        if cell in results
    ]
    environments: list[dict[str, str]] = []
    for result in results.values():
        environment = _environment(result.search.environment)
        if environment not in environments:
            environments.append(environment)
    trials = [point for result in results.values() if result.table == "table1" for point in _trial_points(result)]
    return ResultsValues(cells, environments, trials, past.repeats, gated)


def methods_beside(results: Path, name: str) -> MethodsReport | None:
    """The comparison of methods in a folder beside the cells of the tables; None if there is none yet."""
    studies = read_studies(results / name)
    return methods_report(studies) if studies else None


def read_remarks(folder: Path) -> dict[str, str]:
    """Read remarks on cells, such as `"sgd+c--jsb" = "..."`, from remarks.toml beside the results."""
    file = folder / REMARKS
    if not file.exists():
        return {}
    remarks = read_toml(file, 'expected lines such as "sgd+c--jsb" = "..."')
    names = {cell.name for table in TABLES for cell in table_cells(table)}
    unknown = sorted(set(remarks) - names)
    if unknown:
        raise InputError(f"{file} speaks of {', '.join(unknown)}: expected names such as {min(names)}")
    for name, remark in remarks.items():
        if not isinstance(remark, str):
            raise InputError(f"{file} must have a text in quotes for {name}: got {remark!r}")
    return remarks


def _paper_value(
    cell: Cell, result: CellResult | None, protocol: WinnerValue | None, past: Past, remark: str
) -> PaperCellValue:
    paper = paper_figures(cell)
    assert paper is not None
    beside = {"paper": paper, "protocol": protocol, "remembering": past.memories.get((cell.row, cell.data))}
    if result is None:
        place = {**cell._asdict(), "metric": cell.metric, "remark": remark}
        return PaperCellValue(**place, **beside, verdict="missing")
    verdict = "diverged" if result.ours is None else "reaches" if reaches_paper(result) else "behind"
    amount = None if result.ours is None else behind(result)
    return PaperCellValue(**_computed(result, remark), **beside, verdict=verdict, behind=amount)


def _gated_value(result: CellResult, papers: list[PaperCellValue], remark: str) -> GatedCellValue:
    place = (result.row, result.data)
    return GatedCellValue(
        **_computed(result, remark), published=PUBLISHED.get(place), plain=_best_plain(result.cell, papers)
    )


def _best_plain(cell: Cell, papers: list[PaperCellValue]) -> PaperCellValue | None:
    """The paper's cell with the same data and output whose test mean of ours is best."""
    output = parse(cell.how.recipe).output
    alike = {
        paper.ours.test: paper
        for paper in papers
        if paper.data == cell.data and paper.ours and parse(paper.row).output == output
    }
    return alike[METRICS[cell.metric].best(list(alike))] if alike else None


def _computed(result: CellResult, remark: str) -> dict[str, Any]:
    """The fields of a cell value that follow from the cell's result."""
    outcome = result.search.winning.outcome if result.search.winning else None
    return {
        **result.cell._asdict(),
        "metric": result.metric,
        "ours": result.mean,
        "spread": result.spread,
        "seeds": len(result.repetitions),
        "tried": result.tried,
        "frames_per_second": result.frames_per_second,
        "settings": as_dict(TrainConfig()) | result.settings,  # settings added after the result had their defaults
        "slot": result.search.winner,
        "epochs": outcome.epochs if outcome else 0,
        "time_limit": outcome.time_limit if outcome else None,
        "remark": remark,
    }


def test_of(cell: CellValue) -> str:
    """Our mean test figure with its standard deviation over seeds and, of an estimate, its standard error."""
    if cell.ours is None:
        return ""
    estimated = "" if cell.ours.test_error is None else f" (est. ± {number(cell.ours.test_error)})"
    return with_spread(cell.ours.test, cell.spread.test if cell.spread else None) + estimated


def protocol_of(cell: PaperCellValue) -> str:
    """The test figure of the paper's protocol, and how many of its seeds diverged if any did."""
    winner = cell.protocol
    if winner is None:
        return ""
    diverged = f"{winner.diverged} of {winner.seeds} diverged" if winner.diverged else ""
    shown = with_spread(winner.test.get(cell.metric), winner.spread.get(cell.metric))
    return f"{shown} ({diverged})" if shown and diverged else shown or diverged


def _trial_points(result: CellResult) -> list[TrialPoint]:
    winner = result.search.winning
    best = winner.outcome.valid_log_likelihood if winner else None
    points = []
    for trial in result.search.trials:
        score = trial.outcome.valid_log_likelihood
        if best is None or score is None:
            continue
        known = result.settings if trial is winner else trial.settings
        numbers = {
            name: float(value)
            for name, value in known.items()
            if isinstance(value, int | float) and not isinstance(value, bool)
        }
        points.append(TrialPoint(result.row, result.data, trial.slot, score - best, numbers))
    return points


def _environment(environment: dict) -> dict[str, str]:
    versions = environment.get("versions") or {}
    known = {name: str(version) for name, version in versions.items() if version}
    return known | {name: str(environment[name]) for name in ("python", "platform") if name in environment}
