"""What helps a network to span: the penalty on vanishing gradients, long chunks in segments, time scales, starts."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from longspan.config import TrainConfig
from longspan.data.dataset import Chunks
from longspan.errors import InputError
from longspan.models.cells import NEUTRAL_SCALE, LeakyCell, draw_leaks
from longspan.models.model import SequenceModel, build
from longspan.models.outputs import Bernoulli
from longspan.models.parts import Cell, split_constants
from longspan.training.objective import Carry, Context, Objective
from tests.support import reference

KEYS, UNITS, STEPS, LANES = 5, 6, 9, 2


@pytest.fixture
def chunk(random):
    resets = np.zeros((STEPS, LANES), bool)
    resets[0, 0] = resets[4, 1] = True
    frames = (random.random((STEPS + 1, LANES, KEYS)) < 0.4).astype(np.uint8)
    mask = np.ones((STEPS, LANES), bool)
    return Chunks(*map(jnp.asarray, (frames[:-1], frames[1:], resets, mask, np.int32(STEPS))))


def model_of(activation="tanh", **settings) -> SequenceModel:
    settings = {"hidden_size": UNITS, "leaky_share": 0.5, "leak_high": 0.7, "input_scale": 1.0, **settings}
    config = TrainConfig(activation=activation, **settings)
    return build(config, KEYS, np.full(KEYS, 0.4), key=jax.random.key(3))


def carry_of(random) -> Carry:
    return Carry(jnp.asarray(random.normal(size=(LANES, UNITS)), jnp.float32), jnp.int32(0))


def value_and_gradient(objective: Objective, model: SequenceModel, carry: Carry, chunk: Chunks):
    params, constants = split_constants(model)
    return jax.value_and_grad(objective, has_aux=True)(params, carry, chunk, Context(constants, jax.random.key(0)))


def twin_of(model: SequenceModel, carry: Carry, chunk: Chunks, scale: float):
    """Arguments of the NumPy twin of Omega, with the gradient of each step's own loss in the hidden vector."""
    cell, output = model.cell, model.output
    assert isinstance(cell, LeakyCell)
    assert isinstance(output, Bernoulli)
    drive = np.asarray(chunk.inputs, float) @ np.asarray(cell.input_weights, float) + np.asarray(cell.bias)
    arrays = (np.asarray(carry.state), np.asarray(cell.recurrent, float), np.asarray(cell.leak.value))
    walked = (cell.activation, drive, *arrays, np.asarray(chunk.resets))
    weights = np.asarray(output.weights, float)
    on = 1 / (1 + np.exp(-(reference.leaky_states(*walked) @ weights + np.asarray(output.bias))))
    return (*walked, scale * (on - np.asarray(chunk.targets)) @ weights.T)


@pytest.mark.parametrize("activation", ["tanh", "sigmoid", "rectifier"])
def test_omega_and_its_gradient_equal_the_twin(activation, chunk, random):
    model, carry = model_of(activation, recurrent_scale=1.3), carry_of(random)
    plain, penalized = Objective(0.1), Objective(0.1, omega=2.0)
    (value, _), gradient = value_and_gradient(plain, model, carry, chunk)
    (with_omega, _), changed = value_and_gradient(penalized, model, carry, chunk)
    twin = twin_of(model, carry, chunk, 0.1)
    expected = reference.changes_of_gradients(*twin)
    assert float(with_omega - value) == pytest.approx(2 * expected, rel=1e-3, abs=1e-5)

    recurrent = twin[3]
    slopes, step = np.zeros_like(recurrent), 1e-6
    for place in np.ndindex(*recurrent.shape):
        nudge = np.zeros_like(recurrent)
        nudge[place] = step
        up, down = (reference.changes_of_gradients(*twin, weights=recurrent + way * nudge) for way in (1, -1))
        slopes[place] = (up - down) / (2 * step)
    found = changed.cell.recurrent - gradient.cell.recurrent
    np.testing.assert_allclose(found, 2 * slopes, rtol=2e-3, atol=2e-4 * np.abs(slopes).max())
    np.testing.assert_array_equal(changed.cell.input_weights, gradient.cell.input_weights)


def test_a_cells_own_way_back_equals_that_of_any_cell(chunk, random):
    model, carry = model_of(), carry_of(random)
    sent = jnp.asarray(random.normal(size=(STEPS, LANES, UNITS)), jnp.float32)
    walked = (carry.state, chunk.inputs, chunk.resets, chunk.lengths, sent)
    own, generic = model.cell.pull_back(*walked), Cell.pull_back(model.cell, *walked)
    np.testing.assert_allclose(own.arriving, generic.arriving, rtol=1e-4, atol=1e-5)
    going_on = ~np.asarray(chunk.resets)
    np.testing.assert_allclose(own.handed[going_on], generic.handed[going_on], rtol=1e-4, atol=1e-5)


def test_omega_keeps_gradients_alive(random):
    """Descending Omega alone takes a matrix whose gradients halve at every step close to one that keeps them."""
    frames = jnp.asarray(random.random((41, 1, KEYS)) < 0.3, jnp.uint8)
    chunk = Chunks(frames[:-1], frames[1:], jnp.zeros((40, 1), bool), jnp.ones((40, 1), bool), jnp.int32(40))
    model = model_of(leaky_share=0.0, recurrent_scale=0.3, input_scale=0.1)
    penalty = Objective(0.0001, omega=1.0)
    carry = Carry(jnp.zeros((1, UNITS)), jnp.int32(0))
    params, constants = split_constants(model)
    descend = jax.jit(jax.value_and_grad(penalty, has_aux=True))
    values = []
    for _ in range(200):
        (value, _), gradient = descend(params, carry, chunk, Context(constants, jax.random.key(0)))
        values.append(float(value))
        params = jax.tree.map(lambda leaf, slope: leaf - 0.1 * slope, params, gradient)
    assert values[-1] < 0.1 * values[0]


@pytest.mark.parametrize("segment", [1, 4, 9, 20])
@pytest.mark.parametrize("l1", [0.0, 0.01])
def test_segments_change_neither_loss_nor_gradient_nor_state(segment, l1, chunk, random):
    model, carry = model_of(), carry_of(random)
    chunk = chunk._replace(mask=chunk.mask.at[7:].set(False), lengths=jnp.int32(7))
    whole = value_and_gradient(Objective(0.1, l1 or None), model, carry, chunk)
    parts = value_and_gradient(Objective(0.1, l1 or None, segment=segment), model, carry, chunk)
    for found, expected in zip(jax.tree.leaves(parts), jax.tree.leaves(whole), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-6)


def test_a_chunk_in_segments_needs_less_memory():
    model = model_of(hidden_size=64)
    steps = 4000
    shapes = Chunks(
        *(jax.ShapeDtypeStruct((steps, 1, KEYS), jnp.uint8) for _ in range(2)),
        *(jax.ShapeDtypeStruct((steps, 1), bool) for _ in range(2)),
        lengths=jax.ShapeDtypeStruct((), jnp.int32),
    )
    params, constants = split_constants(model)
    context = Context(constants, jax.random.key(0))

    def memory(objective):
        gradient = jax.jit(jax.grad(objective, has_aux=True))
        compiled = gradient.lower(params, Carry(model.start(1), jnp.int32(0)), shapes, context).compile()
        return compiled.memory_analysis().temp_size_in_bytes

    assert memory(Objective(0.1, segment=100)) < memory(Objective(0.1)) / 4


def test_time_scales_are_spread_evenly_on_a_logarithmic_scale():
    leaks = np.asarray(draw_leaks(4000, 1.0, 0.5, 0.999, spread="time-scales", key=jax.random.key(0)), float)
    assert leaks.min() >= 0.5
    assert leaks.max() <= 0.9991
    scales = np.log10(1 / (1 - leaks))
    counts, _ = np.histogram(scales, bins=np.linspace(np.log10(2), 3, 5))
    np.testing.assert_allclose(counts, 1000, atol=120)


@pytest.mark.parametrize(
    ("activation", "start", "neutral"),
    [
        ("tanh", "orthogonal", 1.0),
        ("tanh", "normal", 1.0),
        ("tanh", "identity", 1.0),
        ("sigmoid", "orthogonal", 10.171),
        ("rectifier", "orthogonal", 2**0.5),
        ("rectifier", "identity", 1.0),
    ],
)
def test_the_neutral_scale_keeps_gradients_alive_where_half_of_it_does_not(activation, start, neutral):
    def left(scale, units=300, steps=20):
        config = TrainConfig(
            activation=activation, recurrent_init=start, recurrent_scale=scale, hidden_size=units, input_scale=0.01
        )
        cell = build(config, KEYS, np.full(KEYS, 0.4), key=jax.random.key(3)).cell
        sent = jnp.zeros((steps, 1, units)).at[-1].set(jax.random.normal(jax.random.key(1), (1, units)))
        frames = jax.random.bernoulli(jax.random.key(2), 0.4, (steps, 1, KEYS)).astype(jnp.uint8)
        first = (activation == "rectifier") * 0.1 * jax.random.normal(jax.random.key(4), (1, units))
        pulled = cell.pull_back(first, frames, jnp.zeros((steps, 1), bool), jnp.int32(steps), sent)
        norms = jnp.linalg.norm(pulled.arriving[:, 0], axis=-1)
        return float(norms[0] / norms[-1])

    alive = left("auto")
    assert alive == pytest.approx(left(neutral), rel=1e-3)
    assert 0.2 < alive < 5
    assert left(neutral / 2) < alive / 100


def test_the_neutral_scales_solve_their_equation():
    """By quadrature: the variance of pre-activations settles, and the squared slopes make up for the scale."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(200)
    weights = weights / weights.sum()
    for activation, scale in NEUTRAL_SCALE.items():
        function, slope = reference.ACTIVATIONS[activation]
        variance = 1e-8 if activation == "tanh" else 1.0
        for _ in range(300):
            variance = scale**2 * np.sum(weights * function(np.sqrt(variance) * nodes) ** 2)
        gradients = scale**2 * np.sum(weights * slope(np.sqrt(variance) * nodes) ** 2)
        assert gradients == pytest.approx(1, abs=1e-3)


def test_no_scale_saves_sigmoid_units_with_an_identity_start():
    with pytest.raises(InputError, match="identity start"):
        model_of("sigmoid", recurrent_init="identity", recurrent_scale="auto")


def test_omega_is_refused_where_there_is_no_gradient_of_a_whole_chunk():
    config = TrainConfig(omega=1.0)
    for change in ({"optimizer": "hf"}, {"segment": 50}):
        with pytest.raises(InputError, match="omega"):
            dataclasses.replace(config, **change)
