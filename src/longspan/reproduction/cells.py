"""A cell of the tables: the paper's numbers, ours, and how ours were computed, as one small JSON file."""

import math
import re
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Literal, NamedTuple

import msgspec

from longspan.bounds import Figure, Setting, Size, Text, Whole
from longspan.errors import InputError
from longspan.files import folder_inside, read_json, write_atomic
from longspan.metrics import METRICS
from longspan.reproduction.tables import TABLE1, TABLE2, TABLES, Row, TableName
from longspan.search.result import StudyResult, Trial, contradiction_in

MetricName = Literal["log_likelihood", "perplexity", "bits_per_character"]

TEXT_METRICS: dict[str, MetricName] = {"ptb-words": "perplexity", "ptb-chars": "bits_per_character"}

FORMAT = 1


class Cell(NamedTuple):
    """A row and a column of a table; the row is given by its label."""

    table: TableName
    row: str
    data: str

    @property
    def name(self) -> str:
        """The name of its file and its studies."""
        return f"{re.sub('[:/ ]', '-', self.row)}--{self.data}"

    @property
    def how(self) -> Row:
        """The recipe of the row, and the settings in which it differs from that."""
        return TABLES[self.table][self.row, self.data]

    @property
    def metric(self) -> MetricName:
        return TEXT_METRICS.get(self.data, "log_likelihood")


class Figures(msgspec.Struct, frozen=True):
    """The numbers of a cell, in the metric of its column, and accuracy as a fraction."""

    train: Figure | None
    test: Figure
    accuracy: Figure | None = None
    test_error: Figure | None = None
    """Standard error of `test` if that is an estimate."""


class Repetition(msgspec.Struct, frozen=True):
    """A run of the winning settings with one seed."""

    seed: Whole
    valid_log_likelihood: Figure
    figures: Figures


class CellResult(msgspec.Struct, frozen=True):
    """The content of results/TABLE/ROW--DATA.json."""

    table: TableName
    row: Text
    data: Text
    metric: MetricName
    paper: Figures | None
    """None where the paper has no such network."""
    ours: Figures | None
    """Figures of the run with the best validation score; None if every trial diverged. The pages show `mean`."""
    spread: Figures | None
    """Standard deviation over seeds; None with fewer than two."""
    repetitions: list[Repetition]
    """Runs of the winning settings with each seed, that of the search first."""
    trials: dict[Text, Whole]
    """Number of slots of the search, by how they ended."""
    frames_per_second: Size | None
    settings: dict[Text, Setting]
    search: StudyResult
    seeds: StudyResult | None = None
    other_studies: dict[Text, Whole] = {}
    """Slot counts of earlier searches that did not beat the winner, keyed by study identity."""
    handed_on: list[Text] = []
    """Studies, made by earlier versions, whose first slot was not run but adopted from another study."""
    format: int = FORMAT

    @property
    def cell(self) -> Cell:
        return Cell(self.table, self.row, self.data)

    @property
    def mean(self) -> Figures | None:
        """Means over all seeds, by which a cell is shown and compared; None if every trial diverged."""
        return _mean([repetition.figures for repetition in self.repetitions]) if self.repetitions else None

    @property
    def tried(self) -> int:
        return self.search.slots + sum(self.other_studies.values()) - len(self.handed_on)


def table_cells(table: TableName) -> list[Cell]:
    """All cells of a table, row by row."""
    return [Cell(table, row, data) for row, data in TABLES[table]]


def paper_figures(cell: Cell) -> Figures | None:
    """The paper's figures for a cell; None if the paper has no such network."""
    if music := TABLE1.get((cell.row, cell.data)):
        return Figures(music.train_log_likelihood, music.log_likelihood, music.accuracy / 100)
    text = TABLE2.get((cell.row, cell.data))
    return Figures(text.train, text.test) if text else None


def _seed(search: StudyResult) -> int:
    """The seed of the winner's settings."""
    try:
        return msgspec.convert(search.settings.get("seed"), Whole)
    except msgspec.ValidationError as error:
        raise InputError(f"the result of study {search.study} has no seed ({error}): restore it") from error


def cell_result(
    cell: Cell,
    search: StudyResult,
    seeds: StudyResult | None,
    other_studies: dict[str, int],
    handed_on: Sequence[str] = (),
) -> CellResult:
    """The result of a cell, given a search and, if there are any, the repetitions of its winner with other seeds."""
    repetitions = [_repetition(cell, _seed(search), search.winning)] if search.winning else []
    if seeds is not None:
        first = _seed(search) + 1
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


def behind(result: CellResult) -> float:
    """Relative amount by which the paper's test figure, in nats, is better than our mean; negative if it is worse."""
    if result.paper is None:
        raise ValueError(f"the paper has no {result.row}")
    if result.mean is None:
        return math.inf
    nats = METRICS[result.metric].nats
    theirs = nats(result.paper.test)
    return (theirs - nats(result.mean.test)) / abs(theirs)


def reaches_paper(result: CellResult) -> bool:
    """Whether our mean test figure equals or beats the paper's, rounded to the two decimals that are printed."""
    ours, paper = result.mean, result.paper
    return ours is not None and paper is not None and METRICS[result.metric].reaches(ours.test, paper.test)


def read_results(folder: Path) -> dict[Cell, CellResult]:
    """Read all cells under a folder of results."""
    results = [_read_result(file) for table in TABLES for file in sorted(folder.glob(f"{table}/*.json"))]
    return {result.cell: result for result in results}


def _read_result(file: Path) -> CellResult:
    result = read_json(file, CellResult, "restore it or remove it")
    contradiction = _contradiction(result, file)
    if contradiction is not None:
        raise InputError(f"{file} contradicts itself: {contradiction}; restore it or remove it")
    return result


def _contradiction(result: CellResult, file: Path) -> str | None:
    """Why a file cannot have been written by a reproduction; None if it can."""
    cell, search = result.cell, result.search
    if result.format != FORMAT:
        return f"expected format {FORMAT}, got {result.format}"
    if cell not in table_cells(cell.table):
        return f"{cell.table} has no row {cell.row!r} on {cell.data!r}"
    if file.stem != cell.name or file.parent.name != cell.table:
        return f"it is the result of {cell.table}/{cell.name}.json"
    if result.metric != cell.metric:
        return f"expected {cell.metric}, got {result.metric}"
    if not bool(result.ours) == bool(result.repetitions) == (search.winner is not None):
        return "a cell has a winner, repetitions and numbers of ours, or none of them"
    figures = [result.ours, *(each.figures for each in result.repetitions)]
    lowest = min((each.test for each in figures if each), default=1.0)
    if result.metric == "perplexity" and lowest <= 0:
        return f"expected a perplexity above 0, got {lowest}"
    contradiction = contradiction_in(search) or (result.seeds and contradiction_in(result.seeds))
    if contradiction:
        return contradiction
    if search.winning and not _can_be_repeated(search, cell.metric):
        return f"the winner, slot {search.winner}, has no seed or no {cell.metric} on the test split"
    if result.seeds and not (search.winning and _are_repetitions(result.seeds, cell.metric)):
        return f"its repetitions have no winner or no {cell.metric} on the test split"
    return _tampering(result)


def _tampering(result: CellResult) -> str | None:
    """A derived number that does not follow from the others, described; None if all do."""
    derived = cell_result(result.cell, result.search, result.seeds, result.other_studies, result.handed_on)
    for name in CellResult.__struct_fields__:
        if getattr(result, name) != getattr(derived, name):
            return f"its {name!r} does not follow from its trials and the paper's table"
    return None


def _can_be_repeated(search: StudyResult, metric: MetricName) -> bool:
    return isinstance(search.settings.get("seed"), int) and bool(search.winning) and _is_scored(search.winning, metric)


def _are_repetitions(seeds: StudyResult, metric: MetricName) -> bool:
    return all(_is_scored(trial, metric) for trial in seeds.trials if trial.tested is not None)


def _is_scored(trial: Trial, metric: MetricName) -> bool:
    """Whether a trial has a validation score and a figure on the test split."""
    tested = trial.tested is not None and metric in trial.tested.test
    return tested and trial.outcome.valid_log_likelihood is not None


def write_result(folder: Path, result: CellResult) -> Path:
    """Write a cell's file under a folder of results."""
    file = folder_inside(folder, result.table) / f"{result.cell.name}.json"
    write_atomic(file, msgspec.json.format(msgspec.json.encode(result), indent=2) + b"\n")
    return file


def _repetition(cell: Cell, seed: int, trial: Trial) -> Repetition:
    assert trial.tested is not None
    assert trial.outcome.valid_log_likelihood is not None
    train, test = trial.tested.train, trial.tested.test
    error = test.get("log_likelihood_error") if cell.metric == "log_likelihood" else None
    figures = Figures(train.get(cell.metric), test[cell.metric], test.get("accuracy"), error)
    return Repetition(seed, trial.outcome.valid_log_likelihood, figures)


def _mean(figures: list[Figures]) -> Figures:
    """Means of some figures; one that not all of them have is None."""

    def mean(values: list[float | None]) -> float | None:
        known = [value for value in values if value is not None]
        return statistics.mean(known) if len(known) == len(figures) else None

    errors = [each.test_error for each in figures if each.test_error is not None]
    return Figures(
        train=mean([each.train for each in figures]),
        test=statistics.mean(each.test for each in figures),
        accuracy=mean([each.accuracy for each in figures]),
        test_error=math.hypot(*errors) / len(errors) if len(errors) == len(figures) else None,
    )


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
