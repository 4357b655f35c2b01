"""The file formats of samples of music and text, by file ending."""

import io

import mido

from longspan.sampling.audio import to_wav
from longspan.sampling.notes import Score
from longspan.sampling.picture import draw, to_svg
from longspan.sampling.png import to_png


def render_text(text: str) -> str:
    """The content of a text file, with exactly one newline at its end."""
    return text.removesuffix("\n") + "\n"


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
    track.append(mido.Message("program_change", program=0))
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


def _events(score: Score) -> list[tuple[int, bool, int]]:
    """Starts and ends of notes in order; a key is released before it is struck again at the same time."""
    ends = [(note.stop, False, note.pitch) for note in score.notes]
    beginnings = [(note.start, True, note.pitch) for note in score.notes]
    return sorted(ends + beginnings)


MUSIC_FORMATS = {
    ".mid": to_midi,
    ".midi": to_midi,
    ".wav": to_wav,
    ".png": lambda score, tempo: to_png(draw(score)),
    ".svg": lambda score, tempo: to_svg(draw(score)).encode(),
}
ENDINGS = {"music": tuple(MUSIC_FORMATS), "text": (".txt",)}


def render_music(score: Score, ending: str, tempo: float) -> bytes:
    """The content of a file with one of the endings for music.

    Args:
        score: the score to render.
        ending: a key of `MUSIC_FORMATS`.
        tempo: quarter notes per minute; ignored for pictures.
    """
    return MUSIC_FORMATS[ending](score, tempo)
