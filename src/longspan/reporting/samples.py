"""Samples of a trained run as a page holds them: notes to draw and to play, or text to read."""

from typing import NamedTuple

import msgspec

from longspan.data.text import TextData
from longspan.sampling.notes import lowest_sounding_pitch, to_score
from longspan.training.runs import Run

BEATS = 48
SYMBOLS = {"word": 80, "character": 400}


class Note(NamedTuple):
    """A MIDI pitch that sounds in the frames from `start` to before `stop`."""

    start: int
    stop: int
    pitch: int


class MusicSample(msgspec.Struct, frozen=True, tag="music", tag_field="sample"):
    """A piece the model made up."""

    notes: list[Note]
    frames: int
    frames_per_beat: int


class TextSample(msgspec.Struct, frozen=True, tag="text", tag_field="sample"):
    """A text the model made up."""

    text: str


def draw_samples(run: Run, num: int, seed: int = 0) -> list[MusicSample] | list[TextSample]:
    """Let the best weights of a run go on by themselves, `num` times; none of a task, or where there are no weights."""
    if num == 0 or run.data.kind not in ("music", "text") or not (run.path / "model.safetensors").exists():
        return []
    import jax

    from longspan.sampling.generate import generate
    from longspan.training.setup import trained_model

    record = run.data
    frames_per_beat = record.frames_per_beat or 1
    length = BEATS * frames_per_beat if record.kind == "music" else SYMBOLS[record.unit or "character"]
    drawn = generate(trained_model(run), length=length, num=num, key=jax.random.key(seed), end_token=record.end_token)
    if record.kind == "text":
        unit = "word" if record.unit == "word" else "character"
        text = TextData("", unit, tuple(record.vocabulary or ()), {}, record.end_token or 0)
        return [TextSample(text.decode(sample.tolist())) for sample in drawn]
    lowest = lowest_sounding_pitch(record.octave_shift)
    return [_music_sample(roll, frames_per_beat, lowest) for roll in drawn]


def _music_sample(roll, frames_per_beat: int, lowest_pitch: int) -> MusicSample:
    score = to_score(roll, frames_per_beat=frames_per_beat, lowest_pitch=lowest_pitch)
    return MusicSample([Note(*note) for note in score.notes], score.frames, frames_per_beat)
