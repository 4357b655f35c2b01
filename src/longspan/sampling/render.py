"""From a file's ending to its content: which formats a sample of music or text can be written in."""

from longspan.sampling.audio import to_wav
from longspan.sampling.midi import to_midi
from longspan.sampling.notes import Score
from longspan.sampling.picture import draw
from longspan.sampling.png import to_png
from longspan.sampling.svg import to_svg

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
        score: what to render.
        ending: a key of `MUSIC_FORMATS`.
        tempo: quarter notes a minute; pictures have none.
    """
    return MUSIC_FORMATS[ending](score, tempo)


def render_text(text: str) -> str:
    """The content of a text file: exactly one newline after the last line."""
    return text.removesuffix("\n") + "\n"
