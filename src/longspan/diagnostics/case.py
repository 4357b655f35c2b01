"""What a condition is asked about, and what it answers."""

from collections.abc import Callable
from typing import NamedTuple

import msgspec

from longspan.config import TrainConfig
from longspan.diagnostics.measures import Measures
from longspan.diagnostics.remedies import Prescriber, Remedy

POOR = 0.2
"""Gain over the rates, as a share of what is at stake, of a model that has hardly learned anything."""
UNUSED, NOISE, SURE = 0.02, 1e-4, 2.0
"""Gain by more than one input of history of a model that uses no memory, as a share of its gain over the rates; nats
per step that are no use; and standard errors of the gain that may be chance."""


class Finding(msgspec.Struct, frozen=True):
    """A condition that holds.

    Attributes:
        name: the condition.
        says: what it means for this run, one sentence.
        evidence: the figures that show it.
        remedies: what to do, the most promising first.
    """

    name: str
    says: str
    evidence: list[str]
    remedies: list[Remedy]


class Case(NamedTuple):
    """What a condition is asked about."""

    seen: Measures
    config: TrainConfig
    prescribe: Prescriber

    @property
    def gain(self) -> float:
        """How much better the model is than the rates, nats per step."""
        return self.seen.standards.valid - self.seen.standards.rates

    @property
    def poor(self) -> bool:
        """Whether the model is hardly better than the rates."""
        return self.gain < POOR * self.seen.standards.stake

    @property
    def solved(self) -> bool:
        return self.seen.course.reason.startswith("solved")

    @property
    def uses_memory(self) -> bool:
        """Whether more than one input of history makes a difference."""
        history = self.seen.history
        if not history.scores:
            return False
        chance = max(NOISE, SURE * history.errors[0])
        return history.whole - history.scores[0] > UNUSED * max(self.gain, 0.0) + chance

    def left(self, lag: int) -> float:
        """Share of the gradient that is left some steps back."""
        norms = self.seen.gradient.norms
        return norms[min(lag, len(norms) - 1)] / norms[0] if norms[0] > 0 else 0.0


Condition = Callable[[Case], Finding | None]


def rounded(value: float) -> float:
    """Two significant digits, as a person would write a setting."""
    return float(f"{value:.2g}")
