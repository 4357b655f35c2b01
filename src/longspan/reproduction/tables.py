"""The rows of the tables and what is known of them elsewhere: the paper's two, and one of gated networks, as data."""

from typing import Literal

import msgspec

TableName = Literal["table1", "table2", "gated"]
"""Music and text of the paper, and networks that the paper does not have."""


class Row(msgspec.Struct, frozen=True):
    """A row of a table: what it is called, a recipe, and settings in which it differs from that."""

    label: str
    recipe: str
    changes: dict[str, float] = {}


class MusicCell(msgspec.Struct, frozen=True):
    """Table 1: log-likelihood in nats per frame and expected accuracy in percent."""

    train_log_likelihood: float | None
    log_likelihood: float
    accuracy: float


class TextCell(msgspec.Struct, frozen=True):
    """Table 2: perplexity of words, or bits per character."""

    train: float
    test: float


MUSIC_SETS = ("piano-midi", "nottingham", "musedata", "jsb")
TEXT_SETS = ("ptb-words", "ptb-chars")

# One row per recipe, its cells in the order of MUSIC_SETS. The paper quotes RNN-RBM from an earlier paper.
_MUSIC_ROWS = {
    "sgd": ((-7.1, -7.86, 22.84), (-3.49, -3.75, 66.9), (-6.93, -7.2, 27.97), (-7.88, -8.65, 29.97)),
    "sgd+c": ((-7.15, -7.59, 22.98), (-3.4, -3.67, 67.47), (-6.79, -7.04, 30.53), (-7.81, -8.65, 29.98)),
    "sgd+cl": ((-7.04, -7.57, 22.97), (-3.31, -3.57, 67.97), (-6.47, -6.99, 31.53), (-7.78, -8.63, 29.98)),
    "sgd+clr": ((-6.4, -7.8, 24.22), (-2.99, -3.55, 70.2), (-6.7, -7.34, 29.06), (-7.67, -9.47, 29.98)),
    "sgd+crm": ((-6.92, -7.73, 23.71), (-3.2, -3.43, 68.47), (-7.01, -7.24, 29.13), (-8.08, -8.81, 29.52)),
    "hf": ((-7.0, -7.58, 22.93), (-3.47, -3.76, 66.71), (-6.76, -7.12, 29.77), (-8.11, -8.58, 29.41)),
    "rbm:sgd+c": ((None, -7.09, 28.92), (None, -2.39, 75.4), (None, -6.01, 34.02), (None, -6.27, 33.12)),
    "nade:sgd": ((-7.23, -7.48, 20.69), (-2.85, -2.91, 64.95), (-6.86, -6.74, 24.91), (-5.46, -5.83, 32.11)),
    "nade:sgd+cr": ((-6.7, -7.34, 21.22), (-2.14, -2.51, 69.8), (-6.27, -6.37, 26.6), (-4.44, -5.33, 34.52)),
    "nade:sgd+crm": (
        (-6.61, -7.34, 22.12),
        (-2.11, -2.49, 69.54),
        (-5.99, -6.19, 29.62),
        (-4.26, -5.19, 35.08),
    ),
    "nade:hf": ((-6.32, -7.05, 23.42), (-1.81, -2.31, 71.5), (-5.2, -5.6, 32.6), (-4.91, -5.56, 32.5)),
}

_TEXT_ROWS = {
    "sgd": ((112.11, 145.16), (1.78, 1.76)),
    "sgd+c": ((78.71, 136.63), (1.40, 1.44)),
    "sgd+cl": ((76.70, 129.83), (1.56, 1.56)),
    "sgd+clr": ((75.45, 128.35), (1.45, 1.49)),
}

TABLE1: dict[tuple[str, str], MusicCell] = {
    (recipe, data): MusicCell(*cell)
    for recipe, cells in _MUSIC_ROWS.items()
    for data, cell in zip(MUSIC_SETS, cells, strict=True)
}
TABLE2: dict[tuple[str, str], TextCell] = {
    (recipe, data): TextCell(*cell)
    for recipe, cells in _TEXT_ROWS.items()
    for data, cell in zip(TEXT_SETS, cells, strict=True)
}

WITHOUT_DROPOUT = {"dropout": 0.0, "layer_dropout": 0.0}


def _with_and_without_dropout(recipe: str) -> list[Row]:
    return [Row(recipe, recipe), Row(f"{recipe} without dropout", recipe, WITHOUT_DROPOUT)]


_GATED_ROWS: list[tuple[Row, tuple[str, ...]]] = [
    *((Row(recipe, recipe), ("nottingham", "jsb")) for recipe in ("lstm/sgd+cm", "gru/sgd+cm")),
    *((row, MUSIC_SETS) for cell in ("lstm", "gru") for row in _with_and_without_dropout(f"{cell}/nade:sgd+cm")),
    *(
        (row, ("ptb-words",))
        for cell in ("lstm", "gru")
        for row in _with_and_without_dropout(f"embedding+{cell}/sgd+c")
    ),
    (Row("lstm/sgd+c", "lstm/sgd+c"), ("ptb-chars",)),
]
"""Gated networks, each with the data sets on which it is trained."""

TABLES: dict[TableName, dict[tuple[str, str], Row]] = {
    "table1": {(recipe, data): Row(recipe, recipe) for recipe, data in TABLE1},
    "table2": {(recipe, data): Row(recipe, recipe) for recipe, data in TABLE2},
    "gated": {(row.label, data): row for row, places in _GATED_ROWS for data in places},
}
"""The row behind every cell, keyed by label and data set, row by row."""

PUBLISHED: dict[tuple[str, str], float] = {
    ("lstm/sgd+cm", "nottingham"): -3.29,
    ("lstm/sgd+cm", "jsb"): -8.45,
    ("gru/sgd+cm", "nottingham"): -3.46,
    ("gru/sgd+cm", "jsb"): -8.43,
    ("embedding+lstm/sgd+c", "ptb-words"): 78.9,
    ("lstm/sgd+c", "ptb-chars"): 1.36,
}
"""Test figures of gated networks like ours in the metric of the data set: Bai, Kolter and Koltun (2018), "An Empirical
Evaluation of Generic Convolutional and Recurrent Networks for Sequence Modeling". Their LSTM of words has 13 million
weights."""


def figures_on_test(recipe: str, data: str) -> dict[str, float] | None:
    """The paper's test scores by metric for a recipe and data set, or None; accuracy is a fraction, as in our scores.

    Example:
        >>> figures_on_test("sgd+c", "ptb-words")
        {'perplexity': 136.63}
    """
    if music := TABLE1.get((recipe, data)):
        return {"log_likelihood": music.log_likelihood, "accuracy": music.accuracy / 100}
    if text := TABLE2.get((recipe, data)):
        return {("perplexity" if data == "ptb-words" else "bits_per_character"): text.test}
    return None
