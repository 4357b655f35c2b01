"""Results of cells as a search would leave them, made up for tests."""

from longspan.reproduction.cells import Cell, CellResult, cell_result
from longspan.search.result import StudyResult, Tested, Trial
from longspan.search.slots import Outcome

JSB = Cell("table1", "sgd+c", "jsb")


def figures(cell: Cell, value: float) -> dict[str, float]:
    return {cell.metric: value, **({"accuracy": 0.3} if cell.metric == "log_likelihood" else {})}


def study_result(cell: Cell, tests: list[float], *, valid: float = -5.0, identity: str = "aaaa", seed: int = 0):
    """A study whose every slot is done and tested; the first one wins."""
    trials = [
        Trial(
            slot,
            {},
            Outcome("done", "", valid - slot, valid, 3, 4, 10.0),
            Tested(figures(cell, test + 0.5), figures(cell, test), 1000.0),
        )
        for slot, test in enumerate(tests)
    ]
    settings = {"seed": seed, "hidden_size": 200}
    environment = {"versions": {"jax": "1.2.3"}, "python": "3.11", "platform": "Linux"}
    return StudyResult(cell.name, identity, cell.row, cell.data, len(tests), 0, settings, trials, environment)


def failed_study(cell: Cell, slots: int = 2) -> StudyResult:
    trials = [Trial(slot, {}, Outcome("diverged", "update 3")) for slot in range(slots)]
    return StudyResult(cell.name, "aaaa", cell.row, cell.data, slots, None, {}, trials, {})


def make_result(
    cell: Cell, test: float, *, slots: int = 4, seeds: tuple[float, ...] = (), valid: float = -5.0
) -> CellResult:
    """A cell whose winner has this test figure, and these with other seeds."""
    search = study_result(cell, [test] + [test] * (slots - 1), valid=valid)
    repeated = study_result(cell, list(seeds), seed=1) if seeds else None
    return cell_result(cell, search, repeated, {})
