"""Your own sequences as a data set: numbers, keys or symbols in, numbers, keys or classes out, or the next step.

Numbers are normalized by the mean and the standard deviation of the training split, column by column. The run keeps
both, so scores and samples are in the units of the data.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, NamedTuple

import msgspec
import numpy as np

from longspan.bounds import Whole
from longspan.data.dataset import (
    SPLITS,
    Baselines,
    Chunks,
    DataRecord,
    Dataset,
    Scaling,
    TargetKind,
    fingerprint_of,
    texts_of,
)
from longspan.data.own_arrays import Asked, Kind, Values, as_sequences, described, read_targets, read_values
from longspan.data.own_baselines import sequence_baselines
from longspan.data.sequences import arrange_pairs, side_by_side, song_order
from longspan.data.splitting import SONG_SHARES, cut, split_names
from longspan.errors import InputError

RECORD_KINDS: Mapping[Kind, Literal["numbers", "keys", "classes"]] = {
    "numbers": "numbers",
    "binary": "keys",
    "symbols": "classes",
}
EVALUATION_LANES = 16


class Pair(NamedTuple):
    """A sequence as a model sees it: its inputs, its targets, and which steps count."""

    inputs: np.ndarray
    targets: np.ndarray
    mask: np.ndarray


class Description(msgspec.Struct, frozen=True):
    """What the arrays of a data set mean."""

    input_kind: Kind
    target_kind: Kind
    input_size: Whole
    target_size: Whole
    next_step: bool = False
    at_end: bool = False
    """Whether each sequence has one target, at its last step."""
    labels: list[str] | None = None
    columns: list[str] | None = None
    input_scaling: Scaling | None = None
    target_scaling: Scaling | None = None


@dataclass(frozen=True)
class OwnSplit:
    """Sizes of a split."""

    sequences: int
    steps: int
    longest: int
    asked_steps: int


class Sequences(Dataset):
    """Your own sequences in three splits.

    Args:
        inputs: a list with one array per sequence, (time, columns) or (time,), of any lengths; or one array: a single
            sequence, or sequence x time x column. Floats are numbers, whole numbers or words in one column are
            symbols, columns of nothing but 0 and 1 are binary.
        targets: `"next"` to predict the next step of the inputs; or one target for every step, in the same forms; or
            one for every sequence, asked for at its end. Whole numbers and words are classes. A step whose target is
            NaN, or an empty word, does not count.
        name: the name under which runs refer to the data.
        masks: for every sequence, (time,) bool, which steps count; by default all that have a target.
        ids: an id for every sequence; sequences with the same id stay in the same split.
        split: the shares of training, validation and test; or the split of every sequence, `train`, `valid` or
            `test`. Fewer than three ids are cut in time instead: the beginning of each sequence trains.
        seed: determines which ids go to which split.
        input_kind: `numbers`, `binary` or `symbols`, if it does not follow from the arrays.
        target_kind: likewise for the targets.
        columns: names of the predicted columns.
        normalize: whether to normalize numbers.
        origin: a phrase that says where the arrays come from.
        id_column: the column of a table that the ids come from.

    Example:
        >>> wave = np.sin(np.arange(300) / 5)
        >>> data = Sequences(wave, name="wave")
        >>> data.record.kind, data.split_figures("train").steps
        ('numbers', 180)
    """

    def __init__(
        self,
        inputs: Any,
        targets: Any = "next",
        *,
        name: str = "own",
        masks: Any = None,
        ids: Sequence[Any] | None = None,
        split: Sequence[float] | Sequence[str] = SONG_SHARES,
        seed: int = 0,
        input_kind: Kind | None = None,
        target_kind: Kind | None = None,
        columns: Sequence[str] | None = None,
        normalize: bool = True,
        origin: str = "arrays",
        id_column: str | None = None,
    ):
        next_step = isinstance(targets, str) and targets == "next"
        sources = read_values(as_sequences(inputs, "inputs"), input_kind, "inputs")
        asked = _next_of(sources, masks) if next_step else _asked(targets, target_kind, masks, sources)
        parts, remarks = _split(len(sources.parts), ids, split, seed, sources, asked)
        self.name, self.origin, self.id_column = name, origin, id_column
        self.remarks = (*remarks, *_remarks(asked, sources, next_step))
        self._settle(sources, asked, parts, next_step, normalize, columns)

    @classmethod
    def of(
        cls,
        name: str,
        description: Description,
        pairs: Mapping[str, list[Pair]],
        origin: str = "",
        remarks: tuple[str, ...] = (),
        id_column: str | None = None,
    ) -> Sequences:
        """A data set whose arrays have been understood and normalized before."""
        made = cls.__new__(cls)
        made.name, made.origin, made.remarks, made.id_column = name, origin, remarks, id_column
        made.description, made.pairs = description, dict(pairs)
        return made

    def _settle(
        self,
        sources: Values,
        asked: Asked,
        parts: Mapping[str, list[_Part]],
        next_step: bool,
        normalize: bool,
        columns: Sequence[str] | None,
    ) -> None:
        def fitted(values: Values, masks: list[np.ndarray] | None) -> Scaling | None:
            if values.kind != "numbers" or not normalize:
                return None
            chosen = [part.of(values.parts) for part in parts["train"]]
            if masks is not None:
                marks = [part.of(masks) for part in parts["train"]]
                chosen = [numbers[mark] for numbers, mark in zip(chosen, marks, strict=True)]
            return _fitted(np.concatenate(chosen))

        input_scaling = fitted(sources, None)
        target_scaling = input_scaling if next_step else fitted(asked.values, asked.masks)
        names = asked.values.columns if columns is None else texts_of(columns, "the names of columns")
        if names is not None and asked.values.kind != "symbols" and len(names) != asked.values.size:
            raise InputError(f"got {len(names)} names for {asked.values.size} predicted columns: expected as many")
        start = int(next_step and sources.kind == "symbols")  # the symbol before the first one
        self.description = Description(
            sources.kind,
            asked.values.kind,
            sources.size + start,
            asked.values.size,
            next_step,
            asked.at_end,
            asked.values.labels,
            names,
            input_scaling,
            target_scaling,
        )
        self.pairs = {
            split: [self._pair(part, sources, asked, next_step) for part in chosen] for split, chosen in parts.items()
        }
        _check_asked(self.pairs)

    def _pair(self, part: _Part, sources: Values, asked: Asked, next_step: bool) -> Pair:
        targets = _as_seen(part.of(asked.values.parts), self.description.target_scaling)
        if next_step:
            before = np.roll(targets, 1, axis=0)
            before[0] = self.description.target_size if sources.kind == "symbols" else 0
            return Pair(before, targets, part.of(asked.masks))
        return Pair(_as_seen(part.of(sources.parts), self.description.input_scaling), targets, part.of(asked.masks))

    @property
    def record(self) -> DataRecord:
        return record_of(self.description, self._digest, self.id_column)

    @cached_property
    def _digest(self) -> str:
        arrays = [array for split in SPLITS for pair in self.pairs[split] for array in pair]
        counts = np.array([len(self.pairs[split]) for split in SPLITS])
        described = np.frombuffer(msgspec.json.encode(self.description), np.uint8)
        return fingerprint_of(described, counts, *arrays)

    @property
    def target_kind(self) -> TargetKind:
        kinds: Mapping[Kind, TargetKind] = {"numbers": "measurements", "binary": "switches", "symbols": "labels"}
        return kinds[self.description.target_kind]

    def chunks(self, split: str, chunk_length: int, lanes: int) -> Chunks:
        return self._arranged(self.pairs[split], chunk_length, lanes)

    def epoch(self, number: int, *, seed: int, chunk_length: int, lanes: int) -> Chunks:
        """The training sequences in an order determined by seed and epoch."""
        pairs = self.pairs["train"]
        order = song_order(len(pairs), seed, number)
        return self._arranged([pairs[index] for index in order], chunk_length, lanes)

    def _arranged(self, pairs: list[Pair], chunk_length: int, lanes: int) -> Chunks:
        if self.description.at_end:
            return side_by_side(pairs, lanes)
        inputs, targets, masks = ([pair[leaf] for pair in pairs] for leaf in range(3))
        return arrange_pairs(inputs, targets, masks, chunk_length=chunk_length, lanes=lanes)

    def evaluation_lanes(self, split: str) -> int:
        return min(EVALUATION_LANES, len(self.pairs[split]))

    def counted_steps(self, chunk_length: int) -> int:
        if self.description.at_end:
            return 1
        counted = sum(int(pair.mask.sum()) for pair in self.pairs["train"])
        return max(1, round(chunk_length * counted / sum(len(pair.mask) for pair in self.pairs["train"])))

    def excerpt(self, split: str, steps: int) -> Chunks:
        """The longest sequence: its end if that is where its target is, else its beginning."""
        longest = max(self.pairs[split], key=lambda pair: len(pair.mask))
        part = slice(-steps, None) if self.description.at_end else slice(0, steps)
        cut_out = Pair(*(leaf[part] for leaf in longest))
        return Chunks(*(leaf[0] for leaf in self._arranged([cut_out], steps, 1)))

    def baselines(self, split: str) -> Baselines:
        return sequence_baselines(self, split)

    def split_figures(self, split: str) -> OwnSplit:
        lengths = [len(pair.mask) for pair in self.pairs[split]]
        asked = sum(int(pair.mask.sum()) for pair in self.pairs[split])
        return OwnSplit(len(lengths), sum(lengths), max(lengths), asked)

    def steps_of_epoch(self) -> int:
        return sum(int(pair.mask.sum()) for pair in self.pairs["train"])

    def _asked(self, split: str) -> np.ndarray:
        return np.concatenate([pair.targets[pair.mask] for pair in self.pairs[split]])


def _check_asked(pairs: Mapping[str, list[Pair]]) -> None:
    """Refuse a split without any target: it has no score."""
    empty = [split for split in SPLITS if not any(pair.mask.any() for pair in pairs[split])]
    if empty:
        raise InputError(f"no step of the {empty[0]} split has a target: choose other splits, or give more targets")


def record_of(about: Description, fingerprint: str, id_column: str | None = None) -> DataRecord:
    """What a run records about data of this description."""
    return DataRecord(
        RECORD_KINDS[about.target_kind],
        fingerprint,
        about.target_size,
        about.input_size,
        end_token=about.target_size if about.next_step and about.target_kind == "symbols" else None,
        next_step=about.next_step,
        labels=about.labels,
        columns=about.columns,
        id_column=id_column,
        input_scaling=about.input_scaling,
        target_scaling=about.target_scaling,
    )


class _Part(NamedTuple):
    """A part of a sequence that belongs to a split, or all of it."""

    sequence: int
    start: int
    stop: int

    def of(self, arrays: list[np.ndarray]) -> np.ndarray:
        return arrays[self.sequence][self.start : self.stop]


def _next_of(sources: Values, masks: Any) -> Asked:
    if masks is not None:
        raise InputError("masks do not apply to the next step of the inputs: give the targets themselves")
    return Asked(sources, [np.ones(len(part), bool) for part in sources.parts], False)


def _asked(targets: Any, kind: Kind | None, masks: Any, sources: Values) -> Asked:
    if isinstance(targets, str):
        raise InputError(f"targets must be 'next' or arrays: got {targets!r}")
    asked = read_targets(targets, kind, masks, [len(part) for part in sources.parts])
    if not any(mask.any() for mask in asked.masks):
        raise InputError("no step has a target: expected some that count")
    return asked


def _split(
    count: int, ids: Sequence[Any] | None, split: Sequence, seed: int, sources: Values, asked: Asked
) -> tuple[dict[str, list[_Part]], list[str]]:
    """The parts of each split, and a remark on how they were chosen."""
    lengths = [len(part) for part in sources.parts]
    whole = [_Part(number, 0, length) for number, length in enumerate(lengths)]
    if len(split) > 0 and isinstance(split[0], str):
        return _as_told(split, whole), []
    names = texts_of(range(count) if ids is None else ids, "the ids of sequences")
    if len(names) != count:
        raise InputError(f"got {len(names)} ids for {count} sequences: expected one for each")
    shares = [float(share) for share in split]
    if len(set(names)) < len(SPLITS):
        return _in_time(lengths, shares, asked.at_end), ["cut in time: first training, then validation, then test"]
    splits = {name: part for part, chosen in split_names(set(names), shares, seed).items() for name in chosen}
    found = {part: [each for each, name in zip(whole, names, strict=True) if splits[name] == part] for part in SPLITS}
    return found, []


def _as_told(split: Sequence[str], whole: list[_Part]) -> dict[str, list[_Part]]:
    if len(split) != len(whole):
        raise InputError(f"got the splits of {len(split)} sequences for {len(whole)}: expected one for each")
    unknown = sorted(set(map(str, split)) - set(SPLITS))
    found = {name: [each for each, told in zip(whole, split, strict=True) if told == name] for name in SPLITS}
    empty = [name for name in SPLITS if not found[name]]
    if unknown or empty:
        wrong = f"unknown {unknown[0]!r}" if unknown else f"none in {empty[0]}"
        raise InputError(f"the splits of the sequences have {wrong}: expected some of each of {', '.join(SPLITS)}")
    return found


def _in_time(lengths: list[int], shares: Sequence[float], at_end: bool) -> dict[str, list[_Part]]:
    if at_end:
        raise InputError(f"{len(lengths)} sequences with one target each cannot be split: expected at least 3")
    if min(lengths) < len(SPLITS):
        raise InputError(f"a sequence of {min(lengths)} steps cannot be cut into three: expected at least 3")
    found: dict[str, list[_Part]] = {split: [] for split in SPLITS}
    for number, length in enumerate(lengths):
        for split, part in cut(length, shares).items():
            found[split].append(_Part(number, part.start, part.stop))
    return found


def _remarks(asked: Asked, sources: Values, next_step: bool) -> list[str]:
    told = (
        []
        if next_step
        else [f"targets are {described(asked.values)}, one per {'sequence' if asked.at_end else 'step'}"]
    )
    steps, counted = sum(map(len, asked.masks)), sum(int(mask.sum()) for mask in asked.masks)
    if not asked.at_end and counted < steps:
        told.append(f"{steps - counted} of {steps} steps ask for nothing")
    return [f"inputs are {described(sources)}" + (", and the next one is predicted" if next_step else ""), *told]


def _fitted(numbers: np.ndarray) -> Scaling:
    if len(numbers) == 0:
        raise InputError("the training split has no targets: choose other splits or masks")
    spread = numbers.std(axis=0)
    constant = spread <= 1e-12 * np.maximum(1, np.abs(numbers).max(axis=0))
    return Scaling(numbers.mean(axis=0).tolist(), np.where(constant, 1.0, spread).tolist())


def _as_seen(values: np.ndarray, scaling: Scaling | None) -> np.ndarray:
    if values.dtype != np.float64:
        return values
    return values.astype(np.float32) if scaling is None else scaling.normalized(values)
