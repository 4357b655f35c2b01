"""Music and text that no recipe was tuned for: parts of the corpus that music21 carries, and texts it was built with.

`python -m benchmarks.corpora FOLDER` writes them as a user would have them, MIDI files and plain text, and imports
them. Pieces that are already there are not converted again.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import NamedTuple

from longspan.data import Dataset, import_path, load


class Music(NamedTuple):
    """Pieces of the corpus: paths that contain one of `parts`, at most `pieces` of them, spread evenly."""

    parts: tuple[str, ...]
    pieces: int
    frames_per_beat: int


class Text(NamedTuple):
    """One of the texts by which music21 tells languages apart."""

    language: str
    unit: str


TUNED = {
    "reels": Music(("ryansMammoth",), 120, 4),
    "motets": Music(("trecento",), 60, 2),
    "quartets": Music(("beethoven/opus18", "beethoven/opus59", "haydn/opus7"), 24, 4),
    "italian": Text("it", "character"),
    "french-words": Text("fr", "word"),
}
"""Corpora by which the defaults were chosen."""
HELD_OUT = {
    "airs": Music(("oneills1850", "airdsAirs"), 120, 4),
    "folk-songs": Music(("essenFolksong",), 200, 4),
    "masses": Music(("palestrina",), 60, 2),
    "madrigals": Music(("monteverdi",), 60, 2),
    "mozart": Music(("mozart", "schumann"), 28, 4),
    "chinese": Text("cn", "character"),
    "german": Text("de", "character"),
    "english-words": Text("en", "word"),
}
"""Corpora that were looked at only when the defaults were fixed."""
CORPORA: dict[str, Music | Text] = {**TUNED, **HELD_OUT}


def prepare(folder: Path, name: str) -> None:
    """Convert and import one corpus."""
    chosen = CORPORA[name]
    if isinstance(chosen, Text):
        _import_text(folder, name, chosen)
        return
    pieces = folder / "midi" / name
    pieces.mkdir(parents=True, exist_ok=True)
    for path in _chosen_paths(chosen):
        _write_midi(path, pieces)
    import_path(pieces, name=name, data_dir=folder, frames_per_beat=chosen.frames_per_beat, replace=True)


def corpus(folder: Path, name: str) -> Dataset:
    """A corpus that was prepared."""
    return load(name, folder)


def _import_text(folder: Path, name: str, chosen: Text) -> None:
    import music21

    source = Path(music21.__file__).parent / "languageExcerpts" / "trainingData" / f"{chosen.language}.txt"
    copy = folder / f"{name}.txt"
    copy.write_text(source.read_text(encoding="utf-8", errors="replace"))
    import_path(copy, name=name, data_dir=folder, unit=chosen.unit, replace=True)  # pyright: ignore[reportArgumentType]


def _chosen_paths(chosen: Music) -> list[Path]:
    from music21 import corpus as library

    found = sorted(Path(path) for path in library.getCorePaths() if any(part in str(path) for part in chosen.parts))
    step = max(1, len(found) // chosen.pieces)
    return found[::step][: chosen.pieces]


def _write_midi(path: Path, folder: Path) -> None:
    """Write the pieces of a file as MIDI; those that music21 cannot read are left out, as any user's would be."""
    from music21 import converter, stream

    done = folder / f"{path.stem}.done"
    if done.exists():
        return
    try:
        parsed = converter.parse(path)
        pieces = list(parsed.scores)[:20] if isinstance(parsed, stream.Opus) else [parsed]
        for number, piece in enumerate(pieces):
            piece.write("midi", folder / f"{path.stem}-{number:02d}.mid")
    except Exception as error:  # music21 raises all kinds
        sys.stderr.write(f"left out {path.name}: {error}\n")
    done.touch()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("names", nargs="*", default=list(CORPORA))
    options = parser.parse_args()
    for name in options.names:
        prepare(options.folder, name)
        sizes = corpus(options.folder, name).split_figures("train")
        sys.stdout.write(f"{name}: {sizes}\n")


if __name__ == "__main__":
    main()
