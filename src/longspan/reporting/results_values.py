"""What the page of results shows, as plain values: every cell beside the paper's, and the claims with verdicts."""

import statistics
import tomllib
from pathlib import Path
from typing import Literal

import msgspec

from longspan.config import TrainConfig, as_dict
from longspan.errors import InputError
from longspan.reporting.paper_claims import CLAIMS, ClaimValue, judge
from longspan.search.cells import (
    Cell,
    CellResult,
    Figures,
    Metric,
    TableName,
    behind,
    paper_figures,
    reaches_paper,
    table_cells,
)

REMARKS = "remarks.toml"
METRIC_NAMES: dict[Metric, str] = {
    "log_likelihood": "log-likelihood in nats per frame, higher is better",
    "perplexity": "perplexity, lower is better",
    "bits_per_character": "bits per character, lower is better",
}


class CellValue(msgspec.Struct, frozen=True):
    """A cell as the page shows it."""

    table: TableName
    row: str
    data: str
    metric: Metric
    paper: Figures
    verdict: Literal["reaches", "behind", "diverged", "missing"]
    ours: Figures | None = None
    mean: float | None = None
    """Of the test figures over seeds, None with fewer than two."""
    spread: Figures | None = None
    seeds: int = 0
    tried: int = 0
    behind: float | None = None
    """Share of its own by which the paper's test figure is better, in nats."""
    frames_per_second: float | None = None
    settings: dict = {}
    slot: int | None = None
    """Of the winner, and so is what follows."""
    epochs: int = 0
    time_limit: float | None = None
    """Processor seconds after which it was ended; None if it ended by itself."""
    remark: str = ""


class TrialPoint(msgspec.Struct, frozen=True):
    """A trial of a music cell: how far below its cell's best it stayed, and with what."""

    row: str
    data: str
    slot: int
    gap: float
    """Its best validation score minus that of the cell's winner, in nats."""
    settings: dict[str, float]
    """Numbers only; all of the winner, of the others those that differ from slot 0."""


class ResultsValues(msgspec.Struct, frozen=True, tag="results", tag_field="report"):
    """The content of the page."""

    cells: list[CellValue]
    claims: list[ClaimValue]
    environments: list[dict[str, str]]
    """Versions and machines the results were computed with."""
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
    """What people have to say about cells: `"sgd+c--jsb" = "..."` in remarks.toml beside the results."""
    file = folder / REMARKS
    if not file.exists():
        return {}
    try:
        remarks = tomllib.loads(file.read_text())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, OSError) as error:
        raise InputError(f'{file} is not TOML ({error}); expected lines such as "sgd+c--jsb" = "..."') from error
    names = {cell.name for table in ("table1", "table2") for cell in table_cells(table)}
    unknown = sorted(set(remarks) - names)
    if unknown:
        raise InputError(f"{file} speaks of {', '.join(unknown)}: expected names such as {min(names)}")
    for name, remark in remarks.items():
        if not isinstance(remark, str):
            raise InputError(f"{file} must say something in quotes about {name}: got {remark!r}")
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
        settings=as_dict(TrainConfig()) | result.settings,  # a setting younger than the result was at its default
        slot=result.search.winner,
        epochs=outcome.epochs if outcome else 0,
        time_limit=outcome.time_limit if outcome else None,
        remark=remark,
    )


def beside_test(cell: CellValue) -> str:
    """What is known of how sure a cell's test figure is, in brackets; nothing where nothing is."""
    known = []
    if cell.ours is not None and cell.ours.test_error is not None:
        known.append(f"est. ± {cell.ours.test_error:.2f}")
    if cell.mean is not None and cell.spread is not None:
        known.append(f"{cell.mean:.2f} ± {cell.spread.test:.2f}")
    return f" ({'; '.join(known)})" if known else ""


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
