"""A score as a MIDI file: one piano track, held notes, a tempo. Reading MIDI belongs to `data`."""

import io

import mido

from longspan.sampling.notes import Score

TICKS_PER_BEAT = 480
"""About how finely a beat is divided; adjusted so that a frame is a whole number of ticks."""
VELOCITY = 80


def to_midi(score: Score, tempo: float) -> bytes:
    """The bytes of a MIDI file that plays a score at `tempo` quarter notes a minute.

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
    """Beginnings and ends of notes in order; a key is released before it is struck again at the same moment."""
    ends = [(note.stop, False, note.pitch) for note in score.notes]
    beginnings = [(note.start, True, note.pitch) for note in score.notes]
    return sorted(ends + beginnings)
