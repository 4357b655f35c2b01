"""Progress callback for long-running work; the caller decides what to show."""

from __future__ import annotations

from collections.abc import Callable

Progress = Callable[[str, int, int], None]
"""Called with a description of the work, the amount done, and the total (0 if unknown)."""


def silent(what: str, done: int, total: int) -> None:
    """A `Progress` that shows nothing."""
