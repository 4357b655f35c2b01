"""Layers in a user's own JAX code, under each transformation, against a loop in NumPy float64, on both paths."""

import subprocess
import sys
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from longspan.errors import InputError
from longspan.layers import LeakyRNN, leaky_rnn, project
from longspan.ops import backend
from tests.support import reference

TIME, LANES, INPUTS, UNITS = 6, 3, 5, 4
NATIVE = backend.find_native("").loaded is not None


@pytest.fixture(params=["xla", pytest.param("native", marks=pytest.mark.skipif(not NATIVE, reason="not built"))])
def path(request, monkeypatch):
    monkeypatch.setenv("LONGSPAN_KERNELS", request.param)
    return request.param


@pytest.fixture(params=["tanh", "sigmoid", "rectifier"])
def layer(request, path):
    return make_layer(request.param)


def make_layer(activation="tanh", seed=0, dtype=jnp.float32):
    keys = jax.random.split(jax.random.key(seed), 3)
    layer = LeakyRNN(INPUTS, UNITS, activation=activation, leak=jnp.array([0, 0.1, 0.5, 0.9]), key=keys[0], dtype=dtype)
    return eqx.tree_at(lambda layer: layer.bias, layer, jax.random.normal(keys[1], (UNITS,), dtype))


def draw(random, kind="vectors"):
    """Inputs, and the same as dense vectors in float64."""
    if kind == "vectors":
        dense = random.normal(size=(TIME, LANES, INPUTS))
        return jnp.asarray(dense, jnp.float32), dense
    if kind == "symbols":
        symbols = random.integers(0, INPUTS, (TIME, LANES)).astype(np.int16)
        return jnp.asarray(symbols), np.eye(INPUTS)[symbols]
    dense = random.integers(0, 3, (TIME, LANES, INPUTS)) % (2 if kind == "flags" else 3)
    return jnp.asarray(dense, jnp.uint8 if kind == "counts" else bool), dense.astype(float)


def loop(layer, dense, state=None, resets=None):
    """Hidden states in float64."""
    weights, recurrent, bias, leak = (
        np.asarray(leaf, np.float64) for leaf in (layer.input_weights, layer.recurrent, layer.bias, layer.leak)
    )
    state = np.zeros((LANES, UNITS)) if state is None else np.asarray(state, np.float64)
    resets = np.zeros((TIME, LANES), bool) if resets is None else np.asarray(resets)
    return reference.leaky_states(layer.activation, dense @ weights + bias, state, recurrent, leak, resets)


def close(got, want):
    np.testing.assert_allclose(got, want, rtol=2e-5, atol=2e-6)


@pytest.mark.parametrize("kind", ["vectors", "counts", "flags", "symbols"])
def test_hidden_states_of_every_kind_of_input(layer, kind, random):
    inputs, dense = draw(random, kind)
    hidden, state = layer(inputs)
    close(hidden, loop(layer, dense))
    close(state, loop(layer, dense)[-1])
    alone, last = layer(inputs[:, 1])  # one sequence without an axis of lanes
    close(alone, loop(layer, dense)[:, 1])
    close(last, loop(layer, dense)[-1, 1])


def test_a_state_and_resets(layer, random):
    inputs, dense = draw(random)
    state, resets = jnp.asarray(random.normal(size=(LANES, UNITS)), jnp.float32), random.random((TIME, LANES)) < 0.4
    close(layer(inputs, state, resets)[0], loop(layer, dense, state, resets))
    close(layer(inputs[:, 2], state[2], resets[:, 2])[0], loop(layer, dense, state, resets)[:, 2])


def test_jit(layer, random):
    inputs, dense = draw(random)
    close(jax.jit(lambda layer, inputs: layer(inputs)[0])(layer, inputs), loop(layer, dense))


def test_grad_equals_back_propagation_by_hand(layer, random):
    inputs, dense = draw(random)
    state, cotangent = random.normal(size=(LANES, UNITS)), random.normal(size=(TIME, LANES, UNITS))

    def total(layer, inputs, state):
        return jnp.vdot(layer(inputs, state)[0], jnp.asarray(cotangent, jnp.float32))

    by_layer, by_inputs, by_state = jax.jit(jax.grad(total, argnums=(0, 1, 2)))(
        layer, inputs, jnp.asarray(state, jnp.float32)
    )
    weights, recurrent, bias, leak = (np.asarray(leaf, np.float64) for leaf in jax.tree.leaves(layer))
    still = np.zeros((TIME, LANES), bool)
    of_drive, of_first, of_recurrent = reference.leaky_gradients(
        layer.activation, dense @ weights + bias, state, recurrent, leak, still, cotangent
    )
    for got, want in [
        (by_layer.recurrent, of_recurrent),
        (by_layer.bias, of_drive.sum((0, 1))),
        (by_layer.input_weights, np.einsum("tbi,tbh->ih", dense, of_drive)),
        (by_inputs, of_drive @ weights.T),
        (by_state, of_first),
        (by_layer.leak, np.zeros(UNITS)),
    ]:
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)


def test_jvp_equals_a_difference_quotient(layer, random):
    inputs, dense = draw(random)
    change = random.normal(size=(UNITS, UNITS))

    def run(recurrent):
        return leaky_rnn(project(inputs, layer.input_weights, layer.bias), recurrent, layer.leak,
                         activation=layer.activation)[0]  # fmt: skip

    _, tangent = jax.jit(lambda *point: jax.jvp(run, point[:1], point[1:]))(
        layer.recurrent, jnp.asarray(change, jnp.float32)
    )
    step = 1e-6
    ends = [np.asarray(layer.recurrent, np.float64) + sign * step * change for sign in (1, -1)]
    moved = [loop(eqx.tree_at(lambda layer: layer.recurrent, layer, end), dense) for end in ends]
    np.testing.assert_allclose(tangent, (moved[0] - moved[1]) / (2 * step), rtol=1e-3, atol=1e-4)


def test_vmap_over_sequences_and_over_models(layer, random):
    inputs, dense = draw(random)
    over_lanes = jax.jit(jax.vmap(lambda inputs: layer(inputs)[0], in_axes=1, out_axes=1))
    close(over_lanes(inputs), loop(layer, dense))
    models = [make_layer(layer.activation, seed) for seed in (1, 2)]
    stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *models)
    close(jax.vmap(lambda layer: layer(inputs)[0])(stacked), np.stack([loop(model, dense) for model in models]))

    def total(layer, inputs):
        return jnp.sum(layer(inputs)[0] ** 2)

    per_example = jax.vmap(jax.grad(total), in_axes=(None, 1))(layer, inputs)
    whole = jax.grad(total)(layer, inputs)
    np.testing.assert_allclose(per_example.recurrent.sum(0), whole.recurrent, rtol=1e-4, atol=1e-5)


def test_scan_over_chunks_carries_the_state(layer, random):
    inputs, dense = draw(random)
    state = jnp.zeros((LANES, UNITS))
    chunks = inputs.reshape(3, TIME // 3, LANES, INPUTS)

    def chunk(state, inputs):
        hidden, state = layer(inputs, state)
        return state, hidden

    last, hidden = jax.jit(lambda state, chunks: jax.lax.scan(chunk, state, chunks))(state, chunks)
    close(hidden.reshape(TIME, LANES, UNITS), loop(layer, dense))
    close(last, loop(layer, dense)[-1])

    def total(layer):
        step = lambda state, inputs: (lambda hidden, state: (state, hidden))(*layer(inputs, state))  # noqa: E731
        return jnp.sum(jax.lax.scan(step, state, chunks)[1] ** 2)

    by_chunks, whole = jax.grad(total)(layer), jax.grad(lambda layer: jnp.sum(layer(inputs)[0] ** 2))(layer)
    np.testing.assert_allclose(by_chunks.recurrent, whole.recurrent, rtol=1e-4, atol=1e-5)


def test_other_dtypes_give_the_same_numbers_in_their_precision(path, random):
    inputs, dense = draw(random)
    half = make_layer(dtype=jnp.bfloat16)
    hidden, _ = half(inputs)
    assert hidden.dtype == jnp.bfloat16
    np.testing.assert_allclose(np.asarray(hidden, np.float64), loop(half, dense), atol=0.1)
    with jax.enable_x64(True):
        double = make_layer(dtype=jnp.float64)
        np.testing.assert_allclose(double(jnp.asarray(dense))[0], loop(double, dense), rtol=1e-12)


def test_training_in_plain_jax_with_optax(path, random):
    """A running sum of the inputs, which a linear memory must learn: the loss falls by far."""
    inputs = random.normal(size=(TIME, 40, INPUTS)).astype(np.float32) / 10
    wanted = np.cumsum(inputs.sum(-1), axis=0)
    params = (LeakyRNN(INPUTS, 16, key=jax.random.key(0)), jnp.zeros(16))
    optimizer = optax.adam(3e-2)

    def loss(params):
        layer, readout = params
        return jnp.mean((layer(inputs)[0] @ readout - wanted) ** 2)

    @jax.jit
    def step(params, state):
        value, gradient = jax.value_and_grad(loss)(params)
        with jax.numpy_dtype_promotion("standard"):  # Adam raises a number to the power of a count
            updates, state = optimizer.update(gradient, state)
        return optax.apply_updates(params, updates), state, value

    state, values = optimizer.init(params), []
    for _ in range(100):
        params, state, value = step(params, state)
        values.append(float(value))
    np.testing.assert_allclose(values[0], np.mean(wanted**2), rtol=1e-4)
    assert values[-1] < 0.01 * values[0]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (
            (jnp.ones((TIME, LANES, INPUTS + 1)),),
            rf"the inputs have {INPUTS + 1} numbers at a step .* but the layer was made for {INPUTS}",
        ),
        ((jnp.ones((TIME, INPUTS - 1), jnp.uint8),), f"the inputs have {INPUTS - 1} numbers at a step"),
        ((jnp.ones(TIME),), r"expected float32\[time, lane, input\] or \[time, input\]"),
        ((jnp.zeros((TIME, LANES, 1), jnp.int32),), r"expected int32\[time, lane\] or \[time\]"),
        ((jnp.ones((TIME, LANES, INPUTS)), jnp.zeros(UNITS)), "first"),
        ((jnp.ones((TIME, LANES, INPUTS)), None, jnp.zeros((TIME, 1), bool)), "resets"),
        ((jnp.ones((TIME, LANES, INPUTS)), None, jnp.zeros((TIME, LANES))), "resets"),
    ],
)
@pytest.mark.usefixtures("unchecked")
def test_mistakes_are_refused_in_one_line(path, arguments, words):
    with pytest.raises(InputError, match=words) as caught:
        make_layer()(*arguments)
    assert "\n" not in str(caught.value)


def test_the_lines_in_the_readme_run():
    readme = (Path(__file__).parent.parent / "README.md").read_text()
    (lines,) = (block for block in readme.split("```python")[1:] if "longspan.layers" in block)
    names = {}
    exec(lines.split("```")[0], names)
    assert names["hidden"].shape == (100, 16, 200)
    assert names["gradient"].recurrent.any()


def test_importing_longspan_waits_neither_for_layers_nor_for_jax():
    probe = "import sys, longspan; assert 'jax' not in sys.modules; longspan.layers.LeakyRNN; sys.modules['jax']"
    subprocess.run([sys.executable, "-c", probe], check=True)
