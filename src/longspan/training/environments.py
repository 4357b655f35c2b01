"""The program and machine that trained a run, compared with those that are to continue it.

A run that is interrupted and resumed ends in the same bytes only where everything that rounds stays the same: the
compiler (jaxlib), the kernels and the instruction set they use, the number of threads, and the versions of the packages
whose arithmetic or random numbers enter. A change of any of these is refused unless it is accepted; any other change is
mentioned.
"""

import warnings
from pathlib import Path

from longspan.errors import InputError

DECISIVE = ("machine", "kernels", "instruction_set", "threads")
"""Besides the versions of all recorded packages."""
MENTIONED = ("python", "platform", "cores")


class EnvironmentChanged(UserWarning):
    """A run is continued by another program or on another machine, which may not matter."""


def changes(before: dict, now: dict) -> tuple[list[str], list[str]]:
    """What differs between two environments, as phrases: what decides bytes, and the rest.

    Values that one of them does not record, such as those of an older version, are not compared.

    Example:
        >>> changes({"threads": 1, "python": "3.11.2"}, {"threads": 2, "python": "3.12.0"})
        (['threads 1, now 2'], ['python 3.11.2, now 3.12.0'])
    """
    before, now = _flat(before), _flat(now)
    decisive, rest = [], []
    for name in before:
        if before[name] is None or now.get(name) is None or before[name] == now[name]:
            continue
        (rest if name in MENTIONED else decisive).append(f"{name} {before[name]}, now {now[name]}")
    return decisive, rest


def check_same(path: Path, before: dict, now: dict, *, accept: bool) -> bool:
    """Refuse to continue a run where it would not end in the same bytes; return whether a change was accepted."""
    decisive, rest = changes(before, now)
    if decisive and not accept:
        raise InputError(
            f"{path} was trained with {'; '.join(decisive)}: it would not end in the same bytes. Restore what it was "
            "trained with, or continue all the same with accept_environment",
            fields=["accept_environment"],
        )
    if decisive or rest:
        warnings.warn(EnvironmentChanged(f"{path} was trained with {'; '.join([*decisive, *rest])}"), stacklevel=3)
    return bool(decisive)


def succeeding(before: dict, now: dict) -> dict:
    """The record of a run that was continued in another environment: the new one, and all earlier ones."""
    earlier = [*before.get("earlier", []), {name: value for name, value in before.items() if name != "earlier"}]
    return {**now, "earlier": earlier}


def _flat(environment: dict) -> dict:
    named = {name: environment.get(name) for name in (*DECISIVE, *MENTIONED)}
    named["threads"] = environment.get("threads_found", named["threads"])
    versions = environment.get("versions")
    return named | (versions if isinstance(versions, dict) else {})
