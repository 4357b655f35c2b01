"""The options of `longspan sample`, checked before anything slow happens."""

import math
import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro

from longspan.data.dataset import Sampled
from longspan.errors import InputError
from longspan.sampling.prime import MAX_SHIFT
from longspan.sampling.render import ENDINGS, INSTRUMENTS

MAX_STEPS = 2_000_000
"""Maximum number of steps of all samples together, so that they fit into memory."""


@dataclass(frozen=True)
class SampleOptions:
    """Generate music, text or series from a trained model."""

    path: Annotated[Path, tyro.conf.Positional]
    """Folder of the run."""
    output: Annotated[tuple[Path, ...], tyro.conf.arg(aliases=["-o"], metavar="FILE"), tyro.conf.UseAppendAction] = ()
    """File to write: .mid, .musicxml, .wav, .png or .svg for music, .txt for text. By default music is written to
    sample.mid and text to the terminal."""
    length: int | None = None
    """Frames, words or characters to draw, not counting a prime; by default 64 beats, 100 words or 500 characters."""
    num: int = 1
    """Number of samples; several files are numbered."""
    temperature: float = 1.0
    """1 samples from the model's distribution; lower values favor likely symbols, and among frames with as many notes
    and as many new ones the likely frames, so that music grows safer but neither silent nor still."""
    seed: int = 0
    """The same seed gives the same samples."""
    memory: bool = True
    """Draw with the memory of the run, if it has one (`longspan remember`): the sample returns to what it said."""
    prime: Path | None = None
    """A MIDI or text file that every sample continues."""
    prime_length: int | None = None
    """Use only this many of the prime's first frames, words or characters."""
    prime_id: str | None = None
    """Tables: the id of the sequence to continue, if the prime holds several."""
    prime_shift: int | Literal["auto"] = "auto"
    """Semitones to transpose a MIDI prime by; the sample is transposed back. auto: to C, like most training data."""
    omit_prime: bool = False
    """Write only what was generated, without the prime before it."""
    melody: Path | None = None
    """Music: a MIDI file whose notes are kept as the top voice, while the model adds those below."""
    keep: tuple[str, ...] = ()
    """Music: notes that sound all the time, such as C2 or a MIDI pitch."""
    forbid: tuple[str, ...] = ()
    """Music: notes that never sound."""
    avoid_silence: bool = False
    """Music: draw no frame without notes."""
    tempo: float = 100.0
    """Quarter notes per minute."""
    meter: str = "4/4"
    """Time signature written to .mid and .musicxml; the model knows of none."""
    instrument: str = "piano"
    """Instrument written to .mid: a name such as organ, strings or fiddle, or a General MIDI number from 1 to 128."""
    re_attack: bool = False
    """Strike a note again in every frame instead of holding it."""
    unknown: bool = False
    """Text: draw <unk>, too. By default it never is, and all other symbols keep their odds to each other."""
    json: bool = False
    """Print only a description of what was written, as JSON."""


def check(options: SampleOptions, kind: Sampled) -> None:
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
    meter_of(options.meter)
    program_of(options.instrument)
    if kind == "text" and (options.melody or options.keep or options.forbid or options.avoid_silence):
        raise InputError("--melody, --keep, --forbid and --avoid-silence are for music; this run was trained on text")
    if not 10 <= options.tempo <= 1000:
        raise InputError(f"--tempo must be from 10 to 1000 quarter notes per minute: got {options.tempo:g}")
    if options.prime_shift != "auto" and abs(options.prime_shift) > MAX_SHIFT:
        raise InputError(f"--prime-shift must be from {-MAX_SHIFT} to {MAX_SHIFT}: got {options.prime_shift}")
    for path in options.output:
        _check_output(path, kind)


def _check_output(path: Path, kind: Sampled) -> None:
    if path.suffix.lower() not in ENDINGS[kind]:
        raise InputError(f"a sample of {kind} can be written to {', '.join(ENDINGS[kind])}: got {path}")
    if path.is_dir():
        raise InputError(f"{path} is a folder, expected the name of a file")
    folder = next(parent for parent in path.absolute().parents if parent.exists())
    if not folder.is_dir() or not os.access(folder, os.W_OK):
        raise InputError(f"cannot write {path}: {folder} is not a folder that can be written to; choose another")


def meter_of(text: str) -> tuple[int, int]:
    """The time signature, such as `3/4`."""
    match = re.fullmatch(r"(\d{1,2})/(1|2|4|8|16|32)", text)
    if match is None or int(match[1]) == 0:
        raise InputError(f"--meter must be a time signature such as 3/4 or 6/8: got {text}")
    return int(match[1]), int(match[2])


def program_of(instrument: str) -> int:
    """The General MIDI program of an instrument, counted from 0."""
    if instrument in INSTRUMENTS:
        return INSTRUMENTS[instrument]
    if instrument.isdecimal() and 1 <= int(instrument) <= 128:
        return int(instrument) - 1
    raise InputError(f"--instrument must be 1 to 128 or one of {', '.join(INSTRUMENTS)}: got {instrument}")
