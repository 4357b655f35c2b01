"""The paper's claims, tested on our own results: supported, not supported, or undecided.

Every claim compares rows of a table over all of its data sets. Differences are between means over seeds, in nats per
frame or symbol, positive if in favor of the claim; their errors come from the spread over those seeds.
"""

import math
import statistics
from typing import Literal

import msgspec

from longspan.metrics import METRICS
from longspan.reproduction import tables
from longspan.reproduction.cells import Cell, CellResult, Figures, TableName, paper_figures

Verdict = Literal["supported", "not supported", "undecided"]
Split = Literal["train", "test"]

ERRORS = 2.0
"""Number of standard errors that a difference must exceed to count."""
RULE = (
    "A difference is that of the means over seeds, in nats per frame (music) or symbol (text), and its standard error "
    "follows from the spread over those seeds. That something helps is *supported* if the mean difference over the "
    "data sets is more than two standard errors above zero and more than half of the data sets agree in sign, *not "
    "supported* if it is more than two standard errors below zero, and *undecided* otherwise. That one method rivals "
    "another is supported unless it is worse by more than two standard errors. A claim is undecided while a cell it "
    "needs is missing or has fewer than two seeds. The errors account only for seeds, not for the luck of the search."
)


class PaperClaim(msgspec.Struct, frozen=True):
    """A sentence of the paper as a comparison of rows."""

    statement: str
    table: TableName
    better: tuple[str, ...]
    """The row said to be better; if there are several, the one with the best validation score on each data set is
    used."""
    worse: str
    split: Split = "test"
    kind: Literal["helps", "rivals"] = "helps"

    @property
    def data_sets(self) -> tuple[str, ...]:
        return tables.MUSIC_SETS if self.table == "table1" else tables.TEXT_SETS


PLAIN_ROWS = ("sgd", "sgd+c", "sgd+cl", "sgd+clr", "sgd+crm")
NADE_ROWS = ("nade:sgd", "nade:sgd+cr", "nade:sgd+crm")

CLAIMS = (
    PaperClaim("Clipping helps, on music", "table1", ("sgd+c",), "sgd"),
    PaperClaim("Clipping helps, on text", "table2", ("sgd+c",), "sgd"),
    PaperClaim("Leaky units help, on music", "table1", ("sgd+cl",), "sgd+c"),
    PaperClaim("Leaky units help, on text", "table2", ("sgd+cl",), "sgd+c"),
    PaperClaim("Rectifiers with L1 help to fit, on music", "table1", ("sgd+clr",), "sgd+cl", "train"),
    PaperClaim("Rectifiers with L1 help to predict, on music", "table1", ("sgd+clr",), "sgd+cl"),
    PaperClaim("Rectifiers with L1 help to fit, on text", "table2", ("sgd+clr",), "sgd+cl", "train"),
    PaperClaim("Rectifiers with L1 help to predict, on text", "table2", ("sgd+clr",), "sgd+cl"),
    PaperClaim("Rectifiers with L1 and clipping help, before NADE", "table1", ("nade:sgd+cr",), "nade:sgd"),
    PaperClaim("Momentum helps, before NADE", "table1", ("nade:sgd+crm",), "nade:sgd+cr"),
    PaperClaim("Enhanced SGD rivals Hessian-free", "table1", PLAIN_ROWS[1:], "hf", kind="rivals"),
    PaperClaim("Enhanced SGD rivals Hessian-free, before NADE", "table1", NADE_ROWS[1:], "nade:hf", kind="rivals"),
)


class Difference(msgspec.Struct, frozen=True):
    """How much better one row is than another on one data set."""

    data: str
    row: str
    """The row used for the better side."""
    mean: float
    error: float


class ClaimValue(msgspec.Struct, frozen=True):
    """The verdict on a claim."""

    claim: PaperClaim
    verdict: Verdict
    wanting: list[str]
    """What must be computed before it can be judged."""
    differences: list[Difference]
    """The known differences, by data set."""
    mean: float | None
    error: float | None
    paper_mean: float
    """The paper's own mean difference, which has no error."""

    @property
    def details(self) -> str:
        """The differences, and what is missing, in words."""
        known = [f"{each.data} {each.mean:+.2f}" for each in self.differences]
        wanting = [f"wanting: {', '.join(self.wanting)}"] if self.wanting else []
        return "; ".join([*known, *wanting])


def judge(claim: PaperClaim, results: dict[Cell, CellResult]) -> ClaimValue:
    """Judge a claim by results."""
    paper_mean = statistics.mean(_paper_difference(claim, data) for data in claim.data_sets)
    differences, wanting = [], []
    for data in claim.data_sets:
        found = _difference(claim, data, results)
        if isinstance(found, Difference):
            differences.append(found)
        else:
            wanting += found
    if wanting:
        return ClaimValue(claim, "undecided", wanting, differences, None, None, paper_mean)
    mean = statistics.mean(each.mean for each in differences)
    error = math.sqrt(sum(each.error**2 for each in differences)) / len(differences)
    agreeing = sum(each.mean > 0 for each in differences)
    return ClaimValue(claim, _verdict(claim, mean, error, agreeing), [], differences, mean, error, paper_mean)


def _verdict(claim: PaperClaim, mean: float, error: float, agreeing: int) -> Verdict:
    if mean < -ERRORS * error:
        return "not supported"
    if claim.kind == "rivals":
        return "supported"
    most_agree = 2 * agreeing > len(claim.data_sets)
    return "supported" if mean > ERRORS * error and most_agree else "undecided"


def _difference(claim: PaperClaim, data: str, results: dict[Cell, CellResult]) -> Difference | list[str]:
    """The difference on a data set, or a list of what is missing."""
    better = _standing(claim.table, claim.better, data, results)
    worse = _standing(claim.table, (claim.worse,), data, results)
    if isinstance(better, str) or isinstance(worse, str):
        return [side for side in (better, worse) if isinstance(side, str)]
    values = [_repeated(side, claim.split) for side in (better, worse)]
    if not all(values):
        return [f"{claim.split} figures on {data}"]
    error = math.sqrt(sum(statistics.variance(each) / len(each) for each in values))
    return Difference(data, better.row, statistics.mean(values[0]) - statistics.mean(values[1]), error)


def _standing(table: TableName, rows: tuple[str, ...], data: str, results: dict[Cell, CellResult]) -> CellResult | str:
    """The result with the best validation score among rows, all of which must exist; or what is missing."""
    found = [results.get(Cell(table, row, data)) for row in rows]
    there = [result for result in found if result is not None and result.ours is not None]
    if len(there) < len(rows):
        return f"a result of {' or '.join(rows)} on {data}"
    best = max(there, key=lambda result: result.repetitions[0].valid_log_likelihood)
    return best if len(best.repetitions) > 1 else f"a second seed of {best.row} on {data}"


def _repeated(result: CellResult, split: Split) -> list[float]:
    values = [_of(repetition.figures, split) for repetition in result.repetitions]
    return [METRICS[result.metric].nats(value) for value in values if value is not None]


def _of(figures: Figures, split: Split) -> float | None:
    return figures.train if split == "train" else figures.test


def _paper_difference(claim: PaperClaim, data: str) -> float:
    """The paper's difference; of several rows the best by test score, as the paper prints no validation scores."""

    def figure(row: str) -> float:
        cell = Cell(claim.table, row, data)
        value = _of(paper_figures(cell), claim.split)
        assert value is not None
        return METRICS[cell.metric].nats(value)

    return max(map(figure, claim.better)) - figure(claim.worse)
