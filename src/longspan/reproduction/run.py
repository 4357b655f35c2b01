"""The tables as studies: each cell is a search whose winner is repeated with other seeds, until time is up.

Results are files meant to be kept and shared; studies with their run folders are kept elsewhere. If only the results
are left, a study adopts their outcomes and continues from there.
"""

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple, Protocol, runtime_checkable

import msgspec

from longspan import recipes
from longspan.config import TrainConfig, from_dict
from longspan.data import TargetKind, target_kind
from longspan.errors import InputError
from longspan.reproduction.agenda import Known, Plan, Task, next_task
from longspan.reproduction.cells import Cell, CellResult, cell_result, read_results, write_result
from longspan.reproduction.spaces import paper_space
from longspan.search import storage
from longspan.search.pool import Ending, PoolOptions, run_pool
from longspan.search.result import StudyResult, kept_result
from longspan.search.space import Sampling, StudyDefinition, define
from longspan.search.study import Study, create_or_continue
from longspan.search.worker import Limits


@runtime_checkable
class Observer(Protocol):
    """Callbacks that display a reproduction."""

    def on_task(self, task: Task, study: Study) -> Callable[[], None]:
        """Called when a task begins; returns a function to be called about once a second while it runs."""
        ...

    def on_result(self, result: CellResult) -> None:
        """Called when a cell has a new result."""

    def on_failure(self, cell: Cell, reason: str) -> None:
        """Called when a cell cannot be computed; the others continue without it."""


class Settings(NamedTuple):
    """Folders, limits and the number of workers."""

    results: Path
    work_dir: Path
    workers: int
    data_dir: Path | None = None
    max_epochs: int | None = None
    limits: Limits = Limits()
    sampling: Sampling = "random"


class Reproduction:
    """Some cells of a table, computed task by task."""

    def __init__(
        self,
        cells: list[Cell],
        plan: Plan,
        settings: Settings,
        fingerprint: Callable[[str], str],
        *,
        pool: Callable[..., Ending] = run_pool,
        recipe: Callable[[str, str], TrainConfig] = recipes.settings,
        space: Callable[[TrainConfig, TargetKind], dict] = paper_space,
    ):
        """Prepare to compute cells.

        Args:
            cells: the cells; those without a recipe are left out and listed in `missing`.
            plan: how much is tried.
            settings: folders and limits.
            fingerprint: from the name of a data set to its fingerprint.
            pool: works on studies as `run_pool` does.
            recipe: from the recipe and the data set of a cell to its config, before the changes of its row.
            space: from a config and the kind of target to the space that is searched.
        """
        self.plan = plan
        self.recipe = recipe
        self.space = space
        self.settings = settings
        self.fingerprint = fingerprint
        self.pool = pool
        self.missing: dict[Cell, str] = {}
        self.cells = []
        for cell in cells:
            try:
                recipes.parse(cell.how.recipe)
            except InputError as error:  # a row without a recipe in this version
                self.missing[cell] = str(error)
                continue
            self._config(cell)  # bad settings are an error for all cells, before anything starts
            self.cells.append(cell)

    def run(self, observer: Observer, interrupted: Callable[[], bool]) -> bool:
        """Work through the tasks; True when nothing is left to do, False if interrupted."""
        while not interrupted():
            task = next_task(self._known(observer), self.plan)
            if task is None:
                return True
            try:
                result = self._carry_out(task, observer, interrupted)
            except InputError as error:
                self._leave_out(task.cell, error, observer)
                continue
            if result is not None:
                write_result(self.settings.results, result)
                observer.on_result(result)
        return False

    def _known(self, observer: Observer) -> list[Known]:
        results = read_results(self.settings.results)
        known = []
        for cell in list(self.cells):
            try:
                known.append(self._known_of(cell, results.get(cell)))
            except InputError as error:
                self._leave_out(cell, error, observer)
        return known

    def _known_of(self, cell: Cell, result: CellResult | None) -> Known:
        if result is None:
            return Known(cell, None, 0)
        return Known(cell, result, slots_of(result, self._search_definition(cell).identity))

    def _leave_out(self, cell: Cell, error: InputError, observer: Observer) -> None:
        self.cells.remove(cell)
        observer.on_failure(cell, str(error))

    def _carry_out(self, task: Task, observer: Observer, interrupted: Callable[[], bool]) -> CellResult | None:
        """Run one study up to its slots; return the cell's new result, or None if interrupted."""
        before = read_results(self.settings.results).get(task.cell)
        definition = self._definition(task, before)
        folder = self.settings.work_dir / task.cell.table / f"{task.cell.name}--{definition.identity}"
        study = create_or_continue(storage.default_url(folder), definition, task.slots)
        _adopt(study, before)
        options = PoolOptions(folder, self.settings.workers, self.settings.data_dir, self._limits(task, before))
        on_tick = observer.on_task(task, study)
        ending = self.pool(study, options, interrupted=interrupted, on_tick=on_tick)
        if ending == "interrupted":
            return None
        if ending == "elsewhere":
            raise InputError(f"the winner's run is no longer in {folder}; remove that folder to compute it again")
        found = kept_result(study)
        assert found is not None
        if task.kind == "seeds":
            assert before is not None
            return cell_result(task.cell, before.search, found, before.other_studies, before.handed_on)
        return merge(task.cell, before, found)

    def _limits(self, task: Task, before: CellResult | None) -> Limits:
        """Repetitions get the time limit of their winner, or the spread over seeds would include effects of time."""
        if task.kind != "seeds" or before is None or before.search.winning is None:
            return self.settings.limits
        return dataclasses.replace(self.settings.limits, trial_seconds=before.search.winning.outcome.time_limit)

    def _config(self, cell: Cell) -> TrainConfig:
        limited = {} if self.settings.max_epochs is None else {"max_epochs": self.settings.max_epochs}
        return dataclasses.replace(self.recipe(cell.how.recipe, cell.data), **cell.how.changes, **limited)

    def _definition(self, task: Task, before: CellResult | None) -> StudyDefinition:
        if task.kind == "search":
            return self._search_definition(task.cell)
        assert before is not None
        return _seeds_definition(task.cell, before.search, self.fingerprint(task.cell.data))

    def _search_definition(self, cell: Cell) -> StudyDefinition:
        config, fingerprint = self._config(cell), self.fingerprint(cell.data)
        whole = self.space(config, target_kind(cell.data))
        space = {name: value for name, value in whole.items() if name not in cell.how.changes}
        return define(cell.name, config, space, fingerprint, sampling=self.settings.sampling)


def merge(cell: Cell, before: CellResult | None, found: StudyResult) -> CellResult:
    """A cell's result after a search: the better of old and new by validation, with its seeds if the winner stays."""
    if before is None:
        return cell_result(cell, found, None, {})
    others = {identity: slots for identity, slots in before.other_studies.items() if identity != found.identity}
    if found.identity == before.search.identity:
        same_winner = found.winner == before.search.winner
        return cell_result(cell, found, before.seeds if same_winner else None, others, before.handed_on)
    if _valid(found) > _valid(before.search):
        others[before.search.identity] = before.search.slots
        return cell_result(cell, found, None, others, before.handed_on)
    others[found.identity] = found.slots
    return cell_result(cell, before.search, before.seeds, others, before.handed_on)


def _valid(result: StudyResult) -> float:
    score = result.winning.outcome.valid_log_likelihood if result.winning else None
    return float("-inf") if score is None else score


def slots_of(result: CellResult, identity: str) -> int:
    """Number of slots that a study of this identity has had for a cell."""
    return result.search.slots if result.search.identity == identity else result.other_studies.get(identity, 0)


def _seeds_definition(cell: Cell, search: StudyResult, fingerprint: str) -> StudyDefinition:
    winner = from_dict(search.settings)
    base = dataclasses.replace(winner, seed=winner.seed + 1)
    return define(f"{cell.name}--seeds", base, {"seed": {"start": base.seed}}, fingerprint, tested="every")


def _adopt(study: Study, before: CellResult | None) -> None:
    for result in (before.search, before.seeds) if before else ():
        if result is not None and result.identity == study.definition.identity:
            outcomes = {trial.slot: trial.outcome for trial in result.trials if trial.outcome.status != "lost"}
            study.adopt(outcomes, msgspec.to_builtins(result))
