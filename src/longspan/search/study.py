"""A study: numbered slots, each claimed by one worker at a time, each with one outcome in the end.

Slots live on Optuna trials. A trial is one attempt at a slot; when its worker dies, the attempt is marked failed
and the slot is free again, so a slot may have many attempts but only ever one outcome. What is compared between
studies is therefore slots, never trial numbers.
"""

import warnings
from typing import Any

import msgspec

from longspan.errors import InputError
from longspan.search import presence, storage
from longspan.search.claims import Claim, ClaimLost
from longspan.search.definition import StudyDefinition, check_same
from longspan.search.distributions import recorded_parameters
from longspan.search.slots import Outcome, Slot, first_free, slot_of


class Study:
    """Slots on an Optuna storage; make one with `create_or_continue` or `open_study`."""

    def __init__(self, url: str, definition: StudyDefinition, optuna_study, rdb_storage):
        self.url = url
        self.definition = definition
        self._study = optuna_study
        self._storage = rdb_storage

    @property
    def slot_count(self) -> int:
        return self._study.user_attrs["slots"]

    def extend(self, slots: int) -> None:
        """Let the study have at least so many slots."""
        with self._locked():
            if slots > self.slot_count:
                self._study.set_user_attr("slots", slots)

    @property
    def result(self) -> dict | None:
        """What was concluded last, perhaps from fewer slots than there are now."""
        return self._study.user_attrs.get("result")

    def set_result(self, result: dict) -> None:
        self._study.set_user_attr("result", result)

    @property
    def concluded(self) -> bool:
        """Whether the result speaks of all slots."""
        attributes = self._study.user_attrs
        return (attributes.get("result") or {}).get("slots") == attributes["slots"]

    def slots(self) -> list[Slot]:
        """How every slot stands."""
        attempts: dict[int, list] = {number: [] for number in range(self.slot_count)}
        for trial in self._study.get_trials(deepcopy=False):
            if trial.user_attrs.get("slot") in attempts:
                attempts[trial.user_attrs["slot"]].append(trial)
        return [slot_of(number, trials) for number, trials in attempts.items()]

    def claim(self, worker: str) -> Claim | None:
        """Claim the first free slot; None if there is none, at least not now."""
        with self._locked():
            self._bury_dead()
            number = first_free(self.slots(), prune=self.definition.prune)
            if number is None:
                return None
            self._add_attempt(number, self._states.RUNNING)
            heart = self._heart(trial := self._unsigned_attempt())
            heart()
            # Last, because a running attempt without a worker's name is one whose worker died on these lines.
            trial.set_user_attr("worker", worker)
            return Claim(number, trial, heart)

    def record(self, claim: Claim, outcome: Outcome) -> None:
        """Write how a claimed slot ended."""
        states = self._states
        self._note(claim, "outcome", msgspec.to_builtins(outcome))
        state = {"done": states.COMPLETE, "pruned": states.PRUNED}.get(outcome.status, states.FAIL)
        self._tell(claim, state, outcome.valid_log_likelihood if outcome.status == "done" else None)

    def release(self, claim: Claim) -> None:
        """Give a slot back unfinished, to be gone on with later."""
        self._note(claim, "released", True)
        self._tell(claim, self._states.FAIL, None)

    def adopt(self, slots: dict[int, Outcome], result: dict) -> None:
        """Take over outcomes known from elsewhere, such as a committed result, as if they had been run here."""
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
        return storage.claim_lock(self.url, self.definition.name)

    def _add_attempt(self, number: int, state, value: float | None = None, **attributes) -> None:
        parameters, distributions = recorded_parameters(self.definition, number)
        self._study.add_trial(
            storage.import_optuna().create_trial(
                state=state,
                value=value,
                params=parameters,
                distributions=distributions,
                user_attrs={"slot": number, **attributes},
            )
        )

    def _unsigned_attempt(self):
        """The attempt that was just added: under the lock no other one runs without a worker's name."""
        running = self._study.get_trials(deepcopy=False, states=(self._states.RUNNING,))
        (added,) = [trial for trial in running if "worker" not in trial.user_attrs]
        return storage.import_optuna().trial.Trial(self._study, added._trial_id)

    def _heart(self, trial):
        return lambda: self._storage.record_heartbeat(trial._trial_id)

    def _bury_dead(self) -> None:
        """Free the slots of workers that died: on this machine at once, elsewhere after the grace period."""
        optuna = storage.import_optuna()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
            optuna.storages.fail_stale_trials(self._study)
        for trial in self._study.get_trials(deepcopy=False, states=(self._states.RUNNING,)):
            worker = trial.user_attrs.get("worker")
            if worker is None or presence.is_gone(worker):
                self._study.tell(trial.number, state=self._states.FAIL)
                presence.forget(worker or "")

    def _note(self, claim: Claim, name: str, value: object) -> None:
        from optuna.exceptions import UpdateFinishedTrialError

        try:
            claim.trial.set_user_attr(name, value)
        except UpdateFinishedTrialError as error:
            raise ClaimLost from error

    def _tell(self, claim: Claim, state, value: float | None) -> None:
        try:
            self._study.tell(claim.trial, value, state=state)
        except ValueError as error:
            running = self._study.get_trials(deepcopy=False, states=(self._states.RUNNING,))
            if any(trial.number == claim.trial.number for trial in running):
                raise
            raise ClaimLost from error  # buried while it was not heard of


def create_or_continue(url: str, definition: StudyDefinition, slots: int) -> Study:
    """The study of this name in the storage, made if it is not there, with at least so many slots."""
    optuna = storage.import_optuna()
    rdb = storage.open_storage(url, definition.heartbeat_seconds, definition.grace_seconds)
    with storage.claim_lock(url, definition.name):
        found = optuna.create_study(storage=rdb, study_name=definition.name, direction="maximize", load_if_exists=True)
        if "definition" not in found.user_attrs:
            if found.get_trials(deepcopy=False):
                raise InputError(f"study {definition.name} was not made by longspan: name another one")
            found.set_user_attr("slots", slots)  # first, for a study with a definition is one that workers join
            found.set_user_attr("definition", msgspec.to_builtins(definition))
        else:
            check_same(_definition_of(found), definition)
    study = Study(url, _definition_of(found), found, rdb)
    study.extend(slots)
    return study


def open_study(url: str, name: str | None = None) -> Study:
    """A study that is already in the storage; without a name, the only one there."""
    optuna = storage.import_optuna()
    storage.check_exists(url)
    probe = storage.open_storage(url, 30, 120)
    ours = [found.study_name for found in optuna.get_all_study_summaries(probe) if "definition" in found.user_attrs]
    chosen = ours[0] if name is None and len(ours) == 1 else name
    if chosen not in ours:
        asked = "expected the name of a study" if name is None else f"no study {name!r} of longspan"
        raise InputError(f"{asked} in {storage.hide_password(url)}; there are: {', '.join(ours) or 'none'}")
    definition = _definition_of(optuna.load_study(storage=probe, study_name=chosen))
    rdb = storage.open_storage(url, definition.heartbeat_seconds, definition.grace_seconds)
    return Study(url, definition, optuna.load_study(storage=rdb, study_name=chosen), rdb)


def _definition_of(found: Any) -> StudyDefinition:
    try:
        return msgspec.convert(found.user_attrs["definition"], StudyDefinition)
    except msgspec.ValidationError as error:
        raise InputError(f"study {found.study_name} cannot be read ({error}): name another one") from error
