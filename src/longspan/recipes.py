"""The paper's names for ways of training, as settings: `nade:sgd+crm`, on which data, means which values.

A recipe is `sgd` and any of the letters C (clip), L (leaky units), R (rectifiers with L1), M (Nesterov momentum), or
`hf` (Hessian-free) and any of L and R; in front may stand an output model, else the data set's usual one is taken. What
a letter changes is said once below; what it or plain descent wants on a data set is said for each, and at last what one
recipe wants on top of that.
"""

import difflib
import tomllib
import typing
from pathlib import Path
from typing import NamedTuple

from longspan.config import FIELDS, OutputName, TrainConfig, check_types
from longspan.data import TargetKind, target_kind
from longspan.errors import InputError

LETTERS = {
    "c": {"clip": 15.0},
    "l": {"leaky_share": 0.5},
    "r": {"activation": "rectifier", "l1": 1e-5},
    "m": {"momentum": 0.9},
}
MORE_WITH_MOMENTUM = 10
"""What momentum makes of every gradient, so the rate of plain descent is divided by it."""

PLAIN = {"clip": "none", "momentum": 0.0, "learning_rate": 0.05, "recurrent_scale": 0.5, "input_scale": 0.3}
HESSIAN_FREE = {"optimizer": "hf", "learning_rate_schedule": "constant", "block": 1000}

METHODS = {"sgd": {}, "hf": HESSIAN_FREE}
LETTERS_OF = {"sgd": "clrm", "hf": "lr"}

# On music, curvature from few sequences makes an update six times cheaper and hardly worse, and lags are short. Such an
# update fits its block more than the data, so the mean of some of them is far better than the last.
CHEAP_CURVATURE = {"block": 250, "curvature_sequences": 32, "averaging": 30}

# Few large updates learn the history before they learn what belongs together in a frame, and then by heart; so frames
# come first, by descent with these rates.
FRAMES_FIRST = {"pretrain_frames": 20, "learning_rate": 0.1, "momentum": 0.9, "clip": 2.0}

OUTPUTS = {
    ("sgd", "rbm"): {"pretrain_frames": 60, "pretrain_recurrent": 10},
    ("hf", "bernoulli"): CHEAP_CURVATURE
    | {
        "activation": "sigmoid",
        "input_scale": 0.5,
        "dropout": 0.2,
        "structural_damping": 0.03,
        "cg_iterations": 60,
    },
    ("hf", "nade"): CHEAP_CURVATURE
    | FRAMES_FIRST
    | {"activation": "sigmoid", "nade_size": 200, "dropout": 0.3, "minimal_damping": 1e-3, "cg_iterations": 40},
}

MUSIC = {"output": "bernoulli"}
WORDS = {"output": "factored", "chunk_length": 40, "learning_rate_schedule": "rnnlm"}
CHARACTERS = {"output": "softmax", "chunk_length": 150, "hidden_size": 500}

TASKS = {
    "hidden_size": 50,
    "recurrent_init": "normal",
    "recurrent_scale": 0.8,
    "input_scale": 0.12,
    "output_scale": 0.12,
    "lanes": 20,
    "curvature_sequences": 250,
    "slice_size": 250,
    "learning_rate_schedule": "constant",
    "patience": 200,
    "max_epochs": 1000,
}

TARGETS: dict[TargetKind, dict] = {
    "frames": MUSIC,
    "words": WORDS,
    "characters": CHARACTERS,
    "classes": {"output": "softmax", **TASKS},
    "numbers": {"output": "gaussian", **TASKS},
}

USUAL: dict[TargetKind, str] = {
    "frames": "nade:sgd+crm",
    "words": "sgd+c",
    "characters": "sgd+c",
    "classes": "hf",
    "numbers": "hf",
}
"""The recipe where none is named: what does best on such data for the time it takes."""

JOINT_KEYS = {"activation": "sigmoid", "nade_size": 200, "learning_rate": 0.6, "dropout": 0.3, "patience": 6}
"""For NADE: without dropout it learns songs by heart before anything else goes wrong."""

# Some hundred short songs, on which an epoch says little.
CHORALES = {"plateau_epochs": 4, "patience": 16, "averaging": 2000}
RECTIFIED_CHORALES = {
    "learning_rate": 3.0,
    "l1": 0.0474,
    "recurrent_scale": 1.0,
    "input_scale": 0.03,
    "output_scale": 0.03,
}

# For an RBM: dropout makes learning slow where songs are few, and where they are alike, weights grow until Z is hard to
# find.
SMALL_MACHINE = {"hidden_size": 150, "activation": "tanh", "dropout": 0.0}

# More than ten times the frames of jsb: a tenth of the passes is about as long a start.
SHORT_START = {"pretrain_frames": 6, "pretrain_recurrent": 1}

# What descent wants with an output on a kind of data, and then what it wants on one data set of that kind; with a
# letter, what that letter wants there. Like all that follows found by search on validation.
DESCENT: dict[tuple[str, str, str], dict] = {
    ("bernoulli", "frames", ""): {"hidden_size": 300, "activation": "sigmoid", "learning_rate": 0.6, "dropout": 0.1},
    ("bernoulli", "frames", "r"): {"learning_rate": 0.05},
    ("bernoulli", "jsb", ""): {"learning_rate": 1.5, "dropout": 0.3, "plateau_epochs": 4, "averaging": 2000},
    ("bernoulli", "jsb", "c"): {"clip": 5.0},
    ("bernoulli", "jsb", "r"): {"learning_rate": 0.0173},
    ("bernoulli", "nottingham", "r"): {"learning_rate": 0.106, "input_scale": 0.1, "dropout": 0.3},
    ("bernoulli", "piano-midi", ""): {"learning_rate": 1.0, "dropout": 0.6},
    ("nade", "frames", ""): JOINT_KEYS,
    ("nade", "frames", "c"): {"clip": 1.0},
    ("nade", "frames", "r"): {"learning_rate": 0.3, "l1": 1e-3, "input_scale": 0.05, "output_scale": 0.03},
    ("nade", "bach", ""): CHORALES,
    ("nade", "bach", "c"): {"clip": 0.5},
    ("nade", "bach", "r"): RECTIFIED_CHORALES,
    ("nade", "jsb", ""): CHORALES,
    ("nade", "jsb", "c"): {"clip": 0.5},
    ("nade", "jsb", "r"): RECTIFIED_CHORALES,
    ("nade", "piano-midi", ""): {"dropout": 0.5},
    ("nade", "piano-midi", "c"): {"clip": 0.5},
    ("nade", "piano-midi", "r"): {
        "hidden_size": 300,
        "learning_rate": 0.6,
        "recurrent_scale": 0.2,
        "dropout": 0.6,
        "l1": 0.01,
    },
    ("rbm", "frames", ""): {
        "hidden_size": 200,
        "activation": "sigmoid",
        "learning_rate": 0.3,
        "output_scale": 0.03,
        "dropout": 0.3,
        "plateau_epochs": 4,
    },
    ("rbm", "frames", "c"): {"clip": 3.0},
    ("rbm", "bach", ""): SMALL_MACHINE,
    ("rbm", "jsb", ""): SMALL_MACHINE,
    ("rbm", "piano-midi", ""): {
        "dropout": 0.5,
        "averaging": 2000,
        "learning_rate_schedule": "cosine",
        "max_epochs": 60,
        "patience": 60,
    },
    # Songs so much alike make weights so strong that Gibbs steps alone stay where they start.
    ("rbm", "nottingham", ""): SMALL_MACHINE
    | SHORT_START
    | {
        "tempering": 10,
        "averaging": 4000,
        "learning_rate_schedule": "cosine",
        "max_epochs": 45,
        "patience": 45,
    },
    ("rbm", "musedata", ""): SHORT_START,
    ("factored", "words", ""): {
        "activation": "sigmoid",
        "learning_rate": 2.0,
        "recurrent_scale": 1.0,
        "input_scale": 0.1,
        "output_scale": 0.05,
        "dropout": 0.2,
    },
    ("factored", "words", "c"): {"clip": 1.0},
    ("factored", "words", "l"): {"input_scale": 0.05},
    # 0.03 nats better than halving by the gain of single epochs, where the passes it takes are known.
    ("factored", "ptb-words", ""): {"learning_rate_schedule": "cosine", "max_epochs": 30},
    # That halving ends far too early for rectifiers.
    ("factored", "words", "r"): {
        "learning_rate": 0.5,
        "learning_rate_schedule": "cosine",
        "max_epochs": 44,
        "recurrent_scale": 0.5,
        "input_scale": 0.1,
    },
    # Large weights from the start, and many small updates.
    ("softmax", "characters", ""): {
        "activation": "sigmoid",
        "learning_rate": 3.0,
        "recurrent_scale": 5.0,
        "input_scale": 2.0,
        "output_scale": 0.05,
        "chunk_length": 50,
    },
    ("softmax", "characters", "c"): {"clip": 1.0},
    ("softmax", "characters", "r"): {"learning_rate": 0.5, "recurrent_scale": 1.0, "input_scale": 1.0},
    ("softmax", "ptb-chars", ""): {"learning_rate_schedule": "inverse", "decay_steps": 50_000, "max_epochs": 12},
}

# What one recipe wants on top of that on one data set.
TUNED: dict[tuple[str, str], dict] = {
    # An update sees all of it.
    ("hf", "jsb"): {
        "hidden_size": 150,
        "minimal_damping": 0.02,
        "block": 1000,
        "curvature_sequences": 128,
        "averaging": 10,
        "patience": 4,
    },
    ("hf", "piano-midi"): {"hidden_size": 300, "dropout": 0.5, "minimal_damping": 0.02},
    ("sgd+cl", "musedata"): {"leaky_share": 0.25},
    # Four streams side by side make twice as many passes in the time, and stand a larger rate.
    ("sgd+c", "ptb-chars"): {
        "lanes": 4,
        "learning_rate": 10.0,
        "learning_rate_schedule": "cosine",
        "max_epochs": 36,
    },
    ("nade:hf", "jsb"): {"block": 1000, "curvature_sequences": 128, "averaging": 10, "patience": 4},
    # The curvature of 32 sequences needs more damping here.
    ("nade:hf", "piano-midi"): {"dropout": 0.5, "minimal_damping": 0.01, "averaging": 60},
    ("nade:hf", "musedata"): {"max_epochs": 100},
}


class Recipe(NamedTuple):
    """A recipe taken apart; `output` is None where the data set decides."""

    output: str | None
    method: str
    letters: frozenset[str]

    def __str__(self) -> str:
        letters = "".join(letter for letter in LETTERS if letter in self.letters)
        prefix = f"{self.output}:" if self.output else ""
        return prefix + self.method + (f"+{letters}" if letters else "")


def parse(recipe: str) -> Recipe:
    """The output model and the letters that a recipe names.

    Example:
        >>> str(parse("NADE:sgd+mrc"))
        'nade:sgd+crm'
    """
    output, colon, method = recipe.lower().rpartition(":")
    name, plus, letters = method.partition("+")
    known_output = output in typing.get_args(OutputName) if colon else True
    known_letters = set(letters) <= set(LETTERS_OF.get(name, "")) and len(set(letters)) == len(letters)
    if name not in METHODS or not known_output or not known_letters or bool(letters) != bool(plus):
        known = ["sgd", "sgd+c", "sgd+cl", "sgd+clr", "sgd+crm", "hf"]
        known += ["nade:sgd", "nade:sgd+cr", "nade:sgd+crm", "nade:hf", "rbm:sgd+c"]
        hint = difflib.get_close_matches(recipe, known, n=1)
        raise InputError(
            f"unknown recipe {recipe!r}: expected sgd or sgd+ and letters of c, l, r, m, or hf or hf+ and letters of "
            "l, r, with one of "
            f"{', '.join(f'{output}:' for output in typing.get_args(OutputName))} in front or none"
            + (f"; did you mean {hint[0]}?" if hint else "")
        )
    return Recipe(output or None, name, frozenset(letters))


def settings(recipe: str, data: str, targets: TargetKind | None = None) -> TrainConfig:
    """The shipped settings of a recipe for a data set.

    Args:
        recipe: such as `nade:sgd+crm`.
        data: name of the data set; it matters where a recipe was tuned for it.
        targets: what is predicted there; found by the name where it is not given.

    Example:
        >>> settings("nade:sgd+clr", "jsb").activation
        'rectifier'
    """
    output, method, letters = parse(recipe)
    kind = targets or target_kind(data)
    values = PLAIN | TARGETS[kind] | METHODS[method]
    # The usual output is not part of the name, so that naming it changes nothing.
    canonical = str(Recipe(None if output == values["output"] else output, method, letters))
    values |= {"recipe": canonical, "data": data, "output": output or values["output"]}
    values |= OUTPUTS.get((method, values["output"]), {})
    for part in ("", *(letter for letter in LETTERS if letter in letters)):
        values |= LETTERS.get(part, {})
        if method == "sgd":
            chosen = values["output"]
            values |= DESCENT.get((chosen, kind, part), {}) | DESCENT.get((chosen, data, part), {})
    if "m" in letters:
        values["learning_rate"] /= MORE_WITH_MOMENTUM
    return TrainConfig(**values | TUNED.get((canonical, data), {}))


def read_toml(path: Path) -> dict:
    """The settings of a TOML file, such as `hidden_size = 200`; unknown names are refused."""
    try:
        values = tomllib.loads(path.read_text())
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}; expected a TOML file of settings") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InputError(f"{path} is not TOML ({error}); expected lines such as `hidden_size = 200`") from error
    unknown = sorted(set(values) - FIELDS)
    if unknown:
        raise InputError(f"{path} sets {', '.join(unknown)}: expected only {', '.join(sorted(FIELDS))}")
    check_types(values)
    return values
