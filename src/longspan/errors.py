"""Errors that a user can cause and fix; the command line prints them as one line, without a traceback."""

import os
import shlex
from collections.abc import Sequence
from contextvars import ContextVar
from pathlib import PurePath

LONGEST = 3000
"""Characters of a message; what a file holds in place of a name may have a million."""


PLUGINS: ContextVar[tuple[str, ...]] = ContextVar("plugins", default=())
"""The plugins that the present command was given, without which those that it advises would not know the same parts."""


class InputError(Exception):
    """Bad input: the message says in one line what was expected, what was given and what to do.

    Messages may quote file names and contents, so characters that could move a terminal's cursor or start a second line
    are escaped, and the middle of a very long text is left out.

    Args:
        message: refers to settings and arguments by their Python names, such as `hidden_size`.
        fields: those names, so that a user interface can replace them by what its user typed.
    """

    def __init__(self, message: str, *, fields: Sequence[str] = ()):
        super().__init__(shortened(printable(shortened(message, LONGEST)), LONGEST))
        self.fields = tuple(fields)


class Diverged(Exception):
    """Training produced non-finite numbers; the message says where, and what to try."""


def shortened(text: str, most: int) -> str:
    """A text of at most about `most` characters, if need be without its middle.

    >>> shortened("abcdefghij", 6)
    'abcd … ij'
    """
    return text if len(text) <= most else f"{text[: most - most // 3]} … {text[-(most // 3) :]}"


def printable(text: str) -> str:
    r"""Untrusted text made safe to show: control characters, bytes that are not UTF-8 and the like are escaped.

    >>> print(printable("\x1b[31mred\nfile é"))
    \x1b[31mred\nfile é
    """
    if text.isprintable():
        return text
    return "".join(letter if letter.isprintable() else letter.encode("unicode_escape").decode() for letter in text)


def to_paste(*words: PurePath | str) -> str:
    """A command of longspan to be pasted into a shell, where no name of a folder or a file can be anything else.

    It takes along the plugins of the present command.

    >>> to_paste("seal", PurePath("a; b")), to_paste("resume", PurePath("--plugin=b.py"))
    ("longspan seal 'a; b'", 'longspan resume ./--plugin=b.py')
    """
    plugins = [word for name in PLUGINS.get() for word in ("--plugin", name)]
    return shlex.join(["longspan", *map(_word, words), *plugins])


def _word(word: PurePath | str) -> str:
    text = str(word)
    return f".{os.sep}{text}" if isinstance(word, PurePath) and text.startswith("-") else text
