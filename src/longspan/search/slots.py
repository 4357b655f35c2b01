"""Slots: how each stands, what its outcome is, which is free next and which lead, given the attempts at them.

An attempt whose worker died is marked as failed and its slot is free again, so a slot may have many attempts, but only
one outcome, which is final.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Literal

import msgspec

from longspan.bounds import Figure, Seconds, Text, Whole
from longspan.errors import shortened

if TYPE_CHECKING:  # it needs Optuna, which only those have who search
    from longspan.search.attempts import Attempt

REFERENCE_SLOTS = 5
"""With pruning, the number of slots that always run to their end and serve as references for all others."""
MOST_DEATHS = 8
"""Number of workers that may die on one slot, one after the other from the same checkpoint, before it is given up: a
trial that exhausts the memory dies every time, whereas one that is merely interrupted often gets further in between."""

LONGEST_REASON = 1000
"""Characters of what a worker says of its failure."""
MOST_SLOTS = 200_000
"""A storage that claims more is damaged; its slots would not fit into memory."""

LAST_SLOTS = 16
"""The number of last slots that are handed out by their effort instead of their number."""

SlotCount = Annotated[int, msgspec.Meta(ge=0, le=MOST_SLOTS)]

SlotStatus = Literal["waiting", "running", "done", "diverged", "pruned", "lost"]


class Outcome(msgspec.Struct, frozen=True):
    """How a slot ended; apart from `seconds`, independent of how often its workers were killed."""

    status: Literal["done", "diverged", "pruned", "lost"]
    reason: Text
    valid_log_likelihood: Figure | None = None
    train_log_likelihood: Figure | None = None
    """Measured during training, in the best epoch."""
    best_epoch: Whole | None = None
    epochs: Whole = 0
    seconds: Seconds = 0.0
    time_limit: Seconds | None = None
    """Processor seconds after which it was stopped; None if it ended by itself."""


class Slot(msgspec.Struct, frozen=True):
    """The current state of a slot."""

    number: int
    status: SlotStatus = "waiting"
    outcome: Outcome | None = None
    attempt: int | None = None
    """The attempt that ended it or runs it, by its number in the storage."""
    worker: str | None = None
    deaths: int = 0
    curve: dict[int, float] = {}
    """Validation log-likelihood after each epoch so far, if it was asked for."""

    @property
    def finished(self) -> bool:
        return self.outcome is not None


def slot_of(number: int, attempts: list[Attempt]) -> Slot:
    """The state of a slot, given all attempts at it."""
    deaths, fruitless = 0, 0
    reached, reason = None, ""
    for attempt in attempts:
        outcome = _outcome_of(attempt)
        if outcome is not None:
            return Slot(number, outcome.status, outcome, attempt.id, attempt.attributes.get("worker"), deaths)
        if attempt.state.name == "FAIL" and not attempt.attributes.get("released"):
            began = attempt.attributes.get("from_step", reached)
            fruitless = fruitless + 1 if began == reached else 1
            deaths, reached = deaths + 1, began
            reason = shortened(str(attempt.attributes.get("failure", reason)), LONGEST_REASON)
    if fruitless >= MOST_DEATHS:
        why = f"{fruitless} workers died over it" + (f", the last because {reason}" if reason else "")
        return Slot(number, "lost", Outcome("lost", why), deaths=deaths)
    for attempt in attempts:
        if attempt.state.name == "RUNNING":
            return Slot(number, "running", None, attempt.id, attempt.attributes.get("worker"), deaths)
    return Slot(number, deaths=deaths)


def _outcome_of(attempt: Attempt) -> Outcome | None:
    """The outcome of an attempt; None if its worker was killed before the attempt was marked as finished."""
    if "outcome" not in attempt.attributes:
        return None
    outcome = msgspec.convert(attempt.attributes["outcome"], Outcome)
    if outcome.valid_log_likelihood is not None and not math.isfinite(outcome.valid_log_likelihood):
        raise ValueError(f"a score of {outcome.valid_log_likelihood}")
    expected = {"done": "COMPLETE", "pruned": "PRUNED"}.get(outcome.status, "FAIL")
    return outcome if attempt.state.name == expected else None


class Roll:
    """The state of every slot, kept up to date by the attempts that have changed since it was last read.

    What a worker does for a slot must not depend on how many there are, so nothing here goes through all of them.
    """

    def __init__(self) -> None:
        self.slots: dict[int, Slot] = {}
        """Slots that were ever attempted."""
        self.last = 0
        """The newest attempt known, by its number in the storage."""
        self.count = 0
        """Attempts known."""
        self.running: dict[int, Attempt] = {}
        self.finished = 0
        self.highest = -1
        """The last slot that was ever attempted."""
        self.leaders: list[Slot] = []
        """The two best slots so far; the earlier one comes first on a tie."""
        self._attempts: dict[int, dict[int, Attempt]] = {}
        self._freed: set[int] = set()
        """Slots that were attempted and are free again."""
        self._fresh = 0
        """No slot before this one was never attempted."""

    def update(self, changed: list[Attempt]) -> None:
        for attempt in changed:
            self.count += attempt.id > self.last
            self.last = max(self.last, attempt.id)
            if attempt.state.name == "RUNNING":
                self.running[attempt.id] = attempt
            elif attempt.ended:
                self.running.pop(attempt.id, None)
            if type(number := attempt.attributes.get("slot")) is int:
                if number < 0:
                    raise ValueError(f"an attempt at slot {number}")
                self.highest = max(self.highest, number)
                self._attempts.setdefault(number, {})[attempt.id] = attempt
        for number in self._attempts.keys() & {attempt.attributes.get("slot") for attempt in changed}:
            self._revise(number)
        while self._fresh in self._attempts:
            self._fresh += 1

    def _revise(self, number: int) -> None:
        before = self.slots.get(number)
        if before is not None and before.finished:
            return  # an outcome is final
        tried = self._attempts[number]
        slot = self.slots[number] = slot_of(number, [tried[attempt] for attempt in sorted(tried)])
        (self._freed.add if slot.status == "waiting" else self._freed.discard)(number)
        if slot.outcome is not None:
            self.finished += 1
            if slot.outcome.valid_log_likelihood is not None:
                self.leaders = sorted([*self.leaders, slot], key=_rank)[:2]

    def next_free(self, count: int, effort: Callable[[int], float], *, prune: bool) -> int | None:
        """The free slot below `count` that is to be run next.

        Slots follow each other by number, but the last ones by their effort: a long one that began last would keep all
        other workers waiting. With pruning, later slots wait for all reference slots, so that all are judged alike.
        """
        references = range(min(REFERENCE_SLOTS, count))
        if prune and not all(number in self.slots and self.slots[number].finished for number in references):
            count = len(references)
        if (first := min(self._freed, default=count)) < count:
            return first
        untried = range(self._fresh, count)
        if len(untried) > LAST_SLOTS:
            return self._fresh
        return max((n for n in untried if n not in self._attempts), key=lambda n: (effort(n), -n), default=None)

    def slot(self, number: int) -> Slot:
        return self.slots.get(number) or Slot(number)


def _rank(slot: Slot) -> tuple[float, int]:
    assert slot.outcome is not None
    assert slot.outcome.valid_log_likelihood is not None
    return -slot.outcome.valid_log_likelihood, slot.number
