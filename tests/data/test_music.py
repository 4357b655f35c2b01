"""Notes become frames, songs come to C, and splits are fixed."""

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from longspan.data import MusicData, load
from longspan.data import rolls as rolls_module
from longspan.data.dataset import SPLITS
from longspan.data.keys import Key, find_key, key_of, shift_to_c
from longspan.data.music import check_song, within
from longspan.data.rolls import NotARoll, Note, choose_grid, place_on_piano, round_to_frames, sample_on_beat
from longspan.data.splitting import cut, split_songs, together, versions, without_repeats
from longspan.errors import InputError
from tests.support.real_data import DATA, needs_benchmarks

MAJOR_SCALE = (0, 2, 4, 5, 7, 9, 11)

ticks = st.integers(0, 400)
tick_notes = st.lists(st.tuples(ticks, st.integers(1, 200), st.integers(0, 127)), min_size=1, max_size=6)


def beats(notes: list[tuple[int, int, int]], ticks_per_beat: int = 24) -> list[Note]:
    return [Note(start / ticks_per_beat, (start + length) / ticks_per_beat, pitch) for start, length, pitch in notes]


def shares_of(start: int, length: int, frame: Fraction) -> dict[int, Fraction]:
    """How much of each frame a note fills."""
    return {
        number: min(Fraction(start + length), (number + 1) * frame) - max(Fraction(start), number * frame)
        for number in range(math.floor(start / frame), math.ceil((start + length) / frame))
    }


def claimed(start: int, length: int, frame: Fraction) -> dict[int, Fraction]:
    """The frames that a note fills half of, or the one with most of it, and how much."""
    shares = shares_of(start, length, frame)
    half = {number: share for number, share in shares.items() if share >= frame / 2}
    # Of two frames with equally much of a short note the later has it.
    most = max(shares, key=lambda number: (shares[number], number))
    return half or {most: shares[most]}


@given(ticks, st.integers(1, 200), st.lists(st.integers(0, 127), min_size=1, max_size=4), st.sampled_from([1, 2, 3, 8]))
def test_a_chord_is_on_where_it_fills_half_a_frame(start: int, length: int, pitches: list[int], per_beat: int) -> None:
    frame = Fraction(24, per_beat)
    roll = round_to_frames(beats([(start, length, pitch) for pitch in pitches]), per_beat)
    expected = {(number, pitch) for number in claimed(start, length, frame) for pitch in pitches}
    assert {(int(number), int(pitch)) for number, pitch in np.argwhere(roll)} == expected


@given(st.lists(st.integers(1, 40), min_size=1, max_size=12), st.sampled_from([1, 2, 3, 4]))
def test_a_tune_stays_a_tune_and_a_frame_goes_to_its_longest_note(lengths: list[int], frames_per_beat: int) -> None:
    frame = Fraction(24, frames_per_beat)
    notes = [(sum(lengths[:place]), length, 60 + place) for place, length in enumerate(lengths)]
    roll = round_to_frames(beats(notes), frames_per_beat)
    assert roll.sum(axis=1).max() == 1
    for number, pitch in np.argwhere(roll):
        shares = [claimed(start, length, frame).get(int(number), Fraction(0)) for start, length, _ in notes]
        assert shares[pitch - 60] == max(shares)


def test_two_short_notes_over_a_long_one_share_its_frame_in_turn() -> None:
    notes = [Note(0, 2, 48), Note(0, 0.25, 72), Note(0.25, 0.5, 74), Note(0.5, 1, 76)]
    assert [np.flatnonzero(frame).tolist() for frame in round_to_frames(notes, 2)] == [[48, 72], [48, 76], [48], [48]]


def test_repeated_notes_stay_apart_where_asked_and_possible() -> None:
    notes = [Note(0, 1, 60), Note(1, 2, 60), Note(2, 2.25, 60), Note(2.25, 3, 60)]
    roll = round_to_frames(notes, 4, separate=True)[:, 60]
    assert roll.tolist() == [1, 1, 1, 0, 1, 1, 1, 0, 1, 1, 1, 1]


@pytest.mark.parametrize(
    ("onsets", "frames_per_beat", "fits"),
    [
        ([0, 1, 2, 3], 1, True),
        ([0, 0.5, 1, 1.5], 2, True),
        ([0, 1 / 3, 2 / 3, 1], 3, True),
        ([0, 0.25, 0.5, 1], 4, True),
        ([0, 0.25, 1 / 3, 0.5, 2 / 3, 0.75], 12, True),
        ([*range(30), 0.5], 1, True),
        (np.random.default_rng(0).uniform(0, 100, 500), 4, False),
    ],
)
def test_the_coarsest_grid_that_fits_is_chosen(onsets, frames_per_beat, fits) -> None:
    grid = choose_grid(np.array(onsets))
    assert (grid.frames_per_beat, grid.fits) == (frames_per_beat, fits)


def test_training_songs_are_moved_anew_in_every_epoch_and_the_others_never() -> None:
    song = np.zeros((4, 88), np.uint8)
    song[:, [0, 40]] = 1
    song[1, 60] = 1
    data = MusicData("x", {split: [song] for split in SPLITS}, 2, augment=3)
    plain = MusicData("x", {split: [song] for split in SPLITS}, 2)
    assert data.fingerprint != plain.fingerprint
    targets = [data.epoch(n, seed=0, chunk_length=4, lanes=1).targets[0, :, 0] for n in range(20)]
    shifts = {int(np.flatnonzero(target[0])[0]) for target in targets}
    assert shifts == {0, 1, 2, 3}  # its lowest key is the piano's
    for target in targets:
        np.testing.assert_array_equal(target, np.roll(song, within(song, int(np.flatnonzero(target[0])[0])), axis=1))
    again = data.epoch(7, seed=0, chunk_length=4, lanes=1).targets[0, :, 0]
    np.testing.assert_array_equal(again, targets[7])
    np.testing.assert_array_equal(data.chunks("valid", 4, 1).targets[0, :, 0], song)


def test_versions_of_a_song_begin_alike_in_any_key_rhythm_and_upbeat() -> None:
    random = np.random.default_rng(1)
    tune = np.cumsum(random.choice([-3, -2, -1, 1, 2, 3], 30)) + 40

    def song(pitches, hold=1):
        roll = np.zeros((len(pitches), 88), np.uint8)
        roll[np.arange(len(pitches)), pitches] = 1
        return np.repeat(roll, hold, axis=0)

    songs = {"a": song(tune), "b": song(tune + 5, hold=2), "c": song([30, 33, *tune]), "d": song(tune[::-1])}
    assert versions(songs) == {"a": "a", "b": "a", "c": "a", "d": "d"}
    splits = {"train": ["d", "b"], "valid": ["e"], "test": ["a", "c"]}
    assert together(splits, {**versions(songs), "e": "e"}) == {"train": ["d"], "valid": ["e"], "test": ["b", "a", "c"]}
    assert together({"train": ["b"], "valid": ["d"], "test": ["a"]}, versions(songs))["train"] == ["b"]


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
