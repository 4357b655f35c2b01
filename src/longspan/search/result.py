"""What a study came to, as data: the winner by validation, its scores, and how every slot ended."""

import math

import msgspec

from longspan.search.slots import Outcome, Slot

FORMAT = 1


class Tested(msgspec.Struct, frozen=True, omit_defaults=True):
    """Scores of one slot's best weights on the splits it was not chosen by."""

    train: dict[str, float]
    test: dict[str, float]
    frames_per_second: float | None = None
    """Training frames, or symbols, an epoch with its validation got through in a second."""


class Trial(msgspec.Struct, frozen=True, omit_defaults=True):
    """One slot."""

    slot: int
    settings: dict
    """Those that differ from slot 0."""
    outcome: Outcome
    tested: Tested | None = None


class StudyResult(msgspec.Struct, frozen=True):
    """The content of result.json."""

    study: str
    identity: str
    """Of the definition: slots of studies with the same identity are comparable."""
    recipe: str
    data: str
    slots: int
    winner: int | None
    """None if no slot ended well."""
    settings: dict
    """All settings of the winner."""
    trials: list[Trial]
    environment: dict
    format: int = FORMAT

    @property
    def winning(self) -> Trial | None:
        return next((trial for trial in self.trials if trial.slot == self.winner), None)

    def count(self, status: str) -> int:
        """Number of slots that ended like this."""
        return sum(trial.outcome.status == status for trial in self.trials)


def contradiction_in(result: StudyResult) -> str | None:
    """Why a file's content cannot be what a study came to, None if it can."""
    if result.format != FORMAT:
        return f"expected format {FORMAT} of study {result.study}, got {result.format}"
    slots = [trial.slot for trial in result.trials]
    if slots != list(range(result.slots)):
        return f"study {result.study} has {result.slots} slots, but trials of slots {slots}"
    if result.winner is None:
        return None
    if result.winning is None or result.winning.outcome.valid_log_likelihood is None:
        return f"slot {result.winner} of study {result.study} cannot have won, for it has no validation score"
    return None


def winner_of(slots: list[Slot]) -> Slot | None:
    """The slot with the best validation score, the earlier one if two are equal; None if none ended well."""
    best, score = None, -math.inf
    for slot in slots:
        reached = slot.outcome.valid_log_likelihood if slot.outcome else None
        if reached is not None and reached > score:
            best, score = slot, reached
    return best
