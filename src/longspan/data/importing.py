"""Store a user's own files as a named data set that can be used like a benchmark."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from longspan.data.archive import Storable, read_set, write_set
from longspan.data.benchmarks import BUILT_IN, imported_directory
from longspan.data.dataset import Progress, Unit
from longspan.data.library import DataSummary, summarize
from longspan.data.music import DEFAULT_FRAMES_PER_BEAT
from longspan.data.music_folder import Skipped, gather_music, refuse_single_piece
from longspan.data.own import Sequences
from longspan.data.own_arrays import Kind
from longspan.data.own_files import TABLES, read_array, read_table
from longspan.data.splitting import SONG_SHARES
from longspan.data.text import DEFAULT_VOCABULARY_SIZE, load_text_file
from longspan.errors import InputError
from longspan.files import user_path


@dataclass(frozen=True)
class ImportReport:
    """Result of an import: the data set, where it is stored, the number of files read, and those left out.

    What cannot be summarized is not stored, either.
    """

    data: Storable
    path: Path
    files: int = 1
    skipped: tuple[Skipped, ...] = ()

    @cached_property
    def summary(self) -> DataSummary:
        return summarize(self.data)


def import_path(
    path: Path | str,
    *,
    name: str,
    data_dir: Path | str | None = None,
    frames_per_beat: int | None = None,
    transpose: bool = True,
    separate: bool = False,
    onsets: bool = False,
    augment: int = 0,
    split: tuple[float, float, float] = SONG_SHARES,
    seed: int = 0,
    unit: Unit = "character",
    vocabulary_size: int = DEFAULT_VOCABULARY_SIZE,
    minimum_count: int | None = None,
    inputs: Sequence[str] | None = None,
    targets: Sequence[str] | None = None,
    ids: str | None = None,
    ahead: int = 0,
    at_end: bool = False,
    input_kind: Kind | None = None,
    target_kind: Kind | None = None,
    replace: bool = False,
    progress: Progress | None = None,
) -> ImportReport:
    """Import a folder of MIDI files, a text, or arrays and tables of your own, and store it under `name`.

    Args:
        path: what to import.
        name: the name of the set: at most 100 letters, digits, `-` and `_`.
        data_dir: the data folder, see `storage.data_directory`.
        frames_per_beat: frames per quarter note (music); by default chosen from the notes.
        transpose: whether to transpose each song to C major or C minor (a folder of music).
        separate: whether a key struck again at once is released one frame early (a folder of music).
        onsets: whether frames also say which keys are struck again while they sound (a folder of music).
        augment: semitones by which training songs are moved at most, differently in every epoch (a folder of music).
        split: fractions of training, validation and test songs (music; a text is split 90/5/5).
        seed: determines which songs go to which split (music).
        unit: whether to read a text by `word`, by `token` (words and punctuation marks), by `character` or by `byte`.
        vocabulary_size: largest size of a text's vocabulary.
        minimum_count: rarer words or characters become unknown; by default 2 for words and 1 for characters.
        inputs: the input columns of a table, see `read_table`.
        targets: its target columns.
        ids: its column of sequence ids.
        ahead: predict the targets of this many rows later.
        at_end: ask for a target at the last row of each sequence only.
        input_kind: `numbers`, `binary` or `symbols`, if it does not follow from a table or an array.
        target_kind: likewise for the targets of a table.
        replace: whether a set of that name may be replaced.
        progress: called with the progress made.
    """
    path = user_path(path)
    refuse_single_piece(path)
    target = _target(name, data_dir, replace)
    if os.path.isdir(path):
        data, files, skipped = gather_music(
            path,
            name=name,
            frames_per_beat=frames_per_beat,
            transpose=transpose,
            separate=separate,
            onsets=onsets,
            augment=augment,
            split=split,
            seed=seed,
            progress=progress,
        )
        report = ImportReport(data, target, files, tuple(skipped))
    elif not os.path.isfile(path):
        raise InputError(f"{path} does not exist; give a folder of MIDI files, a table, arrays or a text file")
    elif path.suffix.lower() in TABLES:
        table = read_table(
            path,
            name,
            inputs=inputs,
            targets=targets,
            ids=ids,
            ahead=ahead,
            at_end=at_end,
            split=split,
            seed=seed,
            input_kind=input_kind,
            target_kind=target_kind,
        )
        report = ImportReport(table, target)
    elif path.suffix.lower() == ".npy":
        series = Sequences(read_array(path), name=name, split=split, seed=seed, input_kind=input_kind, origin=path.name)
        report = ImportReport(series, target)
    elif path.suffix.lower() == ".npz":
        report = ImportReport(
            read_set(path, name, frames_per_beat=frames_per_beat or DEFAULT_FRAMES_PER_BEAT, split=split, seed=seed),
            target,
        )
    else:
        report = ImportReport(load_text_file(path, name, unit, vocabulary_size, minimum_count), target)
    _ = report.summary
    write_set(target, report.data)
    return report


def _target(name: str, data_dir: Path | str | None, replace: bool) -> Path:
    if name in BUILT_IN:
        raise InputError(f"'{name}' is a built-in data set; choose another name")
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_-]{0,99}", name):
        raise InputError(f"'{name}' cannot name a data set; use at most 100 letters, digits, - and _")
    target = imported_directory(data_dir) / f"{name}.npz"
    if os.path.exists(target) and not replace:
        raise InputError(
            f"there is already a data set '{name}' ({target}); choose another name or the option replace",
            fields=["replace"],
        )
    return target
