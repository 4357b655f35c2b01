"""What to compute next for the paper's tables: a pure function of what is known, so that time goes where it helps most.

Cells without a result come first, those on small data sets before the others: each is run once, as its recipe stands.
Then all get the trials of a search, the cells furthest behind the paper first, and cells that need no more get their
repetitions with other seeds. What time is left goes to the cell that is furthest behind, again and again: it is
searched around its winner so far.
"""

from dataclasses import dataclass
from typing import Literal, NamedTuple

from longspan.search.cells import Cell, CellResult, behind, reaches_paper

QUICK_FIRST = ("jsb", "piano-midi", "nottingham", "musedata", "ptb-words", "ptb-chars")


@dataclass(frozen=True)
class Plan:
    """How much a cell gets."""

    trials: int = 4
    """Slots every cell gets, and one that is behind the paper again and again."""
    slow_trials: int = 1
    """The same for cells whose trials take long: Hessian-free, RBM, text by characters."""
    most_trials: int = 24
    """Slots after which a cell is left as it is, behind the paper or not."""
    seeds: int = 3
    """Seeds the winning settings are run with, the search's own included."""
    renew: bool = False
    """Where a recipe has changed since a cell's results, run it once as it stands, even if they reach the paper."""


class Known(NamedTuple):
    """A cell, its result so far, and how many slots the studies that would be gone on with now have had."""

    cell: Cell
    result: CellResult | None
    slots: int
    """Of the search over the whole space."""
    near: int = 1
    """Of the search around the winner, who is its first slot."""


class Task(NamedTuple):
    """A study to be brought to so many slots."""

    cell: Cell
    kind: Literal["search", "refine", "seeds"]
    slots: int


def next_task(known: list[Known], plan: Plan) -> Task | None:
    """The most useful thing to do now; None if there is nothing left to do under this plan."""
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
    if worst.slots == 0:  # its recipe is another one by now: see what that comes to
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
