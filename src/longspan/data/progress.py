"""How long work tells its caller how far it has come; what to show is the caller's choice."""

from __future__ import annotations

from collections.abc import Callable

Progress = Callable[[str, int, int], None]
"""Called with what is being done, how much of it is done, and the total (0 if unknown)."""


def silent(what: str, done: int, total: int) -> None:
    """A `Progress` that shows nothing."""
