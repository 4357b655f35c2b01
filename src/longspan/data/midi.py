"""Read the notes of a MIDI file, in quarter notes, so that tempo does not matter.

Drums and the sustain pedal are ignored: a note ends when its key is released, and the caller is told whether there is a
pedal. Writing MIDI is part of `sampling`, which
uses mido. For reading, mido's cost cannot be bounded: an endless number takes quadratic time, and each event 7
microseconds and 370 bytes. Reading what a roll needs is less work than the checks that mido would require, so it is
done here, with every size checked before it is used; the tests compare the result with mido.
"""

from __future__ import annotations

import struct
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from longspan.data.rolls import Note
from longspan.errors import InputError
from longspan.files import read_limited
from longspan.limits import EVENTS, MIDI_BYTES, VARIABLE_LENGTH_BYTES

DRUM_CHANNEL = 9
CHUNK_HEADER = struct.Struct(">4sI")
FILE_HEADER = struct.Struct(">HHh")
RIFF_HEADER = struct.Struct("<4sI4s4sI")
NOTE_ON, POLY_PRESSURE, CONTROL, SYSTEM = 0x90, 0xA0, 0xB0, 0xF0
SUSTAIN_PEDAL, PEDAL_DOWN = 64, 64
LONGEST_UNRELEASED = 4
"""Quarter notes after which a note that is never released ends at the latest: a bar of the usual length."""
ONE_DATA_BYTE = 0b110  # the highest bits of program change and channel pressure
SYSEX, SYSEX_CONTINUED, META = 0xF0, 0xF7, 0xFF
# These do not belong in a file, but some programs record them.
SYSTEM_DATA_BYTES = {0xF1: 1, 0xF2: 2, 0xF3: 1, 0xF6: 0, 0xF8: 0, 0xFA: 0, 0xFB: 0, 0xFC: 0, 0xFE: 0}

NoteEvent = tuple[int, int, int, int]
"""Tick, status, pitch and velocity; the end of a track has status 0."""


class UnreadableMidi(InputError):
    """A file cannot be used; the message says why, and the caller adds the file's name."""


class MidiNotes(NamedTuple):
    """The notes of a file in the order in which they end, the number never released, and whether it uses a pedal."""

    notes: list[Note]
    unreleased: int
    pedal: bool


def read_notes(path: Path) -> MidiNotes:
    """Read the notes of all tracks and channels except drums; raises `InputError`.

    A note struck again before its release ends there; one that is never released ends at the next onset of its channel,
    at the end of its track, or after a bar, whichever comes first.
    """
    content = _unwrapped(read_limited(path, MIDI_BYTES))
    ticks_per_beat, tracks = _open(content)
    notes: list[Note] = []
    unreleased, pedal = 0, False
    budget = iter(range(EVENTS))
    for track in tracks:
        try:
            left, pressed = _read_track(_note_events(track, budget), ticks_per_beat, notes)
        except IndexError as error:
            raise UnreadableMidi("it is not valid MIDI (an event runs past the end of its track)") from error
        unreleased, pedal = unreleased + left, pedal or pressed
    if not notes:
        raise UnreadableMidi("it has no notes (drums aside)")
    return MidiNotes(notes, unreleased, pedal)


def _unwrapped(content: bytes) -> bytes:
    """The MIDI file inside a RIFF file (`.rmi`), or the content itself."""
    if len(content) < RIFF_HEADER.size or not content.startswith(b"RIFF"):
        return content
    _, _, kind, name, size = RIFF_HEADER.unpack_from(content)
    if (kind, name) != (b"RMID", b"data"):
        raise UnreadableMidi("it is a RIFF file that does not begin with MIDI data")
    return content[RIFF_HEADER.size : RIFF_HEADER.size + size]


def _open(content: bytes) -> tuple[int, Iterator[bytes]]:
    """Ticks per beat, and the content of each track."""
    if not content:
        raise UnreadableMidi("it is empty")
    header, place = _chunk(content, 0, b"MThd")
    if len(header) < FILE_HEADER.size:
        raise UnreadableMidi("it is not valid MIDI (its header is too short)")
    kind, count, ticks_per_beat = FILE_HEADER.unpack_from(header)
    if kind == 2:
        raise UnreadableMidi("its tracks are independent pieces (MIDI type 2)")
    if kind > 2:
        raise UnreadableMidi(f"it is not valid MIDI (type {kind})")
    if ticks_per_beat < 0:
        raise UnreadableMidi("it counts time in seconds (SMPTE), not in beats")
    if ticks_per_beat == 0:
        raise UnreadableMidi("it has no ticks in a beat")
    return ticks_per_beat, _tracks(content, place, count)


def _tracks(content: bytes, place: int, count: int) -> Iterator[bytes]:
    for _ in range(count):
        track, place = _chunk(content, place, b"MTrk")
        yield track


def _chunk(content: bytes, place: int, name: bytes) -> tuple[bytes, int]:
    """The content of the chunk at `place`, which must be called `name`, and the position after it."""
    start = place + CHUNK_HEADER.size
    if not content.startswith(name[: len(content) - place], place):
        raise UnreadableMidi(f"it is not valid MIDI (expected {name.decode()} at byte {place})")
    if start > len(content):
        raise UnreadableMidi("it is truncated")
    _, size = CHUNK_HEADER.unpack_from(content, place)
    if size > len(content) - start:
        raise UnreadableMidi("it is truncated")
    return content[start : start + size], start + size


def _read_track(events: Iterator[NoteEvent], ticks_per_beat: int, notes: list[Note]) -> tuple[int, bool]:
    """Append a track's notes; return the number still sounding at its end, and whether the pedal is pressed."""
    sounding: dict[tuple[int, int], int] = {}
    onsets: defaultdict[int, list[int]] = defaultdict(list)
    pedal = False
    tick = 0

    def end(voice: tuple[int, int], tick: int) -> None:
        notes.append(Note(sounding.pop(voice) / ticks_per_beat, tick / ticks_per_beat, voice[1]))

    for tick, status, pitch, velocity in events:
        channel = status & 0x0F
        if not status or channel == DRUM_CHANNEL:
            continue
        if status >= CONTROL:
            pedal = True
            continue
        voice = (channel, pitch)
        if voice in sounding:
            end(voice, tick)
        if status >= NOTE_ON and velocity > 0:
            sounding[voice] = tick
            onsets[channel].append(tick)
    unreleased = len(sounding)
    for voice, start in list(sounding.items()):
        later = onsets[voice[0]][bisect_right(onsets[voice[0]], start) :][:1]
        rest = [tick] if tick > start else []
        end(voice, min([*later, *rest, start + LONGEST_UNRELEASED * ticks_per_beat]))
    return unreleased, pedal


def _note_events(track: bytes, budget: Iterator[int]) -> Iterator[NoteEvent]:
    """Yield a track's notes and presses of the pedal, then its end; every event takes one item of the file's budget."""
    place = tick = running = 0
    for _ in budget:
        if place == len(track):
            yield tick, 0, 0, 0
            return
        delta = track[place]
        place += 1
        if delta > 0x7F:
            delta, place = _number(track, place - 1)
        tick += delta
        status = track[place]
        if status < 0x80:
            status = running
        else:
            place += 1
        if status >= SYSTEM:
            place = _skip_system(track, place, status)
            running = running if status == META else 0
            continue
        if not status:
            raise UnreadableMidi("it is not valid MIDI (data without a status)")
        running = status
        first, second = track[place], 0 if status >> 5 == ONE_DATA_BYTE else track[place + 1]
        place += 1 if status >> 5 == ONE_DATA_BYTE else 2
        if (first | second) > 0x7F:
            raise UnreadableMidi("it is not valid MIDI (a data byte above 127)")
        if status < POLY_PRESSURE or _presses_pedal(status, first, second):
            yield tick, status, first, second
    raise UnreadableMidi(f"it has more than {EVENTS} events")


def _presses_pedal(status: int, controller: int, value: int) -> bool:
    return status & 0xF0 == CONTROL and controller == SUSTAIN_PEDAL and value >= PEDAL_DOWN


def _skip_system(track: bytes, place: int, status: int) -> int:
    """The position after a meta event, a system exclusive message or another system message."""
    if status in (SYSEX, SYSEX_CONTINUED, META):
        length, place = _number(track, place + (status == META))
    elif status in SYSTEM_DATA_BYTES:
        length = SYSTEM_DATA_BYTES[status]
    else:
        raise UnreadableMidi(f"it is not valid MIDI (status {status:#x})")
    if length > len(track) - place:
        raise IndexError
    return place + length


def _number(track: bytes, place: int) -> tuple[int, int]:
    """The variable-length number at a position, seven bits per byte, and the position after it."""
    number = 0
    for _ in range(VARIABLE_LENGTH_BYTES):
        byte = track[place]
        place += 1
        number = number << 7 | byte & 0x7F
        if byte < 0x80:
            return number, place
    raise UnreadableMidi(f"it is not valid MIDI (a number of more than {VARIABLE_LENGTH_BYTES} bytes)")
