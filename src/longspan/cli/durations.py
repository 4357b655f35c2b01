"""Durations as users write them, such as `90m` or `2h`."""

import re

from longspan.errors import InputError
from longspan.search.worker import Limits

UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}


def seconds_of(duration: str, flag: str) -> float:
    """A duration such as `90m`, `2h` or `1.5h`, in seconds; `flag` names its option in error messages.

    Example:
        >>> seconds_of("1.5h", "--budget")
        5400.0
    """
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([smhd])", duration.strip().lower())
    if match is None:
        raise InputError(f"{flag} must be a number and one of s, m, h, d, such as 90m or 2h: got {duration!r}")
    return float(match[1]) * UNITS[match[2]]


def limits_from(checkpoint_seconds: float, trial_limit: str | None) -> Limits:
    """The limits that command-line options describe."""
    seconds = None if trial_limit is None else seconds_of(trial_limit, "--trial-limit")
    return Limits(checkpoint_seconds, seconds)
