"""The way to a terminal: whatever is shown passes through here, so that text from outside can never control it.

Names of files, settings of a stranger's run, a storage's reasons and generated text may hold the codes that move the
cursor, retitle the window or hide what follows. Nobody has to remember to escape them: `say` and `Console` do, and
after `escape_errors` so does Python itself.
"""

import json
import os
import re
import sys
import threading
import traceback
import warnings
from collections.abc import Iterable
from contextlib import suppress
from typing import NoReturn

import rich.console
from rich.segment import Segment

from longspan.errors import printable

_KEPT = re.compile(r"([\n\t]+)")


def readable(text: str) -> str:
    r"""The text in its lines, with everything escaped that could control a terminal.

    >>> readable("first\n\x1b[2Jsecond")
    'first\n\\x1b[2Jsecond'
    """
    return "".join(part if _is_harmless(part) else printable(part) for part in _KEPT.split(text))


def say(text: str, *, error: bool = False) -> None:
    """Write text to standard output, or to standard error."""
    (sys.stderr if error else sys.stdout).write(readable(text))


def escape_errors() -> None:
    """Let what Python shows of warnings, and of errors that nobody expected in any thread, pass through here."""
    sys.excepthook = lambda kind, error, trace: _show_error("", error)
    threading.excepthook = lambda found: _show_error(f"in {found.thread}:\n", found.exc_value)
    sys.unraisablehook = lambda found: _show_error(f"{found.err_msg or 'ignored'}: {found.object!r}\n", found.exc_value)
    warnings.showwarning = lambda *warning, **_: say(warnings.formatwarning(*warning[:4]), error=True)


def _show_error(where: str, error: BaseException | None) -> None:
    if error is not None and not isinstance(error, SystemExit):
        say(where + "".join(traceback.format_exception(error)), error=True)


def put_out(content: str) -> None:
    """Write what a user asked for, such as a generated text, to standard output: unchanged, but for a terminal."""
    sys.stdout.write(readable(content) if sys.stdout.isatty() else content)


def put_out_json(content: str) -> None:
    """Write JSON to standard output, with escapes of JSON for everything that could control a terminal."""
    sys.stdout.write("".join(part if _is_harmless(part) else _escaped(part) for part in _KEPT.split(content)))


def leave(code: int) -> NoReturn:
    """End the process without taking the interpreter apart, which takes JAX a while; what was said is shown."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):  # whoever read it may be gone
            stream.flush()
    os._exit(code)


def _is_harmless(part: str) -> bool:
    return part.isprintable() or _KEPT.fullmatch(part) is not None


def _escaped(text: str) -> str:
    return "".join(letter if letter.isprintable() else json.dumps(letter)[1:-1] for letter in text)


class Console(rich.console.Console):
    """A console of rich that escapes text, and leaves alone the codes by which rich itself draws."""

    def render(self, *arguments, **options) -> Iterable[Segment]:
        for segment in super().render(*arguments, **options):
            shown = segment.text if segment.control else readable(segment.text)
            yield segment if shown == segment.text else Segment(shown, segment.style)
