"""Polyphonic music as piano rolls: the music data set, and reading the paper's files.

A song is a uint8 array, time x 88 keys, 1 where a key sounds; column 0 is the lowest key of a piano, MIDI pitch 21.
A key that sounds in two frames in a row is held. Songs *with onsets* have 88 columns more, 1 where a key is struck
again though it sounded in the frame before, so that repeated notes stay repeated.
"""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from longspan.data.benchmarks import Benchmark
from longspan.data.cues import NO_CUES, Cues
from longspan.data.dataset import SPLITS, Baselines, Chunks, DataRecord, Dataset, array_of, check_splits, whole
from longspan.data.sequences import Song, arrange, arrange_pairs, song_order
from longspan.errors import InputError
from longspan.limits import FRAMES_PER_BEAT, OCTAVE_SHIFT

KEYS = 88
WITH_ONSETS = 2 * KEYS
"""Columns of songs that say which keys are struck again."""
LOWEST_PITCH = 21
HIGHEST_PITCH = LOWEST_PITCH + KEYS - 1
DEFAULT_FRAMES_PER_BEAT = 2
"""Resolution assumed for rolls whose file does not state it."""
MOST_AUGMENTED = 12
TRANSPOSITIONS, FORGETTING = 88, 89
"""Added to the seed, so that random transpositions and hidden cues use streams of their own."""
EVALUATION_LANES = 16
"""Number of songs evaluated in parallel; it affects the score only by rounding."""
FRAMES_AT_ONCE = 256
"""Frames whose distributions of notes fit the second-level cache."""


@dataclass(frozen=True)
class MusicSplit:
    """Sizes of a split of music: songs, frames, and notes per frame."""

    songs: int
    frames: int
    longest_song: int
    notes_per_frame: float
    most_notes: int


@dataclass(frozen=True, eq=False)
class MusicData(Dataset):
    """Songs in three splits.

    Args:
        name: the name under which the user loaded it.
        splits: songs by split, `train`, `valid`, `test`; each uint8, time x 88, or 176 with onsets.
        frames_per_beat: time resolution, in frames per quarter note.
        octave_shift: octaves to add to the pitches to restore those of the scores.
        origin: a phrase that says where the songs come from.
        remarks: notes on what was left out or changed, one line each.
        augment: semitones by which training songs are moved up or down at most, differently in every epoch.
        cues: further inputs of a network, beside the last frame.
        cue_dropout: fraction of the training steps at which nothing is recalled, redrawn in every epoch.
    """

    name: str
    splits: Mapping[str, list[Song]]
    frames_per_beat: int
    octave_shift: int = 0
    origin: str = ""
    remarks: tuple[str, ...] = field(default=(), repr=False)
    augment: int = 0
    cues: Cues = NO_CUES
    cue_dropout: float = 0.0

    def __post_init__(self) -> None:
        check_splits(self.splits, self.name)
        limits = {
            "frames_per_beat": (1, FRAMES_PER_BEAT),
            "octave_shift": (-OCTAVE_SHIFT, OCTAVE_SHIFT),
            "augment": (0, MOST_AUGMENTED),
        }
        for field_name, (low, high) in limits.items():
            object.__setattr__(self, field_name, whole(getattr(self, field_name), field_name, low, high))
        known = isinstance(self.cues, Cues) and isinstance(self.cue_dropout, (int, float))
        if not known or not 0 <= self.cue_dropout <= 1:
            raise InputError(
                f"{self.name}: expected Cues, such as Cues.named('recall'), and a cue_dropout from 0 to 1, got "
                f"{self.cues!r} and {self.cue_dropout!r}"
            )
        checked = {split: _checked_songs(self.splits[split], f"{self.name}, {split}") for split in SPLITS}
        if len({song.shape[1] for songs in checked.values() for song in songs}) > 1:
            raise InputError(f"{self.name} has songs with and without onsets: expected the same for all")
        object.__setattr__(self, "splits", checked)

    @property
    def width(self) -> int:
        """Columns of a song: 88 keys, and as many for the keys that are struck again if the songs have onsets."""
        return self.splits["train"][0].shape[1]

    @property
    def record(self) -> DataRecord:
        return DataRecord(
            "music",
            self._digest,
            self.width,
            input_size=None if self.cues == NO_CUES else self.cues.width(self.width),
            frames_per_beat=self.frames_per_beat,
            octave_shift=self.octave_shift,
        )

    @cached_property
    def _digest(self) -> str:
        """SHA-256 of the songs and their splits, independent of where they came from."""
        digest = hashlib.sha256(b"music" if not self.augment else f"music moved by {self.augment}".encode())
        for split in SPLITS:
            songs = self.splits[split]
            digest.update(np.array([len(songs), *map(len, songs)], "<i8").tobytes())
            for song in songs:
                digest.update(np.packbits(song, axis=1).tobytes())
        return digest.hexdigest()

    def with_cues(self, names: str, dropout: float = 0.0) -> MusicData:
        if names == "none" and self.cues == NO_CUES:
            return self
        return dataclasses.replace(self, cues=Cues.named(names), cue_dropout=dropout)

    def chunks(self, split: str, chunk_length: int, lanes: int) -> Chunks:
        if self.cues == NO_CUES:
            return arrange(self.splits[split], chunk_length, lanes)
        return arrange_pairs(self._inputs[split], self.splits[split], chunk_length=chunk_length, lanes=lanes)

    def epoch(self, number: int, *, seed: int, chunk_length: int, lanes: int) -> Chunks:
        """The songs in an order, and perhaps transpositions and with cues, determined by seed and epoch."""
        songs = self.splits["train"]
        order = song_order(len(songs), seed, number)
        shifts = [0] * len(songs)
        if self.augment:
            draws = np.random.default_rng([TRANSPOSITIONS, seed, number])
            shifts = [within(song, int(draws.integers(-self.augment, self.augment + 1))) for song in songs]
            songs = [np.roll(song, shift, axis=1) for song, shift in zip(songs, shifts, strict=True)]
        if self.cues == NO_CUES:
            return arrange(songs, chunk_length, lanes, order)
        inputs = self._inputs["train"]
        if self.augment:
            inputs = [self.cues.moved(part, self.width, shift) for part, shift in zip(inputs, shifts, strict=True)]
        if self.cues.recall and self.cue_dropout:
            draws = np.random.default_rng([FORGETTING, seed, number])
            inputs = [
                self.cues.forgetting(part, self.width, draws.random(len(part)) < self.cue_dropout) for part in inputs
            ]
        return arrange_pairs(inputs, songs, chunk_length=chunk_length, lanes=lanes, order=order)

    @cached_property
    def _inputs(self) -> Mapping[str, list[np.ndarray]]:
        """What a network reads, by split and song; the past of a song is looked up once."""
        return {split: [self.cues.inputs_of(song) for song in songs] for split, songs in self.splits.items()}

    def evaluation_lanes(self, split: str) -> int:
        return min(EVALUATION_LANES, len(self.splits[split]))

    def excerpt(self, split: str, steps: int) -> Chunks:
        """The beginning of the longest song."""
        longest = max(self.splits[split], key=len)[:steps]
        return Chunks(
            *(leaf[0] for leaf in arrange_pairs([self.cues.inputs_of(longest)], [longest], chunk_length=steps))
        )

    def base_rates(self) -> np.ndarray:
        notes, frames = note_counts(self.splits["train"])
        return notes / frames

    def baselines(self, split: str) -> MusicBaselines:
        return music_baselines(self.splits["train"], self.splits[split])

    def split_figures(self, split: str) -> MusicSplit:
        songs = self.splits[split]
        notes = np.concatenate([song[:, :KEYS].sum(axis=1, dtype=np.uint8) for song in songs])
        return MusicSplit(len(songs), len(notes), max(map(len, songs)), float(notes.mean()), int(notes.max()))

    def details(self) -> dict[str, Any]:
        return {"frames_per_beat": self.frames_per_beat, "onsets": self.width == WITH_ONSETS}

    def steps_of_epoch(self) -> int:
        return sum(map(len, self.splits["train"]))


def within(song: Song, semitones: int) -> int:
    """The number of semitones by which a song can be moved, as far as all its notes stay on the keyboard."""
    keys = np.flatnonzero(song[:, :KEYS].any(axis=0))  # those that are struck again are among them
    if len(keys) == 0:
        return 0
    return min(max(semitones, -int(keys[0])), KEYS - 1 - int(keys[-1]))


def read_benchmark_rolls(benchmark: Benchmark, path: Path) -> MusicData:
    """Read the paper's piano rolls from a `.mat` file whose checksum was verified."""
    import scipy.io

    content = scipy.io.loadmat(path, variable_names=[f"{split}data" for split in SPLITS])
    splits = {
        split: [np.ascontiguousarray(song, dtype=np.uint8) for song in content[f"{split}data"].ravel()]
        for split in SPLITS
    }
    return MusicData(
        benchmark.name,
        splits,
        benchmark.frames_per_beat,
        benchmark.octave_shift,
        f"{path.name}, the authors' rolls",
    )


def _checked_songs(songs: Sequence[np.ndarray], where: str) -> list[Song]:
    checked = []
    for number, song in enumerate(songs):
        place = f"song {number} of {where}"
        checked.append(check_song(array_of(song, place), place))
    if not checked:
        raise InputError(f"{where} has no songs: expected at least one in every split")
    return checked


def check_song(song: np.ndarray, where: str) -> Song:
    """Return the array as a song, or raise an `InputError` that says what a song must be."""
    check_shape(song.shape, song.dtype, where)
    song = check_values(song, where)
    if song.shape[1] == WITH_ONSETS and np.any(song[:, KEYS:] > song[:, :KEYS]):
        raise InputError(f"{where} strikes keys again that do not sound; the last {KEYS} columns are onsets")
    return song


def check_shape(shape: tuple[int, ...], dtype: np.dtype, where: str) -> None:
    """Raise unless an array of this shape and type can be a song; its values are not needed."""
    if len(shape) != 2 or shape[1] not in (KEYS, WITH_ONSETS):
        raise InputError(
            f"{where} has shape {shape}, expected time x {KEYS} keys, or {WITH_ONSETS} with onsets; "
            f"cut rolls of 128 pitches as roll[:, {LOWEST_PITCH}:{HIGHEST_PITCH + 1}]"
        )
    if dtype.kind not in "biuf":
        raise InputError(f"{where} must hold nothing but 0 and 1; threshold velocities first")
    if shape[0] == 0:
        raise InputError(f"{where} has no frames; leave empty songs out")


def check_values(values: np.ndarray, where: str) -> np.ndarray:
    """Convert zeros and ones of any type to uint8; raises `InputError` on other values."""
    if np.any((values != 0) & (values != 1)):
        raise InputError(f"{where} must hold nothing but 0 and 1; threshold velocities first")
    return values.astype(np.uint8, copy=False)


@dataclass(frozen=True)
class MusicBaselines(Baselines):
    """Log-likelihoods in nats per frame; accuracies as fractions, in expectation over sampled frames."""

    one_rate_log_likelihood: float
    key_rates_log_likelihood: float
    random_accuracy: float
    random_accuracy_union: float
    key_rates_accuracy: float
    key_rates_accuracy_union: float

    def rows(self) -> list[tuple[str, dict[str, float]]]:
        per_key = {
            "log_likelihood": self.key_rates_log_likelihood,
            "accuracy": self.key_rates_accuracy,
            "accuracy_union": self.key_rates_accuracy_union,
        }
        return [("one rate per key", per_key), ("one rate for all", {"log_likelihood": self.one_rate_log_likelihood})]


def music_baselines(train: list[Song], test: list[Song]) -> MusicBaselines:
    """Baselines for songs, fitted to the training split and measured on another."""
    notes, frames = note_counts(train)
    keys = len(notes)
    # Half a note and half a silence are added to each key, because a key of the test split may be silent in training.
    key_rates = (notes + 0.5) / (frames + 1)
    one_rate = np.full(keys, notes.sum() / (frames * keys))
    # The rates never change, so equal frames are computed once.
    packed = np.concatenate([np.packbits(song, axis=1) for song in test])
    packed, counts = np.unique(packed, axis=0, return_counts=True)
    distinct = np.unpackbits(packed, axis=1, count=keys)
    random_accuracy, random_union = expected_accuracy(np.full(keys, 0.5), distinct, counts)
    key_accuracy, key_union = expected_accuracy(key_rates, distinct, counts)
    return MusicBaselines(
        _log_likelihood(one_rate, test),
        _log_likelihood(key_rates, test),
        random_accuracy,
        random_union,
        key_accuracy,
        key_union,
    )


def note_counts(songs: list[Song]) -> tuple[np.ndarray, int]:
    """The number of frames in which each key sounds, and the number of frames."""
    return np.sum([song.sum(axis=0, dtype=np.int64) for song in songs], axis=0), sum(map(len, songs))


def _log_likelihood(rates: np.ndarray, songs: list[Song]) -> float:
    notes, frames = note_counts(songs)
    present = notes / frames
    return float(present @ np.log(rates) + (1 - present) @ np.log1p(-rates))


def expected_accuracy(rates: np.ndarray, frames: np.ndarray, weights: np.ndarray | None = None) -> tuple[float, float]:
    r"""Exact expected `accuracy` and `accuracy_union` of frames sampled key by key.

    With TP true positives among n true notes and FP false ones, accuracy is the mean over frames of $TP /
    \max(n, TP + FP)$ and accuracy_union of $TP / (n + FP)$, 0/0 counted as 1. Keys are independent given the
    rates, so TP and FP are too, and each has a Poisson-binomial distribution.

    Args:
        rates: the probability of each key, (88,), or (frames, 88) if it differs between frames.
        frames: the true frames, (frames, 88), of 0 and 1.
        weights: the weight of each frame in the mean; equal by default.
    """
    rates = np.broadcast_to(rates, frames.shape)
    weights = np.ones(len(frames)) if weights is None else weights
    sums = np.zeros(2)
    for start in range(0, len(frames), FRAMES_AT_ONCE):
        part = slice(start, start + FRAMES_AT_ONCE)
        sums += _summed_accuracies(np.asarray(rates[part], np.float64), frames[part].astype(bool), weights[part])
    accuracy, union = sums / weights.sum()
    return float(accuracy), float(union)


def count_distribution(rates: np.ndarray) -> np.ndarray:
    """Probability of each number of notes, (frames, keys + 1), if keys sound independently with these rates."""
    frames, keys = rates.shape
    distribution = np.zeros((keys + 1, frames))
    distribution[0] = 1
    for key, rate in enumerate(rates.T):
        moved = distribution[: key + 1] * rate
        distribution[: key + 1] -= moved
        distribution[1 : key + 2] += moved
    return distribution.T


def _summed_accuracies(rates: np.ndarray, frames: np.ndarray, weights: np.ndarray) -> np.ndarray:
    notes = frames.sum(axis=1)
    most = int(notes.max(initial=0))
    # Sounding keys are packed to the front: few sound at once, which keeps this distribution short.
    packed = np.argsort(~frames, axis=1, kind="stable")[:, :most]
    hits = count_distribution(np.take_along_axis(rates * frames, packed, axis=1))
    false_alarms = count_distribution(np.where(frames, 0.0, rates))
    sums = np.zeros(2)
    for true in np.unique(notes):
        rows = notes == true
        joint = (weights[rows, None] * hits[rows, : true + 1]).T @ false_alarms[rows]
        positives = np.arange(true + 1)[:, None]
        alarms = np.arange(frames.shape[1] + 1)[None, :]
        for form, bottom in enumerate((np.maximum(true, positives + alarms), true + alarms)):
            score = np.where(bottom == 0, 1.0, positives / np.maximum(bottom, 1))
            sums[form] += np.sum(joint * score)
    return sums
