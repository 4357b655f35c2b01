"""A tied model has one matrix for reading symbols and for predicting them, wherever it is used, trained and kept."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import longspan
from longspan.config import TrainConfig
from longspan.errors import InputError
from longspan.memory.adapting import gradient_scales
from longspan.models.model import build, trained_part, whole
from longspan.training.objective import Context, Objective
from longspan.training.setup import ChunkSource, first_carry
from longspan.training.state import to_named
from tests.support.catalog import tiny_text

SIZES = {"hidden_size": 6, "chunk_length": 10, "lanes": 2, "classes": 3, "block": 2, "max_epochs": 2}
SIZES |= {"input_scale": 0.5, "learning_rate": 0.3, "clip": "none", "learning_rate_schedule": "constant"}
READ, PREDICTED = "cell.cells.0.input_weights", "output.weights"


@pytest.fixture(scope="module")
def text():
    return tiny_text()


def config_of(output="factored", **changes) -> TrainConfig:
    chosen = {"cell": "embedding+gru", "output": output, "tied": "embedding", **SIZES, **changes}
    return TrainConfig(data="tiny", **chosen)


def made(config, text):
    return build(config, text.record.size, text.base_rates(), key=jax.random.key(0))


def one_matrix(arrays, output):
    predicted = arrays[PREDICTED] if output == "factored" else arrays[PREDICTED].T
    return np.array_equal(arrays[READ], predicted)


@pytest.mark.parametrize("output", ["softmax", "factored"])
def test_the_gradient_is_that_of_reading_and_that_of_predicting(output, text):
    config = config_of(output, l1=0.01)
    model = made(config, text)
    chunk = jax.tree.map(lambda leaf: jnp.asarray(leaf[0]), ChunkSource(config, text).epoch(0))
    carry, objective = first_carry(model, config), Objective.of(config)

    def gradient(model):
        trained, constants = trained_part(model)
        (value, _), gradient = objective.by_rows(trained, carry, chunk, Context(constants, jax.random.key(0)))
        return float(value), to_named(gradient.whole) | {"tables": len(gradient.tables)}

    value, tied = gradient(model)
    apart_value, apart = gradient(dataclasses.replace(model, tied=False))  # the same numbers as two matrices
    assert value == pytest.approx(apart_value, rel=1e-6)
    assert PREDICTED not in tied
    of_predicting = apart[PREDICTED] if output == "factored" else apart[PREDICTED].T
    assert np.abs(of_predicting).max() > 1e-3 < np.abs(apart[READ]).max()
    np.testing.assert_allclose(tied[READ], apart[READ] + of_predicting, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("output", ["softmax", "factored"])
@pytest.mark.parametrize("optimizer", ["sgd", "hf"])
def test_a_trained_run_keeps_one_matrix(output, optimizer, text, tmp_path):
    extra = {"momentum": 0.5, "averaging": 5.0} if optimizer == "sgd" else {"cg_iterations": 3, "slice_size": 4}
    settings = dataclasses.asdict(config_of(output, **extra))
    for name in ("recipe", "data", "optimizer"):
        del settings[name]
    trained = longspan.train("sgd", text, optimizer=optimizer, run_dir=tmp_path / "run", **settings)
    arrays = to_named(trained.model)
    assert one_matrix(arrays, output)
    assert not np.allclose(arrays[READ], to_named(made(config_of(output), text))[READ], atol=1e-3)
    assert np.isfinite(trained.evaluate("test").log_likelihood)
    assert trained.sample(12, seed=0).shape == (1, 12)


def test_a_run_that_was_stopped_ends_in_the_same_bytes(text, tmp_path):
    settings = {"cell": "embedding+gru", "tied": "embedding", "layer_dropout": 0.3, **SIZES, "max_epochs": 3}
    ended = longspan.train("sgd+c", text, output="factored", run_dir=tmp_path / "whole", **settings)
    cut = {"run_dir": tmp_path / "cut", "max_seconds": 1e-9}
    assert longspan.train("sgd+c", text, output="factored", **cut, **settings).run.status == "interrupted"
    assert longspan.resume(tmp_path / "cut", data=text).run.status == ended.run.status == "done"
    for name in ("model.safetensors", "metrics.jsonl"):
        assert (tmp_path / "cut" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()


def test_its_likelihood_by_numpy(text):
    model = made(config_of("softmax", cell="embedding"), text)
    arrays, symbols = to_named(model), np.array([[0], [2], [1]])
    vectors = arrays["cell.input_weights"].astype(float)
    hidden = vectors[symbols[:, 0]]
    logits = hidden @ vectors.T + arrays["output.bias"].astype(float)
    want = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
    _, walked = model.run(model.start(1), jnp.asarray(symbols, jnp.int32), jnp.zeros((3, 1), bool), jnp.int32(3))
    np.testing.assert_allclose(model.output.log_probs(walked[:, 0]), want, rtol=1e-5, atol=1e-6)


def test_what_learns_while_it_is_read_learns_one_matrix(text):
    model = made(config_of(), text)
    assert gradient_scales(model, text, 10).output.weights is None
    trained, constants = trained_part(model)
    moved = whole(jax.tree.map(lambda leaf: leaf + 1, trained), constants)
    assert one_matrix(to_named(moved), "factored")


@pytest.mark.parametrize("changes", [{"cell": "gru"}, {"output": "tree"}, {"cell": "gru+embedding"}])
def test_a_model_without_an_embedding_or_a_matrix_to_share_is_refused(changes):
    with pytest.raises(InputError, match="choose both, such as cell embedding"):
        config_of(**changes)


def test_a_part_of_another_size_is_refused(text):
    with pytest.raises(InputError, match="give the embedding and the last layer one size"):
        made(config_of(cell="embedding,size=4+gru"), text)
    assert made(config_of(cell="embedding,size=4+gru,size=9+lstm,size=4"), text).tied


def test_an_embedding_with_a_context_is_refused(text):
    with pytest.raises(InputError, match="an embedding without a context"):
        made(config_of(cell="embedding,context=0.9+gru"), text)
