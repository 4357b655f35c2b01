"""The differences between sampling music, text and series: how samples begin, what they become, how they are shown."""

import shutil
from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any

import numpy as np

from longspan.cli.sample_options import SampleOptions, meter_of, program_of
from longspan.data.dataset import DataRecord
from longspan.data.music import WITH_ONSETS
from longspan.data.vocabulary import Vocabulary
from longspan.sampling.held import held_keys
from longspan.sampling.notes import Score, lowest_sounding_pitch, to_score
from longspan.sampling.picture import to_blocks
from longspan.sampling.prime import name_some, read_music_prime, read_series_prime, read_text_prime
from longspan.sampling.render import render_music, render_series, render_text
from longspan.terminal import put_out, say

DEFAULT_BEATS = 64
DEFAULT_LENGTHS = {"word": 100, "token": 100, "character": 500, "byte": 500}
DEFAULT_STEPS = 100


class Medium(ABC):
    """The music or text of a run, according to the options."""

    length: int
    """Number of steps to draw."""
    outputs: tuple[Path, ...]
    prime: np.ndarray | None = None
    held: np.ndarray | None = None
    end_token: int | None = None

    def __init__(self, options: SampleOptions):
        self.options = options
        self.outputs = options.output
        self.remarks: list[str] = []

    @abstractmethod
    def finish(self, sample: np.ndarray) -> Any:
        """Turn a drawn sample into a score or text, preceded by the prime unless that is to be omitted."""

    @abstractmethod
    def render(self, finished: Any, ending: str) -> bytes:
        """The content of a file."""

    @abstractmethod
    def show(self, finished: list, written: list[Path]) -> None:
        """Show the samples, or the files written, to the user."""

    @abstractmethod
    def describe(self, finished: list) -> dict:
        """Describe the samples for JSON."""


class Music(Medium):
    """Music: piano rolls become scores."""

    def __init__(self, options: SampleOptions, record: DataRecord):
        super().__init__(options)
        self.frames_per_beat = record.frames_per_beat or 1
        self.octave_shift = record.octave_shift
        self.width = record.size
        self.outputs = options.output or (unused(Path("sample.mid"), options.num),)
        move_by = None if options.prime_shift == "auto" else options.prime_shift
        melody = None
        if options.prime is not None:
            self.prime, move_by = self._read(options.prime, "prime", move_by)
            self.prime = self.prime[: options.prime_length]
        if options.melody is not None:
            melody, move_by = self._read(options.melody, "melody", move_by)
        self.length = options.length or (DEFAULT_BEATS * self.frames_per_beat if melody is None else len(melody))
        self.lowest_pitch = lowest_sounding_pitch(record.octave_shift, move_by or 0)
        self.held = held_keys(
            self.length,
            self.lowest_pitch,
            keep=options.keep,
            forbid=options.forbid,
            melody=melody,
            width=self.width,
        )

    def _read(self, path: Path, role: str, move_by: int | None) -> tuple[np.ndarray, int]:
        """The frames of a prime or melody, and the semitones that they were moved by."""
        roll, moved_by, beyond = read_music_prime(
            path,
            frames_per_beat=self.frames_per_beat,
            octave_shift=self.octave_shift,
            move_by=move_by,
            role=role,
            onsets=self.width == WITH_ONSETS,
        )
        if move_by is None and moved_by:
            self.remarks.append(
                f"the {role} was transposed by {moved_by:+d} semitones to C for the model, and the sample back; "
                "--prime-shift 0 leaves it where it is"
            )
        if beyond:
            self.remarks.append(f"notes of the {role} left out because they lie beyond the model's keyboard: {beyond}")
        return roll, moved_by

    def finish(self, sample: np.ndarray) -> Score:
        prime = None if self.options.omit_prime else self.prime
        return to_score(
            sample if prime is None else np.concatenate([prime, sample]),
            frames_per_beat=self.frames_per_beat,
            lowest_pitch=self.lowest_pitch,
            re_attack=self.options.re_attack,
            prime_frames=0 if prime is None else len(prime),
        )._replace(meter=meter_of(self.options.meter), program=program_of(self.options.instrument))

    def render(self, finished: Score, ending: str) -> bytes:
        return render_music(finished, ending, self.options.tempo)

    def show(self, finished: list[Score], written: list[Path]) -> None:
        if not self.options.output:
            say(to_blocks(finished[0], shutil.get_terminal_size().columns) + "\n")
        seconds = round(finished[0].seconds(self.options.tempo))
        duration = f"{seconds // 60}:{seconds % 60:02d}"
        say_what_was_written(
            written, f"{finished[0].frames} frames, {duration}, seed {self.options.seed}", self.remarks
        )

    def describe(self, finished: list[Score]) -> dict:
        return {"frames": finished[0].frames, "seconds": finished[0].seconds(self.options.tempo)}


class Text(Medium):
    """Text: tokens become text."""

    def __init__(self, options: SampleOptions, record: DataRecord):
        super().__init__(options)
        self.vocabulary = Vocabulary.of(record)
        self.unit = self.vocabulary.unit
        self.length = options.length or DEFAULT_LENGTHS[self.unit]
        self.end_token = record.end_token or 0
        self.held = None if options.unknown else self.vocabulary.without_unknown()
        if options.prime is not None:
            self.prime, unknown = read_text_prime(options.prime, self.vocabulary)
            self.prime = self.prime[: options.prime_length]
            if unknown:
                self.remarks.append(f"the prime has {self.unit}s that the model does not know: {name_some(unknown)}")

    def finish(self, sample: np.ndarray) -> str:
        prime = [] if self.prime is None or self.options.omit_prime else self.prime.tolist()
        return self.vocabulary.decode([*prime, *sample.tolist()])

    def render(self, finished: str, ending: str) -> bytes:
        del ending
        return render_text(finished).encode()

    def show(self, finished: list[str], written: list[Path]) -> None:
        if written:
            say_what_was_written(written, f"{self.length} {self.unit}s drawn, seed {self.options.seed}", self.remarks)
            return
        for remark in self.remarks:
            say(f"note: {remark}\n", error=True)
        for number, text in enumerate(finished, 1):
            heading = f"--- {number} of {len(finished)} ---\n" if len(finished) > 1 else ""
            put_out(heading + render_text(text))

    def describe(self, finished: list[str]) -> dict:
        return {} if self.outputs else {"text": finished}


class Series(Medium):
    """A user's own sequences: tables in the units of the data."""

    def __init__(self, options: SampleOptions, record: DataRecord):
        super().__init__(options)
        self.record = record
        self.length = options.length or DEFAULT_STEPS
        self.end_token = record.end_token
        if options.prime is not None:
            prime, left_out = read_series_prime(options.prime, record, options.prime_id)
            self.prime = prime[: options.prime_length]
            if left_out:
                joined = "" if record.id_column else "; all of its rows are one sequence"
                self.remarks.append(f"columns of the prime that the model does not read: {name_some(left_out)}{joined}")

    def finish(self, sample: np.ndarray) -> np.ndarray:
        prime = None if self.options.omit_prime else self.prime
        steps = sample if prime is None else np.concatenate([prime, sample])
        labels = self.record.labels
        return self.record.in_units(steps) if labels is None else np.array([labels[step] for step in steps.tolist()])

    def render(self, finished: np.ndarray, ending: str) -> bytes:
        return render_series(finished, ending, self.record.columns)

    def show(self, finished: list[np.ndarray], written: list[Path]) -> None:
        if written:
            say_what_was_written(written, f"{self.length} steps drawn, seed {self.options.seed}", self.remarks)
            return
        for remark in self.remarks:
            say(f"note: {remark}\n", error=True)
        for steps in finished:
            put_out(render_series(steps, ".csv", self.record.columns).decode())

    def describe(self, finished: list[np.ndarray]) -> dict:
        return {} if self.outputs else {"steps": [steps.tolist() for steps in finished]}


def medium_of(options: SampleOptions, record: DataRecord) -> Medium:
    """The medium of a run's data."""
    kinds = {"music": Music, "text": Text, "series": Series}
    return kinds[record.kind_to_sample()](options, record)


def numbered(path: Path, num: int) -> list[Path]:
    """The files of `num` samples: `path` itself for one, else `stem-1`, `stem-2`, ..., padded so that they sort."""
    if num == 1:
        return [path]
    return [path.with_stem(f"{path.stem}-{number:0{len(str(num))}d}") for number in range(1, num + 1)]


def unused(path: Path, num: int) -> Path:
    """A path like `path` none of whose files exist, so that the default never overwrites an earlier sample."""
    candidate, number = path, 1
    while any(file.exists() for file in numbered(candidate, num)):
        number += 1
        candidate = path.with_stem(f"{path.stem}{number}")
    return candidate


def say_what_was_written(written: list[Path], figures: str, remarks: list[str]) -> None:
    """Print the files written, with remarks."""
    for path in written:
        say(f"wrote {path} ({figures})\n")
    for remark in remarks:
        say(f"note: {remark}\n")
