"""The content of the page of results as plain values: every cell beside the paper's, and the claims with verdicts."""

import statistics
from pathlib import Path
from typing import Literal

import msgspec

from longspan.config import TrainConfig, as_dict
from longspan.errors import InputError
from longspan.files import read_toml
from longspan.metrics import METRICS, number
from longspan.reproduction.cells import (
    Cell,
    CellResult,
    Figures,
    MetricName,
    TableName,
    behind,
    paper_figures,
    reaches_paper,
    table_cells,
)
from longspan.reproduction.claims import CLAIMS, ClaimValue, judge

REMARKS = "remarks.toml"


class CellValue(msgspec.Struct, frozen=True):
    """A cell as the page shows it."""

    table: TableName
    row: str
    data: str
    metric: MetricName
    paper: Figures
    verdict: Literal["reaches", "behind", "diverged", "missing"]
    ours: Figures | None = None
    mean: float | None = None
    """Mean of the test figures over seeds; None with fewer than two."""
    spread: Figures | None = None
    seeds: int = 0
    tried: int = 0
    behind: float | None = None
    """Relative amount by which the paper's test figure is better, in nats."""
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

    cells: list[CellValue]
    claims: list[ClaimValue]
    environments: list[dict[str, str]]
    """Versions and machines with which the results were computed."""
    trials: list[TrialPoint] = []

    def of(self, table: TableName) -> list[CellValue]:
        return [cell for cell in self.cells if cell.table == table]


def results_values(results: dict[Cell, CellResult], remarks: dict[str, str] | None = None) -> ResultsValues:
    """Everything the page shows."""
    remarks = remarks or {}
    cells = [
        _cell_value(cell, results.get(cell), remarks.get(cell.name, ""))
        for table in ("table1", "table2")
        for cell in table_cells(table)
    ]
    environments: list[dict[str, str]] = []
    for result in results.values():
        environment = _environment(result.search.environment)
        if environment not in environments:
            environments.append(environment)
    claims = [judge(claim, results) for claim in CLAIMS]
    trials = [point for result in results.values() if result.table == "table1" for point in _trial_points(result)]
    return ResultsValues(cells, claims, environments, trials)


def read_remarks(folder: Path) -> dict[str, str]:
    """Read remarks on cells, such as `"sgd+c--jsb" = "..."`, from remarks.toml beside the results."""
    file = folder / REMARKS
    if not file.exists():
        return {}
    remarks = read_toml(file, 'expected lines such as "sgd+c--jsb" = "..."')
    names = {cell.name for table in ("table1", "table2") for cell in table_cells(table)}
    unknown = sorted(set(remarks) - names)
    if unknown:
        raise InputError(f"{file} speaks of {', '.join(unknown)}: expected names such as {min(names)}")
    for name, remark in remarks.items():
        if not isinstance(remark, str):
            raise InputError(f"{file} must have a text in quotes for {name}: got {remark!r}")
    return remarks


def _cell_value(cell: Cell, result: CellResult | None, remark: str) -> CellValue:
    if result is None:
        return CellValue(*cell, cell.metric, paper_figures(cell), "missing", remark=remark)
    verdict = "diverged" if result.ours is None else "reaches" if reaches_paper(result) else "behind"
    repeated = [repetition.figures.test for repetition in result.repetitions]
    outcome = result.search.winning.outcome if result.search.winning else None
    return CellValue(
        *cell,
        result.metric,
        result.paper,
        verdict,
        ours=result.ours,
        mean=statistics.mean(repeated) if len(repeated) > 1 else None,
        spread=result.spread,
        seeds=len(result.repetitions),
        tried=result.tried,
        behind=None if result.ours is None else behind(result),
        frames_per_second=result.frames_per_second,
        settings=as_dict(TrainConfig()) | result.settings,  # settings added after the result had their defaults
        slot=result.search.winner,
        epochs=outcome.epochs if outcome else 0,
        time_limit=outcome.time_limit if outcome else None,
        remark=remark,
    )


def beside_test(cell: CellValue) -> str:
    """The known uncertainty of a cell's test figure, in brackets; empty if none is known."""
    known = []
    if cell.ours is not None and cell.ours.test_error is not None:
        known.append(f"est. ± {number(cell.ours.test_error)}")
    if cell.mean is not None and cell.spread is not None:
        known.append(f"{number(cell.mean)} ± {number(cell.spread.test)}")
    return f" ({'; '.join(known)})" if known else ""


def with_spread(value: float | None, spread: float | None) -> str:
    """A figure with its standard deviation over seeds, if they are known."""
    return number(value) + ("" if value is None or spread is None else f" ± {number(spread)}")


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
