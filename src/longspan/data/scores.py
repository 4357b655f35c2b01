"""Read the notes of files as musicians have them: MIDI, MusicXML, ABC and Humdrum, by file ending.

MIDI and MusicXML are read here. ABC and Humdrum are read by music21, which cannot be bounded, in a child process with
limits of memory and time. It is started when the first such file is met, and again after one that it did not survive.
"""

from __future__ import annotations

import json
import queue
import subprocess
import threading
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import msgspec

from longspan.data.midi import read_notes
from longspan.data.musicxml import read_score
from longspan.data.rolls import Note
from longspan.data.score_child import FORMATS
from longspan.errors import InputError
from longspan.files import read_limited
from longspan.limits import ANSWER_BYTES, CHILD_SECONDS, CHILD_WAIT, SCORE_BYTES
from longspan.registry import child_command

MIDI = (".mid", ".midi", ".rmi")
MUSICXML = (".musicxml", ".mxl", ".xml")
SUFFIXES = (*MIDI, *MUSICXML, *FORMATS)


class ReadSong(NamedTuple):
    """The notes of a song, those never released among them, whether a pedal was ignored, and its number in a file."""

    notes: list[Note]
    unreleased: int = 0
    pedal: bool = False
    number: int | None = None


class _Answer(msgspec.Struct):
    songs: list[list[tuple[float, float, int]]] = []
    error: str | None = None


class SongReader:
    """Reads files of all formats; close it to end the child process, if there is one.

    Args:
        patience: seconds to wait for what the child process says of a file.
    """

    def __init__(self, patience: float = CHILD_WAIT) -> None:
        self.patience = patience
        self.child: _Child | None = None

    def __enter__(self) -> SongReader:
        return self

    def __exit__(self, *exception) -> None:
        self.close()

    def close(self) -> None:
        """End the child process."""
        if self.child is not None:
            self.child.end()
            self.child = None

    def read(self, path: Path) -> list[ReadSong]:
        """The songs of a file; raises `InputError`, without the name of the file where the format is known."""
        suffix = path.suffix.lower()
        if suffix in MUSICXML:
            parts = read_score(path).parts
            return [ReadSong([note for _, notes in parts for note in notes])]
        if suffix in FORMATS:
            return self._by_child(path)
        return [ReadSong(*read_notes(path))]

    def _by_child(self, path: Path) -> list[ReadSong]:
        read_limited(path, SCORE_BYTES)
        if self.child is None:
            self.child = _Child()
        answer = self.child.ask(path, self.patience)
        if answer is None:
            self.close()
            raise InputError(f"music21 needs more than {CHILD_SECONDS} s or too much memory for it; cut it in parts")
        if answer.error is not None:
            raise InputError(answer.error)
        songs = [[Note(*note) for note in song] for song in answer.songs if song]
        if not songs:
            raise InputError("it has no notes")
        return [ReadSong(song, number=number if len(songs) > 1 else None) for number, song in enumerate(songs, 1)]


class _Child:
    """A process that answers one line for each line."""

    def __init__(self) -> None:
        from importlib.util import find_spec

        if find_spec("music21") is None:
            raise InputError("music21 reads ABC and Humdrum, and it is not installed: pip install 'longspan[music]'")
        self.process = subprocess.Popen(
            child_command("longspan.data.score_child"),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        self.answers: queue.Queue[bytes] = queue.Queue()
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        assert self.process.stdout is not None
        while line := self.process.stdout.readline(ANSWER_BYTES):
            self.answers.put(line)
        self.answers.put(b"")

    def ask(self, path: Path, patience: float) -> _Answer | None:
        """The answer about a file, or None if there is none within so many seconds."""
        try:
            assert self.process.stdin is not None
            self.process.stdin.write(json.dumps(str(path.absolute())).encode() + b"\n")
            self.process.stdin.flush()
            return msgspec.json.decode(self.answers.get(timeout=patience), type=_Answer)
        except (OSError, queue.Empty, msgspec.DecodeError):
            return None

    def end(self) -> None:
        self.process.kill()
        self.process.wait()
        if self.process.stdin is not None:
            with suppress(OSError):  # what was not sent to the child has nowhere to go
                self.process.stdin.close()
