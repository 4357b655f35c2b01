"""Read the prime that a sample continues: a MIDI file for a model of music, a text file for a model of text.

Most training songs are transposed to C major or minor, so a prime is transposed likewise, and the sample is transposed
back when it is rendered (`notes.lowest_sounding_pitch`).
"""

from pathlib import Path
from typing import NamedTuple

import numpy as np

from longspan.data.dataset import DataRecord
from longspan.data.keys import key_of, shift_to_c
from longspan.data.midi import read_notes
from longspan.data.music import KEYS
from longspan.data.own_files import TABLES, read_array, read_steps
from longspan.data.rolls import PITCHES, round_to_frames
from longspan.data.sequences import Song
from longspan.data.text import read_text
from longspan.data.vocabulary import END, UNKNOWN, Vocabulary, is_by_words, words_of
from longspan.errors import InputError
from longspan.files import opened
from longspan.sampling.notes import lowest_sounding_pitch

MAX_STEPS = 100_000
MAX_SHIFT = 12
MIDI_HEADER = b"MThd"
NAMED_AT_MOST = 5
PRIMES = f"a table ({', '.join(TABLES)}) or an array (.npy)"


class MusicPrime(NamedTuple):
    """Frames to continue, the semitones of their transposition, and the number of notes outside the keyboard."""

    roll: Song
    moved_by: int
    notes_beyond: int


class TextPrime(NamedTuple):
    """Tokens to continue, and the words or characters missing in the vocabulary."""

    tokens: np.ndarray
    unknown: list[str]


class SeriesPrime(NamedTuple):
    """Steps to continue, and the columns of their table that the model does not read."""

    steps: np.ndarray
    left_out: list[str]


def read_music_prime(
    path: Path,
    *,
    frames_per_beat: int,
    octave_shift: int = 0,
    move_by: int | None = None,
    role: str = "prime",
    onsets: bool = False,
) -> MusicPrime:
    """Read a MIDI file, a prime or a melody, as frames like those that a model was trained on.

    Args:
        path: a MIDI file.
        frames_per_beat: frames per quarter note.
        octave_shift: octaves to add to the training data to restore the pitches of their scores.
        move_by: semitones to transpose the music by; by default to C major or C minor, depending on its mode.
        role: what the messages call it.
        onsets: whether the frames say which keys are struck again.
    """
    if not _is_midi(path):
        raise InputError(f"{path} is not a MIDI file, which is what a {role} of a run trained on music has to be")
    try:
        wide = round_to_frames(read_notes(path).notes, frames_per_beat, onsets=onsets)
    except InputError as error:
        raise InputError(f"{path} cannot be the {role} of a sample: {error}") from error
    sounding_pitches = wide[:, :PITCHES]
    moved_by = shift_to_c(key_of(sounding_pitches)) if move_by is None else move_by
    lowest = lowest_sounding_pitch(octave_shift, moved_by)
    halves = [wide[:, first : first + PITCHES] for first in range(0, wide.shape[1], PITCHES)]
    roll = np.hstack([_columns(half, lowest) for half in halves])
    sounding = np.flatnonzero(roll[:, :KEYS].any(axis=1))
    if len(sounding) == 0:
        raise InputError(f"{path} cannot be the {role} of a sample: none of its notes lies on the piano's keyboard")
    roll = np.ascontiguousarray(roll[sounding[0] : sounding[-1] + 1])
    _check_length(path, len(roll), "frame")
    return MusicPrime(roll, moved_by, _count_notes(sounding_pitches) - _count_notes(roll[:, :KEYS]))


def read_text_prime(path: Path, vocabulary: Vocabulary) -> TextPrime:
    """Read a text file as tokens; a final newline, which editors add, is left out.

    Args:
        path: a UTF-8 text file.
        vocabulary: encodes the text.
    """
    if _is_midi(path):
        raise InputError(f"{path} is a MIDI file, but this run was trained on text; prime it with a text file")
    # Words are short and characters have at most four bytes, so a longer text has too many tokens.
    return text_prime(read_text(path, 10 * MAX_STEPS).removesuffix(END), vocabulary, str(path))


def text_prime(text: str, vocabulary: Vocabulary, where: str = "the prime") -> TextPrime:
    """A text as tokens; messages call it by where it comes from."""
    unknown = _unknown(text, vocabulary)
    if unknown and UNKNOWN[vocabulary.unit] not in vocabulary.tokens:
        raise InputError(f"{where} has {name_some(unknown)}, which the run's vocabulary lacks; leave it out")
    tokens = vocabulary.encode(text)
    if len(tokens) == 0:
        raise InputError(f"{where} is empty, expected some text to continue")
    _check_length(where, len(tokens), vocabulary.unit)
    return TextPrime(tokens, unknown)


def read_series_prime(path: Path, record: DataRecord, chosen: str | None = None) -> SeriesPrime:
    """Read steps to continue from a table or an array, in the units of the data, as a model sees them.

    Args:
        path: a table or an array.
        record: what the run says about its data.
        chosen: the id of the sequence, needed if a table holds several.
    """
    if path.suffix.lower() not in (".npy", *TABLES):
        raise InputError(f"{path} cannot be the prime of a sample of numbers or symbols: expected {PRIMES}")
    if path.suffix.lower() == ".npy":
        if chosen is not None:
            raise InputError(f"{path} is one array: prime_id chooses among the ids of a table", fields=["prime_id"])
        steps, left_out = read_array(path), []
    else:
        steps, left_out = read_steps(path, record.columns, record.id_column, chosen)
    if record.labels is not None or record.kind == "classes":
        steps = _numbered(steps.ravel(), record, path)
    else:
        steps = steps.reshape(len(steps), -1)
        if steps.shape[1] != record.size or steps.dtype.kind not in "biuf" or not np.isfinite(steps).all():
            raise InputError(f"{path} has steps of shape {steps.shape[1:]}: expected {record.size} finite numbers each")
    _check_length(path, len(steps), "step")
    try:
        return SeriesPrime(record.as_seen(steps), left_out)
    except InputError as error:
        raise InputError(f"{path} cannot be continued: {error}") from error


def _numbered(steps: np.ndarray, record: DataRecord, path: Path) -> np.ndarray:
    labels = record.labels or [str(number) for number in range(record.size)]
    numbers = {label: number for number, label in enumerate(labels)}
    unknown = [str(step) for step in steps if str(step) not in numbers]
    if unknown:
        raise InputError(
            f"{path} has the symbol {unknown[0]!r}, which the run does not know: expected {', '.join(labels[:20])}"
        )
    return np.array([numbers[str(step)] for step in steps], np.int32)


def name_some(tokens: list[str]) -> str:
    """The first few tokens, quoted, and the number of the others."""
    named = ", ".join(map(repr, tokens[:NAMED_AT_MOST]))
    more = len(tokens) - NAMED_AT_MOST
    return f"{named} and {more} more" if more > 0 else named


def _is_midi(path: Path) -> bool:
    with opened(path) as file:
        return file.read(len(MIDI_HEADER)) == MIDI_HEADER


def _columns(wide: np.ndarray, lowest: int) -> Song:
    """The 88 columns from `lowest` of a roll of all MIDI pitches; those outside MIDI's range are silent."""
    pitches = lowest + np.arange(KEYS)
    exist = (pitches >= 0) & (pitches < wide.shape[1])
    roll = np.zeros((len(wide), KEYS), np.uint8)
    roll[:, exist] = wide[:, pitches[exist]]
    return roll


def _count_notes(roll: np.ndarray) -> int:
    return int(np.count_nonzero(np.diff(roll.astype(np.int8), axis=0, prepend=0) > 0))


def _unknown(text: str, vocabulary: Vocabulary) -> list[str]:
    """Tokens outside the vocabulary, in order of first appearance."""
    if vocabulary.unit == "byte":
        return []
    tokens = words_of(text, vocabulary.unit) if is_by_words(vocabulary.unit) else text
    known = {*vocabulary.tokens, END}
    return [token for token in dict.fromkeys(tokens) if token not in known]


def _check_length(where: Path | str, length: int, unit: str, most: int = MAX_STEPS) -> None:
    if length > most:
        raise InputError(f"{where} has {length} {unit}s, a prime at most {most}; keep its end, which matters most")
