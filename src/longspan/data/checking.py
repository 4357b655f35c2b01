"""Checks of data made in Python: refused like damaged files, in one line and before anything is trained.

The data sets of the package check what they are made of. `check_dataset` holds any data set, also one of a user's own
class, to what its record says: kernels take an index out of range for the nearest one, so a wrong symbol would train
without a word.
"""

from __future__ import annotations

from typing import get_args, get_type_hints

import numpy as np

from longspan.data.dataset import PLAIN_CHUNK, SPLITS, Chunks, DataRecord, Dataset, array_of, whole
from longspan.data.vocabulary import check_vocabulary
from longspan.errors import InputError
from longspan.limits import FRAMES_PER_BEAT, OCTAVE_SHIFT, TABLE_WORD, VOCABULARY

MOST_SYMBOLS = 2 * VOCABULARY + 1
"""Symbols, keys or numbers of a step. Symbols that are numbers may leave out half of them; one more precedes each
sequence."""
KINDS = get_args(get_type_hints(DataRecord)["kind"])


def check_dataset(data: Dataset) -> Dataset:
    """Return a data set whose record is possible and whose contents fit it; refuse any other."""
    record, name = data.record, data.name
    if record.kind not in KINDS or not isinstance(record.fingerprint, str) or not record.fingerprint:
        raise InputError(
            f"the record of {name} must have a kind, one of {', '.join(KINDS)}, and a fingerprint: got "
            f"{record.kind!r} and {record.fingerprint!r}",
            fields=["data"],
        )
    check_record(record, name)
    for split in SPLITS:
        check_chunks(data.chunks(split, PLAIN_CHUNK, data.evaluation_lanes(split)), record, f"{name}, {split}")
    first = data.epoch(0, seed=0, chunk_length=PLAIN_CHUNK, lanes=1)
    check_chunks(first, record, f"{name}, first epoch")
    return data


def check_record(record: DataRecord, where: str) -> None:
    """Refuse a record with sizes that no data have, or with names for more or fewer symbols than there are.

    It may come from a run folder of somebody else, and decides what is allocated, indexed and drawn.
    """
    try:
        whole(record.size, "size", 1, MOST_SYMBOLS)
        bounds = {
            "input_size": (record.input_size, 1, MOST_SYMBOLS),
            "frames_per_beat": (record.frames_per_beat, 1, FRAMES_PER_BEAT),
            "octave_shift": (record.octave_shift, -OCTAVE_SHIFT, OCTAVE_SHIFT),
            "end_token": (record.end_token, 0, record.size),
        }
        for field, (value, low, high) in bounds.items():
            _ = value is None or whole(value, field, low, high)
    except InputError as error:
        raise InputError(f"{where}: {error}", fields=error.fields) from error
    columns = None if record.predicted == "symbols" else record.columns
    for field, names in (("vocabulary", record.vocabulary), ("labels", record.labels), ("columns", columns)):
        if names is not None and len(names) != record.size:
            raise InputError(f"{where}: {field} has {len(names)} names: expected one for each of {record.size}")
    longest = max(map(len, record.labels or ()), default=0)
    if longest > TABLE_WORD:
        raise InputError(f"{where}: one of its labels has {longest} characters, more than the {TABLE_WORD} allowed")
    if record.kind == "text" and record.vocabulary is not None:
        check_vocabulary(record.vocabulary, record.unit or "character", where)
    scalings = (record.input_scaling, record.input_size or record.size), (record.target_scaling, record.size)
    for scaling, size in scalings:
        if scaling is not None and not scaling.fits(size):
            raise InputError(f"{where}: expected {size} finite means, and scales above 0, to normalize numbers by")


def check_chunks(chunks: Chunks, record: DataRecord, where: str) -> None:
    """Refuse chunks whose arrays do not fit each other or the record of their data set."""
    inputs, targets, resets, mask, lengths = (array_of(part, where) for part in Chunks(*chunks))
    shape = mask.shape
    shapes = {"inputs": inputs.shape[:3], "targets": targets.shape[:3], "resets": resets.shape}
    wrong = [f"{name} {found}" for name, found in shapes.items() if found != shape]
    if len(shape) != 3 or wrong or mask.dtype != bool or resets.dtype != bool:
        raise _mismatch(
            where,
            "a mask and resets of bool, (chunk, time, lane), and inputs and targets that begin with the same axes",
            f"a mask of {mask.dtype} {shape}, resets of {resets.dtype}" + "".join(f", {each}" for each in wrong),
        )
    if not mask.any():
        raise _mismatch(where, "some steps that count", "a mask without any")
    ends = np.where(mask.any(2), np.arange(1, shape[1] + 1), 0).max(1, initial=0)
    if lengths.shape != shape[:1] or lengths.dtype.kind not in "iu" or np.any((lengths < ends) | (lengths > shape[1])):
        raise _mismatch(
            where, "lengths of whole numbers, one per chunk, that include all steps that count", f"{lengths}"
        )
    _check_inputs(inputs, record.size if record.input_size is None else record.input_size, where)
    _check_targets(targets, mask, record, where)


def _check_inputs(inputs: np.ndarray, size: int, where: str) -> None:
    if inputs.ndim == 3 and inputs.dtype.kind in "iu" and inputs.dtype != np.uint8:
        _check_range(inputs, size, f"{where}: inputs")
        return
    vectors = inputs.dtype in (np.uint8, bool) or inputs.dtype.kind == "f"
    if inputs.ndim != 4 or inputs.shape[3] != size or not vectors:
        raise _mismatch(
            where,
            f"inputs of (chunk, time, lane, {size}), uint8 or floats, or symbols of int32",
            f"{inputs.dtype} of shape {inputs.shape}",
        )
    _check_finite(inputs, f"{where}: inputs")


def _check_targets(targets: np.ndarray, mask: np.ndarray, record: DataRecord, where: str) -> None:
    kinds = {"symbols": "iu", "keys": "biuf", "numbers": "f"}[record.predicted]
    axes = () if record.predicted == "symbols" else (record.size,)
    if targets.shape[3:] != axes or targets.dtype.kind not in kinds:
        expected = ", ".join(["chunk", "time", "lane", *map(str, axes)])
        raise _mismatch(
            where, f"targets of ({expected}) for {record.predicted}", f"{targets.dtype} of shape {targets.shape}"
        )
    if record.predicted == "numbers":
        _check_finite(targets, f"{where}: targets")
    elif record.predicted == "symbols":
        _check_range(targets[mask], record.size, f"{where}: targets")
    elif np.any((targets[mask] != 0) & (targets[mask] != 1)):
        raise InputError(f"{where}: expected targets of nothing but 0 and 1 for keys", fields=["data"])


def _check_range(symbols: np.ndarray, size: int, where: str) -> None:
    low, high = int(symbols.min()), int(symbols.max())
    if low < 0 or high >= size:
        got = low if low < 0 else high
        raise InputError(f"{where}: expected symbols from 0 to {size - 1}, got {got}", fields=["data"])


def _check_finite(numbers: np.ndarray, where: str) -> None:
    if numbers.dtype.kind == "f" and not np.isfinite(numbers).all():
        raise InputError(f"{where} are not finite: replace or leave out missing values", fields=["data"])
    if numbers.dtype.kind == "f" and numbers.size and np.abs(numbers).max() > np.finfo(np.float32).max:
        raise InputError(f"{where} are beyond single precision: give them in other units", fields=["data"])


def _mismatch(where: str, expected: str, got: str) -> InputError:
    return InputError(f"{where}: expected {expected}, got {got}", fields=["data"])
