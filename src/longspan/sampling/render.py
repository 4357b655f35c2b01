"""The file formats of samples of music and text, by file ending."""

import csv
import io
from collections.abc import Sequence

import mido
import numpy as np

from longspan.data.keys import Key, find_key
from longspan.errors import InputError
from longspan.sampling.audio import to_wav
from longspan.sampling.notes import Score
from longspan.sampling.picture import draw, to_svg
from longspan.sampling.png import to_png


def render_text(text: str) -> str:
    """The content of a text file, with exactly one newline at its end."""
    return text.removesuffix("\n") + "\n"


def render_series(steps: np.ndarray, ending: str, columns: Sequence[str] | None = None) -> bytes:
    """The content of a file of steps, one per row: `.npy`, or `.csv` with the names of the columns."""
    content = io.BytesIO()
    if ending == ".npy":
        np.save(content, steps)
        return content.getvalue()
    rows = steps[:, None] if steps.ndim == 1 else steps
    names = columns or (["symbol"] if steps.ndim == 1 else [f"column {number}" for number in range(rows.shape[1])])
    text = io.StringIO(newline="")
    shown = [[f"{value:.6g}" if isinstance(value, float) else value for value in row] for row in rows.tolist()]
    csv.writer(text, lineterminator="\n").writerows([names, *shown])
    return text.getvalue().encode()


TICKS_PER_BEAT = 480
"""Approximate resolution of a beat, adjusted so that a frame is a whole number of ticks."""
VELOCITY = 80


def to_midi(score: Score, tempo: float) -> bytes:
    """The bytes of a MIDI file that plays a score at `tempo` quarter notes per minute.

    The file ends when the last frame does, so that silence at the end is kept.
    """
    ticks_per_frame = max(1, round(TICKS_PER_BEAT / score.frames_per_beat))
    file = mido.MidiFile(type=0, ticks_per_beat=ticks_per_frame * score.frames_per_beat)
    track = mido.MidiTrack()
    file.tracks.append(track)
    track.append(mido.MetaMessage("track_name", name="longspan"))
    track.append(mido.MetaMessage("set_tempo", tempo=mido.bpm2tempo(tempo)))
    beats, unit = score.meter
    track.append(mido.MetaMessage("time_signature", numerator=beats, denominator=unit))
    if score.notes:
        track.append(mido.MetaMessage("key_signature", key=_signature(_key_of(score))))
    track.append(mido.Message("program_change", program=score.program))
    now = 0
    for frame, is_on, pitch in _events(score):
        tick = frame * ticks_per_frame
        kind = "note_on" if is_on else "note_off"
        track.append(mido.Message(kind, note=pitch, velocity=VELOCITY if is_on else 0, time=tick - now))
        now = tick
    track.append(mido.MetaMessage("end_of_track", time=score.frames * ticks_per_frame - now))
    content = io.BytesIO()
    file.save(file=content)
    return content.getvalue()


MAJOR = ("C", "Db", "D", "Eb", "E", "F", "F#", "G", "Ab", "A", "Bb", "B")
MINOR = ("Cm", "C#m", "Dm", "Ebm", "Em", "Fm", "F#m", "Gm", "G#m", "Am", "Bbm", "Bm")
INSTRUMENTS = {
    "piano": 0,
    "harpsichord": 6,
    "celesta": 8,
    "vibraphone": 11,
    "marimba": 12,
    "organ": 19,
    "accordion": 21,
    "guitar": 24,
    "bass": 32,
    "violin": 40,
    "cello": 42,
    "harp": 46,
    "strings": 48,
    "choir": 52,
    "trumpet": 56,
    "brass": 61,
    "saxophone": 65,
    "oboe": 68,
    "clarinet": 71,
    "flute": 73,
    "recorder": 74,
    "fiddle": 110,
}
"""General MIDI programs by name, counted from 0."""


def _key_of(score: Score) -> Key:
    """The key of a score, by how long each pitch class sounds."""
    weights = np.zeros(12)
    for note in score.notes:
        weights[note.pitch % 12] += note.stop - note.start
    return find_key(weights)


def _signature(key: Key) -> str:
    return (MAJOR if key.mode == "major" else MINOR)[key.tonic]


def to_musicxml(score: Score, tempo: float) -> bytes:
    """A MusicXML score in two staves, split at middle C; music21 writes it."""
    try:
        import music21
        from music21.musicxml.m21ToXml import GeneralObjectExporter
    except ImportError as error:
        raise InputError("music21 writes MusicXML, and it is not installed: pip install 'longspan[music]'") from error
    whole = music21.stream.Score()  # pyright: ignore[reportAttributeAccessIssue]
    for upper in (True, False):
        notes = [note for note in score.notes if (note.pitch >= MIDDLE_C) == upper]
        whole.insert(0, _staff(music21, score, notes, upper, tempo))
    return GeneralObjectExporter(whole).parse()


MIDDLE_C = 60


def _staff(music21, score: Score, notes: list, upper: bool, tempo: float):
    part = music21.stream.Part()
    part.insert(0, music21.clef.TrebleClef() if upper else music21.clef.BassClef())
    part.insert(0, music21.meter.TimeSignature("{}/{}".format(*score.meter)))
    if score.notes:
        part.insert(0, music21.key.Key(*_tonic_and_mode(_key_of(score))))
    if upper:
        part.insert(0, music21.tempo.MetronomeMark(number=round(tempo)))
    for note in notes:
        written = music21.note.Note(midi=note.pitch, quarterLength=(note.stop - note.start) / score.frames_per_beat)
        part.insert(note.start / score.frames_per_beat, written)
    total = score.frames / score.frames_per_beat
    if part.highestTime < total:
        part.insert(part.highestTime, music21.note.Rest(quarterLength=total - part.highestTime))
    return part


def _tonic_and_mode(key: Key) -> tuple[str, str]:
    """The key as music21 spells it, where a minus sign is a flat."""
    return _signature(key).removesuffix("m").replace("b", "-"), key.mode


def _events(score: Score) -> list[tuple[int, bool, int]]:
    """Starts and ends of notes in order; a key is released before it is struck again at the same time."""
    ends = [(note.stop, False, note.pitch) for note in score.notes]
    beginnings = [(note.start, True, note.pitch) for note in score.notes]
    return sorted(ends + beginnings)


MUSIC_FORMATS = {
    ".mid": to_midi,
    ".midi": to_midi,
    ".musicxml": to_musicxml,
    ".wav": to_wav,
    ".png": lambda score, tempo: to_png(draw(score)),
    ".svg": lambda score, tempo: to_svg(draw(score)).encode(),
}
ENDINGS = {"music": tuple(MUSIC_FORMATS), "text": (".txt",), "series": (".csv", ".npy")}


def render_music(score: Score, ending: str, tempo: float) -> bytes:
    """The content of a file with one of the endings for music.

    Args:
        score: the score to render.
        ending: a key of `MUSIC_FORMATS`.
        tempo: quarter notes per minute; ignored for pictures.
    """
    return MUSIC_FORMATS[ending](score, tempo)
