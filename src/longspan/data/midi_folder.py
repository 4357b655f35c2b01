"""A folder of MIDI files as a data set: quantized to frames, transposed to C major or minor, and split into three."""

from __future__ import annotations

import os
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from longspan.data.dataset import SPLITS, Progress, silent
from longspan.data.keys import key_of, shift_to_c
from longspan.data.midi import read_notes
from longspan.data.music import DEFAULT_FRAMES_PER_BEAT, MusicData
from longspan.data.rolls import place_on_piano, round_to_frames
from longspan.data.sequences import Song
from longspan.data.splitting import SONG_SHARES, split_songs, without_repeats
from longspan.errors import InputError, printable
from longspan.limits import FRAMES, FRAMES_PER_BEAT, SONGS

SUFFIXES = (".mid", ".midi")


class Skipped(NamedTuple):
    """A file that was left out, and why."""

    file: str
    reason: str


class Gathered(NamedTuple):
    """A data set, the number of files found, and those that were left out."""

    data: MusicData
    files: int
    skipped: list[Skipped]


def gather_midi(
    folder: Path,
    *,
    name: str,
    frames_per_beat: int = DEFAULT_FRAMES_PER_BEAT,
    transpose: bool = True,
    split: tuple[float, float, float] = SONG_SHARES,
    seed: int = 0,
    progress: Progress | None = None,
) -> Gathered:
    """Make a data set from all MIDI files in a folder and its subfolders.

    Args:
        folder: the folder to search for files ending in `.mid` or `.midi`.
        name: the name of the set.
        frames_per_beat: frames per quarter note.
        transpose: whether to transpose each song to C major or C minor.
        split: fractions of training, validation and test songs.
        seed: determines which songs go to which split.
        progress: called with the progress made.
    """
    if not 1 <= frames_per_beat <= FRAMES_PER_BEAT:
        raise InputError(f"frames per beat must be from 1 to {FRAMES_PER_BEAT}, got {frames_per_beat}")
    files = _midi_files(folder)
    songs, skipped, remarks = _read_songs(files, frames_per_beat, transpose, progress or silent)
    songs = without_repeats(songs, lambda file, reason: skipped.append(Skipped(printable(file), printable(reason))))
    if len(songs) < len(SPLITS) and skipped:
        raise InputError(
            f"only {len(songs)} of {len(files)} MIDI files in {folder} can be used, expected at least 3; "
            f"the first left out was {skipped[0].file}: {skipped[0].reason}"
        )
    data = MusicData(
        name,
        split_songs(songs, split, seed),
        frames_per_beat,
        origin=f"{len(songs)} MIDI files",
        remarks=(*remarks, *(f"skipped {file}: {reason}" for file, reason in skipped)),
    )
    return Gathered(data, len(files), skipped)


def _read_songs(
    files: dict[str, Path], frames_per_beat: int, transpose: bool, progress: Progress
) -> tuple[dict[str, Song], list[Skipped], list[str]]:
    songs: dict[str, Song] = {}
    skipped: list[Skipped] = []
    remarks: list[str] = []
    frames = 0
    for done, (file, path) in enumerate(files.items()):
        progress("reading MIDI files", done, len(files))
        try:
            songs[file], remark = _read_song(path, frames_per_beat, transpose)
        except InputError as error:
            skipped.append(Skipped(printable(file), str(error)))
            continue
        frames += len(songs[file])
        if frames > FRAMES:
            raise InputError(f"the MIDI files have more than {FRAMES} frames; import a part of them")
        if remark:
            remarks.append(f"{printable(file)}: {remark}")
    progress("reading MIDI files", len(files), len(files))
    return songs, skipped, remarks


def _read_song(path: Path, frames_per_beat: int, transpose: bool) -> tuple[Song, str]:
    """Read one file as a song, with a remark on what was lost, if anything."""
    notes, unreleased = read_notes(path)
    roll = round_to_frames(notes, frames_per_beat)
    song, beyond = place_on_piano(roll, shift_to_c(key_of(roll)) if transpose else 0)
    counts = {"beyond the keyboard left out": beyond, "never released, held to the end": unreleased}
    return song, ", ".join(f"{count} note{'s' * (count > 1)} {what}" for what, count in counts.items() if count)


def _midi_files(folder: Path) -> dict[str, Path]:
    found = (path for path in folder.rglob("*") if path.suffix.lower() in SUFFIXES and os.path.isfile(path))
    try:
        files = {path.relative_to(folder).as_posix(): path for path in islice(found, SONGS + 1)}
    except OSError as error:
        raise InputError(f"cannot read {folder}: {error.strerror or error}; check the path") from error
    if not files:
        raise InputError(f"{folder} has no MIDI files, expected some that end in {' or '.join(SUFFIXES)}")
    if len(files) > SONGS:
        raise InputError(f"{folder} has more than {SONGS} MIDI files; import a part of them")
    return dict(sorted(files.items(), key=lambda item: item[1]))
