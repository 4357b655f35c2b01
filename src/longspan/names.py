"""Checks for names from untrusted sources, such as a storage or a folder, before they become part of a path."""

import re

from longspan.errors import InputError

LONGEST_NAME = 120
"""In characters, so that a file name built from a name stays within the limits of file systems."""
_PLAIN = re.compile(rf"\w[\w.+-]{{0,{LONGEST_NAME - 1}}}")


def is_plain_name(name: object) -> bool:
    """Whether a name is safe as one component of a path, naming nothing outside the folder it is joined to.

    Example:
        >>> is_plain_name("jsb-sgd+c"), is_plain_name("../jsb"), is_plain_name("/etc/passwd"), is_plain_name("..")
        (True, False, False, False)
    """
    return isinstance(name, str) and _PLAIN.fullmatch(name) is not None


def check_plain_name(name: str, what: str) -> str:
    """Return the name, or refuse it if it is not plain."""
    if not is_plain_name(name):
        raise InputError(
            f"the {what} cannot be named {name!r}: expected letters, digits and . _ + - alone, beginning with a letter "
            f"or digit, at most {LONGEST_NAME} characters"
        )
    return name


def to_plain_name(text: str) -> str:
    """Turn any text, such as the stem of a user's file, into a plain name.

    Example:
        >>> to_plain_name("my songs (1)-sgd+c")
        'my_songs__1_-sgd+c'
    """
    return re.sub(r"^\W|[^\w.+-]", "_", text)[:LONGEST_NAME] or "_"
