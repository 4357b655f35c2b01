"""`longspan sample`: let a trained model go on by itself, and hear, see or read what comes."""

import math
import os
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import msgspec
import numpy as np
import tyro

from longspan import cli
from longspan.cli import machine
from longspan.cli.options import parse
from longspan.errors import InputError
from longspan.files import write_atomic
from longspan.sampling.notes import Score, lowest_sounding_pitch, to_score
from longspan.sampling.prime import MAX_SHIFT, name_some, read_music_prime, read_text_prime, vocabulary_of
from longspan.sampling.render import ENDINGS, render_music, render_text
from longspan.sampling.terminal import to_blocks
from longspan.training.runs import DataRecord, Run

MAX_STEPS = 2_000_000
"""Steps of all samples together, so that they fit into memory."""
DEFAULT_BEATS, DEFAULT_WORDS, DEFAULT_CHARACTERS = 64, 100, 500


@dataclass(frozen=True)
class SampleOptions:
    """Let a trained model go on by itself: music to hear and see, text to read."""

    path: Annotated[Path, tyro.conf.Positional]
    """Folder of the run."""
    output: Annotated[tuple[Path, ...], tyro.conf.arg(aliases=["-o"], metavar="FILE"), tyro.conf.UseAppendAction] = ()
    """Where to write: .mid, .wav, .png or .svg for music, .txt for text. By default music goes to sample.mid, text to
    the terminal."""
    length: int | None = None
    """Frames, words or characters to draw, a prime not counted; by default 64 beats, 100 words or 500 characters."""
    num: int = 1
    """How many samples; the files of several are numbered."""
    temperature: float = 1.0
    """1 samples the model as it is, less makes it play safe, 0 always takes the likeliest."""
    seed: int = 0
    """The same seed gives the same samples."""
    prime: Path | None = None
    """A MIDI or text file that every sample continues."""
    prime_shift: int | Literal["auto"] = "auto"
    """Semitones to move a MIDI prime by for the model; the sample is moved back. auto: to C, as most training data."""
    omit_prime: bool = False
    """Write only what was drawn, without the prime before it."""
    tempo: float = 100.0
    """Quarter notes a minute."""
    re_attack: bool = False
    """Strike a note in every frame it is on instead of holding it."""
    json: bool = False
    """Print only what was written, as JSON."""


def run(arguments: list[str]) -> int:
    options = parse(SampleOptions, arguments, "longspan sample")
    sampled = Run.open(options.path)
    length = _check(options, sampled.data)
    session = MusicSession(options, sampled.data) if sampled.data.kind == "music" else TextSession(options, sampled.data)
    machine.prepare(sampled.config.threads)
    import jax

    from longspan.sampling.generate import generate
    from longspan.training.loop import trained_model

    samples = generate(
        trained_model(sampled),
        length=length,
        num=options.num,
        key=jax.random.key(options.seed),
        temperature=options.temperature,
        prime=session.prime,
        end_token=session.end_token,
    )
    content = [session.with_prime(sample) for sample in samples]
    written = _write(session, content)
    if options.json:
        _print_json(options, length, written, session, content)
    else:
        session.show(content, written)
    return cli.DONE


class MusicSession:
    """How samples of music begin, are written and are shown."""

    end_token = None

    def __init__(self, options: SampleOptions, record: DataRecord):
        self.options = options
        self.frames_per_beat = round(record.frames_per_beat or 1)
        self.prime: np.ndarray | None = None
        self.remarks: list[str] = []
        moved_by = 0
        if options.prime is not None:
            move_by = None if options.prime_shift == "auto" else options.prime_shift
            self.prime, moved_by, beyond = read_music_prime(
                options.prime, frames_per_beat=self.frames_per_beat, octave_shift=record.octave_shift, move_by=move_by
            )
            self._remark_on_prime(moved_by, beyond)
        self.lowest_pitch = lowest_sounding_pitch(record.octave_shift, moved_by)
        self.outputs = options.output or (_unused(Path("sample.mid"), options.num),)

    def _remark_on_prime(self, moved_by: int, beyond: int) -> None:
        if moved_by and self.options.prime_shift == "auto":
            self.remarks.append(
                f"the prime was moved by {moved_by:+d} semitones to C for the model, and the sample back; "
                "--prime-shift 0 leaves it where it is"
            )
        if beyond:
            self.remarks.append(f"{beyond} notes of the prime lie beyond the model's keyboard and were left out")

    def with_prime(self, sample: np.ndarray) -> Score:
        prime = None if self.options.omit_prime else self.prime
        return to_score(
            sample if prime is None else np.concatenate([prime, sample]),
            frames_per_beat=self.frames_per_beat,
            lowest_pitch=self.lowest_pitch,
            re_attack=self.options.re_attack,
            prime_frames=0 if prime is None else len(prime),
        )

    def render(self, score: Score, ending: str) -> bytes | str:
        return render_music(score, ending, self.options.tempo)

    def show(self, scores: list[Score], written: list[Path]) -> None:
        if not self.options.output:
            sys.stdout.write(to_blocks(scores[0], shutil.get_terminal_size().columns) + "\n")
        seconds = round(scores[0].seconds(self.options.tempo))
        length = f"{scores[0].frames} frames, {seconds // 60}:{seconds % 60:02d}, seed {self.options.seed}"
        _say(written, length, self.remarks)

    def report(self, scores: list[Score]) -> dict:
        return {"frames": scores[0].frames, "seconds": scores[0].seconds(self.options.tempo)}


class TextSession:
    """How samples of text begin, are written and are shown."""

    def __init__(self, options: SampleOptions, record: DataRecord):
        self.options = options
        self.unit: Literal["word", "character"] = "word" if record.unit == "word" else "character"
        self.vocabulary = vocabulary_of(record.vocabulary or [], self.unit)
        self.end_token = self.vocabulary.end_token
        self.prime: np.ndarray | None = None
        self.remarks: list[str] = []
        if options.prime is not None:
            self.prime, unknown = read_text_prime(options.prime, self.vocabulary)
            if unknown:
                self.remarks.append(f"the prime has {self.unit}s unknown to the model: {name_some(unknown)}")
        self.outputs = options.output

    def with_prime(self, sample: np.ndarray) -> str:
        prime = [] if self.prime is None or self.options.omit_prime else self.prime.tolist()
        return self.vocabulary.decode([*prime, *sample.tolist()])

    def render(self, text: str, ending: str) -> bytes | str:
        del ending
        return render_text(text)

    def show(self, texts: list[str], written: list[Path]) -> None:
        if written:
            _say(written, f"seed {self.options.seed}", self.remarks)
            return
        for remark in self.remarks:
            sys.stderr.write(f"longspan: {remark}\n")
        for number, text in enumerate(texts, 1):
            heading = f"--- {number} of {len(texts)} ---\n" if len(texts) > 1 else ""
            sys.stdout.write(heading + render_text(text))

    def report(self, texts: list[str]) -> dict:
        return {} if self.outputs else {"text": texts}


def numbered(path: Path, num: int) -> list[Path]:
    """The files of `num` samples: `path` itself for one, else `stem-1`, `stem-2`, ... padded so that they sort."""
    if num == 1:
        return [path]
    return [path.with_stem(f"{path.stem}-{number:0{len(str(num))}d}") for number in range(1, num + 1)]


def _check(options: SampleOptions, record: DataRecord) -> int:
    """Refuse what cannot be done before anything slow happens; returns the number of steps to draw."""
    beats = DEFAULT_BEATS * round(record.frames_per_beat or 1)
    default = beats if record.kind == "music" else DEFAULT_WORDS if record.unit == "word" else DEFAULT_CHARACTERS
    length = default if options.length is None else options.length
    for flag, value in (("--length", length), ("--num", options.num)):
        if value < 1:
            raise InputError(f"{flag} must be at least 1: got {value}")
    if length * options.num > MAX_STEPS:
        raise InputError(f"--length times --num must be at most {MAX_STEPS}: got {length} times {options.num}")
    if not (options.temperature >= 0 and math.isfinite(options.temperature)):
        raise InputError(f"--temperature must be 0 (the likeliest) or more: got {options.temperature:g}")
    if not 0 <= options.seed < 2**32:
        raise InputError(f"--seed must be from 0 to {2**32 - 1}: got {options.seed}")
    if not 10 <= options.tempo <= 1000:
        raise InputError(f"--tempo must be from 10 to 1000 quarter notes a minute: got {options.tempo:g}")
    if options.prime_shift != "auto" and abs(options.prime_shift) > MAX_SHIFT:
        raise InputError(f"--prime-shift must be from {-MAX_SHIFT} to {MAX_SHIFT}: got {options.prime_shift}")
    for path in options.output:
        _check_output(path, record.kind)
    return length


def _check_output(path: Path, kind: Literal["music", "text"]) -> None:
    if path.suffix.lower() not in ENDINGS[kind]:
        raise InputError(f"a sample of {kind} can be written to {', '.join(ENDINGS[kind])}: got {path}")
    if path.is_dir():
        raise InputError(f"{path} is a folder, expected the name of a file")
    if not path.parent.is_dir():
        raise InputError(f"cannot write {path}: there is no folder {path.parent}; make it first")
    if not os.access(path.parent, os.W_OK):
        raise InputError(f"cannot write {path}: the folder {path.parent} is not writable; choose another")


def _unused(path: Path, num: int) -> Path:
    """A name like `path` none of whose files exist, so that a default never overwrites an earlier sample."""
    candidate, number = path, 1
    while any(file.exists() for file in numbered(candidate, num)):
        number += 1
        candidate = path.with_stem(f"{path.stem}{number}")
    return candidate


def _write(session: MusicSession | TextSession, content: list) -> list[Path]:
    written = []
    for output in session.outputs:
        for path, sample in zip(numbered(output, len(content)), content, strict=True):
            write_atomic(path, session.render(sample, path.suffix.lower()))
            written.append(path)
    return written


def _say(written: list[Path], figures: str, remarks: list[str]) -> None:
    for path in written:
        sys.stdout.write(f"wrote {path} ({figures})\n")
    for remark in remarks:
        sys.stdout.write(f"note: {remark}\n")


def _print_json(options: SampleOptions, length: int, written: list[Path], session, content: list) -> None:
    value = {
        "run": str(options.path),
        "seed": options.seed,
        "temperature": options.temperature,
        "length": length,
        "num": options.num,
        "prime": None if options.prime is None else str(options.prime),
        "prime_length": 0 if session.prime is None else len(session.prime),
        "written": [str(path) for path in written],
        "remarks": session.remarks,
        **session.report(content),
    }
    sys.stdout.write(msgspec.json.format(msgspec.json.encode(value), indent=2).decode() + "\n")
