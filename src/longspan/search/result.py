"""The result of a study as data: the winner by validation, its scores, how every slot ended; and the study's folder."""

import functools
import math
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from longspan.bounds import Figure, Setting, Size, Text, Whole
from longspan.errors import InputError
from longspan.files import read_json, refuse_link
from longspan.search.slots import Outcome, Slot
from longspan.search.storage import hide_password
from longspan.training.records import Environment
from longspan.training.runs import Run

if TYPE_CHECKING:
    from longspan.search.study import Study

FORMAT = 1


class Tested(msgspec.Struct, frozen=True, omit_defaults=True):
    """Scores of a slot's best weights on the splits that were not used to choose them."""

    train: dict[Text, Figure]
    test: dict[Text, Figure]
    frames_per_second: Size | None = None
    """Training frames or symbols per second, over an epoch with its validation."""


class Trial(msgspec.Struct, frozen=True, omit_defaults=True):
    """One slot."""

    slot: Whole
    settings: dict[Text, Setting]
    """The settings that differ from slot 0."""
    outcome: Outcome
    tested: Tested | None = None


class StudyResult(msgspec.Struct, frozen=True):
    """The content of result.json."""

    study: Text
    identity: Text
    """Identity of the definition: slots of studies with the same identity are comparable."""
    recipe: Text
    data: Text
    slots: Whole
    winner: Whole | None
    """None if no slot finished with a score."""
    settings: dict[Text, Setting]
    """All settings of the winner."""
    trials: list[Trial]
    environment: dict
    format: int = FORMAT

    def __post_init__(self) -> None:
        msgspec.convert(self.environment, Environment)

    @property
    def winning(self) -> Trial | None:
        return next((trial for trial in self.trials if trial.slot == self.winner), None)

    def count(self, status: str) -> int:
        """Number of slots that ended like this."""
        return sum(trial.outcome.status == status for trial in self.trials)


def contradiction_in(result: StudyResult) -> str | None:
    """Why a file's content cannot be the result of a study; None if it can."""
    if result.format != FORMAT:
        return f"expected format {FORMAT} of study {result.study}, got {result.format}"
    slots = [trial.slot for trial in result.trials]
    if len(slots) != result.slots or slots != list(range(len(slots))):
        return f"study {result.study} has {result.slots} slots, but trials of slots {slots}"
    if result.winner is None:
        return None
    if result.winning is None or result.winning.outcome.valid_log_likelihood is None:
        return f"slot {result.winner} of study {result.study} cannot have won without a validation score"
    return None


def kept_result(study: "Study") -> StudyResult | None:
    """The result that the storage keeps of a study; None if it has none yet."""
    found = study.result
    if found is None:
        return None
    where = f"the result of study {study.definition.name} in {hide_password(study.url)}"
    try:
        result = msgspec.convert(found, StudyResult)
    except msgspec.ValidationError as error:
        raise InputError(f"{where} cannot be read ({error}): restore the storage") from error
    contradiction = contradiction_in(result)
    if contradiction is not None:
        raise InputError(f"{where} contradicts itself: {contradiction}; restore the storage")
    return result


def winner_of(slots: list[Slot]) -> Slot | None:
    """The slot with the best validation score, the earlier one on a tie; None if no slot has one."""
    best, score = None, -math.inf
    for slot in slots:
        reached = slot.outcome.valid_log_likelihood if slot.outcome else None
        if reached is not None and reached > score:
            best, score = slot, reached
    return best


def run_path(folder: Path, slot: int) -> Path:
    """The folder of a slot's run, which may not be reached through a link."""
    return refuse_link(refuse_link(folder / "trials") / f"slot-{slot:04d}")


def check_parts(folder: Path) -> None:
    """Refuse a study's folder whose parts are links, before anything is written: they may lead anywhere."""
    for name in ("study.db", "trials", "workers", "result.json"):
        refuse_link(folder / name)


@dataclass(frozen=True)
class SlotRun:
    """The run of a slot in its current state."""

    run: Run
    status: str
    curve: list[tuple[int, float]]
    """Epoch and validation score."""

    @staticmethod
    def read(path: Path) -> "SlotRun":
        run = Run.open(path)
        curve = [(record["epoch"], record["valid_log_likelihood"]) for record in run.metrics()]
        return SlotRun(run, run.status, curve)

    @property
    def best(self) -> float | None:
        """The best validation score; None if there is none or the run diverged."""
        return None if self.status == "diverged" else max((score for _, score in self.curve), default=None)


@dataclass(frozen=True)
class StudyFolder:
    """The contents of a study's folder, with each file read once.

    study.db       the storage, unless it is a server
    trials/        one run folder per slot
    workers/       logs of the workers
    result.json    the result of the study
    """

    path: Path
    slots: dict[int, SlotRun]
    result: StudyResult | None

    @staticmethod
    def read(path: Path) -> "StudyFolder":
        """Read the study in a folder; folders that are not slots are ignored."""
        trials = refuse_link(path / "trials")
        numbered = {found.name.removeprefix("slot-"): found for found in sorted(trials.glob("slot-*"))}
        slots = {
            int(number): SlotRun.read(refuse_link(found))
            for number, found in numbered.items()
            if number.isdecimal() and (found / "config.json").exists()
        }
        result = read_study_result(path / "result.json")
        if not slots and result is None:
            raise InputError(f"expected a study's folder with trials/ or a result.json, got {path}")
        return StudyFolder(path, slots, result)

    @functools.cached_property
    def winner(self) -> int | None:
        """The winner of a concluded study, otherwise the best slot so far."""
        if self.result is not None:
            return self.result.winner
        best = {number: slot.best for number, slot in self.slots.items() if slot.best is not None}
        return max(best, key=lambda number: (best[number], -number), default=None)

    @property
    def winning(self) -> SlotRun | None:
        """The winner's run, if it is on this machine."""
        return None if self.winner is None else self.slots.get(self.winner)


def read_study_result(file: Path) -> StudyResult | None:
    """Read a result.json; None if it does not exist."""
    if not file.exists():
        return None
    result = read_json(file, StudyResult, "restore it or remove it", follow=False)
    contradiction = contradiction_in(result)
    if contradiction is not None:
        raise InputError(f"{file} contradicts itself: {contradiction}; restore it or remove it")
    return result
