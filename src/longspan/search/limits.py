"""How long a worker may go on with a trial; nothing here belongs to the definition of a study."""

import math
from dataclasses import dataclass

from longspan.errors import InputError


@dataclass(frozen=True)
class Limits:
    """In seconds."""

    checkpoint_seconds: float = 60.0
    """Longest time between two checkpoints of a run; 0 for one after every block."""
    trial_seconds: float | None = None
    """Processor time: a trial ends with the first epoch beyond this, and its best weights by then count.

    None, the default, is the only choice under which a slot comes to the same on every machine.
    """

    def __post_init__(self) -> None:
        check_checkpoint_seconds(self.checkpoint_seconds)
        if self.trial_seconds is not None and not 0 < self.trial_seconds < math.inf:
            raise InputError(f"--trial-limit must be above 0 and finite, such as 30m: got {self.trial_seconds:g}s")


def check_checkpoint_seconds(seconds: float) -> None:
    """Refuse what is no time between two checkpoints."""
    if not 0 <= seconds < math.inf:
        raise InputError(f"--checkpoint-seconds must be at least 0 and finite: got {seconds:g}")


class TimeUp(Exception):
    """A slot has had the time a trial may take; what it reached by then counts."""
