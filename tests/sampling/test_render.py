"""Rolls become notes, MIDI, sound and pictures that other programs read back as what they were."""

import io
import wave
from xml.etree import ElementTree

import mido
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from PIL import Image

from longspan.data.midi import read_notes
from longspan.data.music import KEYS, LOWEST_PITCH
from longspan.data.musicxml import read_score
from longspan.data.rolls import Note, round_to_frames
from longspan.errors import InputError
from longspan.sampling import audio, picture, png
from longspan.sampling.notes import RollNote, Score, lowest_sounding_pitch, to_score
from longspan.sampling.picture import to_blocks, to_svg
from longspan.sampling.render import ENDINGS, render_music, render_text, to_midi, to_musicxml

ROLLS = arrays(np.uint8, st.tuples(st.integers(1, 12), st.just(KEYS)), elements=st.integers(0, 1))


def roll_of(notes, frames, keys=KEYS, lowest=LOWEST_PITCH):
    roll = np.zeros((frames, keys), np.uint8)
    for start, stop, pitch in notes:
        roll[start:stop, pitch - lowest] += 1
    return roll


@pytest.fixture
def chord_and_tune() -> Score:
    """C4 held for four frames under E4, a rest, and E4 again; two frames a beat."""
    return Score([RollNote(0, 4, 60), RollNote(0, 1, 64), RollNote(2, 4, 64)], frames=6, frames_per_beat=2)


# Notes


@given(ROLLS)
def test_held_notes_are_the_longest_runs_of_a_key(roll):
    notes = to_score(roll, frames_per_beat=1).notes
    np.testing.assert_array_equal(roll_of(notes, len(roll)), roll)
    beginnings = {(note.start, note.pitch) for note in notes}
    assert not any((note.stop, note.pitch) in beginnings for note in notes)
    assert notes == sorted(notes)


@given(ROLLS)
def test_struck_notes_are_one_frame_each(roll):
    notes = to_score(roll, frames_per_beat=1, re_attack=True).notes
    np.testing.assert_array_equal(roll_of(notes, len(roll)), roll)
    assert all(note.stop == note.start + 1 for note in notes)


def test_notes_sound_where_the_scores_have_them():
    roll = np.zeros((1, KEYS), np.uint8)
    roll[0, 60 - LOWEST_PITCH] = 1
    shifted = to_score(roll, frames_per_beat=1, lowest_pitch=lowest_sounding_pitch(-1))
    assert [note.pitch for note in shifted.notes] == [48]
    moved_back = to_score(roll, frames_per_beat=1, lowest_pitch=lowest_sounding_pitch(0, moved_by=-3))
    assert [note.pitch for note in moved_back.notes] == [63]


def test_pitches_beyond_midi_are_refused():
    with pytest.raises(InputError, match="pitches 125 to 128 go beyond"):
        to_score(np.ones((1, 4)), frames_per_beat=1, lowest_pitch=125)


# MIDI


def test_midi_as_mido_reads_it(chord_and_tune):
    file = mido.MidiFile(file=io.BytesIO(to_midi(chord_and_tune, tempo=90)))
    seconds, sounding, heard = 0.0, {}, []
    for message in file:
        seconds += message.time
        if message.type == "note_on":
            sounding[message.note] = seconds
        elif message.type == "note_off":
            heard.append((message.note, sounding.pop(message.note), seconds))
    frame = 60 / 90 / 2
    expected = [(64, 0, 1), (60, 0, 4), (64, 2, 4)]
    assert [note for note, _, _ in heard] == [note for note, _, _ in expected]
    times = [(start, stop) for _, start, stop in heard]
    np.testing.assert_allclose(times, [(start * frame, stop * frame) for _, start, stop in expected], atol=1e-4)
    assert not sounding
    assert file.length == pytest.approx(6 * frame, abs=1e-4)  # the rest at the end is kept


def test_midi_as_music21_reads_it(chord_and_tune):
    converter = pytest.importorskip("music21.converter")
    stream = converter.parseData(to_midi(chord_and_tune, tempo=90), format="midi").flatten()
    found = sorted(
        (float(element.offset), float(element.quarterLength), pitch.midi)
        for element in stream.notes
        for pitch in element.pitches
    )
    assert found == [(0.0, 0.5, 64), (0.0, 2.0, 60), (1.0, 1.0, 64)]
    [mark] = stream.getElementsByClass("MetronomeMark")
    assert mark.number == pytest.approx(90, abs=0.01)


@given(ROLLS.filter(lambda roll: roll[-1].any()), st.sampled_from([1, 2, 3, 4, 7, 96]), st.booleans())
def test_roll_to_midi_to_roll(tmp_path_factory, roll, frames_per_beat, re_attack):
    path = tmp_path_factory.mktemp("midi") / "roll.mid"
    path.write_bytes(to_midi(to_score(roll, frames_per_beat=frames_per_beat, re_attack=re_attack), tempo=100))
    read = round_to_frames(read_notes(path).notes, frames_per_beat)
    np.testing.assert_array_equal(read[:, LOWEST_PITCH : LOWEST_PITCH + KEYS], roll)


def test_re_attacked_notes_are_struck_in_midi():
    roll = np.ones((3, 1), np.uint8)
    struck = mido.MidiFile(file=io.BytesIO(to_midi(to_score(roll, frames_per_beat=1, re_attack=True), tempo=60)))
    kinds = [message.type for message in struck.tracks[0] if message.type.startswith("note")]
    assert kinds == ["note_on", "note_off"] * 3


# Sound


def spectrum(sound):
    """Frequencies and magnitudes of both channels together."""
    windowed = sound.sum(axis=1) * np.hanning(len(sound))
    padded = 4 * len(sound)
    return np.fft.rfftfreq(padded, 1 / audio.RATE), np.abs(np.fft.rfft(windowed, padded))


def loudness_at(pitch, frequencies, magnitudes):
    """Largest magnitude within a quarter tone of a pitch."""
    frequency = 440 * 2 ** ((pitch - 69) / 12)
    near = np.abs(np.log2(frequencies[1:] / frequency)) < 1 / 24
    return magnitudes[1:][near].max()


@pytest.mark.parametrize("chord", [(60, 64, 67), (36, 55, 75), (84, 90, 93)], ids=str)
def test_the_loudest_frequencies_are_the_pitches(chord):
    score = Score([RollNote(0, 2, pitch) for pitch in chord], frames=2, frames_per_beat=1)
    frequencies, magnitudes = spectrum(audio.synthesize(score, tempo=60))
    overtones = {pitch + step for pitch in chord for step in (12, 19, 24, 28, 31, 34, 36, 38, 40, 42, 43)}
    quietest = min(loudness_at(pitch, frequencies, magnitudes) for pitch in chord)
    others = [loudness_at(pitch, frequencies, magnitudes) for pitch in set(range(33, 108)) - set(chord) - overtones]
    assert quietest > 20 * max(others)
    lowest = frequencies[np.argmax(magnitudes * (frequencies < 1.03 * 440 * 2 ** ((chord[0] - 69) / 12)))]
    assert 12 * np.log2(lowest / 440) + 69 == pytest.approx(chord[0], abs=0.05)


def test_partials_ring_as_their_formula_says():
    tone = audio.strike(69, 1.0)
    time = np.arange(audio.RATE) / audio.RATE
    twin = np.zeros(audio.RATE)
    for number in range(1, audio.PARTIALS + 1):
        partial = 440 * number * np.sqrt(1 + audio.INHARMONICITY * number**2)
        ring = number**0.7 / audio.RING_SECONDS
        twin += (
            0.5 * number**-1.6 * (np.exp(-time * ring) + np.exp(-7 * time * ring)) * np.sin(2 * np.pi * partial * time)
        )
    attack = round(audio.ATTACK_SECONDS * audio.RATE)
    np.testing.assert_allclose(tone[attack:], twin[attack:], atol=1e-5)
    assert tone[0] == 0


def test_notes_sound_when_they_should(chord_and_tune):
    sound = audio.synthesize(Score([RollNote(2, 3, 72)], frames=6, frames_per_beat=2), tempo=120)
    frame = audio.RATE // 4
    assert not sound[: 2 * frame].any()
    assert np.abs(sound[2 * frame : 3 * frame]).max() == pytest.approx(audio.PEAK)
    release = round(audio.RELEASE_SECONDS * audio.RATE)
    assert not sound[3 * frame + release :].any()
    assert len(sound) == 6 * frame + release


def test_released_notes_do_not_click():
    note = Score([RollNote(0, 1, 48)], frames=2, frames_per_beat=1)
    sound = audio.synthesize(note, tempo=60)[:, 0]
    # A step in the waveform would show as a difference far above those of the tone itself.
    steepest = np.abs(np.diff(sound[: audio.RATE])).max()
    assert np.abs(np.diff(sound[audio.RATE - 10 :])).max() < steepest
    assert np.abs(sound[0]) < 1e-3


def test_wav_of_every_key_at_once_does_not_clip():
    everything = to_score(np.ones((2, KEYS), np.uint8), frames_per_beat=1, re_attack=True)
    with wave.open(io.BytesIO(audio.to_wav(everything, tempo=120))) as file:
        assert (file.getframerate(), file.getsampwidth(), file.getnchannels()) == (44_100, 2, 2)
        samples = np.frombuffer(file.readframes(file.getnframes()), "<i2")
    assert np.abs(samples.astype(int)).max() == pytest.approx(audio.PEAK * 32767, abs=1)


def test_silence_is_silent():
    assert not audio.synthesize(to_score(np.zeros((4, KEYS)), frames_per_beat=2), tempo=100).any()


def test_hours_of_sound_are_refused():
    with pytest.raises(InputError, match="lasts 100 minutes, a WAV file at most 20"):
        audio.to_wav(Score([], frames=10_000, frames_per_beat=1), tempo=100)


# Pictures


@pytest.fixture
def primed(chord_and_tune) -> Score:
    return chord_and_tune._replace(prime_frames=1)


def center(box):
    """The pixel in the middle of a box."""
    return round(png.SCALE * (box.y + box.height / 2)), round(png.SCALE * (box.x + box.width / 2))


def test_a_bar_for_every_note(primed):
    drawn = picture.draw(primed)
    bars = [box for box in drawn.boxes if box.height == picture.ROW_HEIGHT - 1.5]
    # The held C is drawn in two parts, since the prime ends while it sounds.
    assert [bar.color == picture.PRIME for bar in bars] == [True, False, True, False]
    frame = (bars[1].width - bars[0].width) / 2  # three frames against one
    starts = [(bar.x - picture.LEFT) // frame for bar in bars]
    assert starts == [0, 1, 0, 2]
    assert bars[0].y - bars[2].y == 4 * picture.ROW_HEIGHT  # four semitones lower is further down
    assert bars[1].color != bars[3].color


def test_png_shows_the_picture(primed):
    drawn = picture.draw(primed)
    image = Image.open(io.BytesIO(png.to_png(drawn)))
    pixels = np.asarray(image)
    assert (image.mode, image.size) == ("RGB", (round(2 * drawn.width), round(2 * drawn.height)))
    for box in drawn.boxes:
        if box.height == picture.ROW_HEIGHT - 1.5:
            assert tuple(pixels[center(box)]) == box.color
            corner = round(png.SCALE * box.y), round(png.SCALE * box.x)
            assert tuple(pixels[corner]) != box.color  # rounded
    assert tuple(pixels[2, 2]) == picture.PAPER
    assert (pixels[:, : 2 * int(picture.LEFT) - 4] == picture.INK).all(axis=2).any()  # labels of octaves


@given(arrays(np.uint8, st.tuples(st.integers(1, 9), st.integers(1, 9), st.just(3))))
def test_png_keeps_every_pixel(pixels):
    image = Image.open(io.BytesIO(png.encode(pixels)))
    np.testing.assert_array_equal(np.asarray(image), pixels)


def test_a_box_between_pixels_covers_them_in_part():
    drawn = picture.Picture(
        4, 4, [picture.Box(0, 0, 4, 4, (0, 0, 0)), picture.Box(1, 1.125, 2, 1, (200, 200, 200))], []
    )
    column = png.rasterize(drawn)[:, 4, 0]
    np.testing.assert_array_equal(column, [0, 0, 150, 200, 50, 0, 0, 0])


def test_svg_has_the_same_boxes_and_labels(primed):
    drawn = picture.draw(primed)
    root = ElementTree.fromstring(to_svg(drawn))
    space = "{http://www.w3.org/2000/svg}"
    boxes = root.findall(f"{space}rect")
    assert len(boxes) == len(drawn.boxes)
    for element, box in zip(boxes, drawn.boxes, strict=True):
        found = [float(element.get(name, 0)) for name in ("x", "y", "width", "height", "rx")]
        np.testing.assert_allclose(found, [box.x, box.y, box.width, box.height, box.radius], atol=0.01)
        assert element.get("fill") == "#{:02x}{:02x}{:02x}".format(*box.color)
    texts = [element.text for element in root.iter(f"{space}text")]
    assert texts == [label.text for label in drawn.labels]
    assert {"C4", "0"} <= set(texts)


def test_every_label_can_be_drawn():
    every_octave = Score([RollNote(0, 1, 0), RollNote(0, 1, 127)], frames=300, frames_per_beat=1)
    drawn = picture.draw(every_octave)
    assert {"C-1", "C9"} <= {label.text for label in drawn.labels}
    assert set("".join(label.text for label in drawn.labels)) == set("0123456789C-")
    assert png.to_png(drawn)


def test_pictures_of_silence_and_of_too_much():
    drawn = picture.draw(Score([], frames=3, frames_per_beat=2))
    assert drawn.height >= picture.LEAST_PITCHES * picture.ROW_HEIGHT
    with pytest.raises(InputError, match="at most 8000"):
        picture.draw(Score([], frames=8001, frames_per_beat=1))


# Terminal and registry


def test_terminal_roll():
    notes = [RollNote(0, 2, 60), RollNote(1, 3, 61), RollNote(2, 3, 63)]
    shown = to_blocks(Score(notes, frames=3, frames_per_beat=1), columns=80)
    assert shown.splitlines() == ["    │  ▀", " C4 │▄█▀", "    └0"]
    cut = to_blocks(Score(notes, frames=3, frames_per_beat=1), columns=8)
    assert cut.splitlines() == ["    │  …", " C4 │▄█…", "    └0"]
    assert to_blocks(Score([], frames=3, frames_per_beat=1), columns=80) == "(silence)\n"


def test_musicxml_holds_the_same_notes(tmp_path):
    notes = [RollNote(0, 2, 60), RollNote(0, 8, 43), RollNote(2, 3, 67), RollNote(3, 9, 64), RollNote(3, 4, 72)]
    path = tmp_path / "score.musicxml"
    path.write_bytes(to_musicxml(Score(notes, frames=12, frames_per_beat=2, meter=(3, 4)), tempo=90))
    roll = round_to_frames([note for _, part in read_score(path).parts for note in part], 2)
    expected = round_to_frames([Note(note.start / 2, note.stop / 2, note.pitch) for note in notes], 2)
    np.testing.assert_array_equal(roll, expected)


def test_every_ending_gives_its_format(chord_and_tune):
    starts = {
        ".mid": b"MThd",
        ".midi": b"MThd",
        ".musicxml": b"<?xm",
        ".wav": b"RIFF",
        ".png": b"\x89PNG",
        ".svg": b"<svg",
    }
    assert ENDINGS["music"] == tuple(starts)
    for ending, start in starts.items():
        assert render_music(chord_and_tune, ending, tempo=100)[:4] == start
    assert render_text("no newline") == render_text("no newline\n") == "no newline\n"
