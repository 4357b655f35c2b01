"""Candidates from the past, beside a comparison with every earlier place."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from longspan.data.lookup import NONE, ORDERS, look_up, look_up_split
from longspan.data.music import MusicData
from longspan.sampling.reading import look_back


def quadratic_candidates(ids, most):
    """Level, place, latest place and count of the candidates, by comparing with every earlier place."""
    rows = []
    for step in range(len(ids)):
        matched = []
        for place in range(step):
            length = 0
            while length < min(place, ORDERS[-1]) and ids[place - 1 - length] == ids[step - 1 - length]:
                length += 1
            matched.append((sum(order <= length for order in ORDERS), place))
        chosen = {}
        for level, place in sorted(matched, reverse=True):
            chosen.setdefault(ids[place], (level, place))
        past = ids[:step]
        row = [
            (level, place, max(j for j in range(step) if past[j] == symbol), past.count(symbol))
            for symbol, (level, place) in list(chosen.items())[:most]
        ]
        rows.append(row + [(NONE,) * 4] * (most - len(row)))
    return np.array(rows, int).reshape(len(ids), most, 4)


@pytest.mark.parametrize("symbols", [2, 4, 30])
def test_linear_look_up_agrees_with_comparing_every_place(symbols):
    ids = np.random.default_rng(symbols).integers(0, symbols, 90).tolist()
    ids += ids[10:80]  # a long repeat
    expected = quadratic_candidates(ids, 5)
    found = look_up(np.array(ids), 5)
    for number, name in enumerate(("level", "place", "latest", "count")):
        assert np.array_equal(getattr(found, name), expected[:, :, number]), name
    assert np.array_equal(found.step[:, 0], np.arange(len(ids)))


def test_compiled_look_back_agrees_with_look_up():
    generator = np.random.default_rng(0)
    frames = (generator.random((6, 88)) < 0.1).astype(np.uint8)
    ids = generator.integers(0, 6, 70)
    ids[40:] = ids[5:35]
    expected = look_up(ids, 4)
    look = jax.jit(look_back, static_argnums=2)
    padded = np.zeros((80, 88), np.uint8)
    padded[: len(ids)] = frames[ids]
    for step in (0, 1, 2, 7, 41, 60, 69):
        found = look(jnp.asarray(padded), jnp.asarray(step), 4)
        for name, part, whole in zip(found._fields, found, expected, strict=True):
            assert np.array_equal(part, whole[step]), (name, step)


def test_candidates_of_a_split_stay_within_their_song():
    generator = np.random.default_rng(1)
    songs = [(generator.random((length, 88)) < 0.02).astype(np.uint8) for length in (13, 7, 30, 21)]
    data = MusicData("mine", {"train": songs, "valid": songs, "test": songs}, 2)
    chunks = data.chunks("test", 8, 2)
    recalled = look_up_split(chunks, 3)
    assert np.array_equal(recalled.found.step[..., 0] >= 0, chunks.mask)
    first = chunks.resets & chunks.mask
    assert (recalled.found.level[first] == NONE).all()
    assert (recalled.found.place < recalled.found.step).all() or (recalled.found.place[~chunks.mask] == NONE).all()
    # The first frame of every song is silent more often than not; whatever is recalled was heard before.
    assert (recalled.found.place[chunks.mask] < recalled.found.step[chunks.mask]).all()
