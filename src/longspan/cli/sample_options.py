"""The options of `longspan sample`, checked before anything slow happens."""

import math
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro

from longspan.errors import InputError
from longspan.sampling.prime import MAX_SHIFT
from longspan.sampling.render import ENDINGS

MAX_STEPS = 2_000_000
"""Maximum number of steps of all samples together, so that they fit into memory."""


@dataclass(frozen=True)
class SampleOptions:
    """Generate music or text from a trained model."""

    path: Annotated[Path, tyro.conf.Positional]
    """Folder of the run."""
    output: Annotated[tuple[Path, ...], tyro.conf.arg(aliases=["-o"], metavar="FILE"), tyro.conf.UseAppendAction] = ()
    """File to write: .mid, .wav, .png or .svg for music, .txt for text. By default music is written to sample.mid and
    text to the terminal."""
    length: int | None = None
    """Frames, words or characters to draw, not counting a prime; by default 64 beats, 100 words or 500 characters."""
    num: int = 1
    """Number of samples; several files are numbered."""
    temperature: float = 1.0
    """1 samples from the model's distribution, lower values favor likely steps, 0 always takes the likeliest."""
    seed: int = 0
    """The same seed gives the same samples."""
    prime: Path | None = None
    """A MIDI or text file that every sample continues."""
    prime_length: int | None = None
    """Use only this many of the prime's first frames, words or characters."""
    prime_shift: int | Literal["auto"] = "auto"
    """Semitones to transpose a MIDI prime by; the sample is transposed back. auto: to C, like most training data."""
    omit_prime: bool = False
    """Write only what was generated, without the prime before it."""
    tempo: float = 100.0
    """Quarter notes per minute."""
    re_attack: bool = False
    """Strike a note again in every frame instead of holding it."""
    json: bool = False
    """Print only a description of what was written, as JSON."""


def check(options: SampleOptions, kind: Literal["music", "text"]) -> None:
    """Refuse options that are invalid, or invalid for this kind of data."""
    for flag, value in (("--length", options.length), ("--num", options.num), ("--prime-length", options.prime_length)):
        if value is not None and value < 1:
            raise InputError(f"{flag} must be at least 1: got {value}")
    if (options.length or 1) * options.num > MAX_STEPS:
        raise InputError(f"--length times --num must be at most {MAX_STEPS}: got {options.length} times {options.num}")
    if not (options.temperature >= 0 and math.isfinite(options.temperature)):
        raise InputError(f"--temperature must be 0 (always the likeliest) or more: got {options.temperature:g}")
    if not 0 <= options.seed < 2**32:
        raise InputError(f"--seed must be from 0 to {2**32 - 1}: got {options.seed}")
    if not 10 <= options.tempo <= 1000:
        raise InputError(f"--tempo must be from 10 to 1000 quarter notes per minute: got {options.tempo:g}")
    if options.prime_shift != "auto" and abs(options.prime_shift) > MAX_SHIFT:
        raise InputError(f"--prime-shift must be from {-MAX_SHIFT} to {MAX_SHIFT}: got {options.prime_shift}")
    for path in options.output:
        _check_output(path, kind)


def _check_output(path: Path, kind: Literal["music", "text"]) -> None:
    if path.suffix.lower() not in ENDINGS[kind]:
        raise InputError(f"a sample of {kind} can be written to {', '.join(ENDINGS[kind])}: got {path}")
    if path.is_dir():
        raise InputError(f"{path} is a folder, expected the name of a file")
    if not path.parent.is_dir():
        raise InputError(f"cannot write {path}: there is no folder {path.parent}; make it first")
    if not os.access(path.parent, os.W_OK):
        raise InputError(f"cannot write {path}: the folder {path.parent} is not writable; choose another")
