"""Cues of a song: beside a comparison with every earlier place, the same in samples, hidden and moved in training."""

import jax.numpy as jnp
import numpy as np
import pytest

from longspan.data.cues import LEVEL_BITS, METERS, Cues
from longspan.data.dataset import SPLITS
from longspan.data.lookup import ORDERS
from longspan.data.music import KEYS, MusicData
from longspan.errors import InputError
from longspan.sampling.reading import Past, WithCues
from tests.support.catalog import tiny_text

BOTH = Cues(recall=True, meter=True)


@pytest.fixture(scope="module")
def song():
    """Five frames in an order with long repeats."""
    generator = np.random.default_rng(0)
    frames = (generator.random((5, KEYS)) < 0.05).astype(np.uint8)
    order = generator.integers(0, 5, 60)
    order[30:58] = order[3:31]
    return frames[order]


def slow_inputs(song):
    """What is read before every frame, one step and one earlier place at a time."""
    rows = []
    for step in range(len(song)):
        best = (0, 0)
        for place in range(1, step):
            length = 0
            while length < min(place, ORDERS[-1]) and (song[place - 1 - length] == song[step - 1 - length]).all():
                length += 1
            best = max(best, (sum(order <= length for order in ORDERS), place))
        level, place = best
        last = song[step - 1] if step else np.zeros(KEYS)
        bits = [float(level == each) for each in range(1, LEVEL_BITS + 1)]
        meter = [float(step % size == place) for size in METERS for place in range(size)]
        rows.append([*last, *(song[place] if level else np.zeros(KEYS)), *bits, *meter])
    return np.array(rows)


def test_inputs_are_those_of_a_comparison_with_every_place(song):
    inputs = BOTH.inputs_of(song)
    assert inputs.dtype == np.uint8
    assert inputs.shape[1] == BOTH.width(KEYS)
    np.testing.assert_array_equal(inputs, slow_inputs(song))


def test_samples_read_what_songs_are_read_as(song):
    padded = np.concatenate([song, np.zeros_like(song)])
    inputs = BOTH.inputs_of(song)
    read = WithCues(BOTH)
    for step in (0, 1, 2, 31, 40, 57):
        last = song[step - 1] if step else np.zeros(KEYS, np.uint8)
        found = read(jnp.asarray(last[None]), Past(jnp.asarray(padded[None]), jnp.asarray(step)))
        np.testing.assert_array_equal(found[0], inputs[step])
    primed = read.prime(jnp.concatenate([jnp.zeros((1, KEYS), jnp.uint8), song]))
    np.testing.assert_array_equal(primed, inputs)


def test_cues_never_look_ahead(song):
    changed = song.copy()
    changed[20:] = 1 - changed[20:]
    np.testing.assert_array_equal(BOTH.inputs_of(song)[:21], BOTH.inputs_of(changed)[:21])


def test_training_hides_what_is_recalled_at_random_steps_and_nothing_else(song):
    data = MusicData("mine", {split: [song] for split in SPLITS}, 2).with_cues("recall+meter", 0.5)
    whole = data.chunks("train", 60, 1).inputs[0, :, 0]
    recalled = slice(KEYS, 2 * KEYS + LEVEL_BITS)
    first, again, other = (data.epoch(n, seed=3, chunk_length=60, lanes=1).inputs[0, :, 0] for n in (0, 0, 1))
    np.testing.assert_array_equal(first, again)
    hidden = (first != whole).any(axis=1)
    assert 0.2 < hidden.mean() < 0.8
    assert (hidden != (other != whole).any(axis=1)).any()
    assert not first[hidden, recalled].any()
    np.testing.assert_array_equal(np.delete(first, recalled, axis=1), np.delete(whole, recalled, axis=1))


def test_cues_of_moved_songs_are_moved(song):
    data = MusicData("mine", {split: [song] for split in SPLITS}, 2, augment=4).with_cues("recall+meter")
    seen = set()
    for number in range(8):
        chunks = data.epoch(number, seed=0, chunk_length=60, lanes=1)
        target = chunks.targets[0, :, 0]
        seen.add(target.tobytes())
        np.testing.assert_array_equal(chunks.inputs[0, :, 0], BOTH.inputs_of(target))
    assert len(seen) > 2


def test_the_fingerprint_is_that_of_the_songs(song):
    plain = MusicData("mine", {split: [song] for split in SPLITS}, 2)
    cued = plain.with_cues("meter")
    assert cued.fingerprint == plain.fingerprint
    assert cued.record.input_size == KEYS + sum(METERS)
    assert cued.with_cues("none").record == plain.record


def test_run_folders_of_earlier_versions_name_the_meter_otherwise():
    assert Cues.named("recall+metre") == Cues.named("recall+meter") == BOTH


def test_unknown_cues_and_other_data_are_refused(song):
    plain = MusicData("mine", {split: [song] for split in SPLITS}, 2)
    for names in ("", "tempo", "recall,meter", "recall+recall"):
        with pytest.raises(InputError, match="unknown cues"):
            plain.with_cues(names)
    with pytest.raises(InputError, match="not music"):
        tiny_text().with_cues("recall")
    assert tiny_text().with_cues("none").record.kind == "text"
