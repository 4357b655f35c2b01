"""Median pruning that does not depend on who was faster.

The usual rule holds a trial against whatever other trials have reported by then, so the same study ends differently
with another number of workers. Here every slot is held against the first few slots, which always run to their end
before the others start: whether and when a slot is pruned follows from validation curves alone.
"""

import itertools
import statistics

from longspan.search.slots import REFERENCE_SLOTS, Slot

WARM_UP_EPOCHS = 4
"""Epochs in which nothing is pruned, for first epochs say little."""


class Pruned(Exception):
    """The slot fell behind."""


def pruning_epoch(curve: dict[int, float], references: list[dict[int, float]]) -> int | None:
    """The first epoch after which the best score so far is below the median of the references, None if there is none.

    A reference that has stopped by then counts with its best score.
    """
    epochs = sorted(curve)
    bests = itertools.accumulate((curve[epoch] for epoch in epochs), max)
    for epoch, best in zip(epochs, bests, strict=True):
        if epoch <= WARM_UP_EPOCHS:
            continue
        rivals = [max(score for at, score in rival.items() if at <= epoch) for rival in references if rival]
        if rivals and best < statistics.median(rivals):
            return epoch
    return None


def reference_curves(slots: list[Slot]) -> list[dict[int, float]]:
    """The curves that slots are held against: those of reference slots that did not diverge."""
    return [slot.curve for slot in slots[:REFERENCE_SLOTS] if slot.status == "done"]
