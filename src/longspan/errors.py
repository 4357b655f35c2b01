"""Errors that a user can cause and can fix; the command line prints them as one line, without a traceback."""


class InputError(Exception):
    """Bad input: the message says in one line what was expected, what came and what to do."""
