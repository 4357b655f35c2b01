"""Read the notes of a MIDI file, in quarter notes, so that tempo plays no part.

Drums are left out, and so is the sustain pedal: a note ends where its key is released. Writing MIDI belongs
to `sampling`.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from longspan.data.rolls import Note

if TYPE_CHECKING:
    import mido

MAX_MIDI_BYTES = 16 * 2**20
DRUM_CHANNEL = 9


class UnreadableMidi(Exception):
    """A file cannot be used; the message says why."""


class MidiNotes(NamedTuple):
    """The notes of a file in the order they end, and how many of them were never released."""

    notes: list[Note]
    unreleased: int


def read_notes(path: Path) -> MidiNotes:
    """The notes of all tracks and channels but the drums, or `UnreadableMidi`.

    A note struck again before its release ends there; one that is never released sounds to the end of its
    track.
    """
    file = _parse(path)
    if file.type == 2:
        raise UnreadableMidi("its tracks are independent pieces (MIDI type 2)")
    if file.ticks_per_beat <= 0:
        raise UnreadableMidi("it counts time in seconds (SMPTE), not in beats")
    notes: list[Note] = []
    unreleased = 0
    for track in file.tracks:
        unreleased += _read_track(track, file.ticks_per_beat, notes)
    if not notes:
        raise UnreadableMidi("it has no notes (drums aside)")
    return MidiNotes(notes, unreleased)


def _parse(path: Path) -> mido.MidiFile:
    import mido

    try:
        size = path.stat().st_size
        if size == 0:
            raise UnreadableMidi("it is empty")
        if size > MAX_MIDI_BYTES:
            raise UnreadableMidi(f"it has {size} bytes, more than {MAX_MIDI_BYTES}")
        return mido.MidiFile(path)
    except UnreadableMidi:
        raise
    except EOFError as error:
        raise UnreadableMidi("it is truncated") from error
    # mido meets broken bytes with many kinds of exception; each of them means the same here.
    except Exception as error:
        raise UnreadableMidi(f"it is not valid MIDI ({error})") from error


def _read_track(track: mido.MidiTrack, ticks_per_beat: int, notes: list[Note]) -> int:
    """Append a track's notes; return how many were still sounding at its end."""
    sounding: dict[tuple[int, int], int] = {}
    tick = 0

    def end(voice: tuple[int, int]) -> None:
        start = sounding.pop(voice)
        notes.append(Note(start / ticks_per_beat, tick / ticks_per_beat, voice[1]))

    for message in track:
        tick += message.time
        if message.type not in ("note_on", "note_off") or message.channel == DRUM_CHANNEL:
            continue
        voice = (message.channel, message.note)
        if voice in sounding:
            end(voice)
        if message.type == "note_on" and message.velocity > 0:
            sounding[voice] = tick
    unreleased = len(sounding)
    for voice in list(sounding):
        end(voice)
    return unreleased
