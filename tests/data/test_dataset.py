"""The seam of data: what is made in Python is checked like files, and what follows from chunks follows rightly."""

import math

import numpy as np
import pytest

import longspan
from longspan.data.checking import check_dataset
from longspan.data.dataset import SPLITS, Chunks, DataRecord, Dataset, fingerprint_of
from longspan.data.music import MusicData
from longspan.data.sequences import arrange_pairs
from longspan.data.tasks import TaskData
from longspan.data.text import TextData
from longspan.errors import InputError
from tests.support.catalog import tiny_labels, tiny_music, tiny_series, tiny_text

GOOD_SONG = np.eye(88, dtype=np.uint8)[:5]


@pytest.mark.parametrize(
    ("song", "said"),
    [
        (GOOD_SONG * 100, "nothing but 0 and 1"),
        (GOOD_SONG + 0.5, "nothing but 0 and 1"),
        (np.full((5, 88), np.nan), "nothing but 0 and 1"),
        (GOOD_SONG[:, :12], "time x 88 keys"),
        (np.zeros((5, 128)), "time x 88 keys"),
        (GOOD_SONG[0], "time x 88 keys"),
        (GOOD_SONG[:0], "no frames"),
        (np.full((5, 88), "a"), "nothing but 0 and 1"),
    ],
)
def test_songs_made_in_python_are_checked_like_those_of_files(song, said):
    with pytest.raises(InputError, match=said):
        MusicData("mine", {split: [GOOD_SONG, song] for split in SPLITS}, 2)


@pytest.mark.parametrize("kind", [bool, np.int64, np.float32])
def test_songs_of_any_type_become_the_same_data(kind):
    plain = MusicData("mine", {split: [GOOD_SONG] for split in SPLITS}, 2)
    other = MusicData("mine", {split: [GOOD_SONG.astype(kind)] for split in SPLITS}, 2)
    assert other.splits["train"][0].dtype == np.uint8
    assert other.fingerprint == plain.fingerprint


@pytest.mark.parametrize("splits", [{}, {"train": [GOOD_SONG]}, {"tarin": [GOOD_SONG]}])
def test_data_without_the_three_splits_are_refused(splits):
    with pytest.raises(InputError, match="expected train, valid, test"):
        MusicData("mine", splits, 2)


def test_a_split_without_songs_is_refused():
    with pytest.raises(InputError, match="at least one"):
        MusicData("mine", {"train": [GOOD_SONG], "valid": [], "test": [GOOD_SONG]}, 2)


@pytest.mark.parametrize(
    ("tokens", "said"),
    [
        (np.array([0, 5]), "0 to 4, got 5"),
        (np.array([0, 2**30]), "0 to 4"),
        (np.array([-1, 0]), "0 to 4, got -1"),
        (np.array([[0, 1]]), "shape"),
        (np.array([0.0, 1.0]), "float64"),
        (np.array([], np.int32), "shape"),
    ],
)
def test_symbols_made_in_python_are_checked_like_those_of_files(tokens, said):
    with pytest.raises(InputError, match=said):
        TextData("mine", "character", ("\n", *"abcd"), dict.fromkeys(SPLITS, tokens), 0)


@pytest.mark.usefixtures("unchecked")
def test_a_text_needs_a_unit_and_an_end_token():
    splits = dict.fromkeys(SPLITS, np.array([0, 1]))
    with pytest.raises(InputError, match="word, token, character or byte"):
        TextData("mine", "syllable", ("\n", "a"), splits, 0)  # pyright: ignore[reportArgumentType]
    with pytest.raises(InputError, match="end_token must be a whole number from 0 to 1: got 7"):
        TextData("mine", "word", ("\n", "a"), splits, 7)


@pytest.mark.parametrize(
    ("vocabulary", "said"),
    [
        (("\n", "a", "a"), "different symbols, got 'a' 2 times"),
        (("\n", "a", 3), "vocabulary of texts, got 3"),
        (("\n", "a", ""), "vocabulary of texts, got ''"),
        (("\n", "a", "b c"), "one word each, got 'b c'"),
        (("a", "\n", "b"), "must be a newline"),
        ((), "vocabulary of texts"),
    ],
)
@pytest.mark.usefixtures("unchecked")
def test_a_vocabulary_that_no_text_could_have_is_refused(vocabulary, said):
    with pytest.raises(InputError, match=said):
        TextData("mine", "word", vocabulary, dict.fromkeys(SPLITS, np.array([0, 1])), 0)


@pytest.mark.parametrize(("unit", "symbol"), [("character", "ab"), ("byte", "ab"), ("byte", "€")])
def test_characters_and_bytes_are_single(unit, symbol):
    with pytest.raises(InputError, match=f"one {unit} each"):
        TextData("mine", unit, ("\n", symbol), dict.fromkeys(SPLITS, np.array([0, 1])), 0)


@pytest.mark.parametrize(
    ("argument", "value", "said"),
    [
        ("frames_per_beat", 0, "from 1 to 96: got 0"),
        ("frames_per_beat", 2.5, "whole number"),
        ("frames_per_beat", None, "whole number"),
        ("octave_shift", 99, "octave_shift"),
        ("augment", True, "augment"),
        ("cues", "recall", "Cues.named"),
        ("cue_dropout", 2, "from 0 to 1"),
        ("name", "", "a name"),
        ("splits", [GOOD_SONG], "dictionary of splits"),
    ],
)
@pytest.mark.usefixtures("unchecked")
def test_arguments_of_music_are_checked_like_those_of_files(argument, value, said):
    given = {"name": "mine", "splits": {split: [GOOD_SONG] for split in SPLITS}, "frames_per_beat": 2}
    with pytest.raises(InputError, match=said):
        MusicData(**given | {argument: value})


@pytest.mark.usefixtures("unchecked")
def test_ragged_songs_and_onsets_of_silent_keys_are_refused():
    ragged = [[0] * 88, [0] * 87]
    with pytest.raises(InputError, match="song 1 of mine, train cannot be read as an array"):
        MusicData("mine", {split: [GOOD_SONG, ragged] for split in SPLITS}, 2)
    silent = np.zeros((5, 176), np.uint8)
    silent[2, 100] = 1
    with pytest.raises(InputError, match="strikes keys again that do not sound"):
        MusicData("mine", {split: [silent] for split in SPLITS}, 2)


@pytest.mark.usefixtures("unchecked")
def test_tasks_have_known_names_and_possible_spans():
    with pytest.raises(InputError, match="unknown task 'adition'"):
        TaskData("adition")
    with pytest.raises(InputError, match="span must be a whole number from"):
        TaskData("addition", span=10**12)


class Own(Dataset):
    """Data of a user's own: a few sequences with something asked at some of their steps."""

    name = "own"

    def __init__(self, kind, size, inputs, targets, masks):
        self.kind, self.size, self.sequences = kind, size, (inputs, targets, masks)

    @property
    def record(self):
        return DataRecord(self.kind, fingerprint_of(*self.sequences[1]), self.size, input_size=2)

    def chunks(self, split, chunk_length, lanes):
        return arrange_pairs(*self.sequences, chunk_length=chunk_length, lanes=lanes)


def own(kind, size, make):
    random = np.random.default_rng(0)
    lengths = (7, 3, 12)
    inputs = [random.normal(size=(length, 2)).astype(np.float32) for length in lengths]
    return Own(kind, size, inputs, [make(random, length) for length in lengths], [np.ones(n, bool) for n in lengths])


def test_baselines_of_symbols_follow_from_their_shares():
    data = own("classes", 3, lambda random, length: random.integers(0, 3, length).astype(np.int32))
    answers = np.concatenate(data.sequences[1])
    rates = np.bincount(answers, minlength=3) / len(answers)
    np.testing.assert_allclose(data.base_rates(), rates)
    expected = sum(math.log(rates[answer]) for answer in answers) / len(answers)
    assert data.baselines("test").rows()[0][1]["log_likelihood"] == pytest.approx(expected)


def test_baselines_of_numbers_follow_from_their_mean():
    data = own("numbers", 1, lambda random, length: random.normal(2, 1, (length, 1)).astype(np.float32))
    answers = np.concatenate(data.sequences[1])[:, 0].astype(float)
    squares = (answers - answers.mean()) ** 2
    figures = data.baselines("test").rows()[0][1]
    assert figures["squared_error"] == pytest.approx(squares.mean())
    assert figures["log_likelihood"] == pytest.approx(np.mean(-0.5 * squares - 0.5 * math.log(2 * math.pi)))


def walked(chunks: Chunks, lane: int) -> list[list]:
    """The sequences a lane walks through, by its resets and its mask."""
    found: list[list] = []
    for chunk in range(len(chunks.lengths)):
        for step in range(chunks.mask.shape[1]):
            if chunks.resets[chunk, step, lane]:
                found.append([])
            if chunks.mask[chunk, step, lane]:
                found[-1].append(chunks.targets[chunk, step, lane])
    return found


@pytest.mark.parametrize("lanes", [1, 2, 3])
@pytest.mark.parametrize("chunk_length", [1, 4, 5, 20])
def test_every_sequence_is_walked_once_from_a_fresh_state(chunk_length, lanes):
    targets = [np.arange(start, start + length, dtype=np.int32) for start, length in ((0, 7), (100, 3), (200, 12))]
    inputs = [np.stack([target, -target], axis=1).astype(np.float32) for target in targets]
    chunks = arrange_pairs(inputs, targets, chunk_length=chunk_length, lanes=lanes)
    found = [sequence for lane in range(lanes) for sequence in walked(chunks, lane)]
    assert sorted(map(list, found)) == sorted(map(list, targets))
    np.testing.assert_array_equal(chunks.inputs[..., 0][chunks.mask], chunks.targets[chunks.mask])
    assert chunks.mask.any(axis=(1, 2)).all()
    if lanes == 1:  # a chunk never spans two sequences
        assert (chunks.resets.sum(axis=(1, 2)) <= 1).all()


def test_the_size_of_a_split_counts_no_padding():
    class Ramp(Dataset):
        name = "ramp"

        @property
        def record(self):
            return DataRecord("numbers", "fingerprint", size=1)

        def chunks(self, split, chunk_length, lanes):
            ramp = np.arange(1234, dtype=np.float32)[:, None]
            return arrange_pairs([ramp[:-1]], [ramp[1:]], chunk_length=chunk_length, lanes=lanes)

    figures = Ramp().split_figures("train")
    assert (figures.steps, figures.asked_steps) == (1233, 1233)


def test_steps_that_ask_nothing_are_walked_but_do_not_count():
    mask = np.array([False, False, True])
    chunks = arrange_pairs([np.ones((3, 2), np.float32)], [np.array([0, 0, 1], np.int32)], [mask], chunk_length=2)
    assert chunks.mask.sum() == 1
    assert chunks.lengths.tolist() == [2, 1]


@pytest.mark.parametrize(
    ("inputs", "targets", "said"),
    [
        ([np.ones((3, 2))], [np.ones((2, 1))], "3 inputs and 2 targets"),
        ([np.ones((3, 2)), np.ones((3, 4))], [np.ones((3, 1))] * 2, "same"),
        ([], [], "no sequences"),
        ([np.ones((0, 2))], [np.ones((0, 1))], "empty"),
        ([np.full((3, 2), np.nan)], [np.ones((3, 1))], "not finite"),
    ],
)
def test_sequences_that_do_not_fit_together_are_refused(inputs, targets, said):
    with pytest.raises(InputError, match=said):
        arrange_pairs(inputs, targets, chunk_length=5)


class Given(Dataset):
    """A user's data set whose chunks are handed in."""

    name = "given"

    def __init__(self, record, chunks):
        self._record, self._chunks = record, chunks

    @property
    def record(self):
        return self._record

    def chunks(self, split, chunk_length, lanes):
        return self._chunks


def chunks_of(inputs, targets, **changes) -> Chunks:
    """Two chunks of three steps in one lane."""
    plain = {"inputs": inputs, "targets": targets, "lengths": np.array([3, 3], np.int32)}
    flags = {"resets": np.zeros((2, 3, 1), bool), "mask": np.ones((2, 3, 1), bool)}
    return Chunks(**plain | flags | changes)


FLOATS, SYMBOLS = np.zeros((2, 3, 1, 2), np.float32), np.zeros((2, 3, 1), np.int32)
NUMBERS = DataRecord("numbers", "x", 2)
CLASSES = DataRecord("classes", "x", 4, input_size=2)
KEYS = DataRecord("keys", "x", 2)


@pytest.mark.parametrize(
    ("record", "chunks", "said"),
    [
        (CLASSES, chunks_of(FLOATS, SYMBOLS + 4), "targets: expected symbols from 0 to 3, got 4"),
        (CLASSES, chunks_of(FLOATS, SYMBOLS - 1), "got -1"),
        (CLASSES, chunks_of(SYMBOLS + 2, SYMBOLS), "inputs: expected symbols from 0 to 1, got 2"),
        (CLASSES, chunks_of(FLOATS, SYMBOLS.astype(np.float32)), "for symbols, got float32"),
        (CLASSES, chunks_of(FLOATS[..., :1], SYMBOLS), "inputs of \\(chunk, time, lane, 2\\)"),
        (NUMBERS, chunks_of(FLOATS, FLOATS[..., :1]), "targets of \\(chunk, time, lane, 2\\)"),
        (NUMBERS, chunks_of(FLOATS, np.full_like(FLOATS, np.nan)), "targets are not finite"),
        (NUMBERS, chunks_of(np.full_like(FLOATS, np.inf), FLOATS), "inputs are not finite"),
        (NUMBERS, chunks_of(FLOATS.astype(float) + 1e300, FLOATS), "beyond single precision"),
        (NUMBERS, chunks_of(FLOATS, FLOATS.astype(int)), "for numbers, got int64"),
        (NUMBERS, chunks_of(FLOATS[:, :2], FLOATS), "begin with the same axes"),
        (NUMBERS, chunks_of(FLOATS, FLOATS, mask=np.ones((2, 3, 1))), "a mask of float64"),
        (NUMBERS, chunks_of(FLOATS, FLOATS, mask=np.zeros((2, 3, 1), bool)), "some steps that count"),
        (NUMBERS, chunks_of(FLOATS, FLOATS, lengths=np.array([3, 2])), "all steps that count"),
        (KEYS, chunks_of(FLOATS.astype(np.uint8), np.full((2, 3, 1, 2), 100, np.uint8)), "nothing but 0 and 1"),
        (DataRecord("numbers", "", 2), chunks_of(FLOATS, FLOATS), "fingerprint"),
        (DataRecord("numbers", "x", 0), chunks_of(FLOATS, FLOATS), "size must be"),
    ],
)
@pytest.mark.usefixtures("unchecked")
def test_a_data_set_of_a_users_own_is_held_to_its_record(record, chunks, said, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match=said):
        longspan.train(data=Given(record, chunks))
    assert not any(tmp_path.iterdir())


@pytest.mark.parametrize("data", [tiny_music(), tiny_text(), tiny_series(), tiny_labels(), TaskData("addition", 10)])
def test_data_of_every_kind_fit_their_records(data):
    assert check_dataset(data) is data


def test_symbols_of_steps_that_do_not_count_may_be_anything():
    mask = np.array([True, True, False, True, True, False]).reshape(2, 3, 1)
    check_dataset(Given(CLASSES, chunks_of(FLOATS, np.where(mask, SYMBOLS, 99), mask=mask)))


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"order": [0, 0]}, "names each of the 2 sequences once"),
        ({"order": [0]}, "names each of the 2 sequences once"),
        ({"masks": [np.ones(4), np.ones(4)]}, "expected bool"),
        ({"masks": [np.ones(4, bool)]}, "expected as many of each"),
        ({"inputs": [np.full((4, 1), {})] * 2}, "expected numbers, keys or symbols"),
        ({"lanes": 0}, "at least 1"),
    ],
)
@pytest.mark.usefixtures("unchecked")
def test_pairs_that_could_not_be_meant_are_refused(changes, said):
    part = np.zeros((4, 1), np.float32)
    with pytest.raises(InputError, match=said):
        arrange_pairs(**{"inputs": [part, part], "targets": [part, part], "chunk_length": 2, **changes})
