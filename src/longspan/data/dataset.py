"""The interface of data sets, and the record of a data set that a run keeps.

A data set cuts its splits into `Chunks` and says what is predicted; everything else has a default that may be
overridden. Your own data set needs two members: `record` and `chunks`.
"""

from __future__ import annotations

import hashlib
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import msgspec
import numpy as np

from longspan.config import Predicted
from longspan.errors import InputError

SPLITS = ("train", "valid", "test")

Progress = Callable[[str, int, int], None]
"""Called while data are loaded: a description of the work, the amount done, and the total (0 if unknown)."""

Unit = Literal["word", "token", "character", "byte"]
"""What a symbol of a text is: a word between blanks, a word or a punctuation mark, a character, or a byte of UTF-8."""

TargetKind = Literal["frames", "words", "characters", "classes", "numbers", "measurements", "switches", "labels"]
"""The kind of target, by which recipes choose their settings; the last three are numbers, keys and classes of a user's
own sequences."""

Sampled = Literal["music", "text", "series"]
"""The kinds of data of which samples can be drawn."""

_PREDICTED: Mapping[str, Predicted] = {
    "music": "keys",
    "text": "symbols",
    "keys": "keys",
    "classes": "symbols",
    "numbers": "numbers",
}

USUAL_MEMORIES: Mapping[TargetKind, str] = {"frames": "recall", "words": "cache+dynamic", "characters": "recall"}
"""The memory that suits a kind of target; the others have no past to recall, since they are not the next inputs."""


def usual_memory(kind: TargetKind) -> str:
    """The memory that suits a kind of target, by name."""
    if kind not in USUAL_MEMORIES:
        raise InputError(f"data of {kind} have no past to recall: leave out the memory (the letter w)")
    return USUAL_MEMORIES[kind]


class Chunks(NamedTuple):
    """Chunks of `time` steps in parallel lanes; the first axis is the chunk.

    Attributes:
        inputs: the input at each step: (chunk, time, lane, input) uint8 for keys or float32 for numbers, or (chunk,
            time, lane) int32 for symbols.
        targets: what is to be predicted at that step, in the same forms.
        resets: (chunk, time, lane) bool, whether the state is reset *before* this step.
        mask: (chunk, time, lane) bool, whether the step counts; the others are padding or have no target.
        lengths: (chunk,) int32, the number of steps up to the last that counts in any lane.

    A data set returns NumPy arrays; inside a compiled step the same tuple holds JAX arrays, and a single chunk has no
    first axis.
    """

    inputs: Any
    targets: Any
    resets: Any
    mask: Any
    lengths: Any


class Scaling(msgspec.Struct, frozen=True):
    """How numbers are normalized, column by column: the mean is subtracted, then they are divided by the scale."""

    mean: list[float]
    scale: list[float]

    def normalized(self, numbers: np.ndarray) -> np.ndarray:
        """Numbers as a model sees them."""
        return ((numbers - np.array(self.mean)) / np.array(self.scale)).astype(np.float32)

    def restored(self, numbers: np.ndarray) -> np.ndarray:
        """Numbers in the units of the data."""
        return numbers * np.array(self.scale) + np.array(self.mean)

    def fits(self, size: int) -> bool:
        """Whether it is one for that number of columns."""
        finite = bool(np.isfinite([*self.mean, *self.scale]).all())
        return finite and len(self.mean) == len(self.scale) == size and min(self.scale, default=1.0) > 0

    @property
    def log_volume(self) -> float:
        """The amount by which the log-density of normalized numbers exceeds that of the numbers themselves."""
        return float(np.log(self.scale).sum())


HOPELESS_DEVIATIONS = 1000


class DataRecord(msgspec.Struct, frozen=True):
    """What a run records about its data: enough to rebuild and use the model without them."""

    kind: Literal["music", "text", "keys", "classes", "numbers"]
    """What is predicted; models of music and text predict their next input."""
    fingerprint: str
    size: int
    """Number of keys per frame, symbols in the vocabulary, possible answers, or predicted numbers."""
    input_size: int | None = None
    """Number of input symbols or numbers, if they differ from what is predicted."""
    vocabulary: list[str] | None = None
    unit: Unit | None = None
    frames_per_beat: int | None = None
    octave_shift: int = 0
    end_token: int | None = None
    """The symbol that precedes a sequence of symbols."""
    next_step: bool = False
    """Whether other data than music and text predict their next input as well, and can thus be sampled."""
    labels: list[str] | None = None
    """What the symbols or classes of other data stand for, unless they are plain numbers from 0."""
    columns: list[str] | None = None
    """Names of the predicted numbers or keys."""
    id_column: str | None = None
    """The column that said which sequence a row of the user's table belongs to."""
    input_scaling: Scaling | None = None
    target_scaling: Scaling | None = None
    """How numbers were normalized; scores and samples are in the units of the data all the same."""

    @property
    def predicted(self) -> Predicted:
        """What an output must predict."""
        return _PREDICTED[self.kind]

    @property
    def hopeless(self) -> float | None:
        """A log-likelihood so far below that of coin tosses, or of the mean, that training has diverged.

        Numbers have such a limit where they are normalized: they are missed by a thousand standard deviations.
        """
        if self.predicted == "numbers":
            scaled = self.target_scaling is not None
            return -self.size * HOPELESS_DEVIATIONS**2 / 2 - self.log_volume if scaled else None
        coin_tosses = {"keys": self.size * math.log(2), "symbols": math.log(max(2, self.size))}
        return -100 * coin_tosses[self.predicted]

    def kind_to_sample(self) -> Sampled:
        """The kind of data, refused unless the model predicts its next input and can thus be sampled."""
        if self.kind == "music" or self.kind == "text":
            return self.kind
        if self.next_step:
            return "series"
        raise InputError(
            f"these data ask for {self.kind}, so a model of them cannot be sampled: use music, text or data whose "
            "targets are their next step"
        )

    def as_seen(self, steps: np.ndarray) -> np.ndarray:
        """Targets in the units of the data, as a model sees them; what such data cannot hold is refused."""
        if self.predicted != "numbers":
            most = 1 if self.predicted == "keys" else self.size - 1
            whole = steps.dtype.kind in "biu" or (steps.dtype.kind == "f" and bool((steps == np.floor(steps)).all()))
            if not whole or (steps.size and not 0 <= steps.min() <= steps.max() <= most):
                raise InputError(f"expected steps of whole numbers from 0 to {most}: {self.predicted} are predicted")
        elif steps.ndim != 2 or steps.shape[1] != self.size or steps.dtype.kind not in "biuf":
            raise InputError(f"expected numbers of shape (time, {self.size}), got {steps.dtype} of shape {steps.shape}")
        elif not np.isfinite(steps).all():
            raise InputError(f"expected finite numbers: step {np.argwhere(~np.isfinite(steps))[0][0]} holds others")
        return steps if self.target_scaling is None else self.target_scaling.normalized(steps)

    def in_units(self, steps: np.ndarray) -> np.ndarray:
        """Targets as a model draws them, in the units of the data."""
        return steps if self.target_scaling is None else self.target_scaling.restored(steps)

    @property
    def log_volume(self) -> float:
        """What normalization adds to a log-likelihood, in nats."""
        return 0.0 if self.target_scaling is None else self.target_scaling.log_volume


@dataclass(frozen=True)
class Baselines(ABC):
    """Scores reached without looking at the past, as references for every result."""

    @abstractmethod
    def rows(self) -> list[tuple[str, dict[str, float]]]:
        """The label of each baseline and its scores, keyed by the fields of `Scores`."""


@dataclass(frozen=True)
class RateBaselines(Baselines):
    """Prediction by the training frequency of each key or symbol, or by the mean for numbers."""

    log_likelihood: float
    squared_error: float | None = None

    def rows(self) -> list[tuple[str, dict[str, float]]]:
        squares = {} if self.squared_error is None else {"squared_error": self.squared_error}
        return [("without looking at the past", {"log_likelihood": self.log_likelihood, **squares})]


@dataclass(frozen=True)
class SplitFigures:
    """Sizes of a split."""

    steps: int
    asked_steps: int


class Dataset(ABC):
    """Sequences in three splits: `train`, `valid` and `test`.

    A subclass has a `name`, a `record` and `chunks`; everything else has a default derived from those.
    """

    name: str
    origin: str = ""
    """A phrase that says where the data come from."""
    remarks: tuple[str, ...] = ()
    """Notes on what was left out or changed, one line each."""

    @property
    @abstractmethod
    def record(self) -> DataRecord:
        """What a run records about the data."""

    @abstractmethod
    def chunks(self, split: str, chunk_length: int, lanes: int) -> Chunks:
        """A split in its original order, as chunks of at most `chunk_length` steps in `lanes` parallel streams."""

    @property
    def fingerprint(self) -> str:
        """A hash of the content, independent of where it came from."""
        return self.record.fingerprint

    @property
    def target_kind(self) -> TargetKind:
        """The kind of target, by which recipes choose their settings."""
        kinds: dict[Predicted, TargetKind] = {"keys": "switches", "symbols": "classes", "numbers": "numbers"}
        return "frames" if self.record.kind == "music" else kinds[self.record.predicted]

    @property
    def metrics(self) -> tuple[str, ...]:
        """Applicable scores besides the log-likelihood, as fields of `Scores`."""
        figures: dict[Predicted, tuple[str, ...]] = {
            "keys": ("accuracy", "accuracy_union"),
            "symbols": ("class_accuracy",),
            "numbers": ("squared_error", "r2"),
        }
        return figures[self.record.predicted]

    @property
    def solved_below(self) -> dict[str, float]:
        """Validation scores below which training ends because the data are solved."""
        return {}

    @property
    def implied_settings(self) -> dict[str, Any]:
        """Settings of a run that the data determine."""
        return {}

    def with_cues(self, names: str, dropout: float = 0.0) -> Dataset:
        """The same data with further inputs beside the last step, see `longspan.data.cues`.

        Args:
            names: `recall`, `meter`, both as `recall+meter`, or `none`.
            dropout: share of the training steps at which nothing is recalled.
        """
        del dropout
        if names == "none":
            return self
        raise InputError(f"cues describe the past of songs; these data are not music: got {names!r}", fields=["cues"])

    def epoch(self, number: int, *, seed: int, chunk_length: int, lanes: int) -> Chunks:
        """The training split in the order of an epoch, determined by seed and epoch; by default the original order."""
        del number, seed
        return self.chunks("train", chunk_length, lanes)

    def evaluation_lanes(self, split: str) -> int:
        """Number of parallel streams a split may be cut into without changing its score."""
        del split
        return 1

    def counted_steps(self, chunk_length: int) -> int:
        """Number of steps per lane of a full chunk at which something is predicted."""
        return chunk_length

    def excerpt(self, split: str, steps: int) -> Chunks:
        """One long sequence of a split, at most `steps` of it, as a single chunk without a chunk axis."""
        return Chunks(*(leaf[0] for leaf in self.chunks(split, steps, 1)))

    def base_rates(self) -> np.ndarray:
        """Frequency of each key or symbol in the training split; for numbers, their mean."""
        targets = self._asked("train")
        if self.record.predicted == "symbols":
            return shares(targets, self.record.size)
        return targets.mean(axis=0)

    def baselines(self, split: str) -> Baselines:
        """Trivial baselines, fitted to the training split and measured on `split`."""
        rates, targets = self.base_rates(), self._asked(split)
        if self.record.predicted == "symbols":
            return RateBaselines(float(np.mean(np.log(np.maximum(rates, SMALLEST_RATE))[targets])))
        if self.record.predicted == "keys":
            rates = np.clip(rates, SMALLEST_RATE, 1 - SMALLEST_RATE)
            present = targets.mean(axis=0)
            return RateBaselines(float(present @ np.log(rates) + (1 - present) @ np.log1p(-rates)))
        squares = np.square(targets - rates)
        likelihood = -0.5 * float(np.mean(squares.sum(axis=1) + targets.shape[1] * math.log(2 * math.pi)))
        return RateBaselines(likelihood, float(squares.mean()))

    def split_figures(self, split: str) -> Any:
        """Sizes of a split, as a dataclass."""
        chunks = self.chunks(split, PLAIN_CHUNK, 1)
        return SplitFigures(int(np.sum(chunks.lengths)), int(np.sum(chunks.mask)))

    def details(self) -> dict[str, Any]:
        """Further fields of the summary: any of `frames_per_beat`, `onsets`, `unit`, `vocabulary_size`, `span`."""
        return {}

    def steps_of_epoch(self) -> int:
        """Number of counted steps in one pass over the training split."""
        return int(self.chunks("train", PLAIN_CHUNK, 1).mask.sum())

    def _asked(self, split: str) -> np.ndarray:
        chunks = self.chunks(split, PLAIN_CHUNK, 1)
        return np.asarray(chunks.targets)[np.asarray(chunks.mask)]


SMALLEST_RATE = 1e-7
"""Rate assumed for a key or symbol that never occurs in training."""
PLAIN_CHUNK = 1000
"""Chunk length where it does not matter."""


def shares(numbers: np.ndarray, size: int) -> np.ndarray:
    """Relative frequency of each of `size` symbols."""
    counts = np.bincount(numbers, minlength=size)
    return counts / counts.sum()


def fingerprint_of(*arrays: np.ndarray) -> str:
    """A fingerprint of data made of arrays."""
    digest = hashlib.sha256()
    for array in map(np.asarray, arrays):
        if array.dtype.hasobject:
            raise InputError("a fingerprint is of numbers or words: got an array of Python objects")
        digest.update(f"{array.dtype.str}{array.shape}".encode())
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()


def whole(value: Any, name: str, low: int, high: int) -> int:
    """A whole number of any integer type within limits.

    Example:
        >>> whole(np.int64(3), "octave_shift", -9, 9)
        3
    """
    if isinstance(value, (bool, np.bool_)) or not isinstance(value, (int, np.integer)) or not low <= value <= high:
        raise InputError(f"{name} must be a whole number from {low} to {high}: got {value!r}", fields=[name])
    return int(value)


def array_of(values: Any, where: str) -> np.ndarray:
    """Values as an array; those that form none, such as rows of different lengths, are refused."""
    try:
        return np.asarray(values)
    except ValueError as error:
        raise InputError(f"{where} cannot be read as an array ({error}): expected rows of equal length") from error


def texts_of(values: Iterable[Any], what: str) -> list[str]:
    """Values as texts; an array of words may hold half characters, and numbers that are no character at all."""
    try:
        found = [str(value) for value in values]
        "".join(found).encode()
    except (ValueError, SystemError) as error:
        raise InputError(f"{what} hold a word that is no text ({error}): correct it, or number the words") from error
    return found


def check_splits(splits: Mapping[str, Any], name: str) -> None:
    """Refuse data without a name or the three splits."""
    if not isinstance(name, str) or not name:
        raise InputError(f"expected a name of the data set, got {name!r}", fields=["name"])
    if not isinstance(splits, Mapping):
        raise InputError(f"{name} needs a dictionary of splits, {', '.join(SPLITS)}: got {type(splits).__name__}")
    missing = [split for split in SPLITS if split not in splits]
    unknown = sorted(set(splits) - set(SPLITS))
    if missing or unknown:
        raise InputError(f"{name} has splits {', '.join(map(str, splits)) or 'none'}: expected {', '.join(SPLITS)}")


def silent(what: str, done: int, total: int) -> None:
    """A `Progress` that shows nothing."""
