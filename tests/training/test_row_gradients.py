"""Word models descend by the rows in use: the same updates as with whole gradients, and no others touched."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from longspan.data.text import TextData
from longspan.models.model import build
from longspan.models.parts import split_constants
from longspan.ops import backend
from longspan.optim.blocks import ClippedNesterov, FirstOrder
from longspan.training.objective import Context, Objective
from longspan.training.optimizers import make_optimizer
from longspan.training.setup import ChunkSource, first_carry
from longspan.training.state import to_named
from tests.support.catalog import tiny_config

WORDS, STEPS = 60, 8


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(0)
    rates = 1 / np.arange(1, WORDS - 4)  # the last five words never occur
    streams = {
        split: rng.choice(WORDS - 5, size=50, p=rates / rates.sum()).astype(np.int32)
        for split in ("train", "valid", "test")
    }
    return TextData("tiny", "word", ("\n", *(f"w{i}" for i in range(1, WORDS))), streams, end_token=0)


def config_of(output, **changes):
    return tiny_config("sgd+c", output=output, classes=5, chunk_length=STEPS, l1=0.01, **changes)


def objective_of(config, data):
    return Objective.of(config, ChunkSource(config, data).counted_steps)


def start(config, data):
    """Parameters, what the objective needs beside them, and the first carry."""
    model = build(config, WORDS, data.base_rates(), key=jax.random.key(1))
    params, constants = split_constants(model)
    return params, Context(constants, jax.random.key(0)), first_carry(model, config)


def advance(optimizer, config, data):
    """Parameters before and after one epoch, and the figures of its updates."""
    params, context, carry = start(config, data)
    before = to_named(params)
    chunks = ChunkSource(config, data).epoch(0)
    params, _, _, info = optimizer.advance(params, optimizer.init(params), carry, chunks, len(chunks.lengths), context)
    return before, to_named(params), info.of_updates()


CASES = [
    ("leaky", "factored", 1, 0),
    ("leaky", "factored", 1, 0.5),
    ("leaky", "softmax", 3, 0),
    ("leaky", "tree", 1, 0.5),
    ("leaky", "tree", 2, 0),
    ("embedding,size=7+lstm", "factored", 1, 0.5),
    ("2xgru", "factored", 2, 0),
]


@pytest.mark.parametrize(("cell", "output", "lanes", "dropout"), CASES)
def test_updates_by_rows_equal_those_by_whole_gradients(data, cell, output, lanes, dropout):
    layers = {} if cell == "leaky" else {"layer_dropout": dropout, "learning_rate": 2.0}  # gradients get there smaller
    config, threshold = config_of(output, cell=cell, lanes=lanes, dropout=dropout, **layers), 0.1
    by_rows = make_optimizer(config, objective_of(config, data), threshold, lambda: False)
    whole = FirstOrder(objective_of(config, data), ClippedNesterov(config.learning_rate, 0.0, threshold))
    before, got, figures = advance(by_rows, config, data)
    _, want, whole_figures = advance(whole, config, data)
    for name, figure in whole_figures.items():
        np.testing.assert_allclose(figures[name], figure, rtol=1e-4, err_msg=name)
    assert figures["clipped"].any()
    for name, leaf in want.items():
        np.testing.assert_allclose(got[name], leaf, rtol=1e-4, atol=1e-5, err_msg=name)
        assert np.abs(leaf - before[name]).max() > 1e-4, name
    read = "cell.input_weights" if cell == "leaky" else "cell.cells.0.input_weights"
    np.testing.assert_array_equal(got[read][-5:], before[read][-5:])


@pytest.mark.parametrize("cell", ["leaky", "embedding+lstm"])
@pytest.mark.parametrize(("path", "steps", "tables"), [("native", STEPS, 2), ("native", WORDS, 0), ("xla", STEPS, 0)])
def test_word_matrices_come_by_rows_where_that_pays(path, steps, tables, cell, data, monkeypatch):
    if path == "native" and backend.active() == "xla":
        pytest.skip("native kernels are not built")
    monkeypatch.setenv("LONGSPAN_KERNELS", path)
    config = dataclasses.replace(config_of("factored"), cell=cell, chunk_length=steps)
    params, context, carry = start(config, data)
    chunk = jax.tree.map(lambda leaf: jnp.asarray(leaf[0]), ChunkSource(config, data).epoch(0))

    def gradients():
        _, gradient = objective_of(config, data).by_rows(params, carry, chunk, context)
        return [table.gradient.squares() for table in gradient.tables]

    assert len(jax.eval_shape(gradients)) == tables


def test_a_velocity_is_kept_only_where_there_is_momentum(data):
    config = config_of("factored")
    params, _, _ = start(config, data)
    objective = objective_of(config, data)
    assert make_optimizer(config, objective, None, lambda: False).init(params).velocity is None
    moving = make_optimizer(dataclasses.replace(config, momentum=0.5), objective, None, lambda: False)
    assert jax.tree.structure(moving.init(params).velocity) == jax.tree.structure(params)
