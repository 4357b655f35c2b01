"""Frames with onsets: repeated notes stay repeated from the file to the sample."""

import jax.numpy as jnp
import mido
import numpy as np
import pytest

import longspan
from longspan.cli import run
from longspan.data import import_path, load
from longspan.data.archive import describe_set
from longspan.data.music import KEYS, WITH_ONSETS, MusicData
from longspan.data.rolls import Note, place_on_piano, round_to_frames
from longspan.errors import InputError
from longspan.models.outputs import FREE, OFF, ON
from longspan.models.parts import Candidates
from longspan.sampling.generate import _without_silence
from longspan.sampling.held import held_keys
from longspan.sampling.notes import to_score
from longspan.sampling.prime import read_music_prime
from longspan.sampling.render import to_midi
from tests.support.catalog import TINY

TUNE = [Note(0, 1, 60), Note(1, 2, 60), Note(2, 2.5, 62), Note(2.5, 3, 62), Note(3, 4, 60), Note(0, 4, 48)]


def struck(roll: np.ndarray, frames_per_beat: int = 2) -> set[tuple[float, float, int]]:
    """The notes of a roll in beats and pitches."""
    score = to_score(roll, frames_per_beat=frames_per_beat, lowest_pitch=21)
    return {(note.start / frames_per_beat, note.stop / frames_per_beat, note.pitch) for note in score.notes}


def test_notes_survive_the_roll_and_melt_without_onsets():
    with_onsets, _ = place_on_piano(round_to_frames(TUNE, 2, onsets=True))
    assert with_onsets.shape == (8, WITH_ONSETS)
    assert struck(with_onsets) == {tuple(note) for note in TUNE}
    melted, _ = place_on_piano(round_to_frames(TUNE, 2))
    assert struck(melted) == {(0, 2, 60), (2, 3, 62), (3, 4, 60), (0, 4, 48)}


def test_onsets_move_with_their_keys():
    song, _ = place_on_piano(round_to_frames(TUNE, 2, onsets=True), 3)
    assert struck(song) == {(start, end, pitch + 3) for start, end, pitch in TUNE}


def test_a_second_voice_on_a_sounding_key_strikes_it_again():
    song, _ = place_on_piano(round_to_frames([Note(0, 4, 60), Note(2, 4, 60)], 1, onsets=True))
    assert struck(song, 1) == {(0, 2, 60), (2, 4, 60)}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """MIDI files of tunes with many repeated notes."""
    home, random = tmp_path_factory.mktemp("tunes"), np.random.default_rng(0)
    for number in range(12):
        file, track = mido.MidiFile(ticks_per_beat=480), mido.MidiTrack()
        file.tracks.append(track)
        for _ in range(30):
            pitch = int(random.choice([60, 62, 64, 67]))
            for _ in range(int(random.integers(1, 4))):
                track.append(mido.Message("note_on", note=pitch, velocity=80))
                track.append(mido.Message("note_off", note=pitch, time=480))
        file.save(home / f"{number}.mid")
    return home


@pytest.fixture(scope="module")
def data_dir(folder, tmp_path_factory):
    home = tmp_path_factory.mktemp("data")
    import_path(folder, name="tunes", data_dir=home, onsets=True)
    return home


def test_an_import_keeps_onsets_and_says_so(data_dir, folder, tmp_path):
    data = load("tunes", data_dir)
    assert isinstance(data, MusicData)
    assert data.record.size == WITH_ONSETS
    assert any("struck again" in remark for remark in data.remarks)
    assert "with onsets" in describe_set(data_dir / "imported" / "tunes.npz")
    plain = import_path(folder, name="plain", data_dir=tmp_path).data
    assert any("repeat the one before" in remark for remark in plain.remarks)
    assert data.split_figures("train").most_notes == 1
    for song in data.splits["train"]:
        assert np.all(song[:, KEYS:] <= song[:, :KEYS])


def test_augmentation_moves_both_halves(data_dir):
    plain = load("tunes", data_dir)
    moved = MusicData("tunes", plain.splits, 1, augment=5)
    chunks = moved.epoch(1, seed=0, chunk_length=20, lanes=1)
    frames = np.asarray(chunks.targets)[np.asarray(chunks.mask)]
    assert np.all(frames[:, KEYS:] <= frames[:, :KEYS])
    assert frames[:, KEYS:].sum() == sum(song[:, KEYS:].sum() for song in plain.splits["train"])


@pytest.fixture(scope="module")
def trained(data_dir, tmp_path_factory):
    path = tmp_path_factory.mktemp("runs") / "run"
    settings = {**TINY, "hidden_size": 30, "nade_size": 20, "max_epochs": 12, "learning_rate": 0.1}
    longspan.train("nade:sgd+cm", load("tunes", data_dir), run_dir=path, **settings)
    return path


def test_samples_repeat_notes_and_continue_a_prime(trained, folder, tmp_path, capsys):
    out = tmp_path / "out.mid"
    assert run(["sample", str(trained), "-o", str(out), "--length", "60", "--prime", str(folder / "0.mid")]) == 0
    capsys.readouterr()
    notes = [message.note for message in mido.MidiFile(out) if message.type == "note_on"]
    given = [message.note for message in mido.MidiFile(folder / "0.mid") if message.type == "note_on"]
    assert notes[: len(given)] == given
    drawn = notes[len(given) :]
    repeats = np.mean(np.array(drawn[1:]) == np.array(drawn[:-1]))
    assert 0.2 < repeats < 0.8  # about half of the notes of the data repeat the one before


def test_a_memory_recalls_such_frames(trained, data_dir, capsys):
    run_ = longspan.open_run(trained, data=load("tunes", data_dir))
    run_.remember(data=load("tunes", data_dir))
    assert run_.sample(20).shape == (1, 20, WITH_ONSETS)


def test_a_prime_read_from_midi_is_what_was_written(tmp_path):
    song, _ = place_on_piano(round_to_frames(TUNE, 2, onsets=True))
    (tmp_path / "prime.mid").write_bytes(to_midi(to_score(song, frames_per_beat=2, lowest_pitch=21), 100))
    prime = read_music_prime(tmp_path / "prime.mid", frames_per_beat=2, move_by=0, onsets=True)
    np.testing.assert_array_equal(prime.roll, song)


@pytest.mark.parametrize("width", [5, 100])
def test_keys_are_held_on_a_piano_alone(width):
    """A run from somebody else may have frames of any width, on which the keys of a piano were an IndexError."""
    melody, _ = place_on_piano(round_to_frames(TUNE[:2], 1))
    for held in ({"keep": ["C5"]}, {"melody": melody}):
        with pytest.raises(InputError, match=f"the frames of this model have {width}"):
            held_keys(3, 21, width=width, **held)


def test_a_melody_is_struck_as_it_is_and_forbidden_keys_are_never_struck():
    melody, _ = place_on_piano(round_to_frames(TUNE[:2], 1, onsets=True))
    held = held_keys(3, 21, melody=melody, forbid=["C2"], width=WITH_ONSETS)
    assert held is not None
    key = 60 - 21
    assert held[0, key] == held[1, key] == ON
    assert (held[0, KEYS + key], held[1, KEYS + key]) == (OFF, ON)
    assert np.all(held[:2, KEYS + key + 1 :] == OFF)
    assert held[0, KEYS + key - 1] == FREE
    assert np.all(held[:, [36 - 21, KEYS + 36 - 21]] == OFF)


def test_a_frame_that_only_strikes_again_is_silent():
    last = jnp.zeros((1, WITH_ONSETS), jnp.uint8).at[0, 5].set(1)
    steps = jnp.zeros((1, 2, WITH_ONSETS), jnp.uint8).at[0, 0, KEYS + 3].set(1)
    found = _without_silence(Candidates(steps, jnp.zeros((1, 2)), jnp.zeros((1, 2))), last)
    np.testing.assert_array_equal(np.asarray(found.steps), np.broadcast_to(np.asarray(last), (1, 2, WITH_ONSETS)))


def test_songs_with_and_without_onsets_do_not_mix():
    songs = {"train": [np.ones((4, KEYS))], "valid": [np.ones((4, WITH_ONSETS))], "test": [np.ones((4, KEYS))]}
    with pytest.raises(InputError, match="onsets"):
        MusicData("mixed", songs, 1)
