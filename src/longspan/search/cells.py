"""A cell of the paper's tables: the paper's numbers, ours, and how ours came about, as one small JSON file."""

import math
import statistics
from pathlib import Path
from typing import Literal, NamedTuple

import msgspec

from longspan import paper
from longspan.errors import InputError
from longspan.files import write_atomic
from longspan.search.result import StudyResult, Trial

Metric = Literal["log_likelihood", "perplexity", "bits_per_character"]
TableName = Literal["table1", "table2"]

FORMAT = 1


class Cell(NamedTuple):
    """A row and a column of a table."""

    table: TableName
    row: str
    data: str

    @property
    def name(self) -> str:
        return f"{self.row.replace(':', '-')}--{self.data}"

    @property
    def metric(self) -> Metric:
        if self.table == "table1":
            return "log_likelihood"
        return "perplexity" if self.data == "ptb-words" else "bits_per_character"


class Figures(msgspec.Struct, frozen=True):
    """The numbers of a cell, in the metric of its column; accuracy is a fraction."""

    train: float | None
    test: float
    accuracy: float | None = None


class Repetition(msgspec.Struct, frozen=True):
    """The winning settings with one seed."""

    seed: int
    valid_log_likelihood: float
    figures: Figures


class CellResult(msgspec.Struct, frozen=True):
    """The content of results/TABLE/ROW--DATA.json."""

    table: TableName
    row: str
    data: str
    metric: Metric
    paper: Figures
    ours: Figures | None
    """Of the run with the best validation score; None if every trial diverged."""
    spread: Figures | None
    """Standard deviation over seeds, None with fewer than two."""
    repetitions: list[Repetition]
    """The winning settings with each seed, the one of the search first."""
    trials: dict[str, int]
    """How the slots of the search ended."""
    frames_per_second: float | None
    settings: dict
    search: StudyResult
    seeds: StudyResult | None = None
    other_studies: dict[str, int] = {}
    """Slots tried in studies that came to nothing better, by identity."""
    format: int = FORMAT

    @property
    def cell(self) -> Cell:
        return Cell(self.table, self.row, self.data)

    @property
    def tried(self) -> int:
        return self.search.slots + sum(self.other_studies.values())


def table_cells(table: TableName) -> list[Cell]:
    """All cells of a table, row by row."""
    return [Cell(table, row, data) for row, data in (paper.TABLE1 if table == "table1" else paper.TABLE2)]


def paper_figures(cell: Cell) -> Figures:
    """What the paper reports for a cell."""
    if cell.table == "table1":
        music = paper.TABLE1[cell.row, cell.data]
        return Figures(music.train_log_likelihood, music.log_likelihood, music.accuracy / 100)
    text = paper.TABLE2[cell.row, cell.data]
    return Figures(text.train, text.test)


def cell_result(
    cell: Cell, search: StudyResult, seeds: StudyResult | None, other_studies: dict[str, int]
) -> CellResult:
    """What a search, and the winner's repetitions with other seeds if there are any, make of a cell."""
    repetitions = [_repetition(cell, search.settings["seed"], search.winning)] if search.winning else []
    if seeds is not None:
        first = search.settings["seed"] + 1
        repetitions += [
            _repetition(cell, first + trial.slot, trial) for trial in seeds.trials if trial.tested is not None
        ]
    winner = search.winning
    return CellResult(
        *cell,
        metric=cell.metric,
        paper=paper_figures(cell),
        ours=repetitions[0].figures if repetitions else None,
        spread=_spread([repetition.figures for repetition in repetitions]),
        repetitions=repetitions,
        trials={status: search.count(status) for status in ("done", "diverged", "lost")},
        frames_per_second=winner.tested.frames_per_second if winner and winner.tested else None,
        settings=search.settings,
        search=search,
        seeds=seeds,
        other_studies=other_studies,
    )


def nats(metric: Metric, value: float) -> float:
    """A figure as log-likelihood in nats per frame or symbol, in which all metrics can be compared."""
    if metric == "perplexity":
        return -math.log(value)
    return -value * math.log(2) if metric == "bits_per_character" else value


def behind(result: CellResult) -> float:
    """By which share of its own the paper's test figure is better than ours; negative where ours is better."""
    if result.ours is None:
        return math.inf
    theirs = nats(result.metric, result.paper.test)
    return (theirs - nats(result.metric, result.ours.test)) / abs(theirs)


def reaches_paper(result: CellResult) -> bool:
    """Whether our test figure is at or better than the paper's, at the two decimals it is printed with."""
    if result.ours is None:
        return False
    ours, theirs = round(result.ours.test, 2), result.paper.test
    return ours >= theirs if result.metric == "log_likelihood" else ours <= theirs


def read_results(folder: Path) -> dict[Cell, CellResult]:
    """All cells under a folder of results."""
    found = {}
    for file in sorted(folder.glob("table[12]/*.json")):
        try:
            result = msgspec.json.decode(file.read_bytes(), type=CellResult)
        except msgspec.MsgspecError as error:
            raise InputError(f"{file} cannot be read ({error}); restore it or remove it") from error
        found[result.cell] = result
    return found


def write_result(folder: Path, result: CellResult) -> Path:
    """Write a cell's file under a folder of results."""
    file = folder / result.table / f"{result.cell.name}.json"
    write_atomic(file, msgspec.json.format(msgspec.json.encode(result), indent=2) + b"\n")
    return file


def _repetition(cell: Cell, seed: int, trial: Trial) -> Repetition:
    assert trial.tested is not None
    assert trial.outcome.valid_log_likelihood is not None
    figures = Figures(
        trial.tested.train.get(cell.metric), trial.tested.test[cell.metric], trial.tested.test.get("accuracy")
    )
    return Repetition(seed, trial.outcome.valid_log_likelihood, figures)


def _spread(figures: list[Figures]) -> Figures | None:
    if len(figures) < 2:
        return None

    def deviation(values: list[float | None]) -> float | None:
        known = [value for value in values if value is not None]
        return statistics.stdev(known) if len(known) == len(figures) else None

    test = deviation([each.test for each in figures])
    assert test is not None
    return Figures(
        train=deviation([each.train for each in figures]),
        test=test,
        accuracy=deviation([each.accuracy for each in figures]),
    )
