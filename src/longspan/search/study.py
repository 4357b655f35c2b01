"""A study: numbered slots, each claimed by one worker at a time and each with one final outcome.

An attempt at a slot is one Optuna trial. When its worker dies, the attempt is marked as failed and the slot is free
again, so a slot may have many attempts but only one outcome. Studies are therefore compared by slots, never by trial
numbers.
"""

from __future__ import annotations

import collections
import contextlib
import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import msgspec

from longspan.errors import InputError
from longspan.files import check_plain_name, is_plain_name
from longspan.search import machine, storage
from longspan.search.artifacts import SlotArtifacts, open_artifacts
from longspan.search.slots import Outcome, Roll, Slot, SlotCount
from longspan.search.space import (
    LONGEST_HEARTBEAT,
    Definition,
    StudyDefinition,
    check_format,
    check_same,
    effort_of,
)

if TYPE_CHECKING:  # they need what only those have who search
    from sqlalchemy import Engine

    from longspan.search.attempts import Attempt, Attempts, Found

UNKNOWN = "?"
CHECKED_AT_ONCE = 8
"""Workers of this machine that a claim looks for, to find out whether they have died, and again if nothing is free."""


Defined = TypeVar("Defined", bound=Definition)


class ClaimLost(Exception):
    """The slot was given to another worker, because this one had sent no heartbeat for too long."""


class Claim:
    """A worker's exclusive right to run a slot, kept by heartbeats and lost without them."""

    def __init__(self, slot: int, attempt: int, attempts: Attempts):
        """`attempt` is the storage's number of the attempt, unique across studies."""
        self.slot = slot
        self.attempt = attempt
        self.reported: set[int] = set()
        self._attempts = attempts

    def report(self, metrics: list[dict]) -> None:
        """Write the validation scores so far to the storage, for displays."""
        scores = {record["epoch"]: record["valid_log_likelihood"] for record in metrics}
        new = {epoch: score for epoch, score in scores.items() if epoch not in self.reported}
        if new:
            self.change(curve=new)
            self.reported |= new.keys()

    def note(self, name: str, value: object) -> None:
        """Attach a named value to the attempt."""
        self.change(attributes={name: value})

    def change(self, **changes: Any) -> None:
        """See `Attempts.change`; raises `ClaimLost` if the slot has been given to another worker."""
        from longspan.search.attempts import Finished

        try:
            self._attempts.change(self.attempt, **changes)
        except Finished as error:
            raise ClaimLost from error

    def check(self) -> None:
        """Raise `ClaimLost` if the slot has been given to another worker."""
        if self._attempts.has_ended(self.attempt):
            raise ClaimLost

    def beat(self) -> None:
        """Send a heartbeat."""
        self._attempts.beat(self.attempt)

    @contextlib.contextmanager
    def kept_alive(self, seconds: float) -> Iterator[None]:
        """Send heartbeats from a thread while the block lasts."""
        ended = threading.Event()

        def beat() -> None:
            while not ended.wait(seconds):
                with contextlib.suppress(*storage.outages()):  # the storage may come back in time
                    self.beat()

        thread = threading.Thread(target=beat, daemon=True)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()


class _Attributes(msgspec.Struct, frozen=True):
    """What the storage says of a study besides its definition."""

    slots: SlotCount
    result: dict | None = None


class Study(Generic[Defined]):
    """Slots in an Optuna storage; make one with `create_or_continue` or `open_study`."""

    def __init__(self, url: str, definition: Defined, attempts: Attempts):
        self.url = url
        self.definition = definition
        self.ended = False
        """Whether every slot had an outcome when the storage was read last."""
        self._attempts = attempts
        self._roll = Roll()
        self._curves: dict[int, dict[int, float]] = {}
        """Validation scores by epoch, of attempts that have ended."""
        self._checked: collections.Counter[str] = collections.Counter()
        """How often each running worker was looked for on this machine."""

    def _told(self) -> _Attributes:
        """What the storage says of the study."""
        with storage.explain_damage(self.url):
            return msgspec.convert(self._attempts.told("slots", "result"), _Attributes)

    @property
    def slot_count(self) -> int:
        return self._told().slots

    def extend(self, slots: int) -> None:
        """Extend the study to at least this number of slots."""
        with self._locked() as connection:
            if slots > self.slot_count:
                # With the lock or not at all: later, others may have added more, and slots beyond are damage.
                self._attempts.tell("slots", slots, connection)

    @property
    def result(self) -> dict | None:
        """The latest result, possibly from fewer slots than there are now."""
        return self._told().result

    def set_result(self, result: dict) -> None:
        self._attempts.tell("result", result)

    @property
    def concluded(self) -> bool:
        """Whether the result covers all slots."""
        told = self._told()
        return (told.result or {}).get("slots") == told.slots

    def artifacts(self, url: str | None) -> SlotArtifacts | None:
        """Where checkpoints of the slots are kept for other machines: at a URL, or in the storage if it is a server."""
        name = f"{self.definition.name}-{self.definition.identity}"
        return open_artifacts(url, self.url, name, self._attempts.engine)

    def slots(self, first: int | None = None) -> list[Slot]:
        """The current state of every slot, or of the first ones, with its curve."""
        with self._attempts.at_once.connect() as connection:
            count = self._refresh(connection)
            found = [self._roll.slot(number) for number in range(count if first is None else min(first, count))]
            tried = {slot.attempt: slot for slot in found if slot.attempt is not None}
            with storage.explain_damage(self.url):
                curves = self._attempts.curves(connection, [each for each in tried if each not in self._curves])
        self._curves |= {attempt: curve for attempt, curve in curves.items() if tried[attempt].finished}
        known = self._curves | curves
        return [
            slot if slot.attempt is None else msgspec.structs.replace(slot, curve=known[slot.attempt]) for slot in found
        ]

    def details(self) -> dict[int, dict]:
        """What was recorded of finished slots besides their outcomes."""
        with self._attempts.at_once.connect() as connection:
            self._refresh(connection)
            ended = {slot.attempt: slot.number for slot in self._roll.slots.values() if slot.finished and slot.attempt}
            with storage.explain_damage(self.url):
                found = self._attempts.attribute(connection, "details")
        return {ended[attempt]: details for attempt, details in found.items() if attempt in ended}

    def leaders(self) -> list[Slot]:
        """The two best slots so far, without their curves."""
        with self._attempts.at_once.connect() as connection:
            self._refresh(connection)
        return self._roll.leaders

    def _refresh(self, connection: Any) -> int:
        """Read what has changed; return the number of slots."""
        with storage.explain_damage(self.url):
            self._roll.update(self._attempts.changed(connection, self._roll.last, self._roll.running))
            count = self._attempts.slot_count(connection)
            if self._roll.highest >= count:  # slots are added before they are attempted
                raise ValueError(f"an attempt at slot {self._roll.highest} of {count}")
            self.ended = self._roll.finished >= count
            return count

    def claim(self, worker: str) -> Claim | None:
        """Claim the next free slot; None if there is none at present, or, if the study has `ended`, for good."""
        try:
            with storage.explain_damage(self.url), self._locked() as connection:
                claimed, buried = self._claim(connection, worker)
        except BaseException:
            self._roll, self.ended = Roll(), False  # the transaction was undone, so what it changed never happened
            raise
        for name in buried:
            machine.forget(name)  # not before the storage has it: if we had died, nobody would know who else had
        return claimed

    def _claim(self, connection: Any, worker: str) -> tuple[Claim | None, list[str]]:
        """The claim, and the names of the dead workers whose slots were freed for it."""
        count = self._refresh(connection)
        buried = self._bury_dead(connection, at_most=CHECKED_AT_ONCE)
        number = self._next_free(count)
        if number is None:
            buried += self._bury_dead(connection, at_most=CHECKED_AT_ONCE)  # others than before
            number = self._next_free(count)
        if number is None:
            return None, buried
        attempt = self._add_attempt(connection, number, self._states.RUNNING, worker=worker)
        return Claim(number, attempt, self._attempts), buried

    def _next_free(self, count: int) -> int | None:
        def effort(number: int) -> float:
            return effort_of(self.definition.config_of(number))

        return self._roll.next_free(count, effort, prune=self.definition.prune)

    def record(self, claim: Claim, outcome: Outcome, details: dict | None = None) -> None:
        """Write how a claimed slot ended, and what else this kind of study keeps of it."""
        states = self._states
        state = {"done": states.COMPLETE, "pruned": states.PRUNED}.get(outcome.status, states.FAIL)
        score = outcome.valid_log_likelihood if outcome.status == "done" else None
        told = {"outcome": msgspec.to_builtins(outcome)} | ({} if details is None else {"details": details})
        claim.change(attributes=told, state=state, score=score)

    def release(self, claim: Claim) -> None:
        """Release an unfinished slot, to be continued later."""
        claim.change(attributes={"released": True}, state=self._states.FAIL)

    def fail(self, claim: Claim, reason: str) -> None:
        """Give up an attempt that cannot succeed here, as if its worker had died."""
        claim.change(attributes={"failure": reason}, state=self._states.FAIL)

    def adopt(self, slots: dict[int, Outcome], result: dict) -> None:
        """Adopt outcomes from elsewhere, such as a committed result, as if they had been run here."""
        with self._locked() as connection:
            self._refresh(connection)
            known = {number for number, slot in self._roll.slots.items() if slot.status != "waiting"}
            for number in sorted(slots.keys() - known):
                outcome = slots[number]
                done = outcome.status == "done"
                state = self._states.COMPLETE if done else self._states.FAIL
                score = outcome.valid_log_likelihood if done else None
                told = {"outcome": msgspec.to_builtins(outcome), "worker": "elsewhere"}
                self._add_attempt(connection, number, state, score, **told)
        if self.result is None:
            self.set_result(result)

    @property
    def _states(self):
        from optuna.trial import TrialState

        return TrialState

    def _locked(self):
        return storage.claim_lock(self.url, self.definition.name, self._attempts.engine)

    def _add_attempt(
        self, connection: Any, number: int, state: Any, score: float | None = None, **attributes: object
    ) -> int:
        """Create an attempt at a slot; return its number in the storage."""
        from longspan.search.attempts import recorded_parameters

        parameters = recorded_parameters(self.definition, number)
        told = {"slot": number, **attributes}
        return self._attempts.add(connection, self._roll.count, state, parameters, told, score)

    def _bury_dead(self, connection: Any, at_most: int) -> list[str]:
        """Free the slots of dead workers (elsewhere after the grace period, here at once) and return their names.

        Of many workers on this machine only some are looked for each time, the others by the next claims.
        """
        running = self._roll.running
        silent = set(self._attempts.silent(connection, list(running), self.definition.grace_seconds))
        workers = {number: _worker_of(attempt) for number, attempt in running.items()}
        asked = sorted(running, key=lambda number: self._checked[workers[number] or ""])[:at_most]
        self._checked = collections.Counter({name: self._checked[name] for name in workers.values() if name})
        self._checked.update(name for number in asked if (name := workers[number]))
        dead = [number for number in running if number in silent]
        for number in asked:
            worker = workers[number]
            if number not in silent and (worker is None or machine.is_gone(worker)):
                dead.append(number)
        for number in dead:
            self._attempts.change(number, state=self._states.FAIL, connection=connection)
        if dead:
            self._refresh(connection)
        return [name for number in dead if (name := workers[number])]


def _worker_of(attempt: Attempt) -> str | None:
    """The name of an attempt's worker, `UNKNOWN` for one that no worker has: it comes from the storage."""
    name = attempt.attributes.get("worker")
    return name if name is None or is_plain_name(name) else UNKNOWN


def create_or_continue(url: str, definition: Defined, slots: int) -> Study[Defined]:
    """The study of this name in the storage, created if necessary, with at least this number of slots."""
    with storage.explain_outage(url), storage.explain_damage(url):
        return _created_or_continued(url, definition, slots)


def _created_or_continued(url: str, definition: Defined, slots: int) -> Study[Defined]:
    optuna, made = storage.import_optuna(), storage.make_storage(url)
    from longspan.search.attempts import Attempts

    name = definition.name
    with storage.claim_lock(url, name):
        found = optuna.create_study(storage=made, study_name=name, direction="maximize", load_if_exists=True)
        attempts = Attempts(made.engine, made.get_study_id_from_name(name))
        if "definition" not in found.user_attrs:
            if found.get_trials(deepcopy=False):
                raise InputError(f"study {name} was not made by longspan: name another one")
            attempts.tell("slots", slots)  # first, because workers join any study that has a definition
            attempts.tell("definition", msgspec.to_builtins(definition))
        kept = _definition_of(attempts.told("definition")["definition"], name, type(definition))
        check_same(kept, definition)
    study = Study(url, kept, attempts)
    study.extend(slots)
    return study


def open_study(url: str, name: str | None = None) -> Study[StudyDefinition]:
    """Open the study of a search in the storage; without a name, the only one there."""
    storage.check_exists(url)
    with storage.explain_outage(url), storage.explain_damage(url):
        return _opened(url, name)


def _opened(url: str, name: str | None) -> Study[StudyDefinition]:
    from longspan.search.attempts import Attempts, decoded

    engine = storage.join_storage(url)
    found = _found(url, engine, name)
    definition = _definition_of(decoded(found.definition), found.name, StudyDefinition)
    check_format(definition)
    return Study(url, definition, Attempts(engine, found.number))


def _found(url: str, engine: Engine, name: str | None) -> Found:
    """The study of a name; without a name, the only one of longspan."""
    from sqlalchemy.exc import ProgrammingError

    from longspan.search.attempts import defined_studies

    try:
        with storage.at_once(engine).connect() as connection:
            found = defined_studies(connection, name)
            if len(found) == 1:
                return found[0]
            names = [study.name for study in found or defined_studies(connection)]
    except ProgrammingError as error:
        if not storage.lacks_tables(error):
            raise
        where = storage.hide_password(url)
        raise InputError(f"no study of longspan in {where}: `longspan search` makes one") from error
    asked = "expected the name of a study" if name is None else f"no study {name!r} of longspan"
    raise InputError(f"{asked} in {storage.hide_password(url)}; there are: {', '.join(names) or 'none'}")


def _definition_of(told: object, name: str, kind: type[Defined]) -> Defined:
    """The definition of a study, as the storage tells it."""
    try:
        definition = msgspec.convert(told, kind)
    except msgspec.ValidationError as error:
        raise InputError(f"study {name!r} cannot be read ({error}): name another one") from error
    check_plain_name(definition.name, "study")  # chosen by the owner of the storage, and used as a folder's name
    if definition.name != name:
        raise InputError(f"study {name!r} says that it is {definition.name!r}: name another one")
    if not 1 <= definition.heartbeat_seconds <= LONGEST_HEARTBEAT:
        raise InputError(
            f"study {name!r} has a heartbeat every {definition.heartbeat_seconds} seconds, expected 1 to "
            f"{LONGEST_HEARTBEAT}: name another one"
        )
    return definition
