"""Ctrl-C as a question: the first one asks to stop, the second one stops."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def first_interrupt() -> Iterator:
    """Yield a function that tells whether Ctrl-C was pressed; a second one stops at once."""
    seen = []

    def remember(number, frame):
        if seen:
            raise KeyboardInterrupt
        seen.append(number)

    previous = {number: signal.signal(number, remember) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield lambda: bool(seen)
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
