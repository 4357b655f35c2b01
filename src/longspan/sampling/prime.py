"""Read what a sample shall continue: a MIDI file for a model of music, a text file for a model of text.

Songs are mostly moved to C major or minor before a model is trained on them, so a prime is moved likewise, and
whoever renders the sample moves it back (`notes.lowest_sounding_pitch`).
"""

from pathlib import Path
from typing import NamedTuple

import numpy as np

from longspan.data.keys import key_of, shift_to_c
from longspan.data.midi import UnreadableMidi, read_notes
from longspan.data.music import KEYS, Song
from longspan.data.rolls import NotARoll, round_to_frames
from longspan.data.text import END, UNKNOWN, TextData, read_text
from longspan.errors import InputError
from longspan.sampling.notes import lowest_sounding_pitch

MAX_STEPS = 100_000
MAX_SHIFT = 12
MIDI_HEADER = b"MThd"
NAMED_AT_MOST = 5


class MusicPrime(NamedTuple):
    """Frames to continue, the semitones they were moved by, and the notes that fell off the keyboard."""

    roll: Song
    moved_by: int
    notes_beyond: int


class TextPrime(NamedTuple):
    """Tokens to continue, and the words or characters that the vocabulary lacks."""

    tokens: np.ndarray
    unknown: list[str]


def read_music_prime(
    path: Path, *, frames_per_beat: int, octave_shift: int = 0, move_by: int | None = None
) -> MusicPrime:
    """Read a MIDI file as frames like those a model was trained on.

    Args:
        path: a MIDI file.
        frames_per_beat: frames a quarter note.
        octave_shift: octaves to add to the training data to hear them where their scores have them.
        move_by: semitones to move the music by; to C major or C minor, whichever is its mode, if not given.
    """
    if not _is_midi(path):
        raise InputError(f"{path} is not a MIDI file, which is what primes a run trained on music")
    try:
        wide = round_to_frames(read_notes(path).notes, frames_per_beat)
    except (UnreadableMidi, NotARoll) as error:
        raise InputError(f"{path} cannot prime a sample: {error}") from error
    moved_by = shift_to_c(key_of(wide)) if move_by is None else move_by
    roll = _columns(wide, lowest_sounding_pitch(octave_shift, moved_by))
    sounding = np.flatnonzero(roll.any(axis=1))
    if len(sounding) == 0:
        raise InputError(f"{path} cannot prime a sample: none of its notes lies on the piano's keyboard")
    roll = np.ascontiguousarray(roll[sounding[0] : sounding[-1] + 1])
    _check_length(path, len(roll), "frame")
    return MusicPrime(roll, moved_by, _count_notes(wide) - _count_notes(roll))


def read_text_prime(path: Path, vocabulary: TextData) -> TextPrime:
    """Read a text file as tokens; a newline at its very end is the editor's and left out.

    Args:
        path: a UTF-8 text file.
        vocabulary: what encodes; its splits play no part.
    """
    if _is_midi(path):
        raise InputError(f"{path} is a MIDI file, but this run was trained on text; prime it with a text file")
    text = read_text(path).removesuffix(END)
    # Words are short, so a text this long has too many of them too; it need not be searched for unknown ones.
    _check_length(path, len(text), "character", 10 * MAX_STEPS)
    unknown = _unknown(text, vocabulary)
    if unknown and UNKNOWN[vocabulary.unit] not in vocabulary.vocabulary:
        raise InputError(f"{path} has {name_some(unknown)}, which the run's vocabulary lacks; leave it out")
    tokens = vocabulary.encode(text)
    if len(tokens) == 0:
        raise InputError(f"{path} is empty, expected some text to continue")
    _check_length(path, len(tokens), vocabulary.unit)
    return TextPrime(tokens, unknown)


def name_some(tokens: list[str]) -> str:
    """The first few of some tokens, quoted, and how many more there are."""
    named = ", ".join(map(repr, tokens[:NAMED_AT_MOST]))
    more = len(tokens) - NAMED_AT_MOST
    return f"{named} and {more} more" if more > 0 else named


def _is_midi(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            return file.read(len(MIDI_HEADER)) == MIDI_HEADER
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror or error}") from error


def _columns(wide: np.ndarray, lowest: int) -> Song:
    """The 88 columns of a roll of all MIDI pitches that begin at `lowest`; those beyond MIDI's range are silent."""
    pitches = lowest + np.arange(KEYS)
    exist = (pitches >= 0) & (pitches < wide.shape[1])
    roll = np.zeros((len(wide), KEYS), np.uint8)
    roll[:, exist] = wide[:, pitches[exist]]
    return roll


def _count_notes(roll: np.ndarray) -> int:
    return int(np.count_nonzero(np.diff(roll.astype(np.int8), axis=0, prepend=0) > 0))


def _unknown(text: str, vocabulary: TextData) -> list[str]:
    """Tokens outside the vocabulary, in the order they first appear."""
    tokens = text if vocabulary.unit == "character" else text.split()
    known = {*vocabulary.vocabulary, END}
    return [token for token in dict.fromkeys(tokens) if token not in known]


def _check_length(path: Path, length: int, unit: str, most: int = MAX_STEPS) -> None:
    if length > most:
        raise InputError(f"{path} has {length} {unit}s, a prime at most {most}; keep its end, which matters most")
