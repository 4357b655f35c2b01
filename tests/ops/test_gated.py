"""The LSTM and GRU operations: values against a loop in NumPy float64, derivatives against it and each other."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from longspan.ops import gated
from tests.support.reference_cells import gru_step, lstm_step

ACTIVATIONS = ("tanh", "sigmoid", "rectifier")
# time, lanes, units, length: one of everything, vector widths exactly and not, short, empty and full chunks
SHAPES = [(1, 1, 1, 1), (5, 1, 64, 4), (4, 1, 37, 4), (3, 3, 5, 0), (6, 2, 24, 6), (4, 13, 20, 3)]
CASES = [*zip(SHAPES, itertools.cycle(ACTIVATIONS), strict=False)]


def make(gates, time, lanes, units, length):
    rng = np.random.default_rng([gates, time, lanes, units])
    drive = rng.normal(size=(time, lanes, gates, units))
    drive[length:] = np.nan  # ignored steps may hold anything
    states = {name: rng.normal(size=(lanes, units)) for name in (["first", "first_cell"] if gates == 4 else ["first"])}
    small = {"peepholes": rng.normal(size=(3, units))} if gates == 4 else {"candidate_bias": rng.normal(size=units)}
    recurrent = rng.normal(size=(units, gates, units)) / np.sqrt(units)
    return {"drive": drive, **states, "recurrent": recurrent, **small}, rng.random((time, lanes)) < 0.25


def single(operands):
    return {name: jnp.asarray(value, jnp.float32) for name, value in operands.items()}


def scan(operands, resets, length, activation):
    rest = jnp.asarray(resets), jnp.int32(length)
    if "first_cell" in operands:
        names = ("drive", "first", "first_cell", "recurrent", "peepholes")
        return gated.lstm_scan(activation, *(operands[name] for name in names), *rest)
    names = ("drive", "first", "recurrent", "candidate_bias")
    return gated.gru_scan(activation, *(operands[name] for name in names), *rest)


def loop(operands, resets, length, activation):
    """The definition, step by step, lane by lane: hidden states, and the last cell states of an LSTM."""
    drive = operands["drive"]
    hidden = np.zeros((*drive.shape[:2], drive.shape[3]))
    last = operands.get("first_cell", operands["first"]).copy()
    for lane in range(drive.shape[1]):
        state, cell = operands["first"][lane], last[lane]
        for t in range(length):
            kept = 0 if resets[t, lane] else 1
            if "first_cell" in operands:
                rest = operands["recurrent"], operands["peepholes"], activation
                state, cell = lstm_step(drive[t, lane], kept * state, kept * cell, *rest)
            else:
                rest = operands["recurrent"], operands["candidate_bias"], activation
                state = gru_step(drive[t, lane], kept * state, *rest)
            hidden[t, lane] = state
        last[lane] = cell
    return (hidden, last) if "first_cell" in operands else hidden


@pytest.mark.parametrize("gates", [4, 3], ids=["lstm", "gru"])
@pytest.mark.parametrize(("shape", "activation"), CASES, ids=str)
def test_states_follow_their_definition(path, gates, shape, activation):
    operands, resets = make(gates, *shape)
    got = scan(single(operands), resets, shape[3], activation)
    want = loop(operands, resets, shape[3], activation)
    for mine, theirs in zip(jax.tree.leaves(got), jax.tree.leaves(want), strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=3e-5, atol=3e-6)


def scalar_of(results, weights):
    return sum(jnp.vdot(result, weight) for result, weight in zip(jax.tree.leaves(results), weights, strict=True))


@pytest.mark.parametrize("gates", [4, 3], ids=["lstm", "gru"])
@pytest.mark.parametrize(("shape", "activation"), CASES[1:], ids=str)
def test_gradient_and_tangent_are_slopes_of_the_definition(path, gates, shape, activation):
    """Along a random direction, both must equal a difference of the loop in double precision."""
    operands, resets = make(gates, *shape)
    rng = np.random.default_rng(7)
    moved = {name: rng.normal(size=value.shape) for name, value in operands.items()}
    weights = [rng.normal(size=leaf.shape) for leaf in jax.tree.leaves(loop(operands, resets, shape[3], activation))]

    def value(step):
        changed = {name: value + step * moved[name] for name, value in operands.items()}
        found = jax.tree.leaves(loop(changed, resets, shape[3], activation))
        return sum(np.vdot(one, other) for one, other in zip(found, weights, strict=True))

    def computed(operands):
        return scalar_of(scan(operands, resets, shape[3], activation), [jnp.asarray(w, jnp.float32) for w in weights])

    slope = (value(1e-5) - value(-1e-5)) / 2e-5
    floats, direction = single(operands), single(moved)
    gradient = jax.grad(computed)(floats)
    counted = slice(0, shape[3])
    steps = jnp.vdot(gradient["drive"][counted], direction["drive"][counted])
    others = sum(jnp.vdot(gradient[name], direction[name]) for name in floats if name != "drive")
    assert np.isfinite(gradient["drive"]).all()
    scale = 1e-4 * (1 + sum(float(jnp.linalg.norm(leaf)) for leaf in jax.tree.leaves(gradient)))
    assert float(steps + others) == pytest.approx(slope, rel=1e-3, abs=scale)
    _, pushed = jax.jvp(computed, (floats,), (direction,))
    assert float(pushed) == pytest.approx(slope, rel=1e-3, abs=scale)


@pytest.mark.parametrize("gates", [4, 3], ids=["lstm", "gru"])
def test_the_adjoint_is_the_transpose_of_the_tangent(path, gates):
    operands, resets = make(gates, 5, 3, 19, 4)
    floats = single(operands)

    def run(operands):
        return scan(operands, resets, 4, "tanh")

    direction = jax.tree.map(lambda leaf: jnp.sin(jnp.arange(leaf.size, dtype=leaf.dtype)).reshape(leaf.shape), floats)
    outcome, pushed = jax.jvp(run, (floats,), (direction,))
    back = jax.tree.map(lambda leaf: jnp.cos(jnp.arange(leaf.size, dtype=leaf.dtype)).reshape(leaf.shape), outcome)
    (pulled,) = jax.vjp(run, floats)[1](back)
    forwards = scalar_of(pushed, jax.tree.leaves(back))
    backwards = sum(jnp.vdot(pulled[name], direction[name]) for name in floats)
    assert float(forwards) == pytest.approx(float(backwards), rel=1e-4, abs=1e-4)


@pytest.mark.parametrize("gates", [4, 3], ids=["lstm", "gru"])
def test_two_threads_divide_units_and_lanes(native_path, gates, monkeypatch):
    """200 units of one lane are divided between two threads, and lanes among them; the numbers stay the same."""
    for shape in ((6, 1, 200, 6), (6, 5, 20, 6)):
        operands, resets = make(gates, *shape)

        def value_and_gradient(operands, resets=resets):
            def total(some):
                return sum(jnp.sum(jnp.sin(leaf)) for leaf in jax.tree.leaves(scan(some, resets, 6, "tanh")))

            return jax.value_and_grad(total)(operands)

        one = value_and_gradient(single(operands))
        monkeypatch.setenv("LONGSPAN_THREADS", "2")
        two = value_and_gradient(single(operands))
        monkeypatch.setenv("LONGSPAN_THREADS", "1")
        for mine, theirs in zip(jax.tree.leaves(one), jax.tree.leaves(two), strict=True):
            np.testing.assert_allclose(mine, theirs, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("gates", [4, 3], ids=["lstm", "gru"])
def test_batches_and_second_derivatives_agree_with_the_twin(native_path, gates, monkeypatch):
    operands, resets = make(gates, 3, 2, 4, 3)
    floats = single(operands)

    def total(operands):
        return sum(jnp.sum(jnp.sin(leaf)) for leaf in jax.tree.leaves(scan(operands, resets, 3, "tanh")))

    def curvature_and_batch():
        curvature = jax.jvp(jax.grad(total), (floats,), (floats,))[1]
        twice = jax.tree.map(lambda leaf: jnp.stack([leaf, 2 * leaf]), floats)
        return curvature, jax.vmap(jax.grad(total))(twice)

    native = curvature_and_batch()
    monkeypatch.setenv("LONGSPAN_KERNELS", "xla")
    for mine, theirs in zip(jax.tree.leaves(native), jax.tree.leaves(curvature_and_batch()), strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-4, atol=1e-5)
