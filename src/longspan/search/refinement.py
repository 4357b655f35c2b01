"""A second look where the first found most: a search around a winner, in a narrow part of the space it came from."""

import msgspec

from longspan.config import TrainConfig
from longspan.search.result import StudyResult
from longspan.search.space import Interval, parse_space
from longspan.search.study import Study

SHARE = 0.15
"""How far on each side of the winner's value an interval reaches, as a share of the whole interval's width."""


def space_near(winner: TrainConfig, space: dict) -> dict:
    """The part of a plain space around a winner; what is chosen from a list stays as the winner has it.

    A winner may lie outside the space, as shipped recipes do. Even in the logarithm, intervals follow it out there;
    others end where the space ends.

    Example:
        >>> space_near(TrainConfig(hidden_size=390), {"hidden_size": {"low": 100, "high": 400}})
        {'hidden_size': {'low': 345, 'high': 400}}
    """
    near = {}
    for name, dimension in parse_space(space, winner).items():
        if isinstance(dimension, Interval):
            interval = _around(getattr(winner, name), dimension)
            if interval is not None:
                near[name] = interval
    return near


def hand_on(study: Study, before: StudyResult) -> None:
    """Give the winner of an earlier study to one that is searched around it: its slot 0 need not be run again."""
    winner = before.winning
    assert winner is not None
    first = msgspec.structs.replace(winner, slot=0, settings={})
    known = msgspec.structs.replace(
        before, study=study.definition.name, identity=study.definition.identity, slots=1, winner=0, trials=[first]
    )
    study.adopt({0: winner.outcome}, msgspec.to_builtins(known))


def _around(value, interval: Interval) -> dict | None:
    if interval.log:
        if value <= 0:  # a penalty that is switched off
            return None
        factor = (interval.high / interval.low) ** SHARE
        low, high = float(f"{value / factor:.3g}"), float(f"{value * factor:.3g}")
        ends = (round(low), round(high)) if interval.whole else (low, high)
        return {"low": ends[0], "high": ends[1], "log": True}
    reach = SHARE * (interval.high - interval.low)
    low = max(value - reach, min(interval.low, value))
    high = min(value + reach, max(interval.high, value))
    if interval.whole:
        return {"low": round(low), "high": round(high)}
    return {"low": float(f"{low:.3g}"), "high": float(f"{high:.3g}")}
