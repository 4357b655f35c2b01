"""The curvature of a block of sequences against explicit matrices, from finite differences of NumPy networks."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree

from longspan.data.dataset import Chunks
from longspan.models.cells import LeakyCell
from longspan.models.factored import ClassFactored
from longspan.models.model import SequenceModel
from longspan.models.outputs import Bernoulli, Nade, Softmax
from longspan.models.parts import Constant, split_constants
from longspan.models.tree import HuffmanTree
from longspan.optim.curvature import gauss_newton_product
from longspan.training.objective import Dropout, Objective
from longspan.training.second_order import Block, loss, network
from tests.support import reference, reference_outputs

KEYS, HIDDEN, TIME, LANES = 4, 3, 5, 2
LENGTHS = [5, 3, 4]
WEIGHT = 0.7


def bernoulli_logits(parameters, hidden, frames):
    weights, bias = parameters
    return hidden @ weights + bias


def nade_logits(parameters, hidden, frames):
    visible_weights, visible_bias, hidden_weights, hidden_bias, weights, readout = parameters
    biases = zip(hidden @ visible_weights + visible_bias, hidden @ hidden_weights + hidden_bias, frames, strict=True)
    return np.stack([reference_outputs.nade_logits(b, c, weights, readout, frame) for b, c, frame in biases])


def factored_logits(parameters, hidden, words):
    class_weights, class_bias, weights, bias = parameters
    return np.concatenate([hidden @ class_weights + class_bias, hidden @ weights.T + bias], axis=-1)


def tree_logits(parameters, hidden, words):
    weights, bias = parameters
    return np.stack(
        [
            np.where(PATHS[word] >= 0, weights[PATHS[word] // 2] @ state + bias[PATHS[word] // 2], 0)
            for state, word in zip(hidden, words, strict=True)
        ]
    )


def independent(logits, target):
    on = reference_outputs.sigmoid(logits)
    return np.diag(on * (1 - on))


def one_of_many(logits, target):
    shares = np.exp(logits) / np.exp(logits).sum()
    return np.diag(shares) - np.outer(shares, shares)


def decisions(logits, target):
    return np.diag(PATHS[target] >= 0) * independent(logits, target)


def class_and_member(logits, target):
    """Two choices, that of the class and that among its members; other classes have no say."""
    curvature, classes = np.zeros([len(logits)] * 2), len(STARTS) - 1
    own = np.searchsorted(STARTS, target, side="right") - 1
    for part in (slice(classes), slice(classes + STARTS[own], classes + STARTS[own + 1])):
        curvature[part, part] = one_of_many(logits[part], target)
    return curvature


STARTS = np.array([0, 1, KEYS])
PATHS = np.array([[1, -1, -1], [0, 3, -1], [0, 2, 5], [0, 2, 4]])
SYMBOLS = ("softmax", "factored", "tree")
OUTPUTS = {
    "bernoulli": (lambda draw: Bernoulli(draw(HIDDEN, KEYS), draw(KEYS)), bernoulli_logits, independent),
    "softmax": (lambda draw: Softmax(draw(HIDDEN, KEYS), draw(KEYS)), bernoulli_logits, one_of_many),
    "factored": (
        lambda draw: ClassFactored(
            draw(HIDDEN, 2), draw(2), draw(KEYS, HIDDEN), draw(KEYS), Constant(jnp.asarray(STARTS, jnp.int32))
        ),
        factored_logits,
        class_and_member,
    ),
    "tree": (
        lambda draw: HuffmanTree(draw(KEYS - 1, HIDDEN), draw(KEYS - 1), Constant(jnp.asarray(PATHS, jnp.int32))),
        tree_logits,
        decisions,
    ),
    "nade": (
        lambda draw: Nade(draw(HIDDEN, KEYS), draw(KEYS), draw(HIDDEN, 2), draw(2), draw(KEYS, 2), draw(2, KEYS)),
        nade_logits,
        independent,
    ),
}


def draw_case(kind, activation, leaky):
    rng = np.random.default_rng(0)
    draw = lambda *shape: jnp.asarray(rng.normal(size=shape), jnp.float32)  # noqa: E731
    leak = Constant(jnp.asarray(rng.uniform(0.1, 0.5, HIDDEN) if leaky else np.zeros(HIDDEN), jnp.float32))
    cell = LeakyCell(draw(KEYS, HIDDEN), draw(HIDDEN, HIDDEN), draw(HIDDEN), leak, activation)
    model = SequenceModel(cell, OUTPUTS[kind][0](draw))
    shape = (len(LENGTHS), TIME, LANES)
    mask = np.broadcast_to(np.arange(TIME)[:, None] < np.array(LENGTHS)[:, None, None], shape).copy()
    mask[0, 4, 1] = False  # one lane ends before the other
    symbols = [rng.integers(0, KEYS, shape).astype(np.int32) for _ in range(2)]
    frames = [(rng.random((*shape, KEYS)) < 0.4).astype(np.uint8) for _ in range(2)]
    inputs, targets = symbols if kind in SYMBOLS else frames
    chunks = Chunks(inputs, targets, rng.random(shape) < 0.2, mask, np.array(LENGTHS, np.int32))
    return model, chunks, draw(len(LENGTHS), LANES, HIDDEN)


def explicit_product(kind, model, chunks, entered, vector, heard):
    """The product with J' H J and the structural term, both matrices written out."""
    _, logits_of, curvature_of = OUTPUTS[kind]
    params, _ = split_constants(model)
    shapes = [leaf.shape for leaf in jax.tree.leaves(params)]
    bounds = np.cumsum([int(np.prod(shape)) for shape in shapes])[:-1]
    leak = np.asarray(model.cell.leak.value, float)

    def walk(flat):
        """Logits of every counted step and all pre-activations."""
        leaves = [part.reshape(shape) for part, shape in zip(np.split(flat, bounds), shapes, strict=True)]
        (into, recurrent, bias), parameters = leaves[:3], leaves[3:]
        logits, inner = [], []
        for chunk, lane in np.ndindex(len(LENGTHS), LANES):
            steps = int(chunks.mask[chunk, :, lane].sum())
            x, resets = chunks.inputs[chunk, :steps, lane], chunks.resets[chunk, :steps, lane]
            drive = (into[x] if kind in SYMBOLS else x @ into) + bias
            first = np.asarray(entered[chunk, lane], float)
            hidden = reference.leaky_states(
                model.cell.activation, drive[:, None], first[None], recurrent, leak, resets[:, None]
            )[:, 0]
            before = np.where(resets[:, None], 0, np.concatenate([first[None], hidden[:-1]]))
            inner.append(before @ recurrent + drive)
            hidden = hidden * heard[:steps, chunk * LANES + lane]
            logits.append(logits_of(parameters, hidden, chunks.targets[chunk, :steps, lane]))
        return np.concatenate(logits), np.concatenate(inner)

    flat = np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(params)]).astype(float)
    logits, inner = walk(flat)
    lanes = np.ndindex(len(LENGTHS), LANES)
    targets = np.concatenate([chunks.targets[chunk, :, lane][chunks.mask[chunk, :, lane]] for chunk, lane in lanes])
    epsilon = 1e-5
    differences = [
        [(up - down) / (2 * epsilon) for up, down in zip(walk(flat + move), walk(flat - move), strict=True)]
        for move in epsilon * np.eye(len(flat))
    ]
    total = np.zeros(len(flat))
    for step in range(len(logits)):
        jacobian = np.stack([change[0][step] for change in differences], axis=1)
        total += jacobian.T @ curvature_of(logits[step], targets[step]) @ jacobian @ vector / len(logits)
        jacobian = np.stack([change[1][step] for change in differences], axis=1)
        slopes = reference.ACTIVATIONS[model.cell.activation][1](inner[step])
        total += WEIGHT * jacobian.T @ np.diag(slopes) @ jacobian @ vector / len(inner)
    return total


@pytest.mark.parametrize(
    ("kind", "activation", "leaky", "dropout", "kernels"),
    [
        ("bernoulli", "tanh", True, 0, ""),
        ("bernoulli", "rectifier", True, 0.5, ""),
        ("bernoulli", "tanh", True, 0, "xla"),
        ("softmax", "sigmoid", False, 0, ""),
        ("factored", "tanh", False, 0, ""),
        ("tree", "tanh", False, 0, ""),
        ("tree", "sigmoid", False, 0.5, "xla"),
        ("nade", "tanh", False, 0, ""),
    ],
)
def test_product_with_the_curvature_of_a_block(kind, activation, leaky, dropout, kernels, monkeypatch):
    monkeypatch.setenv("LONGSPAN_KERNELS", kernels)
    model, chunks, entered = draw_case(kind, activation, leaky)
    params, constants = split_constants(model)
    sequences = len(LENGTHS) * LANES
    kept = np.random.default_rng(2).random((TIME, sequences, HIDDEN)) >= dropout
    block = Block(chunks, entered, constants, mean=True, kept=kept if dropout else None)
    batch = block.sequences(np.arange(sequences), multiple=4)
    assert batch.mask.shape[1] == 8, "two fillers"
    flat, unravel = ravel_pytree(params)
    vector = np.random.default_rng(1).normal(size=len(flat))
    objective = Objective(scale=1.0, l1=0.1, dropout=Dropout.of(dropout) if dropout else None)
    product = jax.jit(
        lambda params, batch, vector: gauss_newton_product(
            partial(network, objective), partial(loss, objective), params, batch, vector, WEIGHT
        )
    )
    found, _ = ravel_pytree(product(params, batch, unravel(jnp.asarray(vector, jnp.float32))))
    expected = explicit_product(kind, model, chunks, entered, vector, kept / (1 - dropout))
    np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-4 * np.abs(expected).max())
