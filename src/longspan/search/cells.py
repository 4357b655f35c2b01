"""A cell of the paper's tables: the paper's numbers, ours, and how ours came about, as one small JSON file."""

import math
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Literal, NamedTuple

import msgspec

from longspan import paper
from longspan.errors import InputError
from longspan.files import write_atomic
from longspan.search.result import StudyResult, Trial, contradiction_in

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
    test_error: float | None = None
    """Standard error of `test` where that is an estimate."""


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
    """Slots of studies that came to nothing better, by identity."""
    handed_on: list[str] = []
    """Studies whose first slot was not run but taken over from another one."""
    format: int = FORMAT

    @property
    def cell(self) -> Cell:
        return Cell(self.table, self.row, self.data)

    @property
    def tried(self) -> int:
        return self.search.slots + sum(self.other_studies.values()) - len(self.handed_on)


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
    cell: Cell,
    search: StudyResult,
    seeds: StudyResult | None,
    other_studies: dict[str, int],
    handed_on: Sequence[str] = (),
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
        handed_on=list(handed_on),
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
    results = [_read_result(file) for file in sorted(folder.glob("table[12]/*.json"))]
    return {result.cell: result for result in results}


def _read_result(file: Path) -> CellResult:
    try:
        result = msgspec.json.decode(file.read_bytes(), type=CellResult)
    except (msgspec.MsgspecError, OSError) as error:
        raise InputError(f"{file} cannot be read ({error}); restore it or remove it") from error
    contradiction = _contradiction(result, file)
    if contradiction is not None:
        raise InputError(f"{file} contradicts itself: {contradiction}; restore it or remove it")
    return result


def _contradiction(result: CellResult, file: Path) -> str | None:
    """Why a file cannot be what a reproduction wrote, None if it can."""
    cell, search = result.cell, result.search
    if result.format != FORMAT:
        return f"expected format {FORMAT}, got {result.format}"
    if cell not in table_cells(cell.table):
        return f"the paper has no row {cell.row!r} on {cell.data!r} in {cell.table}"
    if file.stem != cell.name or file.parent.name != cell.table:
        return f"it is the result of {cell.table}/{cell.name}.json"
    if result.metric != cell.metric:
        return f"expected {cell.metric}, got {result.metric}"
    if not bool(result.ours) == bool(result.repetitions) == (search.winner is not None):
        return "a cell has a winner, repetitions and numbers of ours, or none of them"
    if result.ours and result.metric == "perplexity" and result.ours.test <= 0:
        return f"expected a perplexity above 0, got {result.ours.test}"
    if search.winning and not _can_be_repeated(search, cell.metric):
        return f"the winner, slot {search.winner}, has no seed or no {cell.metric} on the test split"
    contradiction = contradiction_in(search) or (result.seeds and contradiction_in(result.seeds))
    return contradiction or _tampering(result)


def _tampering(result: CellResult) -> str | None:
    """Which of the numbers that follow from others does not."""
    derived = cell_result(result.cell, result.search, result.seeds, result.other_studies, result.handed_on)
    for name in CellResult.__struct_fields__:
        if getattr(result, name) != getattr(derived, name):
            return f"its {name!r} does not follow from its trials and the paper's table"
    return None


def _can_be_repeated(search: StudyResult, metric: Metric) -> bool:
    tested = search.winning.tested if search.winning else None
    return "seed" in search.settings and tested is not None and metric in tested.test


def write_result(folder: Path, result: CellResult) -> Path:
    """Write a cell's file under a folder of results."""
    file = folder / result.table / f"{result.cell.name}.json"
    write_atomic(file, msgspec.json.format(msgspec.json.encode(result), indent=2) + b"\n")
    return file


def _repetition(cell: Cell, seed: int, trial: Trial) -> Repetition:
    assert trial.tested is not None
    assert trial.outcome.valid_log_likelihood is not None
    train, test = trial.tested.train, trial.tested.test
    error = test.get("log_likelihood_error") if cell.metric == "log_likelihood" else None
    figures = Figures(train.get(cell.metric), test[cell.metric], test.get("accuracy"), error)
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
