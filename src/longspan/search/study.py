"""A study: numbered slots, each claimed by one worker at a time and each with one final outcome.

An attempt at a slot is one Optuna trial. When its worker dies, the attempt is marked as failed and the slot is free
again, so a slot may have many attempts but only one outcome. Studies are therefore compared by slots, never by trial
numbers.
"""

import contextlib
import itertools
import threading
import warnings
from collections.abc import Iterator
from typing import Any, Literal

import msgspec

from longspan.errors import InputError
from longspan.files import check_plain_name
from longspan.search import machine, storage
from longspan.search.artifacts import SlotArtifacts, open_artifacts
from longspan.search.space import HEARTBEAT_SECONDS, StudyDefinition, check_same

REFERENCE_SLOTS = 5
"""With pruning, the number of slots that always run to their end and serve as references for all others."""
MOST_DEATHS = 8
"""Number of workers that may die on one slot, one after the other from the same checkpoint, before it is given up: a
trial that exhausts the memory dies every time, whereas one that is merely interrupted often gets further in between."""

SlotStatus = Literal["waiting", "running", "done", "diverged", "pruned", "lost"]


class Outcome(msgspec.Struct, frozen=True):
    """How a slot ended; apart from `seconds`, independent of how often its workers were killed."""

    status: Literal["done", "diverged", "pruned", "lost"]
    reason: str
    valid_log_likelihood: float | None = None
    train_log_likelihood: float | None = None
    """Measured during training, in the best epoch."""
    best_epoch: int | None = None
    epochs: int = 0
    seconds: float = 0.0
    time_limit: float | None = None
    """Processor seconds after which it was stopped; None if it ended by itself."""


class Slot(msgspec.Struct, frozen=True):
    """The current state of a slot."""

    number: int
    status: SlotStatus = "waiting"
    outcome: Outcome | None = None
    curve: dict[int, float] = {}
    """Validation log-likelihood after each epoch so far."""
    worker: str | None = None
    deaths: int = 0

    @property
    def finished(self) -> bool:
        return self.outcome is not None


def slot_of(number: int, attempts: list) -> Slot:
    """The state of a slot, given all attempts at it."""
    deaths, fruitless = 0, 0
    reached, reason = None, ""
    for trial in attempts:
        outcome = _outcome_of(trial)
        if outcome is not None:
            return Slot(number, outcome.status, outcome, dict(trial.intermediate_values), _worker(trial), deaths)
        if trial.state.name == "FAIL" and not trial.user_attrs.get("released"):
            began = trial.user_attrs.get("from_step", reached)
            fruitless = fruitless + 1 if began == reached else 1
            deaths, reached = deaths + 1, began
            reason = trial.user_attrs.get("failure", reason)
    if fruitless >= MOST_DEATHS:
        why = f"{fruitless} workers died over it" + (f", the last because {reason}" if reason else "")
        return Slot(number, "lost", Outcome("lost", why), deaths=deaths)
    for trial in attempts:
        if trial.state.name == "RUNNING":
            return Slot(number, "running", None, dict(trial.intermediate_values), _worker(trial), deaths)
    return Slot(number, deaths=deaths)


def _worker(trial) -> str | None:
    return trial.user_attrs.get("worker")


def _outcome_of(trial) -> Outcome | None:
    """The outcome of an attempt; None if its worker was killed before the attempt was marked as finished."""
    if "outcome" not in trial.user_attrs:
        return None
    outcome = msgspec.convert(trial.user_attrs["outcome"], Outcome)
    expected = {"done": "COMPLETE", "pruned": "PRUNED"}.get(outcome.status, "FAIL")
    return outcome if trial.state.name == expected else None


def first_free(slots: list[Slot], *, prune: bool) -> int | None:
    """The first free slot; with pruning, later slots wait for all reference slots, so that all are judged alike."""
    if prune and not all(slot.finished for slot in slots[:REFERENCE_SLOTS]):
        slots = slots[:REFERENCE_SLOTS]
    return next((slot.number for slot in slots if slot.status == "waiting"), None)


class ClaimLost(Exception):
    """The slot was given to another worker, because this one had sent no heartbeat for too long."""


class Claim:
    """A worker's exclusive right to run a slot, kept by heartbeats and lost without them."""

    def __init__(self, slot: int, attempt: int, rdb_storage: Any):
        """`attempt` is the storage's number of the attempt, unique across studies."""
        self.slot = slot
        self.attempt = attempt
        self.reported: set[int] = set()
        self._storage = rdb_storage

    def report(self, metrics: list[dict]) -> None:
        """Write the validation scores so far to the storage, for displays."""
        for record in metrics:
            if record["epoch"] not in self.reported:
                with _lost_when_buried():
                    score = record["valid_log_likelihood"]
                    self._storage.set_trial_intermediate_value(self.attempt, record["epoch"], score)
                self.reported.add(record["epoch"])

    def note(self, name: str, value: object) -> None:
        """Attach a named value to the attempt."""
        with _lost_when_buried():
            self._storage.set_trial_user_attr(self.attempt, name, value)

    def check(self) -> None:
        """Raise `ClaimLost` if the slot has been given to another worker."""
        if self._storage.get_trial(self.attempt).state.is_finished():
            raise ClaimLost

    def beat(self) -> None:
        """Send a heartbeat."""
        self._storage.record_heartbeat(self.attempt)

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


@contextlib.contextmanager
def _lost_when_buried() -> Iterator[None]:
    from optuna.exceptions import UpdateFinishedTrialError

    try:
        yield
    except UpdateFinishedTrialError as error:
        raise ClaimLost from error


class Study:
    """Slots in an Optuna storage; make one with `create_or_continue` or `open_study`."""

    def __init__(self, url: str, definition: StudyDefinition, optuna_study, rdb_storage):
        self.url = url
        self.definition = definition
        self._study = optuna_study
        self._storage = rdb_storage
        self._id = rdb_storage.get_study_id_from_name(definition.name)
        self._ended: dict[int, list] = {}
        """Attempts that have ended, by slot; they never change, so each is looked at once."""
        self._known: set[int] = set()
        """Their numbers."""
        self._final: dict[int, Slot] = {}
        """Slots with an outcome, which never change either."""

    @property
    def slot_count(self) -> int:
        return self._study.user_attrs["slots"]

    def extend(self, slots: int) -> None:
        """Extend the study to at least this number of slots."""
        with self._locked():
            if slots > self.slot_count:
                self._study.set_user_attr("slots", slots)

    @property
    def result(self) -> dict | None:
        """The latest result, possibly from fewer slots than there are now."""
        return self._study.user_attrs.get("result")

    def set_result(self, result: dict) -> None:
        self._study.set_user_attr("result", result)

    @property
    def concluded(self) -> bool:
        """Whether the result covers all slots."""
        attributes = self._study.user_attrs
        return (attributes.get("result") or {}).get("slots") == attributes["slots"]

    def artifacts(self, url: str | None) -> SlotArtifacts | None:
        """Where checkpoints of the slots are kept for other machines: at a URL, or in the storage if it is a server."""
        name = f"{self.definition.name}-{self.definition.identity}"
        return open_artifacts(url, self.url, name, self._storage)

    def slots(self) -> list[Slot]:
        """The current state of every slot."""
        running = self._sort_attempts()
        slots = []
        for number in range(self.slot_count):
            slot = self._final.get(number)
            if slot is None:
                slot = slot_of(number, [*self._ended.get(number, []), *running.get(number, [])])
                if slot.outcome is not None:
                    self._final[number] = slot
            slots.append(slot)
        return slots

    def _sort_attempts(self) -> dict[int, list]:
        """Take note of attempts that have ended; return the others, by slot."""
        running: dict[int, list] = {}
        for trial in self._study.get_trials(deepcopy=False):
            if trial.number in self._known:
                continue
            number = trial.user_attrs.get("slot")
            if trial.state.is_finished():
                self._known.add(trial.number)
            (self._ended if trial.state.is_finished() else running).setdefault(number, []).append(trial)
        return running

    def claim(self, worker: str) -> Claim | None:
        """Claim the first free slot; None if there is none at present."""
        with self._locked():
            self._bury_dead()
            number = first_free(self.slots(), prune=self.definition.prune)
            if number is None:
                return None
            claim = Claim(number, self._add_attempt(number, self._states.RUNNING), self._storage)
            claim.beat()
            # Last, because a running attempt without a worker's name is one whose worker died, or lost the storage,
            # before this line.
            claim.note("worker", worker)
            return claim

    def record(self, claim: Claim, outcome: Outcome) -> None:
        """Write how a claimed slot ended."""
        states = self._states
        claim.note("outcome", msgspec.to_builtins(outcome))
        state = {"done": states.COMPLETE, "pruned": states.PRUNED}.get(outcome.status, states.FAIL)
        self._tell(claim, state, outcome.valid_log_likelihood if outcome.status == "done" else None)

    def release(self, claim: Claim) -> None:
        """Release an unfinished slot, to be continued later."""
        claim.note("released", True)
        self._tell(claim, self._states.FAIL, None)

    def fail(self, claim: Claim, reason: str) -> None:
        """Give up an attempt that cannot succeed here, as if its worker had died."""
        claim.note("failure", reason)
        self._tell(claim, self._states.FAIL, None)

    def adopt(self, slots: dict[int, Outcome], result: dict) -> None:
        """Adopt outcomes from elsewhere, such as a committed result, as if they had been run here."""
        with self._locked():
            known = {slot.number for slot in self.slots() if slot.status != "waiting"}
            for number in sorted(slots.keys() - known):
                outcome = slots[number]
                state = self._states.COMPLETE if outcome.status == "done" else self._states.FAIL
                self._add_attempt(
                    number,
                    state,
                    value=outcome.valid_log_likelihood if outcome.status == "done" else None,
                    outcome=msgspec.to_builtins(outcome),
                    worker="elsewhere",
                )
            if self.result is None:
                self.set_result(result)

    @property
    def _states(self):
        from optuna.trial import TrialState

        return TrialState

    def _locked(self):
        return storage.claim_lock(self.url, self.definition.name, self._storage.engine)

    def _add_attempt(self, number: int, state, value: float | None = None, **attributes) -> int:
        """Create an attempt at a slot; return its number in the storage."""
        parameters, distributions = storage.recorded_parameters(self.definition, number)
        template = storage.import_optuna().create_trial(
            state=state,
            value=value,
            params=parameters,
            distributions=distributions,
            user_attrs={"slot": number, **attributes},
        )
        return self._storage.create_new_trial(self._id, template)

    def _bury_dead(self) -> None:
        """Free the slots of dead workers: on this machine at once, elsewhere after the grace period."""
        optuna = storage.import_optuna()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
            optuna.storages.fail_stale_trials(self._study)
        for trial in self._running():
            worker = trial.user_attrs.get("worker")
            if worker is None or machine.is_gone(worker):
                self._study.tell(trial.number, state=self._states.FAIL)
                machine.forget(worker or "")

    def _running(self) -> list:
        unfinished = itertools.chain.from_iterable(self._sort_attempts().values())
        return [trial for trial in unfinished if trial.state == self._states.RUNNING]

    def _tell(self, claim: Claim, state, value: float | None) -> None:
        with _lost_when_buried():
            self._storage.set_trial_state_values(claim.attempt, state, None if value is None else [value])


def create_or_continue(url: str, definition: StudyDefinition, slots: int) -> Study:
    """The study of this name in the storage, created if necessary, with at least this number of slots."""
    optuna = storage.import_optuna()
    rdb = storage.open_storage(url, definition.heartbeat_seconds, definition.grace_seconds)
    with storage.claim_lock(url, definition.name):
        found = optuna.create_study(storage=rdb, study_name=definition.name, direction="maximize", load_if_exists=True)
        if "definition" not in found.user_attrs:
            if found.get_trials(deepcopy=False):
                raise InputError(f"study {definition.name} was not made by longspan: name another one")
            found.set_user_attr("slots", slots)  # first, because workers join any study that has a definition
            found.set_user_attr("definition", msgspec.to_builtins(definition))
        else:
            check_same(_definition_of(found), definition)
    study = Study(url, _definition_of(found), found, rdb)
    study.extend(slots)
    return study


def open_study(url: str, name: str | None = None) -> Study:
    """Open a study in the storage; without a name, the only one there."""
    storage.check_exists(url)
    with storage.explain_outage(url):
        return _opened(url, name)


def _opened(url: str, name: str | None) -> Study:
    optuna = storage.import_optuna()
    rdb = storage.open_storage(url, HEARTBEAT_SECONDS, 4 * HEARTBEAT_SECONDS)
    ours = [found.study_name for found in optuna.get_all_study_summaries(rdb) if "definition" in found.user_attrs]
    chosen = ours[0] if name is None and len(ours) == 1 else name
    if chosen not in ours:
        asked = "expected the name of a study" if name is None else f"no study {name!r} of longspan"
        raise InputError(f"{asked} in {storage.hide_password(url)}; there are: {', '.join(ours) or 'none'}")
    definition = _definition_of(optuna.load_study(storage=rdb, study_name=chosen))
    if definition.heartbeat_seconds != HEARTBEAT_SECONDS:
        rdb = storage.open_storage(url, definition.heartbeat_seconds, definition.grace_seconds)
    return Study(url, definition, optuna.load_study(storage=rdb, study_name=chosen), rdb)


def _definition_of(found: Any) -> StudyDefinition:
    try:
        definition = msgspec.convert(found.user_attrs["definition"], StudyDefinition)
    except msgspec.ValidationError as error:
        raise InputError(f"study {found.study_name!r} cannot be read ({error}): name another one") from error
    check_plain_name(definition.name, "study")  # chosen by the owner of the storage, and used as a folder's name
    if definition.name != found.study_name:
        raise InputError(f"study {found.study_name!r} says that it is {definition.name!r}: name another one")
    return definition
