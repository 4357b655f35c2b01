"""The paper's names for ways of training, as settings: `sgd+clr`, on which data, means which values.

A recipe is `sgd` and any of the letters C (clip), L (leaky units), R (rectifiers with L1), M (Nesterov momentum).
What a letter changes is said once below; what a data set wants on top of that is said per data set.
"""

import dataclasses
import difflib
import tomllib
from pathlib import Path

from longspan.config import TrainConfig
from longspan.errors import InputError

LETTERS = {
    "c": {"clip": 15.0},
    "l": {"leaky_share": 0.5},
    "r": {"activation": "rectifier", "l1": 1e-5},
    "m": {"momentum": 0.9, "learning_rate": 0.005},
}

PLAIN = {"clip": "none", "momentum": 0.0, "learning_rate": 0.05, "recurrent_scale": 0.5, "input_scale": 0.3}

DATA_SETS = {
    "ptb-words": {"output": "softmax", "chunk_length": 40, "learning_rate_schedule": "rnnlm"},
    "ptb-chars": {"output": "softmax", "chunk_length": 150, "hidden_size": 500},
}

# What one recipe on one data set wants on top of that, found by search on its validation split.
TUNED: dict[tuple[str, str], dict] = {
    ("sgd+c", "jsb"): {"hidden_size": 300, "learning_rate": 0.0173, "clip": 5.0},
    ("sgd+c", "nottingham"): {"learning_rate": 0.106, "input_scale": 0.1, "plateau_epochs": 1},
}


def parse(recipe: str) -> frozenset[str]:
    """The letters of a recipe name.

    Example:
        >>> sorted(parse("sgd+clr"))
        ['c', 'l', 'r']
    """
    name, _, letters = recipe.lower().partition("+")
    if name != "sgd" or not set(letters) <= set(LETTERS) or len(set(letters)) < len(letters):
        known = ["sgd", "sgd+c", "sgd+cl", "sgd+clr", "sgd+crm"]
        hint = difflib.get_close_matches(recipe, known, n=1)
        raise InputError(
            f"unknown recipe {recipe!r}: expected sgd or sgd+ and letters of c, l, r, m"
            + (f"; did you mean {hint[0]}?" if hint else "")
        )
    return frozenset(letters)


def settings(recipe: str, data: str) -> TrainConfig:
    """The shipped settings of a recipe for a data set.

    Example:
        >>> settings("sgd+clr", "jsb").activation
        'rectifier'
    """
    letters = parse(recipe)
    values = {"recipe": recipe.lower(), "data": data, **PLAIN, **DATA_SETS.get(data, {})}
    for letter in "clrm":
        if letter in letters:
            values |= LETTERS[letter]
    values |= TUNED.get((recipe.lower(), data), {})
    return TrainConfig(**values)


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
