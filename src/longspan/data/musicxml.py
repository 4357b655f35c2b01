"""Read the notes of a MusicXML score, compressed (`.mxl`) or plain (`.xml`).

It reads only what a piano roll needs: when each pitch sounds, part by part, in quarter notes. A general reader builds a
full score and takes ten times as long. Repeats are not unfolded.
"""

from __future__ import annotations

from itertools import accumulate
from pathlib import Path
from typing import NamedTuple
from xml.etree import ElementTree
from xml.parsers import expat

from longspan.data.rolls import PITCHES, Note
from longspan.data.zips import open_zip, read_member
from longspan.errors import InputError
from longspan.files import read_limited
from longspan.limits import SCORE_BYTES, SONG_FRAMES

SEMITONES = {"C": 0, "D": 2, "E": 4, "F": 5, "G": 7, "A": 9, "B": 11}


class Score(NamedTuple):
    """The notes of each part with its name, and the length of the opening bar in quarter notes."""

    parts: list[tuple[str, list[Note]]]
    first_bar: float


def read_score(path: Path) -> Score:
    """Read a score; bars start at the same time in all parts, and each is as long as in its longest part."""
    content = _content(path)
    try:
        _refuse_entities(content)
        return _score(ElementTree.fromstring(content))
    # Broken XML, and XML that is not a score, raise different exceptions.
    except (ValueError, LookupError, ArithmeticError, SyntaxError, expat.ExpatError, RecursionError) as error:
        raise InputError(f"{path} is not a readable MusicXML score: {error}") from error


def _refuse_entities(content: bytes) -> None:
    """Refuse a document that declares entities, which may expand each other until they fill the memory."""

    def refuse(name: str, *_) -> None:
        raise ValueError(f"it declares an entity, {name}, which no score needs")

    parser = expat.ParserCreate()
    parser.EntityDeclHandler = refuse
    parser.Parse(content, True)


def _score(root: ElementTree.Element) -> Score:
    names = {part.get("id"): (part.findtext("part-name") or "").strip() for part in root.iter("score-part")}
    parts = root.findall("part")
    bars = [_read_bars(part) for part in parts]
    lengths = [0.0] * max(map(len, bars), default=0)
    for part_bars in bars:  # one by one: a part may be empty, and there may be many of them
        for number, (length, _) in enumerate(part_bars):
            lengths[number] = max(lengths[number], length)
    starts = list(accumulate(lengths, initial=0.0))
    voices = [
        (names.get(part.get("id"), ""), _timed(part_bars, starts)) for part, part_bars in zip(parts, bars, strict=True)
    ]
    return Score(voices, first_bar=lengths[0] if lengths else 0.0)


def _timed(bars: list[tuple[float, list[Note]]], starts: list[float]) -> list[Note]:
    return [
        Note(start + note.start, start + note.end, note.pitch)
        for start, (_, notes) in zip(starts, bars, strict=False)
        for note in notes
    ]


def _content(path: Path) -> bytes:
    if path.suffix.lower() != ".mxl":
        return read_limited(path, SCORE_BYTES)
    with open_zip(path, "MusicXML score") as archive:
        # The archive also has META-INF/container.xml; usually there is exactly one score beside it.
        scores = [
            info
            for info in archive.infolist()
            if info.filename.endswith("xml") and not info.filename.startswith("META-INF")
        ]
        if not scores:
            raise InputError(f"{path} is not a readable MusicXML score: it holds no .xml or .musicxml")
        return read_member(archive, scores[0], SCORE_BYTES)


def _read_bars(part: ElementTree.Element) -> list[tuple[float, list[Note]]]:
    """The length of each bar of a part and its notes, timed from the start of the bar."""
    divisions = 1.0
    bars = []
    for measure in part.findall("measure"):
        notes: list[Note] = []
        now = end = onset = 0.0
        for element in measure:
            if element.tag == "attributes":
                divisions = float(element.findtext("divisions") or divisions)
            elif element.tag in ("backup", "forward"):
                duration = float(element.findtext("duration") or 0) / divisions
                now = now - duration if element.tag == "backup" else now + duration
            elif element.tag == "note":
                duration = float(element.findtext("duration") or 0) / divisions
                if element.find("chord") is None:
                    onset, now = now, now + duration
                pitch = element.find("pitch")
                if pitch is not None and duration > 0:
                    notes.append(Note(onset, onset + duration, _midi_pitch(pitch)))
            if not abs(now) <= SONG_FRAMES:  # also if it is not a number
                raise ValueError(f"bar {len(bars) + 1} goes to {now:g} quarter notes after its beginning")
            end = max(end, now)
        bars.append((end, notes))
    return bars


def _midi_pitch(pitch: ElementTree.Element) -> int:
    octave = int(pitch.findtext("octave") or 4)
    alter = round(float(pitch.findtext("alter") or 0))
    number = 12 * (octave + 1) + SEMITONES[pitch.findtext("step") or "C"] + alter
    if not 0 <= number < PITCHES:
        raise ValueError(f"it has a pitch in octave {octave}, outside the {PITCHES} of MIDI")
    return number
