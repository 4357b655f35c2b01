"""The player page: one HTML file with a packed model and the scripts that run it."""

from html import escape

import msgspec

from longspan import __version__, webpage
from longspan.playing.packing import Packed

PACKAGE = "longspan.playing"
CORE = ("numbers.js", "model.js", "memory.js", "sampler.js")
"""The scripts that compute; they know nothing of a page."""
SCRIPTS = (*CORE, "piece.js", "midi.js", "sound.js", "roll.js", "keys.js", "music.js", "text.js", "start.js")
MODEL = "model"
"""The slot and the element of the packed model."""


class Shell(msgspec.Struct, frozen=True):
    """The page of any model, without it: what comes before and after."""

    before: str
    after: str


def render(packed: Packed) -> str:
    """The page of a packed model."""
    page = shell(title_of(packed))
    return page.before + webpage.embedded(packed, MODEL) + page.after


def shell(title: str) -> Shell:
    """The page around a model; a report has several models and one of these."""
    code = player_script()
    page = webpage.fill(
        webpage.asset(PACKAGE, "play.html"),
        {
            "policy": webpage.policy(code),
            "version": __version__,
            "title": escape(title).replace("{", "&#123;"),  # the page is cut at {model}
            "style": webpage.asset("longspan", "palette.css") + webpage.asset(PACKAGE, "play.css"),
            "script": code,
            "music": webpage.asset(PACKAGE, "music.html"),
            "text": webpage.asset(PACKAGE, "text.html"),
        },
    )
    return Shell(*page.split("{" + MODEL + "}", 1))


def player_script() -> str:
    """The script of the player, which a page that opens one inside itself has to allow."""
    return webpage.script(PACKAGE, SCRIPTS)


def title_of(packed: Packed) -> str:
    return f"{packed.title}, without end" if packed.kind == "music" else f"{packed.title}, continued"
