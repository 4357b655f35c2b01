"""A folder of MIDI files as a data set: on a grid of frames, in C major or minor, split into three."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from longspan.data.keys import key_of, shift_to_c
from longspan.data.midi import UnreadableMidi, read_notes
from longspan.data.music import DEFAULT_FRAMES_PER_BEAT, MusicData, Song
from longspan.data.names import SPLITS
from longspan.data.progress import Progress, silent
from longspan.data.rolls import NotARoll, place_on_piano, round_to_frames
from longspan.data.splitting import SONG_SHARES, split_songs, without_repeats
from longspan.errors import InputError

SUFFIXES = (".mid", ".midi")
MAX_FRAMES_PER_BEAT = 96
MAX_TOTAL_FRAMES = 10_000_000


class Skipped(NamedTuple):
    """A file that was left out, and why."""

    file: str
    reason: str


class Gathered(NamedTuple):
    """A data set, the number of files it could have been made of, and those that were left out."""

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
    """Make a data set of all MIDI files in a folder and its subfolders.

    Args:
        folder: where to look for files ending in `.mid` or `.midi`.
        name: the name of the set.
        frames_per_beat: frames a quarter note.
        transpose: whether to move each song to C major or C minor.
        split: shares of training, validation and test songs.
        seed: another seed deals the songs to other splits.
        progress: told how far it is.
    """
    if not 1 <= frames_per_beat <= MAX_FRAMES_PER_BEAT:
        raise InputError(f"frames per beat must be from 1 to {MAX_FRAMES_PER_BEAT}, got {frames_per_beat}")
    files = _midi_files(folder)
    songs, skipped, remarks = _read_songs(files, frames_per_beat, transpose, progress or silent)
    songs = without_repeats(songs, lambda file, reason: skipped.append(Skipped(file, reason)))
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
        except (UnreadableMidi, NotARoll) as error:
            skipped.append(Skipped(file, str(error)))
            continue
        frames += len(songs[file])
        if frames > MAX_TOTAL_FRAMES:
            raise InputError(f"the MIDI files have more than {MAX_TOTAL_FRAMES} frames; import a part of them")
        if remark:
            remarks.append(f"{file}: {remark}")
    progress("reading MIDI files", len(files), len(files))
    return songs, skipped, remarks


def _read_song(path: Path, frames_per_beat: int, transpose: bool) -> tuple[Song, str]:
    """One file as a song, and a remark on what it lost, if anything."""
    notes, unreleased = read_notes(path)
    roll = round_to_frames(notes, frames_per_beat)
    song, beyond = place_on_piano(roll, shift_to_c(key_of(roll)) if transpose else 0)
    counts = {"beyond the keyboard left out": beyond, "never released, held to the end": unreleased}
    return song, ", ".join(f"{count} note{'s' * (count > 1)} {what}" for what, count in counts.items() if count)


def _midi_files(folder: Path) -> dict[str, Path]:
    files = {
        path.relative_to(folder).as_posix(): path
        for path in sorted(folder.rglob("*"))
        if path.suffix.lower() in SUFFIXES and path.is_file()
    }
    if not files:
        raise InputError(f"{folder} has no MIDI files, expected some that end in {' or '.join(SUFFIXES)}")
    return files
