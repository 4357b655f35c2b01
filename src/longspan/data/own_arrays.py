"""A user's arrays, understood: what is a sequence, a number, a key or a symbol, and which steps ask for something.

An array is one sequence, unless it has three axes (sequence x time x column); a list holds one array per sequence.
Floats are numbers, whole numbers or words in one column are symbols, columns of nothing but 0 and 1 are keys.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple, get_args

import numpy as np

from longspan.data.dataset import texts_of
from longspan.errors import InputError
from longspan.limits import NUMBERS, SONGS, VOCABULARY

Kind = Literal["numbers", "binary", "symbols"]
"""What the values of a step are: real numbers, columns of 0 and 1, or one symbol (as a target, a class)."""

TARGETS = "targets"
LARGEST = 1e18
"""Magnitude of a number; the square of a larger one is beyond float32."""


class Values(NamedTuple):
    """The inputs or the targets of all sequences.

    `parts` has one array per sequence: float64 (time x column) numbers, uint8 (time x column) of 0 and 1, or int32
    (time) symbols. `labels` says what symbols stand for, unless they are numbers from 0.
    """

    kind: Kind
    parts: list[np.ndarray]
    size: int
    labels: list[str] | None = None
    columns: list[str] | None = None


class Asked(NamedTuple):
    """Targets, and the steps that have one."""

    values: Values
    masks: list[np.ndarray]
    at_end: bool
    """Whether each sequence has one target, at its last step."""


def as_sequences(given: Any, what: str) -> list[np.ndarray]:
    """The arrays of all sequences."""
    if isinstance(given, str | os.PathLike):
        raise InputError(
            f"{what}: expected arrays, got {str(given)!r}: longspan.data.read_table reads a table by its path, "
            "longspan.load any other file"
        )
    if isinstance(given, list | tuple) and not given:
        raise InputError(f"{what}: there are no sequences, expected at least one")
    if isinstance(given, list | tuple) and given and np.ndim(given[0]) > 0:
        found = [_as_array(part, f"{what} of sequence {number}") for number, part in enumerate(given)]
    else:
        array = _as_array(given, what)
        found = list(array) if array.ndim == 3 else [array]
    if not found:
        raise InputError(f"{what}: there are no sequences, expected at least one")
    if len(found) > SONGS:
        raise InputError(f"{what}: got {len(found)} sequences, more than the {SONGS} allowed; use a part of them")
    for number, array in enumerate(found):
        if array.ndim not in (1, 2) or array.size == 0:
            raise InputError(
                f"{what} of sequence {number} have shape {array.shape}: expected (time,) or (time, columns), not empty"
            )
    if sum(array.size for array in found) > NUMBERS:
        raise InputError(f"{what}: got more than the {NUMBERS} numbers allowed; use a part of them")
    return found


def read_values(arrays: list[np.ndarray], kind: Kind | None, what: str, *, missing: bool = False) -> Values:
    """Understand the values of all sequences; with `missing`, floats may be NaN."""
    kind = _kind_of(arrays, what) if kind is None else kind
    if kind not in get_args(Kind):
        raise InputError(f"the kind of {what} must be one of {', '.join(get_args(Kind))}: got {kind!r}")
    if kind == "symbols":
        return _symbols(arrays, what, classes=what == TARGETS)
    arrays = [array[:, None] if array.ndim == 1 else array for array in arrays]
    widths = sorted({array.shape[1] for array in arrays})
    if len(widths) > 1:
        raise InputError(f"{what} have {widths[0]} columns in one sequence and {widths[-1]} in another: expected equal")
    parts = [_checked(array, kind, f"{what} of sequence {number}", missing) for number, array in enumerate(arrays)]
    return Values(kind, parts, widths[0])


def read_targets(given: Any, kind: Kind | None, masks: Any, lengths: Sequence[int]) -> Asked:
    """Understand targets, one per step or one per sequence; steps whose target is missing (NaN) do not count."""
    arrays, at_end = _target_arrays(given, lengths)
    strange = next((array.shape for array in arrays if array.ndim not in (1, 2) or array.size == 0), None)
    if strange is not None:
        raise InputError(f"the targets of a sequence have shape {strange}: expected (time,) or (time, columns)")
    if at_end and masks is not None:
        raise InputError("masks are for one target per step: got them with one target per sequence")
    if kind is None and at_end and arrays[0].ndim == 2 and arrays[0].shape[1] == 1 and arrays[0].dtype.kind in "biuU":
        arrays = [array[:, 0] for array in arrays]
    present = [_present(array) for array in arrays]
    values = read_values(arrays, kind, TARGETS, missing=True)
    if values.kind == "numbers":
        present = [_present(part) for part in values.parts]
        _refuse_half_missing(values.parts)
        values = values._replace(parts=[np.nan_to_num(part) for part in values.parts])
    if at_end:
        return _at_last_step(values, present, lengths)
    return Asked(values, _masked(present, masks), False)


def _target_arrays(given: Any, lengths: Sequence[int]) -> tuple[list[np.ndarray], bool]:
    """The targets of each sequence, by step or, if there is one for each sequence, as a single step."""
    listed = list(given) if isinstance(given, list | tuple) else None
    array = _as_array(given, "targets") if not listed or np.ndim(listed[0]) == 0 else None
    if array is not None and array.ndim == 0:
        raise InputError("got one target alone: expected one for every step, or one for every sequence")
    if array is not None and len(lengths) == 1 and array.ndim < 3 and len(array) == lengths[0]:
        return [array], False
    parts = listed if array is None else list(array)
    if parts is None or len(parts) != len(lengths):
        count = len(given) if hasattr(given, "__len__") else 1
        raise InputError(f"got targets for {count} sequences and inputs of {len(lengths)}: expected as many")
    arrays = [_as_array(part, "targets") for part in parts]
    if all(part.ndim > 0 and len(part) == length for part, length in zip(arrays, lengths, strict=True)):
        return arrays, False
    _refuse_one_short(arrays, lengths)
    width = arrays[0].size
    if all(part.shape in ((width,), (1, width)) or (part.ndim == 0 and width == 1) for part in arrays):
        return [_as_array(part, "targets").reshape(1, -1) for part in arrays], True
    wrong = next(number for number, part in enumerate(arrays) if part.ndim == 0 or len(part) != lengths[number])
    raise InputError(
        f"targets of sequence {wrong} have shape {arrays[wrong].shape}, its inputs {lengths[wrong]} steps: expected "
        "one target per step, or one for the whole sequence"
    )


def _refuse_one_short(arrays: list[np.ndarray], lengths: Sequence[int]) -> None:
    """Refuse targets that end a step before their inputs: it is more likely that a step is missing, as after
    `sequence[1:]`, than that each sequence has one target of so many numbers."""
    size = lengths[0] - 1
    if size > 1 and all(part.shape == (length - 1,) == (size,) for part, length in zip(arrays, lengths, strict=True)):
        raise InputError(
            f"every sequence of targets has {size} values, and its inputs have {size + 1} steps: expected one target "
            f"per step, as inputs[:-1] have here, or one vector for each sequence, of shape (1, {size})"
        )


def _at_last_step(values: Values, present: list[np.ndarray], lengths: Sequence[int]) -> Asked:
    absent = [number for number, there in enumerate(present) if not there[0]]
    if absent:
        raise InputError(f"sequence {absent[0]} has no target: leave out sequences without one")
    parts = []
    for part, length in zip(values.parts, lengths, strict=True):
        spread = np.zeros((length, *part.shape[1:]), part.dtype)
        spread[-1] = part[0]
        parts.append(spread)
    masks = [np.arange(length) == length - 1 for length in lengths]
    return Asked(values._replace(parts=parts), masks, True)


def _masked(present: list[np.ndarray], masks: Any) -> list[np.ndarray]:
    if masks is None:
        return present
    given = as_sequences(masks, "masks")
    for number, (mask, there) in enumerate(zip(given, present, strict=False)):
        if mask.shape != there.shape or mask.dtype.kind not in "biu" or len(given) != len(present):
            raise InputError(
                f"the mask of sequence {number} is {mask.dtype} of shape {mask.shape} ({len(given)} masks for "
                f"{len(present)} sequences): expected bool, one value per step"
            )
    return [mask.astype(bool) & there for mask, there in zip(given, present, strict=True)]


def _as_array(given: Any, what: str) -> np.ndarray:
    try:
        array = np.asarray(given)
    except ValueError as error:
        raise InputError(
            f"{what} cannot be read as an array ({error}): give a list of arrays, one per sequence"
        ) from error
    if array.dtype.kind == "O":
        array = _plain(array, what)
    if array.dtype.kind not in "biufUS":
        raise InputError(f"{what} hold {array.dtype}: expected numbers or words")
    return array.astype(str) if array.dtype.kind == "S" else array


def _plain(array: np.ndarray, what: str) -> np.ndarray:
    """An array of Python objects, such as a table's column, as numbers or words; None becomes NaN or an empty word."""
    flat = array.ravel()
    if all(isinstance(value, str) or value is None for value in flat):
        return np.array(["" if value is None else value for value in flat], str).reshape(array.shape)
    try:
        return np.array([np.nan if value is None else value for value in flat], np.float64).reshape(array.shape)
    except (TypeError, ValueError) as error:
        raise InputError(f"{what} hold a mix of things ({error}): expected numbers, or words") from error


def _present(array: np.ndarray) -> np.ndarray:
    """Which steps have a target: an empty word stands for none, as NaN does among numbers."""
    if array.dtype.kind not in "Uf":
        return np.ones(len(array), bool)
    there = ~np.isnan(array) if array.dtype.kind == "f" else array != ""
    return np.all(there.reshape(len(array), -1), axis=1, keepdims=True)[:, 0]


def _kind_of(arrays: list[np.ndarray], what: str) -> Kind:
    kinds = {array.dtype.kind for array in arrays}
    if "U" in kinds:
        return "symbols"
    if "f" in kinds:
        return "numbers"
    if all(array.ndim == 1 for array in arrays):
        return "symbols"
    if all(((array == 0) | (array == 1)).all() for array in arrays):
        return "binary"
    raise InputError(
        f"{what} are whole numbers in several columns: expected nothing but 0 and 1; give numbers as floats, and "
        "symbols in one column"
    )


def _checked(array: np.ndarray, kind: Kind, what: str, missing: bool) -> np.ndarray:
    if array.dtype.kind == "U":
        raise InputError(f"{what} are words: expected {kind}")
    if kind == "binary":
        if not ((array == 0) | (array == 1)).all():
            raise InputError(f"{what} are not all 0 or 1, which is what binary means: threshold them, or use numbers")
        return array.astype(np.uint8)
    numbers = array.astype(np.float64)
    bad = np.isinf(numbers) if missing else ~np.isfinite(numbers)
    if bad.any():
        step = int(np.argmax(bad.any(axis=1)))
        raise InputError(
            f"{what} are not finite at step {step} ({numbers[step][bad[step]][0]}): fill or leave out gaps"
        )
    largest = np.max(np.abs(numbers), where=~np.isnan(numbers), initial=0.0)
    if largest > LARGEST:
        raise InputError(f"{what} go up to {largest:.3g}: expected at most {LARGEST:g}; give them in other units")
    return numbers


def _refuse_half_missing(parts: list[np.ndarray]) -> None:
    for number, part in enumerate(parts):
        gaps = np.isnan(part)
        half = gaps.any(axis=1) & ~gaps.all(axis=1)
        if half.any():
            raise InputError(
                f"targets of sequence {number} are missing in some columns of step {int(np.argmax(half))}: expected "
                "all or none of them; fill the gaps"
            )


def _symbols(arrays: list[np.ndarray], what: str, *, classes: bool) -> Values:
    """Symbols as numbers from 0: as they are if they use nearly all numbers up to the largest, else by label.

    Classes are those that occur, whatever their numbers: one that never does would be an answer that is never right.
    """
    flat = [array[:, 0] if array.ndim == 2 and array.shape[1] == 1 else array for array in arrays]
    if any(array.ndim != 1 for array in flat):
        raise InputError(f"{what} are symbols in several columns: expected one column")
    joined = np.concatenate(flat)
    if joined.dtype.kind == "f":
        joined = _whole(joined, what)
    found = np.unique(joined[joined != ""]) if joined.dtype.kind == "U" else np.unique(joined)
    if len(found) > VOCABULARY or len(found) < 2:
        raise InputError(f"{what} have {len(found)} different symbols: expected from 2 to {VOCABULARY}")
    ends = np.cumsum([len(array) for array in flat])[:-1]
    most = len(found) if classes else 2 * len(found)
    if joined.dtype.kind != "U" and found[0] >= 0 and found[-1] < most:
        return Values("symbols", np.split(joined.astype(np.int32), ends), int(found[-1]) + 1)
    numbers = np.minimum(np.searchsorted(found, joined), len(found) - 1).astype(np.int32)
    return Values("symbols", np.split(numbers, ends), len(found), texts_of(found, what))


def _whole(numbers: np.ndarray, what: str) -> np.ndarray:
    """Floats that are meant as symbols; a gap becomes the first symbol, which its mask hides."""
    gaps = np.isnan(numbers)
    known = numbers[~gaps]
    if known.size == 0:
        raise InputError(f"{what} are symbols, of which none is known: expected at least two")
    if not (np.isfinite(known) & (known == np.round(known)) & (np.abs(known) < 2.0**63)).all():
        raise InputError(f"{what} are not whole numbers, as symbols must be: use numbers")
    return np.where(gaps, known.min(), numbers).astype(np.int64)


def described(values: Values) -> str:
    """What the values of a step are, in a few words."""
    if values.kind == "symbols":
        return f"{values.size} symbols{_never_seen(values)}"
    return f"{values.size} column{'s' * (values.size != 1)} of " + (
        "numbers" if values.kind == "numbers" else "0 and 1"
    )


NAMED = 5
"""Numbers that a remark names at most."""


def _never_seen(values: Values) -> str:
    """Which numbers are symbols only because larger ones are."""
    seen = np.zeros(values.size, bool)
    for part in values.parts:
        seen[part] = True
    missing = np.flatnonzero(~seen)
    if len(missing) == 0:
        return ""
    more = f" and {len(missing) - NAMED} more" if len(missing) > NAMED else ""
    named = f"{', '.join(map(str, missing[:NAMED]))}{more} never occur{'s' * (len(missing) == 1)}"
    return f" from 0 to {values.size - 1} ({named})"
