"""What the `cell` of a config says: one or more layers, each a cell's name and settings of its own.

    lstm                          one layer of LSTM units
    gru,reset=before              a setting of the GRU's own
    2xlstm,size=100               two layers of 100 units each
    delayed,lags=1:4:16+lstm      a layer with delayed connections, and an LSTM that reads it

A setting without a value is switched on; several values are separated by colons. Which settings there are, and what
values they take, is known to the cells (`models/`), so it is checked when a model is built. Nothing here needs quoting
in a shell.
"""

import re
from dataclasses import dataclass

from longspan.errors import InputError

LAYER = re.compile(r"(?:(?P<count>[1-9][0-9]?)x)?(?P<name>[a-z][a-z0-9_-]*)(?P<options>(?:,[^,+]+)*)", re.IGNORECASE)
OPTION = re.compile(r"(?P<name>[a-z][a-z0-9_]*)(?:=(?P<value>[^=]+))?", re.IGNORECASE)
MOST_LAYERS = 64


@dataclass(frozen=True)
class LayerSpec:
    """One layer: the name of its cell, and settings as text."""

    name: str
    options: tuple[tuple[str, str], ...] = ()

    def __str__(self) -> str:
        return ",".join([self.name, *(f"{name}={value}" if value else name for name, value in self.options)])


def parse_cell(text: str) -> list[LayerSpec]:
    """The layers that a `cell` describes, the one that reads the input first.

    Example:
        >>> [str(layer) for layer in parse_cell("2xgru,size=50+lstm,peepholes")]
        ['gru,size=50', 'gru,size=50', 'lstm,peepholes']
    """
    layers: list[LayerSpec] = []
    for part in text.split("+"):
        found = LAYER.fullmatch(part)
        if found is None:
            raise _bad(text, part)
        layer = LayerSpec(found["name"], tuple(_option(text, option) for option in found["options"].split(",")[1:]))
        names = [name for name, _ in layer.options]
        if len(set(names)) < len(names):
            raise InputError(f"cell {text!r} gives a setting of {layer.name} twice", fields=["cell"])
        layers += [layer] * int(found["count"] or 1)
    if len(layers) > MOST_LAYERS:
        raise InputError(f"cell {text!r} has {len(layers)} layers: expected at most {MOST_LAYERS}", fields=["cell"])
    return layers


def _option(text: str, option: str) -> tuple[str, str]:
    found = OPTION.fullmatch(option)
    if found is None:
        raise _bad(text, option)
    return found["name"], found["value"] or ""


def _bad(text: str, part: str) -> InputError:
    return InputError(
        f"cell {text!r} cannot be read at {part!r}: expected a name such as lstm, with settings as in "
        "gru,reset=before and layers as in 2xlstm or delayed,lags=1:4+gru",
        fields=["cell"],
    )
