"""What to compute next for the paper's tables, a pure function of the results so far: time goes where it helps most.

Cells without a result come first, those on small data sets before the others: each is run once, with its recipe
unchanged. Then all cells get the trials of a search, those furthest behind the paper first, and cells that need no more
trials are repeated with other seeds. The remaining time goes, repeatedly, to the cell that is furthest behind: it is
searched around its winner so far.
"""

from dataclasses import dataclass
from typing import Literal, NamedTuple

from longspan.reproduction.cells import Cell, CellResult, behind, reaches_paper

QUICK_FIRST = ("jsb", "piano-midi", "nottingham", "musedata", "ptb-words", "ptb-chars")


@dataclass(frozen=True)
class Plan:
    """The budget of a cell."""

    trials: int = 4
    """Slots of every cell, and further slots each time a cell is still behind the paper."""
    slow_trials: int = 1
    """The same for cells with slow trials: Hessian-free, RBM, text by characters."""
    most_trials: int = 24
    """Maximum number of slots of a cell, even if it is behind the paper."""
    seeds: int = 3
    """Number of seeds for the winning settings, including that of the search."""
    renew: bool = False
    """Run a recipe that has changed since a cell's results once, even if those results reach the paper."""


class Known(NamedTuple):
    """A cell, its result so far, and the number of slots of the studies that would be continued now."""

    cell: Cell
    result: CellResult | None
    slots: int
    """Slots of the search over the whole space."""
    near: int = 1
    """Slots of the search around the winner, which is its first slot."""


class Task(NamedTuple):
    """A study to be extended to `slots` slots."""

    cell: Cell
    kind: Literal["search", "refine", "seeds"]
    slots: int


def next_task(known: list[Known], plan: Plan) -> Task | None:
    """The most useful task now; None if nothing is left to do under this plan."""
    empty = [state for state in known if state.result is None]
    if empty:
        first = min(empty, key=lambda state: QUICK_FIRST.index(state.cell.data))
        return Task(first.cell, "search", max(1, first.slots))
    short = [state for state in known if _result(state).tried < _share(state.cell, plan)]
    if short:
        worst = max(short, key=lambda state: behind(_result(state)))
        return Task(worst.cell, "search", worst.slots + _share(worst.cell, plan) - _result(worst).tried)
    outdated = [state for state in known if plan.renew and state.slots == 0]
    if outdated:
        return Task(outdated[0].cell, "search", 1)
    for state in known:
        if _settled(state, plan) and _lacks_seeds(state, plan):
            return Task(state.cell, "seeds", plan.seeds - 1)
    unsettled = [state for state in known if not _settled(state, plan)]
    if not unsettled:
        return None
    worst = max(unsettled, key=lambda state: behind(_result(state)))
    if _result(worst).ours is None:
        return Task(worst.cell, "search", worst.slots + _share(worst.cell, plan))
    if worst.slots == 0:  # its recipe has changed since: run the new one first
        return Task(worst.cell, "search", 1)
    return Task(worst.cell, "refine", worst.near + _share(worst.cell, plan))


def _share(cell: Cell, plan: Plan) -> int:
    slow = cell.data == "ptb-chars" or cell.row.startswith("rbm:") or cell.row.endswith("hf")
    return plan.slow_trials if slow else plan.trials


def _settled(state: Known, plan: Plan) -> bool:
    result = _result(state)
    return reaches_paper(result) or result.tried >= plan.most_trials


def _lacks_seeds(state: Known, plan: Plan) -> bool:
    result = _result(state)
    repeated = 0 if result.seeds is None else result.seeds.slots
    return result.ours is not None and repeated < plan.seeds - 1


def _result(state: Known) -> CellResult:
    assert state.result is not None
    return state.result
