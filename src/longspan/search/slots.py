"""What the attempts at a slot amount to: waiting, running, or one outcome that never changes again."""

from typing import Literal

import msgspec

REFERENCE_SLOTS = 5
"""With pruning, the slots that always run to their end and that all others are held against."""
MOST_DEATHS = 25
"""Workers that may die over one slot before it is given up, for a trial that eats all memory dies every time."""

SlotStatus = Literal["waiting", "running", "done", "diverged", "pruned", "lost"]


class Outcome(msgspec.Struct, frozen=True):
    """How a slot ended; the same however often its workers were killed, apart from `seconds`."""

    status: Literal["done", "diverged", "pruned", "lost"]
    reason: str
    valid_log_likelihood: float | None = None
    train_log_likelihood: float | None = None
    """While training, in the best epoch."""
    best_epoch: int | None = None
    epochs: int = 0
    seconds: float = 0.0
    time_limit: float | None = None
    """Processor seconds after which it was ended; None if it ended by itself."""


class Slot(msgspec.Struct, frozen=True):
    """How a slot stands."""

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
    """What all attempts at a slot amount to."""
    deaths = 0
    for trial in attempts:
        outcome = _outcome_of(trial)
        if outcome is not None:
            return Slot(number, outcome.status, outcome, dict(trial.intermediate_values), _worker(trial), deaths)
        if trial.state.name == "FAIL" and not trial.user_attrs.get("released"):
            deaths += 1
    if deaths >= MOST_DEATHS:
        return Slot(number, "lost", Outcome("lost", f"{deaths} workers died over it"), deaths=deaths)
    for trial in attempts:
        if trial.state.name == "RUNNING":
            return Slot(number, "running", None, dict(trial.intermediate_values), _worker(trial), deaths)
    return Slot(number, deaths=deaths)


def _worker(trial) -> str | None:
    return trial.user_attrs.get("worker")


def _outcome_of(trial) -> Outcome | None:
    """The outcome an attempt came to; a worker killed before it could say so leaves one that does not count."""
    if "outcome" not in trial.user_attrs:
        return None
    outcome = msgspec.convert(trial.user_attrs["outcome"], Outcome)
    expected = {"done": "COMPLETE", "pruned": "PRUNED"}.get(outcome.status, "FAIL")
    return outcome if trial.state.name == expected else None


def first_free(slots: list[Slot], *, prune: bool) -> int | None:
    """With pruning the slots beyond the reference ones wait for those, so that each is judged by the same."""
    if prune and not all(slot.finished for slot in slots[:REFERENCE_SLOTS]):
        slots = slots[:REFERENCE_SLOTS]
    return next((slot.number for slot in slots if slot.status == "waiting"), None)
