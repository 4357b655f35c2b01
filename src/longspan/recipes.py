"""The paper's recipes, such as `nade:sgd+crm`, as settings for a data set.

A recipe is `sgd` plus any of the letters C (clipping), L (leaky units), R (rectifiers with L1) and M (Nesterov
momentum), or `hf` (Hessian-free) or `adam` plus any of L and R. W (with memory) may be added to each. An output model
may precede it, as in `nade:hf`; otherwise the data set's usual one is used. A cell other than the paper's may precede
both, as in `lstm/nade:sgd+cm`. The tables below give, in order, what each letter changes, what plain descent and each
letter need on each kind of data and data set, and what single recipes need on top of that.
"""

import difflib
from pathlib import Path
from typing import Any, NamedTuple, TypedDict, Unpack

from longspan.config import CELL_NAMES, FIELDS, OUTPUT_NAMES, TrainConfig, as_dict, check_types
from longspan.data.dataset import TargetKind, usual_memory
from longspan.data.library import target_kind
from longspan.errors import InputError
from longspan.files import read_toml
from longspan.registry import parse_cell

__all__ = ["Origin", "Recipe", "explain", "parse", "settings"]

LETTERS = {
    "c": {"clip": 15.0},
    "l": {"leaky_share": 0.5},
    "r": {"activation": "rectifier", "l1": 1e-5},
    "m": {"momentum": 0.9},
    "w": {},
}
PLAIN = {"clip": "none", "momentum": 0.0, "learning_rate": 0.05, "recurrent_scale": 0.5, "input_scale": 0.3}
HESSIAN_FREE = {"optimizer": "hf", "learning_rate_schedule": "constant", "block": 1000}

LETTER_NAMES = {"": "descent", "c": "clipping", "l": "leaky units", "r": "rectifiers", "m": "momentum", "w": "memory"}

ADAPTIVE = {"learning_rate": 2e-3, "momentum": 0.9, "clip": 1.0}
OPTIMIZER_SETTINGS = {"adam": ADAPTIVE, "adamw": ADAPTIVE, "rmsprop": {**ADAPTIVE, "momentum": 0.0}}
"""Settings for an optimizer other than the recipe's; the size of its steps does not depend on the size of the
gradients."""

METHODS = {"sgd": {}, "hf": HESSIAN_FREE, "adam": {"optimizer": "adam", **ADAPTIVE}}
LETTERS_OF = {"sgd": "clrmw", "hf": "lrw", "adam": "lrw"}

# On music, where lags are short, curvature from few sequences makes an update six times cheaper and hardly worse. Such
# an update fits its block rather than the data set, so the mean of several is far better than the last one.
CHEAP_CURVATURE = {"block": 250, "curvature_sequences": 32, "averaging": 30}

# With few large updates the network memorizes the history before it learns which keys of a frame go together, so the
# frames are pretrained by descent with these rates.
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

GATED = {"activation": "tanh", "recurrent_scale": 1.0, "input_scale": 0.1}
CELLS: dict[str, dict] = dict.fromkeys(("lstm", "gru", "lru"), GATED)
CELLS |= {"multiplicative": {"activation": "tanh"}, "rate": {"activation": "rectifier"}}
"""Settings that suit other units than those of the paper; the last layer's, where there are several."""

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

# A user's own sequences, whatever they are.
OWN = {"hidden_size": 100, "chunk_length": 100, "lanes": 8, "recurrent_scale": 0.9, "input_scale": 0.3}

TARGETS: dict[TargetKind, dict] = {
    "frames": MUSIC,
    "words": WORDS,
    "characters": CHARACTERS,
    "classes": {"output": "softmax", **TASKS},
    "numbers": {"output": "gaussian", **TASKS},
    "measurements": {"output": "normal", **OWN},
    "switches": {"output": "bernoulli", **OWN},
    "labels": {"output": "softmax", **OWN},
}

USUAL: dict[TargetKind, str] = {
    "frames": "nade:sgd+w",
    "words": "sgd+c",
    "characters": "sgd+c",
    "classes": "hf",
    "numbers": "hf",
    "measurements": "adam",
    "switches": "adam",
    "labels": "adam",
}
"""The default recipes: the best on each kind of data for the time they take."""

JOINT_KEYS = {"activation": "sigmoid", "nade_size": 200, "learning_rate": 0.6, "dropout": 0.3, "patience": 6}
"""For NADE: without dropout, overfitting is the first thing to go wrong."""

# For descent on synthetic tasks, by letter: starts from which gradients survive long spans.
SPANNING: dict[str, dict] = {
    "": {"recurrent_init": "orthogonal", "recurrent_scale": 1.0, "input_scale": 0.1},
    "c": {"clip": 1.0},
    "r": {"recurrent_init": "identity", "learning_rate": 0.03, "l1": 0.0},
}

# A few hundred short songs, so one epoch says little.
CHORALES = {"plateau_epochs": 4, "patience": 16, "averaging": 2000}
RECTIFIED_CHORALES = {
    "learning_rate": 3.0,
    "l1": 0.0474,
    "recurrent_scale": 1.0,
    "input_scale": 0.03,
    "output_scale": 0.03,
}

# For an RBM: dropout slows learning on few songs, and on songs that are alike the weights grow until Z is hard to
# estimate.
SMALL_MACHINE = {"hidden_size": 150, "activation": "tanh", "dropout": 0.0}

# For more than ten times the frames of jsb: a tenth of the passes takes about as many updates.
SHORT_START = {"pretrain_frames": 6, "pretrain_recurrent": 1}

# Settings of descent, keyed by output, by kind of data or data set (which overrides its kind), and by letter ("" for
# plain descent). These and all that follow were found by search on validation scores.
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
    # These songs are so much alike that the weights grow strong, and Gibbs steps alone stay where they start.
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
    **{
        (output, kind, letter): values
        for output, kind in (("softmax", "classes"), ("gaussian", "numbers"))
        for letter, values in SPANNING.items()
    },
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
    # 0.03 nats better than halving by the gain of single epochs, given that the number of passes needed is known.
    ("factored", "ptb-words", ""): {"learning_rate_schedule": "cosine", "max_epochs": 30},
    # For rectifiers, halving by the gain of single epochs ends far too early.
    ("factored", "words", "r"): {
        "learning_rate": 0.5,
        "learning_rate_schedule": "cosine",
        "max_epochs": 44,
        "recurrent_scale": 0.5,
        "input_scale": 0.1,
    },
    # Large initial weights and many updates on short chunks.
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

# Settings of a single recipe on a single data set, on top of the above.
TUNED: dict[tuple[str, str], dict] = {
    # One update covers the whole training split.
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
    # Four parallel streams make twice as many passes in the same time and tolerate a larger rate.
    ("sgd+c", "ptb-chars"): {
        "lanes": 4,
        "learning_rate": 10.0,
        "learning_rate_schedule": "cosine",
        "max_epochs": 36,
    },
    ("nade:sgd", "jsb"): {"dropout": 0.5, "averaging": 8000},
    ("nade:sgd", "bach"): {"dropout": 0.5, "averaging": 8000},
    ("nade:hf", "jsb"): {"block": 1000, "curvature_sequences": 128, "averaging": 10, "patience": 4},
    # The curvature of 32 sequences needs more damping here.
    ("nade:hf", "piano-midi"): {"dropout": 0.5, "minimal_damping": 0.01, "averaging": 60},
    ("nade:hf", "musedata"): {"max_epochs": 100},
}


class Recipe(NamedTuple):
    """A parsed recipe; `output` is None where the data set decides, `cell` where it is the paper's."""

    output: str | None
    method: str
    letters: frozenset[str]
    cell: str | None = None

    def __str__(self) -> str:
        letters = "".join(letter for letter in LETTERS if letter in self.letters)
        prefix = (f"{self.cell}/" if self.cell else "") + (f"{self.output}:" if self.output else "")
        return prefix + self.method + (f"+{letters}" if letters else "")


def parse(recipe: str) -> Recipe:
    """Parse a recipe into its cell, output model, method and letters.

    Example:
        >>> str(parse("NADE:sgd+mrc")), parse("gru,reset=before/sgd+c").cell
        ('nade:sgd+crm', 'gru,reset=before')
    """
    if not isinstance(recipe, str):
        raise InputError(f"expected a recipe as text, such as 'sgd+c', got {recipe!r}", fields=["recipe"])
    cell, slash, rest = recipe.rpartition("/")
    output, colon, method = rest.lower().rpartition(":")
    name, plus, letters = method.partition("+")
    known_output = output in OUTPUT_NAMES if colon else True
    known_letters = set(letters) <= set(LETTERS_OF.get(name, "")) and len(set(letters)) == len(letters)
    if name not in METHODS or not known_output or not known_letters or bool(letters) != bool(plus):
        known = ["sgd", "sgd+c", "sgd+cl", "sgd+clr", "sgd+crm", "hf"]
        known += ["nade:sgd", "nade:sgd+cr", "nade:sgd+crm", "nade:hf", "rbm:sgd+c"]
        hint = difflib.get_close_matches(recipe, known, n=1)
        raise InputError(
            f"unknown recipe {recipe!r}: expected sgd or sgd+ and letters of c, l, r, m, w, or hf or adam, alone or "
            f"with + and letters of l, r, w; {', '.join(f'{output}:' for output in OUTPUT_NAMES)} or none in front, "
            "and before all a cell, such as lstm/, or none" + (f"; did you mean {hint[0]}?" if hint else "")
        )
    found = Recipe(output or None, name, frozenset(letters), cell or None)
    check_letters(found.letters, cell if slash else "leaky")
    return found


def check_letters(letters: frozenset[str], cell: str) -> None:
    """Refuse leaky units among cells that have none."""
    names = [layer.name for layer in parse_cell(cell)]
    if "l" in letters and all(name in CELL_NAMES and name != "leaky" for name in names):
        raise InputError(
            f"the letter l stands for leaky units, which {cell} has not: leave it out, or choose leaky",
            fields=["recipe", "cell"],
        )


class Layer(NamedTuple):
    """Settings that come from one source."""

    origin: str
    """A phrase that names the source."""
    values: dict


class Origin(NamedTuple):
    """The value of a setting and the source it comes from."""

    value: Any
    origin: str


class Choices(TypedDict, total=False):
    """What to use instead of the recipe's."""

    optimizer: str | None
    """With settings that suit it."""
    momentum: float | None
    """The learning rate is adjusted to it."""
    cell: str | None


def settings(recipe: str, data: str, targets: TargetKind | None = None, **choices: Unpack[Choices]) -> TrainConfig:
    """The shipped settings of a recipe for a data set.

    Args:
        recipe: such as `nade:sgd+crm`.
        data: name of the data set, for which the recipe may have been tuned.
        targets: what is predicted; by default looked up by the data set's name.
        choices: what to use instead of the recipe's.

    Example:
        >>> settings("nade:sgd+clr", "jsb").activation
        'rectifier'
    """
    merged: dict = {}
    for layer in layers(recipe, data, targets, **choices):
        merged |= layer.values
    return TrainConfig(**merged)


def explain(recipe: str, data: str, targets: TargetKind | None = None, **choices: Unpack[Choices]) -> dict[str, Origin]:
    """Every setting of a recipe for a data set, with the layer that set it; arguments as for `settings`.

    Example:
        >>> explain("nade:sgd+crm", "jsb")["clip"]
        Origin(value=0.5, origin='clipping before nade on jsb')
    """
    found = {name: Origin(value, "default") for name, value in as_dict(TrainConfig()).items()}
    for layer in layers(recipe, data, targets, **choices):
        found |= {name: Origin(value, layer.origin) for name, value in layer.values.items()}
    return found


def layers(recipe: str, data: str, targets: TargetKind | None = None, **choices: Unpack[Choices]) -> list[Layer]:
    """The layers of settings of a recipe, each overriding those before it; arguments as for `settings`."""
    output, method, letters, named_cell = parse(recipe)
    kind = targets or target_kind(data)
    chosen, chosen_cell = output or TARGETS[kind]["output"], choices.get("cell") or named_cell or "leaky"
    check_letters(letters, chosen_cell)
    # The usual output and cell are not part of the name, so that naming them changes nothing.
    shown = None if output == TARGETS[kind]["output"] else output
    canonical = str(Recipe(shown, method, letters, None if chosen_cell == "leaky" else chosen_cell))
    units = parse_cell(chosen_cell)[-1].name
    found = [
        Layer("plain descent", PLAIN),
        Layer(f"data of {kind}", TARGETS[kind]),
        Layer(method, METHODS[method]),
        Layer("the recipe", {"recipe": canonical, "data": data, "output": chosen, "cell": chosen_cell}),
        Layer(f"{method} before {chosen}", OUTPUTS.get((method, chosen), {})),
    ]
    for part in ("", *(letter for letter in LETTERS if letter in letters)):
        found.append(Layer(LETTER_NAMES[part], LETTERS.get(part, {})))
        if part == "w":
            found.append(Layer(f"memory of {kind}", {"memory": usual_memory(kind)}))
        if method == "sgd":
            found += [
                Layer(f"{LETTER_NAMES[part]} before {chosen} on {place}", DESCENT.get((chosen, place, part), {}))
                for place in (kind, data)
            ]
        if part == "":
            found.append(Layer(f"{units} units", CELLS.get(units, {})))
    if "m" in letters:
        found.append(_slowed(found, choices.get("momentum")))
    without_memory = str(parse(canonical)._replace(letters=letters - {"w"}))
    found.append(Layer(f"tuned for {without_memory} on {data}", TUNED.get((without_memory, data), {})))
    optimizer = choices.get("optimizer")
    if optimizer is not None and optimizer != method:
        found.append(Layer(optimizer, {"optimizer": optimizer, **OPTIMIZER_SETTINGS.get(optimizer, {})}))
    return [layer for layer in found if layer.values]


def _slowed(found: list[Layer], momentum: float | None) -> Layer:
    """The learning rate of plain descent, adjusted to momentum.

    With momentum mu each gradient acts 1 / (1 - mu) times in total, so the rate is divided by that factor.
    """
    values: dict = {}
    for layer in found:
        values |= layer.values
    acting = round(1 / (1 - (values["momentum"] if momentum is None else momentum)), 6)
    slower = {"learning_rate": values["learning_rate"] / acting}
    return Layer(f"divided by {acting:g}: momentum applies each gradient that often", slower)


def read_settings(path: Path) -> dict:
    """Read settings such as `hidden_size = 200` from a TOML file; unknown names are refused."""
    values = read_toml(path, "expected lines such as `hidden_size = 200`")
    if unknown := sorted(set(values) - FIELDS):
        raise InputError(f"{path} sets {', '.join(unknown)}: expected only {', '.join(sorted(FIELDS))}")
    check_types(values)
    return values
