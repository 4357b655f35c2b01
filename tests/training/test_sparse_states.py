"""Large networks of rectifiers are trained by the rows in use: the updates of whole gradients, to rounding."""

import dataclasses
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from longspan.data.music import MusicData
from longspan.data.text import TextData
from longspan.models.parts import split_constants
from longspan.ops import backend
from longspan.optim.blocks import ClippedNesterov, FirstOrder, Sparse
from longspan.optim.transforms import ramp
from longspan.training.objective import SPARSE_FROM, Context, Objective
from longspan.training.setup import ChunkSource, first_carry, initial_model
from longspan.training.sparse_states import sparse_gradient
from longspan.training.state import to_named
from tests.support.catalog import tiny_config

needs_kernels = pytest.mark.skipif(backend.find_native("").loaded is None, reason="native kernels are not built")


@pytest.fixture(scope="module")
def music():
    rng = np.random.default_rng(0)
    songs = [(rng.random((length, 88)) < 0.05).astype(np.uint8) for length in (25, 14, 31)]
    return MusicData("tiny", {"train": songs, "valid": songs[:1], "test": songs[1:2]}, frames_per_beat=1)


@pytest.fixture(scope="module")
def text():
    rng = np.random.default_rng(0)
    streams = {split: rng.integers(0, 12, 90).astype(np.int32) for split in ("train", "valid", "test")}
    return TextData("tiny", "character", tuple("\nabcdefghijk"), streams, end_token=0)


def config_of(output, **changes):
    settings = {"hidden_size": 40, "chunk_length": 8, "l1": 0.01, "activation": "rectifier", "threads": 1}
    return tiny_config("sgd+crm", output=output, **settings | changes)


class Training:
    """Blocks of updates of one network, by the rows in use or by whole gradients."""

    def __init__(self, config, data, *, by_rows, bias=-1.0):
        source = ChunkSource(config, data)
        model = initial_model(config, data.record, data.base_rates())
        biased = dataclasses.replace(model.cell, bias=model.cell.bias + bias)
        params, constants = split_constants(dataclasses.replace(model, cell=biased))
        objective = Objective.of(config, source.counted_steps)
        lagging = partial(objective.matrices_that_lag, from_units=1)
        sparse = Sparse(lagging, partial(sparse_gradient, objective)) if by_rows else None
        self.driver = FirstOrder(objective, ClippedNesterov(0.1, ramp(0.9, period=3), 0.3), sparse=sparse)
        self.context = Context(constants, jax.random.key(0))
        self.running = (params, self.driver.init(params), first_carry(model, config))
        self.chunks = source.epoch(0)

    def advance(self, *counts):
        """Parameters and velocity by name after updates in blocks of these sizes, and the norms of the gradients."""
        position, norms = 0, []
        for count in counts:
            block = jax.tree.map(lambda leaf, at=position, n=count: jnp.asarray(leaf[at : at + n]), self.chunks)
            *self.running, info = self.driver.advance(*self.running, block, count, self.context)
            position += count
            norms.extend(np.asarray(info.figures["gradient_norm"][:count]))
        params, state, _ = self.running
        return to_named(params), to_named(state.velocity), norms


CASES = [
    ("nade", {}),
    ("nade", {"lanes": 2, "dropout": 0.5}),
    ("bernoulli", {"dropout": 0.3, "l1": 0.0}),
    ("bernoulli", {"leaky_share": 0.3}),
    ("softmax", {"lanes": 3}),
]


@needs_kernels
@pytest.mark.parametrize("bias", [-1.0, 1.0], ids=["mostly off", "mostly on"])
@pytest.mark.parametrize(("output", "changes"), CASES, ids=str)
def test_updates_equal_those_by_whole_gradients(output, changes, bias, music, text):
    config, data = config_of(output, **changes), text if output == "softmax" else music
    by_rows, whole = (Training(config, data, by_rows=rows, bias=bias) for rows in (True, False))
    count = len(whole.chunks.lengths)
    got, want = by_rows.advance(count), whole.advance(count)
    np.testing.assert_allclose(got[2], want[2], rtol=1e-4)
    for named, expected in zip(got[:2], want[:2], strict=True):
        assert named.keys() == expected.keys()
        for name, leaf in expected.items():
            np.testing.assert_allclose(named[name], leaf, rtol=1e-4, atol=2e-5 * (1 + np.abs(leaf).max()), err_msg=name)


@needs_kernels
def test_bits_do_not_depend_on_where_blocks_end(music):
    config = config_of("nade", dropout=0.2)
    whole, parts = (Training(config, music, by_rows=True) for _ in range(2))
    for got, want in zip(parts.advance(1, 3, 2)[:2], whole.advance(6)[:2], strict=True):
        for name, leaf in want.items():
            np.testing.assert_array_equal(got[name], leaf, err_msg=name)


@needs_kernels
@pytest.mark.parametrize(
    "changes",
    [
        {"activation": "tanh"},
        {"hidden_size": SPARSE_FROM - 1},
        {"precision": "bfloat16"},
        {"omega": 0.1},
        {"segment": 4},
        {"cell": "2xleaky"},
    ],
    ids=str,
)
def test_only_large_networks_of_rectifiers_are_trained_by_rows(changes, music):
    def lagging(**changes):
        config = config_of("bernoulli", **{"hidden_size": SPARSE_FROM} | changes)
        model = initial_model(config, music.record, music.base_rates())
        params, constants = split_constants(model)
        objective = Objective.of(config, ChunkSource(config, music).counted_steps)
        return objective.matrices_that_lag(params, Context(constants, jax.random.key(0)))

    assert lagging() is not None
    assert lagging(**changes) is None


def test_without_kernels_no_matrix_lags(music, monkeypatch):
    monkeypatch.setenv("LONGSPAN_KERNELS", "xla")
    training = Training(config_of("nade"), music, by_rows=True)
    assert training.driver.sparse.matrices(training.running[0], training.context) is None
