"""MIDI files written with mido come back as the frames they should sound in."""

import os
from pathlib import Path

import mido
import numpy as np
import pytest

from longspan.data import MusicData, import_path
from longspan.data.midi import UnreadableMidi, read_notes
from longspan.data.music_folder import gather_music
from longspan.data.rolls import Note
from longspan.data.scores import SongReader
from longspan.errors import InputError
from longspan.limits import MIDI_BYTES
from longspan.sampling.notes import RollNote, Score
from longspan.sampling.render import to_midi, to_musicxml

Event = tuple[int, int, int]
"""Start and end in ticks, pitch."""


def write_midi(
    path: Path,
    events: list[Event],
    *,
    ticks_per_beat: int = 480,
    channel: int = 0,
    tempo: int = 500_000,
    type: int = 1,
) -> Path:
    file = mido.MidiFile(ticks_per_beat=ticks_per_beat, type=type)
    file.tracks.append(mido.MidiTrack([mido.MetaMessage("set_tempo", tempo=tempo)]))
    timed = [(start, 1, pitch) for start, _, pitch in events] + [(end, 0, pitch) for _, end, pitch in events]
    track, now = mido.MidiTrack(), 0
    for tick, on, pitch in sorted(timed):
        track.append(mido.Message("note_on", note=pitch, velocity=64 * on, time=tick - now, channel=channel))
        now = tick
    file.tracks.append(track)
    file.save(path)
    return path


def scale(tonic: int, beat: int = 480) -> list[Event]:
    steps = [0, 2, 4, 5, 7, 9, 11, 12, 7, 4, 0, 0]
    return [(place * beat, (place + 1) * beat, 60 + tonic + step) for place, step in enumerate(steps)]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Ten different songs, in C and other keys."""
    folder = tmp_path / "midi"
    (folder / "deeper").mkdir(parents=True)
    for number in range(10):
        events = [
            (start, end, pitch + (number if place == 1 else 0)) for place, (start, end, pitch) in enumerate(scale(0))
        ]
        write_midi(
            folder / ("deeper" if number % 2 else "") / f"song{number}.{'MID' if number % 3 else 'midi'}",
            events,
        )
    return folder


def only_song(path: Path, **options) -> np.ndarray:
    """The one song of a folder, through the import of a folder with two fillers."""
    for number, filler in enumerate(([(0, 960, 30)], [(0, 960, 31)])):
        write_midi(path.parent / f"filler{number}.mid", filler)
    data = gather_music(path.parent, name="x", transpose=options.pop("transpose", False), **options).data
    [song] = [song for part in data.splits.values() for song in part if len(song) != 2 * data.frames_per_beat]
    return song


def test_notes_are_in_beats_whatever_the_resolution_and_tempo(tmp_path: Path) -> None:
    for ticks_per_beat, tempo in ((480, 500_000), (96, 300_000), (1000, 900_000)):
        beat = ticks_per_beat
        path = write_midi(
            tmp_path / "a.mid", [(0, 2 * beat, 60), (beat, 3 * beat, 64)], ticks_per_beat=beat, tempo=tempo
        )
        assert read_notes(path) == ([Note(0, 2, 60), Note(1, 3, 64)], 0, False)


def test_frames_of_a_folder(tmp_path: Path) -> None:
    # A half note, an eighth late by a little, a grace note of a few ticks, and a held bass.
    events = [(0, 960, 72), (965, 1200, 74), (1200, 1205, 76), (0, 1440, 48)]
    song = only_song(write_midi(tmp_path / "a.mid", events), frames_per_beat=2)
    sounding = [tuple(np.flatnonzero(frame) + 21) for frame in song]
    assert sounding == [(48, 72)] * 4 + [(48, 74), (48, 76)]


def test_drums_are_left_out(tmp_path: Path) -> None:
    write_midi(tmp_path / "drums.mid", scale(0), channel=9)
    with pytest.raises(UnreadableMidi, match="no notes"):
        read_notes(tmp_path / "drums.mid")


def test_restruck_and_unreleased_notes(tmp_path: Path) -> None:
    file = mido.MidiFile(ticks_per_beat=100)
    file.tracks.append(
        mido.MidiTrack(
            [
                mido.Message("note_on", note=60, velocity=9, time=0),
                mido.Message("note_on", note=60, velocity=9, time=100),
                mido.Message("note_off", note=60, time=100),
                mido.Message("note_on", note=62, velocity=9, time=0),
                mido.Message("note_off", note=50, time=50),
                mido.MetaMessage("end_of_track", time=50),
            ]
        )
    )
    file.save(tmp_path / "a.mid")
    assert read_notes(tmp_path / "a.mid") == ([Note(0, 1, 60), Note(1, 2, 60), Note(2, 3, 62)], 1, False)


def test_songs_in_all_keys_become_one(tmp_path: Path) -> None:
    for tonic in range(12):
        write_midi(tmp_path / f"key{tonic:02}.mid", scale(tonic))
    write_midi(tmp_path / "other1.mid", [*scale(0)[::-1], (0, 480, 40)])
    write_midi(tmp_path / "other2.mid", [*scale(0), (0, 480, 41)])
    gathered = gather_music(tmp_path, name="x")
    # Up to C5 or down to C4: two octaves of the same song are left of twelve keys.
    repeats = [skipped for skipped in gathered.skipped if "the same music as" in skipped.reason]
    assert len(repeats) == len(gathered.skipped) == 10
    untouched = gather_music(tmp_path, name="x", transpose=False)
    assert untouched.skipped == []


def test_a_note_never_released_ends_at_the_next_onset_of_its_channel_or_after_a_bar(tmp_path: Path) -> None:
    file = mido.MidiFile(ticks_per_beat=10)
    on = [(0, 60, 0), (0, 64, 20), (0, 65, 10), (1, 40, 100), (1, 41, 100)]
    messages = [
        mido.Message("note_on", channel=channel, note=note, velocity=9, time=time) for channel, note, time in on
    ]
    file.tracks.append(mido.MidiTrack([*messages, mido.MetaMessage("end_of_track", time=300)]))
    file.save(tmp_path / "a.mid")
    notes = {note.pitch: (note.start, note.end) for note in read_notes(tmp_path / "a.mid").notes}
    assert notes == {60: (0, 2), 64: (2, 3), 65: (3, 7), 40: (13, 17), 41: (23, 27)}


def test_pedals_are_named_and_riff_files_read(tmp_path: Path) -> None:
    for number in range(3):
        write_midi(tmp_path / f"{number}.mid", scale(number))
    file = mido.MidiFile(tmp_path / "0.mid")
    file.tracks[-1].insert(0, mido.Message("control_change", control=64, value=127))
    file.save(tmp_path / "0.mid")
    inner = (tmp_path / "1.mid").read_bytes()
    header = b"RIFF" + (len(inner) + 12).to_bytes(4, "little") + b"RMIDdata" + len(inner).to_bytes(4, "little")
    (tmp_path / "1.mid").unlink()
    (tmp_path / "wrapped.rmi").write_bytes(header + inner)
    gathered = gather_music(tmp_path, name="x", transpose=False)
    assert gathered.files == 3
    assert gathered.skipped == []
    assert "the sustain pedal of 1 file is ignored: notes end when their keys are released" in gathered.data.remarks


def test_scores_of_all_formats_give_the_same_songs(tmp_path: Path) -> None:
    """The same tune as MIDI, MusicXML, ABC and Humdrum; and a file that music21 cannot read beside them."""
    pytest.importorskip("music21")
    score = Score([RollNote(n, n + 1, pitch) for n, pitch in enumerate((60, 64, 67, 72))], 4, 1)
    (tmp_path / "a.mid").write_bytes(to_midi(score, tempo=100))
    (tmp_path / "b.musicxml").write_bytes(to_musicxml(score, tempo=100))
    (tmp_path / "c.abc").write_text("X:1\nT:c\nM:4/4\nL:1/4\nK:C\nCEGc|\n")
    (tmp_path / "d.krn").write_text("**kern\n*M4/4\n4c\n4e\n4g\n4cc\n==\n*-\n")
    (tmp_path / "e.abc").write_bytes(bytes(range(256)))
    with SongReader() as reader:
        songs = {path.name: reader.read(path)[0].notes for path in sorted(tmp_path.iterdir()) if path.stem != "e"}
        with pytest.raises(InputError):
            reader.read(tmp_path / "e.abc")
    for notes in songs.values():
        assert sorted(notes) == [Note(0, 1, 60), Note(1, 2, 64), Note(2, 3, 67), Note(3, 4, 72)]


def test_a_child_that_dies_or_hangs_costs_one_file(tmp_path: Path) -> None:
    (tmp_path / "a.abc").write_text("X:1\nK:C\nCEGc|\n")
    with SongReader(patience=0.01) as reader:
        with pytest.raises(InputError, match="music21 needs more than"):
            reader.read(tmp_path / "a.abc")
        assert reader.child is None


def test_notes_beyond_the_keyboard_are_told(tmp_path: Path) -> None:
    for number in range(3):
        write_midi(tmp_path / f"{number}.mid", [(0, 960, 60 + number), (0, 480, 120), (480, 960, 121)])
    gathered = gather_music(tmp_path, name="x", transpose=False)
    assert gathered.data.remarks[1:] == tuple(f"{n}.mid: 2 notes beyond the keyboard left out" for n in range(3))


def break_file(path: Path, how: str) -> None:
    content = write_midi(path, scale(0), type=2 if how == "type 2" else 1).read_bytes()
    content = {
        "empty": b"",
        "truncated": content[: len(content) // 2],
        "no midi": b"this is a text, not music",
        "smpte": content[:12] + b"\xe7\x28" + content[14:],
        "silence": write_midi(path, []).read_bytes(),
        "one frame": write_midi(path, [(0, 240, 60)]).read_bytes(),
        "endless": write_midi(path, [(0, 2**27, 60)]).read_bytes(),
    }.get(how, content)
    path.write_bytes(content)


@pytest.mark.parametrize(
    ("how", "reason"),
    [
        ("empty", "it is empty"),
        ("truncated", "it is truncated"),
        ("no midi", "it is not valid MIDI"),
        ("smpte", "it counts time in seconds"),
        ("type 2", "its tracks are independent"),
        ("silence", "it has no notes"),
        ("one frame", "it is shorter than two frames"),
        ("endless", "frames, more than 100000"),
    ],
)
def test_a_bad_file_is_skipped_with_its_reason(folder: Path, tmp_path: Path, how: str, reason: str) -> None:
    break_file(folder / "bad.mid", how)
    report = import_path(folder, name="mine", data_dir=tmp_path / "data")
    assert report.files == 11
    [(file, why)] = report.skipped
    assert file == "bad.mid"
    assert reason in why
    assert f"skipped bad.mid: {why}" in report.data.remarks
    assert sum(len(part) for part in report.data.splits.values()) == 10


def test_every_truncation_is_survived(tmp_path: Path) -> None:
    content = write_midi(tmp_path / "a.mid", scale(0)).read_bytes()
    for length in range(1, len(content)):
        (tmp_path / "a.mid").write_bytes(content[:length])
        with pytest.raises(UnreadableMidi):
            read_notes(tmp_path / "a.mid")


def test_a_large_file_is_refused(tmp_path: Path) -> None:
    path = write_midi(tmp_path / "a.mid", scale(0))
    os.truncate(path, MIDI_BYTES + 1)
    with pytest.raises(InputError, match=f"more than the {MIDI_BYTES}"):
        read_notes(path)


def test_a_folder_without_usable_music_is_refused(tmp_path: Path) -> None:
    empty = tmp_path / "empty"
    empty.mkdir()
    with pytest.raises(InputError, match=r"has no music files.*\.mid"):
        import_path(empty, name="mine", data_dir=tmp_path / "data")
    for how in ("truncated", "empty"):
        break_file(empty / f"{how}.mid", how)
    write_midi(empty / "good.mid", scale(0))
    with pytest.raises(InputError, match=r"only 1 songs of 3 files .* empty\.mid: it is empty"):
        import_path(empty, name="mine", data_dir=tmp_path / "data")
    assert not (tmp_path / "data").exists()


@pytest.mark.parametrize("frames_per_beat", [0, -1, 1000])
def test_frames_per_beat_must_make_sense(folder: Path, frames_per_beat: int) -> None:
    with pytest.raises(InputError, match="frames per beat must be from 1 to 96"):
        gather_music(folder, name="x", frames_per_beat=frames_per_beat)


def test_an_imported_folder_is_the_same_when_loaded(folder: Path, tmp_path: Path) -> None:
    from longspan.data import load

    seen: list[tuple[str, int, int]] = []
    report = import_path(
        folder, name="mine", data_dir=tmp_path, frames_per_beat=4, progress=lambda *news: seen.append(news)
    )
    assert seen[-1] == ("reading music", 10, 10)
    again = load("mine", tmp_path)
    assert isinstance(again, MusicData)
    assert again.fingerprint == report.data.fingerprint
    assert again.frames_per_beat == 4
    assert again.origin == "10 songs of 10 files"
    direct = load(str(folder))
    assert direct.fingerprint == gather_music(folder, name="x").data.fingerprint
