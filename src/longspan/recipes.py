"""The paper's names for ways of training, as settings: `nade:sgd+crm`, on which data, means which values.

A recipe is `sgd` and any of the letters C (clip), L (leaky units), R (rectifiers with L1), M (Nesterov momentum); in
front may stand an output model, else the data set's usual one is taken. What a letter changes is said once below;
what an output model or a data set wants on top of that is said for each.
"""

import dataclasses
import difflib
import tomllib
import typing
from pathlib import Path
from typing import NamedTuple

from longspan.config import OutputName, TrainConfig
from longspan.errors import InputError

LETTERS = {
    "c": {"clip": 15.0},
    "l": {"leaky_share": 0.5},
    "r": {"activation": "rectifier", "l1": 1e-5, "recurrent_scale": 0.5},
    "m": {"momentum": 0.9},
}

PLAIN = {"clip": "none", "momentum": 0.0, "learning_rate": 0.03}

OUTPUTS = {"rbm": {"pretrain_frames": 30, "pretrain_recurrent": 10}}

MUSIC = {"output": "bernoulli"}
WORDS = {"output": "factored", "chunk_length": 40, "learning_rate_schedule": "rnnlm"}
CHARACTERS = {"output": "softmax", "chunk_length": 150, "hidden_size": 500}

DATA_SETS = {"ptb-words": WORDS, "ptb-chars": CHARACTERS}

# What only one recipe on one data set wants.
TUNED: dict[tuple[str, str], dict] = {}


class Recipe(NamedTuple):
    """A recipe taken apart; `output` is None where the data set decides."""

    output: str | None
    letters: frozenset[str]

    def __str__(self) -> str:
        letters = "".join(letter for letter in LETTERS if letter in self.letters)
        prefix = f"{self.output}:" if self.output else ""
        return prefix + "sgd" + (f"+{letters}" if letters else "")


def parse(recipe: str) -> Recipe:
    """The output model and the letters that a recipe names.

    Example:
        >>> str(parse("NADE:sgd+mrc"))
        'nade:sgd+crm'
    """
    output, colon, method = recipe.lower().rpartition(":")
    name, plus, letters = method.partition("+")
    known_output = output in typing.get_args(OutputName) if colon else True
    known_letters = set(letters) <= set(LETTERS) and len(set(letters)) == len(letters) and bool(letters) == bool(plus)
    if name != "sgd" or not known_output or not known_letters:
        known = ["sgd", "sgd+c", "sgd+cl", "sgd+clr", "sgd+crm", "nade:sgd", "nade:sgd+cr", "nade:sgd+crm", "rbm:sgd+c"]
        hint = difflib.get_close_matches(recipe, known, n=1)
        raise InputError(
            f"unknown recipe {recipe!r}: expected sgd or sgd+ and letters of c, l, r, m, with one of "
            f"{', '.join(f'{output}:' for output in typing.get_args(OutputName))} in front or none"
            + (f"; did you mean {hint[0]}?" if hint else "")
        )
    return Recipe(output or None, frozenset(letters))


def settings(recipe: str, data: str) -> TrainConfig:
    """The shipped settings of a recipe for a data set.

    Example:
        >>> settings("nade:sgd+clr", "jsb").activation
        'rectifier'
    """
    output, letters = parse(recipe)
    values = {**PLAIN, **data_settings(data)}
    # The usual output is not part of the name, so that naming it changes nothing.
    canonical = str(Recipe(None if output == values["output"] else output, letters))
    values |= {"recipe": canonical, "data": data, "output": output or values["output"]}
    values |= OUTPUTS.get(values["output"], {})
    for letter in LETTERS:
        if letter in letters:
            values |= LETTERS[letter]
    return TrainConfig(**values | TUNED.get((canonical, data), {}))


def data_settings(data: str) -> dict:
    """What a data set wants whatever the recipe; a user's own file is told by how its name is written."""
    if data in DATA_SETS:
        return DATA_SETS[data]
    if data.startswith("words:"):
        return WORDS
    if data.startswith("chars:") or data.lower().endswith(".txt"):
        return CHARACTERS
    return MUSIC


def read_toml(path: Path, config: TrainConfig) -> TrainConfig:
    """The config with the settings of a TOML file on top."""
    try:
        values = tomllib.loads(path.read_text())
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}; expected a TOML file of settings") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InputError(f"{path} is not TOML ({error}); expected lines such as `hidden_size = 200`") from error
    known = {field.name for field in dataclasses.fields(TrainConfig)}
    unknown = sorted(set(values) - known)
    if unknown:
        raise InputError(f"{path} sets {', '.join(unknown)}: expected only {', '.join(sorted(known))}")
    return dataclasses.replace(config, **values)
