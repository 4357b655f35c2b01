"""What to compute next for the paper's tables, a pure function of how much has been computed, never of scores on test.

Cells without a result come first, those on small data sets before the others: each is run once, with its recipe
unchanged. Then every cell gets the trials of a search, the same number for all of a kind, and then its winner is
repeated with other seeds. No cell is searched longer because of the number it reached.
"""

from dataclasses import dataclass
from typing import Literal, NamedTuple

from longspan.reproduction.cells import Cell, CellResult

QUICK_FIRST = ("jsb", "piano-midi", "nottingham", "musedata", "ptb-words", "ptb-chars")


@dataclass(frozen=True)
class Plan:
    """The budget of a cell."""

    trials: int = 4
    """Slots of every cell."""
    slow_trials: int = 1
    """The same for cells with slow trials: Hessian-free, RBM, text by characters."""
    seeds: int = 3
    """Number of seeds for the winning settings, including that of the search."""
    renew: bool = False
    """Run recipes that have changed since a cell's results once."""


class Known(NamedTuple):
    """A cell, its result so far, and the number of slots of the search that would be continued now."""

    cell: Cell
    result: CellResult | None
    slots: int


class Task(NamedTuple):
    """A study to be extended to `slots` slots."""

    cell: Cell
    kind: Literal["search", "seeds"]
    slots: int


def next_task(known: list[Known], plan: Plan) -> Task | None:
    """The most useful task now; None if nothing is left to do under this plan."""
    empty = [state for state in known if state.result is None]
    if empty:
        first = min(empty, key=lambda state: QUICK_FIRST.index(state.cell.data))
        return Task(first.cell, "search", max(1, first.slots))
    short = [state for state in known if _result(state).tried < _share(state.cell, plan)]
    if short:
        first = min(short, key=lambda state: QUICK_FIRST.index(state.cell.data))
        return Task(first.cell, "search", first.slots + _share(first.cell, plan) - _result(first).tried)
    outdated = [state for state in known if plan.renew and state.slots == 0]
    if outdated:
        return Task(outdated[0].cell, "search", 1)
    lacking = [state for state in known if _lacks_seeds(state, plan)]
    return Task(lacking[0].cell, "seeds", plan.seeds - 1) if lacking else None


def _share(cell: Cell, plan: Plan) -> int:
    slow = cell.data == "ptb-chars" or cell.row.startswith("rbm:") or cell.row.endswith("hf")
    return plan.slow_trials if slow else plan.trials


def _lacks_seeds(state: Known, plan: Plan) -> bool:
    result = _result(state)
    repeated = 0 if result.seeds is None else result.seeds.slots
    return result.ours is not None and repeated < plan.seeds - 1


def _result(state: Known) -> CellResult:
    assert state.result is not None
    return state.result
