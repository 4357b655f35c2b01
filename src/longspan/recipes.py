"""The paper's recipes, such as `nade:sgd+crm`, as settings for a data set.

A recipe is `sgd` plus any of the letters C (clipping), L (leaky units), R (rectifiers with L1) and M (Nesterov
momentum), or `hf` (Hessian-free) or `adam` plus any of L and R. T (a network of music told of its song's past) and W
(with memory) may be added to each. An output model may precede it, as in `nade:hf`; otherwise the data set's usual one
is used. A cell other than the paper's may precede both, as in `lstm/nade:sgd+cm`. `recipe_tables.py` says what each of
these sets.
"""

import difflib
from pathlib import Path
from typing import Any, NamedTuple, TypedDict, Unpack

from longspan.config import CELL_NAMES, FIELDS, OUTPUT_NAMES, TrainConfig, as_dict, check_types
from longspan.data.dataset import TargetKind, usual_memory
from longspan.data.library import target_kind
from longspan.errors import InputError
from longspan.files import read_toml
from longspan.recipe_tables import (
    CELLS,
    DESCENT,
    GATED_DESCENT,
    LETTER_NAMES,
    LETTERS,
    LETTERS_OF,
    METHODS,
    OPTIMIZER_SETTINGS,
    OUTPUTS,
    PLAIN,
    TARGETS,
    TUNED,
)
from longspan.registry import parse_cell

__all__ = ["Origin", "Recipe", "explain", "parse", "settings"]


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
            f"unknown recipe {recipe!r}: expected sgd or sgd+ and letters of c, l, r, m, t, w, or hf or adam, alone or "
            f"with + and letters of l, r, t, w; {', '.join(f'{output}:' for output in OUTPUT_NAMES)} or none in front, "
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
        if part == "t" and kind != "frames":
            raise InputError(f"the letter t tells a network of the past of songs: leave it out for {kind}")
        if part == "w":
            found.append(Layer(f"memory of {kind}", {"memory": usual_memory(kind)}))
        if method == "sgd":
            found += [
                Layer(f"{LETTER_NAMES[part]} before {chosen} on {place}", DESCENT.get((chosen, place, part), {}))
                for place in (kind, data)
            ]
        if part == "":
            found.append(Layer(f"{units} units", CELLS.get(units, {})))
        if method == "sgd":
            found.append(
                Layer(f"{LETTER_NAMES[part]} of {units} before {chosen}", GATED_DESCENT.get((units, chosen, part), {}))
            )
    if "m" in letters:
        found.append(_slowed(found, choices.get("momentum")))
    without_past = str(parse(canonical)._replace(letters=letters - {"t", "w"}))
    found.append(Layer(f"tuned for {without_past} on {data}", TUNED.get((without_past, data), {})))
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
