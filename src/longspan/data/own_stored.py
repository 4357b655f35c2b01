"""A user's own sequences as they are stored: what a file says of itself, checked before an array takes memory."""

from __future__ import annotations

import numpy as np

from longspan.data.blocks import Opened
from longspan.data.checking import MOST_SYMBOLS, check_record
from longspan.data.own import Description, record_of
from longspan.errors import InputError

TYPES = {"symbols": np.int32, "numbers": np.float32, "binary": np.uint8}


def check_description(description: Description, name: str) -> None:
    """Refuse a description that no stored data have, before they are read."""
    if description.next_step:
        start = int(description.target_kind == "symbols")
        same = description.input_kind == description.target_kind
        if not same or description.input_size != description.target_size + start:
            raise InputError("the stored targets are not the next step of the inputs; import their source again")
    try:
        check_record(record_of(description, ""), name)
    except InputError as error:
        raise InputError(f"{error}; import their source again") from error


def wrong_leaf(description: Description, leaf: str, array: Opened) -> str | None:
    """What is wrong with a stored array of inputs, targets or marks, given what all of them mean."""
    if leaf == "mask":
        right = array.dtype == bool and len(array.shape) == 1
        return None if right and any(block.any() for block in array.blocks()) else "marks no step that has a target"
    inputs = leaf == "inputs"
    kind = description.input_kind if inputs else description.target_kind
    size = description.input_size if inputs else description.target_size
    columns = () if kind == "symbols" else (size,)
    right = array.dtype == TYPES[kind] and len(array.shape) == 1 + len(columns) and array.shape[1:] == columns
    if kind == "symbols":
        right = right and 2 <= size <= MOST_SYMBOLS
        right = right and all(block.min() >= 0 and block.max() < size for block in array.blocks())
    else:
        finite = kind == "numbers"
        right = right and all(np.isfinite(block).all() if finite else block.max() <= 1 for block in array.blocks())
    return None if right else f"is not {size} {kind} per step"
