"""A folder of music as a data set: quantized to frames, transposed to C major or minor, and split into three."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import NamedTuple

import numpy as np

from longspan.data.dataset import SPLITS, Progress, silent
from longspan.data.keys import key_of, shift_to_c
from longspan.data.music import MusicData
from longspan.data.rolls import PITCHES, Grid, Note, choose_grid, place_on_piano, round_to_frames, share_on_grid
from longspan.data.scores import SUFFIXES, SongReader
from longspan.data.sequences import Song
from longspan.data.splitting import SONG_SHARES, split_songs, versions, without_repeats
from longspan.errors import InputError, printable
from longspan.limits import FOLDER_ENTRIES, FRAMES, FRAMES_PER_BEAT, NOTES, SONGS

ENDINGS = ", ".join(SUFFIXES)
MANY_REPEATS = 0.02
"""Share of repeated notes that is worth a remark."""


class Skipped(NamedTuple):
    """A file that was left out, and why."""

    file: str
    reason: str


class Gathered(NamedTuple):
    """A data set, the number of files found, and those that were left out."""

    data: MusicData
    files: int
    skipped: list[Skipped]


@dataclass
class _Found:
    """The notes of every song, how many are struck again at once, what was left out, and remarks on the rest."""

    notes: dict[str, list[Note]] = field(default_factory=dict)
    struck_again: int = 0
    skipped: list[Skipped] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)

    def skip(self, file: str, reason: str) -> None:
        self.skipped.append(Skipped(printable(file), printable(reason)))


def refuse_single_piece(path: Path) -> None:
    """Refuse a file of music in place of the folder that holds it."""
    if path.suffix.lower() in SUFFIXES and os.path.isfile(path):
        raise InputError(f"{path} is a single piece, which makes no splits: give the folder that holds your music")


def gather_music(
    folder: Path,
    *,
    name: str,
    frames_per_beat: int | None = None,
    transpose: bool = True,
    separate: bool = False,
    onsets: bool = False,
    augment: int = 0,
    split: tuple[float, float, float] = SONG_SHARES,
    seed: int = 0,
    progress: Progress | None = None,
) -> Gathered:
    """Make a data set from all music files in a folder and its subfolders: MIDI, MusicXML, ABC, Humdrum.

    Args:
        folder: the folder to search.
        name: the name of the set.
        frames_per_beat: frames per quarter note; by default chosen from the notes.
        transpose: whether to transpose each song to C major or C minor.
        separate: whether a key struck again at once is released one frame early, so that repeated notes stay apart.
        onsets: whether frames also say which keys are struck again while they sound.
        augment: semitones by which training songs are moved up or down at most, differently in every epoch.
        split: fractions of training, validation and test songs.
        seed: determines which songs go to which split.
        progress: called with the progress made.
    """
    if frames_per_beat is not None and not 1 <= frames_per_beat <= FRAMES_PER_BEAT:
        raise InputError(f"frames per beat must be from 1 to {FRAMES_PER_BEAT}, got {frames_per_beat}")
    files = _music_files(folder)
    found = _read_files(files, progress or silent)
    grid = _grid(found, frames_per_beat)
    songs = _songs(found, grid.frames_per_beat, transpose, separate, onsets)
    songs = without_repeats(songs, found.skip)
    if len(songs) < len(SPLITS) and found.skipped:
        raise InputError(
            f"only {len(songs)} songs of {len(files)} files in {folder} can be used, expected at least 3; "
            f"the first left out was {found.skipped[0].file}: {found.skipped[0].reason}"
        )
    leaders = versions(songs)
    data = MusicData(
        name,
        split_songs(songs, split, seed, leaders),
        grid.frames_per_beat,
        origin=f"{len(songs)} songs of {len(files)} files",
        remarks=(
            _describe(grid, chosen=frames_per_beat is None),
            *_remark_on(leaders),
            *_remark_on_repeats(found, onsets),
            *found.remarks,
            *(f"skipped {file}: {reason}" for file, reason in found.skipped),
        ),
        augment=augment,
    )
    return Gathered(data, len(files), found.skipped)


def _read_files(files: dict[str, Path], progress: Progress) -> _Found:
    found = _Found()
    pedals = 0
    total = 0
    with SongReader() as reader:
        for done, (file, path) in enumerate(files.items()):
            progress("reading music", done, len(files))
            try:
                songs = reader.read(path)
            except InputError as error:
                found.skip(file, str(error))
                continue
            for song in songs:
                label = file if song.number is None else f"{file}#{song.number}"
                found.notes[label] = song.notes
                total += len(song.notes)
                if song.unreleased:
                    found.remarks.append(f"{printable(label)}: {_counted(song.unreleased)} never released, cut short")
                pedals += song.pedal
            if total > NOTES or len(found.notes) > SONGS:
                raise InputError(f"the files have more than {NOTES} notes or {SONGS} songs; import a part of them")
    progress("reading music", len(files), len(files))
    if pedals:
        of = "1 file" if pedals == 1 else f"{pedals} files"
        found.remarks.append(f"the sustain pedal of {of} is ignored: notes end when their keys are released")
    return found


def _grid(found: _Found, frames_per_beat: int | None) -> Grid:
    onsets = np.array([note.start for notes in found.notes.values() for note in notes] or [0.0])
    if not np.isfinite(onsets).all():
        onsets = onsets[np.isfinite(onsets)]
    if frames_per_beat is None:
        return choose_grid(onsets)
    return Grid(frames_per_beat, share_on_grid(onsets, frames_per_beat), True)


def _describe(grid: Grid, *, chosen: bool) -> str:
    frames = "1 frame" if grid.frames_per_beat == 1 else f"{grid.frames_per_beat} frames"
    moved = 1 - grid.share
    on_it = f"{grid.share:.0%} of the onsets lie on it" if moved else "all onsets lie on it"
    if moved >= 0.005:
        on_it += f"; the other {moved:.0%} of the notes were moved to it"
    if not grid.fits:
        return f"warning: no grid fits these notes, as if they were played freely; at {frames} per beat, {on_it}"
    return f"{frames} per beat{', found from the notes' * chosen}: {on_it}"


def _remark_on(leaders: dict[str, str]) -> list[str]:
    others = sum(name != leader for name, leader in leaders.items())
    if not others:
        return []
    if others == 1:
        return ["1 song begins like another one and is kept in the same split as that"]
    return [f"{others} songs begin like another one and are kept in the same split as that"]


def _remark_on_repeats(found: _Found, onsets: bool) -> list[str]:
    again = found.struck_again
    if onsets:
        return [f"{again:,} notes are struck again while they sound, and the frames say so"]
    share = again / max(1, sum(map(len, found.notes.values())))
    if share < MANY_REPEATS:
        return []
    return [
        f"{share:.0%} of the notes repeat the one before at once and sound as one long note; onsets keep them apart"
    ]


def _songs(found: _Found, frames_per_beat: int, transpose: bool, separate: bool, onsets: bool) -> dict[str, Song]:
    songs: dict[str, Song] = {}
    frames = 0
    for file, notes in found.notes.items():
        try:
            roll = round_to_frames(notes, frames_per_beat, separate=separate, onsets=True)
            again = int(roll[:, PITCHES:].sum())
            shift = shift_to_c(key_of(roll[:, :PITCHES])) if transpose else 0
            songs[file], beyond = place_on_piano(roll if onsets else roll[:, :PITCHES], shift)
        except InputError as error:
            found.skip(file, str(error))
            continue
        frames += len(songs[file])
        found.struck_again += again
        if frames > FRAMES:
            raise InputError(f"the files have more than {FRAMES} frames; import a part of them")
        if beyond:
            found.remarks.append(f"{printable(file)}: {_counted(beyond)} beyond the keyboard left out")
    return songs


def _counted(notes: int) -> str:
    return f"{notes} note{'s' * (notes > 1)}"


def _music_files(folder: Path) -> dict[str, Path]:
    found = (path for path in _entries(folder) if path.suffix.lower() in SUFFIXES and os.path.isfile(path))
    try:
        files = {path.relative_to(folder).as_posix(): path for path in islice(found, SONGS + 1)}
    except OSError as error:
        raise InputError(f"cannot read {folder}: {error.strerror or error}; check the path") from error
    if not files:
        raise InputError(f"{folder} has no music files, expected some that end in {ENDINGS}")
    if len(files) > SONGS:
        raise InputError(f"{folder} has more than {SONGS} music files; import a part of them")
    return dict(sorted(files.items(), key=lambda item: item[1]))


def _entries(folder: Path) -> Iterator[Path]:
    """Everything in a folder and its subfolders, unless that is a whole disk."""
    for number, path in enumerate(folder.rglob("*")):
        if number == FOLDER_ENTRIES:
            raise InputError(f"{folder} has more than {FOLDER_ENTRIES} files and subfolders; name one that has music")
        yield path
