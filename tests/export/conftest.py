"""Small models with weights that matter, and what they say about a sequence by the package itself."""

import dataclasses
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from longspan.data.dataset import DataRecord
from longspan.export.portable import Portable, to_portable
from longspan.models.model import SequenceModel, build
from longspan.models.parts import split_constants
from longspan.training.state import to_named
from tests.support.catalog import tiny_config

KEYS, SYMBOLS, STEPS, BATCH = 20, 7, 40, 3


class Case(NamedTuple):
    """A model, sequences (time x batch), and the model's logits and states for them."""

    model: SequenceModel
    portable: Portable
    inputs: np.ndarray
    targets: np.ndarray
    logits: np.ndarray
    states: list[np.ndarray]
    """The last states of all layers that have one."""
    log_likelihood: np.ndarray


def make_model(cell: str = "leaky", output: str = "bernoulli", **changes) -> SequenceModel:
    """A model whose biases and peepholes are not zero, as at first, which would hide a wrong place for them."""
    size = SYMBOLS if output in ("softmax", "factored", "tree") else KEYS
    sizes = {"hidden_size": 9, "nade_size": 6, "input_scale": 0.5, "output_scale": 0.5, "classes": 3}
    settings = {"activation": "tanh", "leaky_share": 0.0, **sizes, **changes}
    config = dataclasses.replace(tiny_config(), cell=cell, output=output, **settings)
    model = build(config, size, np.linspace(0.05, 0.3, size), key=jax.random.key(3))
    trained, constants = split_constants(model)
    return eqx.combine(jax.tree.map(lambda leaf: leaf + 0.3 * _noise(leaf.shape), trained), constants)


def _noise(shape):
    return np.random.default_rng(1).normal(size=shape).astype(np.float32) / (shape[0] if len(shape) > 1 else 1) ** 0.5


def record_of(output: str) -> DataRecord:
    """Text for outputs of symbols, music for the others."""
    if output in ("softmax", "factored", "tree"):
        return DataRecord("text", "", SYMBOLS, vocabulary=["\n", *"abcdef"], unit="character", end_token=0)
    return DataRecord("music", "", KEYS, frames_per_beat=2)


def make_case(cell: str = "leaky", output: str = "bernoulli", **changes) -> Case:
    """A case for a cell and an output."""
    model, record, random = make_model(cell, output, **changes), record_of(output), np.random.default_rng(0)
    if record.kind == "text":
        steps = random.integers(0, SYMBOLS, (STEPS + 1, BATCH)).astype(np.int32)
    else:
        steps = (random.random((STEPS + 1, BATCH, KEYS)) < 0.2).astype(np.float32 if output == "gaussian" else np.uint8)
    inputs, targets, length = steps[:-1], steps[1:], jnp.asarray(STEPS, jnp.int32)
    state, hidden = model.run(model.start(BATCH), jnp.asarray(inputs), jnp.zeros((STEPS, BATCH), bool), length)
    state = state[1:] if cell.startswith("embedding") else state  # what is exported has no such layer
    if output in ("factored", "tree"):
        logits = model.output.log_probs(hidden)
    else:
        logits = model.output.logits(hidden, jnp.asarray(targets), length)
    likelihood = model.output.log_prob(hidden, jnp.asarray(targets), length, key=jax.random.key(0))
    return Case(
        model,
        to_portable(model, record, "a recipe"),
        inputs,
        targets,
        np.asarray(logits),
        list(to_named(state).values()),
        np.asarray(likelihood),
    )


LEAK = {"leaky_share": 0.6, "leak_low": 0.2, "leak_high": 0.9}
CASES = {
    "tanh": {},
    "sigmoid": {"activation": "sigmoid"},
    "rectifier": {"activation": "rectifier"},
    "leaky tanh": LEAK,
    "leaky rectifier": {**LEAK, "activation": "rectifier"},
    "lstm": {"cell": "lstm"},
    "lstm with peepholes": {"cell": "lstm,peepholes"},
    "gru": {"cell": "gru"},
    "gru, reset before": {"cell": "gru,reset=before"},
    "layers": {"cell": "leaky+lstm+gru", **LEAK},
    "nade": {"output": "nade"},
    "leaky nade": {"output": "nade", **LEAK},
    "characters": {"output": "softmax", "cell": "gru"},
    "leaky characters": {"output": "softmax", **LEAK},
    "words": {"output": "factored", "cell": "lstm"},
    "tree of words": {"output": "tree", "cell": "gru"},
    "words on embeddings": {"output": "factored", "cell": "embedding,size=4+gru"},
}


@pytest.fixture(params=CASES)
def case(request) -> Case:
    return make_case(**CASES[request.param])
