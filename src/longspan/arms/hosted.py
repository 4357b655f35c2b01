"""A paired study in a storage, such as a PostgreSQL server: any number of processes on any hosts share its slots.

The slots of all arms are numbered through and claimed like those of a search, with heartbeats and with checkpoints that
other hosts continue from. What a slot leaves in the storage is the line that a shard would have written, so the results
of both are merged alike.
"""

import functools
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Literal

import msgspec

from longspan import __version__
from longspan.arms.protocol import Definition
from longspan.arms.records import RESULTS, TIMINGS, SlotResult, SlotTiming, encode_line
from longspan.arms.runner import Ended, StudyFolder, Task, instruction_set, slot_result, slot_timing
from longspan.config import TrainConfig
from longspan.data.dataset import Dataset
from longspan.errors import InputError
from longspan.files import write_atomic
from longspan.search import machine, storage, trial
from longspan.search.slots import Outcome
from longspan.search.space import HEARTBEAT_SECONDS, Space
from longspan.search.storage import patiently
from longspan.search.study import Claim, Study, create_or_continue
from longspan.search.worker import Limits, Place, work
from longspan.training.runs import Run
from longspan.training.setup import trained_model

FORMAT = 1


class PairedSlots(msgspec.Struct, frozen=True, dict=True):
    """A paired study as the definition of numbered slots.

    Version and instruction set belong to it, because results that differ in them are not merged.
    """

    name: str
    paired: Definition
    longspan: str
    instruction_set: str
    heartbeat_seconds: int = HEARTBEAT_SECONDS
    prune: bool = False
    tested: Literal["none"] = "none"
    format: int = FORMAT

    @staticmethod
    def of(definition: Definition, heartbeat_seconds: int = HEARTBEAT_SECONDS) -> "PairedSlots":
        name = f"methods-{definition.data}-{definition.identity}"
        return PairedSlots(name, definition, __version__, instruction_set(), heartbeat_seconds)

    @property
    def grace_seconds(self) -> int:
        return 4 * self.heartbeat_seconds

    @property
    def identity(self) -> str:
        return "-".join((self.paired.identity, self.longspan, self.instruction_set))

    @property
    def base(self) -> TrainConfig:
        return self.config_of(0)

    @property
    def parsed_space(self) -> Space:
        """Nothing that Optuna's dashboard could show, because every arm draws from a space of its own."""
        return {}

    @functools.cached_property
    def tasks(self) -> list[Task]:
        return [Task(arm, slot) for slot, arm in self.paired.tasks()]

    def config_of(self, slot: int) -> TrainConfig:
        return self.tasks[slot].config_of(self.paired)

    def described(self) -> dict:
        return {
            "definition": self.paired.identity,
            "version": self.longspan,
            "instruction set": self.instruction_set,
        }


class _Kept(msgspec.Struct, frozen=True):
    """What a storage keeps of a finished slot."""

    result: SlotResult
    timing: SlotTiming

    @property
    def origin(self) -> str:
        """The identity of the study that it is of."""
        return "-".join((self.result.definition, self.result.version, self.result.instruction_set))


class HostedStudy:
    """The part that this machine has in a study of a storage."""

    def __init__(self, url: str, folder: StudyFolder, data: Dataset, *, slots: int | None = None, **options: int):
        """`slots` is how many of every arm to run, by default all; `options` are of `PairedSlots.of`."""
        definition = PairedSlots.of(folder.definition, **options)
        count = sum(slots is None or task.slot < slots for task in definition.tasks)
        self.folder, self.data = folder, data
        self.study: Study[PairedSlots] = create_or_continue(url, definition, count)

    def run(
        self,
        environment: dict,
        *,
        interrupted: Callable[[], bool],
        limits: Limits | None = None,
        artifacts: str | None = None,
        on_end: Callable[[Ended], None] = lambda ended: None,
    ) -> None:
        """Run free slots until all are finished, here or elsewhere, or until `interrupted()`; then `collect`."""
        self.folder.open()
        study = self.study
        with storage.explain_outage(study.url), machine.present() as name:
            kept = patiently(lambda: study.artifacts(artifacts), unless=interrupted)
            place = Place(self.folder.runs, environment, kept)
            doing = _Doing(self, on_end)
            ending = work(study, self.data, place, worker=name, interrupted=interrupted, limits=limits, trial=doing)
            patiently(self.collect, unless=interrupted)
        if ending == "finished":
            shutil.rmtree(self.folder.runs / "trials", ignore_errors=True)

    def collect(self) -> None:
        """Write the lines of all finished slots, of any host, into the folder, for `longspan merge`."""
        ended = [self._checked(number, kept) for number, kept in sorted(self.study.details().items())]
        part = self.folder.folder / f"{self.folder.stem}-hosts"
        write_atomic(Path(f"{part}{TIMINGS}"), b"".join(encode_line(each.timing) for each in ended))
        write_atomic(Path(f"{part}{RESULTS}"), b"".join(encode_line(each.result) for each in ended))

    def _checked(self, number: int, kept: object) -> Ended:
        """What a storage has of a slot, if it is what a slot of this study can have."""
        where, definition = storage.hide_password(self.study.url), self.study.definition
        try:
            found = msgspec.convert(kept, _Kept)
        except msgspec.ValidationError as error:
            raise InputError(f"slot {number} in {where} cannot be read ({error}): restore the storage") from error
        expected = definition.tasks[number].key_on(self.data.name) if number < len(definition.tasks) else None
        if not found.result.key == found.timing.key == expected or found.origin != definition.identity:
            raise InputError(f"slot {number} in {where} is that of another one: restore the storage")
        return Ended(found.result, found.timing)

    @property
    def left(self) -> int:
        """Slots without an outcome, and those that were given up."""
        return sum(slot.outcome is None or slot.status == "lost" for slot in self.study.slots())


class _Doing:
    """How a slot of a paired study is run, for `work`."""

    def __init__(self, hosted: HostedStudy, on_end: Callable[[Ended], None]):
        self.hosted, self.on_end = hosted, on_end

    def attempt(
        self, study: Study, claim: Claim, data: Dataset, place: Place, interrupted: Callable[[], bool], limits: Limits
    ) -> None:
        definition, task = self.hosted.folder.definition, study.definition.tasks[claim.slot]
        ended: list[Ended] = []

        def details(run: Run, outcome: Outcome) -> dict:
            model = None if outcome.status == "diverged" else trained_model(run)
            result = slot_result(definition, run, data, task, reason=outcome.reason, model=model)
            ended.append(Ended(result, slot_timing(definition, run, data, task)))
            return {"result": msgspec.to_builtins(result), "timing": msgspec.to_builtins(ended[0].timing)}

        trial.attempt(study, claim, data, place, interrupted, limits, details)
        for each in ended:
            self.on_end(each)

    def conclude(self, study: Study, data: Dataset, place: Place) -> None:
        """Nothing is left to do: winners are trained again by another command."""
