"""Notes become frames, songs come to C, and splits are fixed."""

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from longspan.data import MusicData, load
from longspan.data import rolls as rolls_module
from longspan.data.keys import Key, find_key, key_of, shift_to_c
from longspan.data.music import check_song
from longspan.data.rolls import NotARoll, Note, place_on_piano, round_to_frames, sample_on_beat
from longspan.data.splitting import cut, split_songs, without_repeats
from longspan.errors import InputError
from tests.support.real_data import DATA, needs_benchmarks

MAJOR_SCALE = (0, 2, 4, 5, 7, 9, 11)

ticks = st.integers(0, 400)
tick_notes = st.lists(st.tuples(ticks, st.integers(1, 200), st.integers(0, 127)), min_size=1, max_size=6)


def beats(notes: list[tuple[int, int, int]], ticks_per_beat: int = 24) -> list[Note]:
    return [Note(start / ticks_per_beat, (start + length) / ticks_per_beat, pitch) for start, length, pitch in notes]


@given(tick_notes, st.sampled_from([1, 2, 3, 4, 8]))
def test_a_pitch_is_on_where_it_fills_half_a_frame(notes: list[tuple[int, int, int]], frames_per_beat: int) -> None:
    frame = Fraction(24, frames_per_beat)
    expected: set[tuple[int, int]] = set()
    for start, length, pitch in notes:
        shares = {
            number: min(Fraction(start + length), (number + 1) * frame) - max(Fraction(start), number * frame)
            for number in range(math.floor(start / frame), math.ceil((start + length) / frame))
        }
        half = [number for number, share in shares.items() if share >= frame / 2]
        # Of two frames with equally much of a short note the later has it.
        most = max(shares, key=lambda number: (shares[number], number))
        expected |= {(number, pitch) for number in half or [most]}
    roll = round_to_frames(beats(notes), frames_per_beat)
    assert {(int(number), int(pitch)) for number, pitch in np.argwhere(roll)} == expected
    assert roll[-1].any()


@given(tick_notes, st.integers(0, 23))
def test_sampling_takes_what_sounds_on_the_beat(notes: list[tuple[int, int, int]], upbeat: int) -> None:
    expected = {
        (frame, pitch)
        for start, length, pitch in notes
        for frame in range(40)
        if start <= upbeat + 24 * frame < start + length
    }
    roll = sample_on_beat(beats(notes), first_frame=upbeat / 24)
    assert {(int(frame), int(pitch)) for frame, pitch in np.argwhere(roll)} == expected


def test_triplets_fall_on_their_frames() -> None:
    notes = [Note(place / 3, (place + 1) / 3, 60 + place) for place in range(30)]
    np.testing.assert_array_equal(np.argmax(round_to_frames(notes, 3), axis=1), 60 + np.arange(30))


def test_a_song_without_end_is_refused_before_memory_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rolls_module.np, "zeros", lambda *_, **__: pytest.fail("allocated"))
    with pytest.raises(NotARoll, match="more than 100000"):
        round_to_frames([Note(0, 1e12, 60)], 2)


def test_no_notes_are_no_song() -> None:
    with pytest.raises(NotARoll, match="no notes"):
        round_to_frames([], 2)
    with pytest.raises(NotARoll, match="shorter than two frames"):
        place_on_piano(round_to_frames([Note(0, 1, 60)], 1))
    with pytest.raises(NotARoll, match="keyboard"):
        place_on_piano(round_to_frames([Note(0, 4, 5)], 1))


def test_the_piano_takes_what_it_has_keys_for() -> None:
    notes = [Note(0, 1, 20), Note(2, 4, 21), Note(2, 3, 108), Note(3, 5, 109), Note(2, 3, 60)]
    song, beyond = place_on_piano(round_to_frames(notes, 1))
    assert beyond == 2
    assert song.shape == (2, 88)
    assert [tuple(np.flatnonzero(frame)) for frame in song] == [(0, 39, 87), (0,)]
    up, beyond = place_on_piano(round_to_frames(notes, 1), shift=2)
    assert beyond == 2
    assert [tuple(np.flatnonzero(frame)) for frame in up] == [(1,), (), (2, 41), (2,)]


@pytest.mark.parametrize("tonic", range(12))
def test_the_same_music_in_any_key_is_the_same_song(tonic: int) -> None:
    melody = [0, 4, 7, 5, 4, 2, 0, 9, 7, 11, 12, 12]
    notes = [Note(beat, beat + 1, 48 + tonic + step) for beat, step in enumerate(melody)]
    roll = round_to_frames(notes, 1)
    key = key_of(roll)
    assert key == Key(tonic, "major")
    shift = shift_to_c(key)
    assert -6 <= shift <= 5
    assert (tonic + shift) % 12 == 0
    song, _ = place_on_piano(roll, shift)
    octave = 48 + tonic + shift
    assert np.argmax(song, axis=1).tolist() == [octave + step - 21 for step in melody]


@pytest.mark.parametrize("tonic", range(12))
def test_minor_keys_are_told_from_their_major_relatives(tonic: int) -> None:
    harmonic_minor = np.zeros(12)
    harmonic_minor[[0, 2, 3, 5, 7, 8, 11]] = [3, 1, 2, 1, 3, 1, 1]
    assert find_key(np.roll(harmonic_minor, tonic)) == Key(tonic, "minor")
    major = np.zeros(12)
    major[list(MAJOR_SCALE)] = [3, 1, 2, 1, 3, 1, 1]
    assert find_key(np.roll(major, tonic)) == Key(tonic, "major")


@given(st.integers(3, 200), st.tuples(st.floats(0.01, 1), st.floats(0.01, 1), st.floats(0.01, 1)))
def test_cuts_cover_everything_and_leave_no_split_empty(count: int, weights: tuple[float, ...]) -> None:
    shares = [weight / sum(weights) for weight in weights]
    parts = cut(count, shares)
    things = list(range(count))
    assert [thing for part in parts.values() for thing in things[part]] == things
    for part, share in zip(parts.values(), shares, strict=True):
        assert len(things[part]) >= 1
        assert abs(len(things[part]) - share * count) <= 2


def test_a_song_keeps_its_split_whatever_the_order_of_files() -> None:
    songs = {f"song{number}": np.full((2, 88), number, np.uint8) for number in range(50)}
    forward = split_songs(songs)
    backward = split_songs(dict(reversed(songs.items())))
    assert [len(part) for part in forward.values()] == [30, 10, 10]
    for split in forward:
        np.testing.assert_array_equal(forward[split], backward[split])
    other_seed = split_songs(songs, seed=1)
    assert not np.array_equal(forward["train"], other_seed["train"])


def test_repeated_songs_are_dropped_and_told() -> None:
    song, other = np.zeros((3, 88), np.uint8), np.ones((3, 88), np.uint8)
    told: list[tuple[str, str]] = []
    kept = without_repeats({"a": song, "b": other, "c": song.copy()}, lambda *news: told.append(news))
    assert list(kept) == ["a", "b"]
    assert told == [("c", "the same music as a")]


@pytest.mark.parametrize(
    ("array", "reason"),
    [
        (np.zeros((5, 128), np.uint8), r"shape \(5, 128\).*roll\[:, 21:109\]"),
        (np.zeros(88, np.uint8), "expected time x 88"),
        (np.full((5, 88), 64, np.uint8), "nothing but 0 and 1"),
        (np.full((5, 88), np.nan), "nothing but 0 and 1"),
        (np.full((5, 88), "x"), "nothing but 0 and 1"),
        (np.zeros((0, 88), np.uint8), "no frames"),
    ],
)
def test_what_is_not_a_song_is_refused(array: np.ndarray, reason: str) -> None:
    with pytest.raises(InputError, match=reason):
        check_song(array, "'x'")


@pytest.mark.parametrize("shares", [(0.5, 0.5, 0.0), (0.6, 0.2, 0.3), (0.5, 0.5)])
def test_shares_must_make_sense(shares: tuple[float, ...]) -> None:
    with pytest.raises(InputError, match="split shares"):
        cut(10, shares)


def test_the_fingerprint_is_of_the_content() -> None:
    songs = [np.eye(88, dtype=np.uint8)[start : start + 4] for start in (0, 4, 8, 12)]
    plain = {"train": songs[:2], "valid": songs[2:3], "test": songs[3:]}
    regrouped = {"train": [np.concatenate(songs[:2])], "valid": songs[2:3], "test": songs[3:]}
    moved = {"train": songs[:1], "valid": songs[1:3], "test": songs[3:]}
    fingerprint = MusicData("a", plain, 1).fingerprint
    assert fingerprint == MusicData("b", {split: list(part) for split, part in plain.items()}, 2).fingerprint
    assert len({fingerprint, MusicData("a", regrouped, 1).fingerprint, MusicData("a", moved, 1).fingerprint}) == 3


@needs_benchmarks
@pytest.mark.parametrize(
    ("name", "songs", "frames"),
    [
        ("jsb", (229, 76, 77), (13_807, 4_602, 4_725)),
        ("nottingham", (694, 173, 170), (176_561, 45_513, 44_463)),
        ("musedata", (524, 135, 124), (245_202, 82_755, 64_339)),
        ("piano-midi", (87, 12, 25), (75_911, 8_540, 19_036)),
    ],
)
def test_benchmarks_have_the_known_size(name: str, songs: tuple[int, ...], frames: tuple[int, ...]) -> None:
    data = load(name, DATA)
    assert isinstance(data, MusicData)
    assert tuple(map(len, data.splits.values())) == songs
    assert tuple(sum(map(len, part)) for part in data.splits.values()) == frames
    assert all(song.dtype == np.uint8 and song.max() == 1 for part in data.splits.values() for song in part)
