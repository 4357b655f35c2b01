"""The data sets `bach` and `bach-8`: the four-part chorales of the installed music21 corpus, as rolls like the JSB set.

A frame contains the notes that sound on a quarter note, or on an eighth note; songs are transposed to C major or C
minor; the split is 60/20/20, by the SHA-256 of each chorale's name (`splitting.split_songs`). Only the files of music21
are used: reading them here takes a few seconds instead of half a minute. The result is kept in the user's cache.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
from contextlib import suppress
from pathlib import Path

from longspan.data.archive import read_set, write_set
from longspan.data.benchmarks import BACH, CHORALES
from longspan.data.dataset import Progress, silent
from longspan.data.keys import key_of, shift_to_c
from longspan.data.music import MusicData
from longspan.data.musicxml import Score, read_score
from longspan.data.rolls import NotARoll, place_on_piano, sample_on_beat
from longspan.data.sequences import Song
from longspan.data.splitting import split_songs, without_repeats
from longspan.errors import InputError, printable
from longspan.files import cache_directory

VOICES = ("Soprano", "Alto", "Tenor", "Bass")
CONVERSION = 1
"""Raised whenever the conversion changes, so that an older cached result is not used."""


def load_chorales(progress: Progress | None = None, name: str = BACH) -> MusicData:
    """Load the chorales by one of the names in `CHORALES`, from the cache if they were converted before."""
    scores, version = _corpus()
    cached = cache_directory() / f"{name}-{CONVERSION}-music21-{version}.npz"
    with suppress(InputError):  # a damaged or missing cache is rebuilt
        data = read_set(cached, name)
        if isinstance(data, MusicData):
            return data
    data = convert_chorales(scores, f"the corpus of music21 {version}", progress, name)
    with suppress(InputError):  # if it cannot be cached, it is converted again next time
        write_set(cached, data)
    return data


def chorales_available() -> bool:
    """Whether music21 and its corpus are installed."""
    try:
        return bool(_corpus())
    except InputError:
        return False


def convert_chorales(scores: list[Path], origin: str, progress: Progress | None = None, name: str = BACH) -> MusicData:
    """Convert scores into a data set; those that are not four-part chorales are skipped, with a remark."""
    progress = progress or silent
    songs: dict[str, Song] = {}
    remarks: list[str] = []

    def skip(song: str, reason: str) -> None:
        remarks.append(printable(f"skipped {song}: {reason}"))

    for done, path in enumerate(scores):
        progress("converting chorales", done, len(scores))
        try:
            songs[path.stem] = _song(read_score(path), CHORALES[name])
        except InputError as error:
            skip(path.stem, str(error))
    songs = without_repeats(songs, skip)
    progress("converting chorales", len(scores), len(scores))
    return MusicData(name, split_songs(songs), CHORALES[name], origin=origin, remarks=tuple(remarks))


def _song(score: Score, frames_per_beat: int) -> Song:
    if tuple(name for name, _ in score.parts) != VOICES:
        raise NotARoll(f"it has {len(score.parts)} parts, not just {', '.join(VOICES)}")
    notes = [note for _, part in score.parts for note in part]
    # Frames are aligned with the beats of the first whole bar; a fraction of a beat in an upbeat is left out.
    roll = sample_on_beat(notes, frames_per_beat, first_frame=score.first_bar % 1)
    return place_on_piano(roll, shift_to_c(key_of(roll))).song


def _corpus() -> tuple[list[Path], str]:
    """Bach's scores in the corpus, by name, and the version of music21 they came with."""
    specification = importlib.util.find_spec("music21")
    if specification is None or not specification.submodule_search_locations:
        raise InputError("the Bach chorales come with music21, which is not installed: pip install 'longspan[music]'")
    folder = Path(specification.submodule_search_locations[0], "corpus", "bach")
    scores = sorted(path for path in folder.glob("bwv*") if path.suffix in (".mxl", ".xml"))
    if not scores:
        raise InputError(
            f"this music21 has no Bach in its corpus ({folder}); run pip install --force-reinstall music21"
        )
    return scores, importlib.metadata.version("music21")
