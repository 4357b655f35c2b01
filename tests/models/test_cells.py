"""Every cell beside the leaky one: its steps against NumPy, LSTM and GRU also against Equinox; layers and settings."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from longspan.config import TrainConfig
from longspan.errors import InputError
from longspan.layers import GRU, LSTM
from longspan.models.model import Stack, check_cell, make_cell
from longspan.models.parts import Cell, split_constants, with_keys
from longspan.registry import parse_cell
from tests.support import reference_cells as twins

STEPS, INPUTS, UNITS = 7, 5, 4


def make(cell: str, activation="tanh", **settings) -> Cell:
    """A cell with random numbers also where it starts from zero; constants stay what they are."""
    config = TrainConfig(cell=cell, hidden_size=UNITS, activation=activation, input_scale=0.7, **settings)
    made = make_cell(config, INPUTS, key=jax.random.key(1))
    weights, constants = split_constants(made)
    leaves, structure = jax.tree.flatten(weights)
    keys = jax.random.split(jax.random.key(2), len(leaves))
    moved = [leaf + 0.3 * jax.random.normal(key, leaf.shape) for leaf, key in zip(leaves, keys, strict=True)]
    return eqx.combine(jax.tree.unflatten(structure, moved), constants)


@pytest.fixture
def inputs(random):
    return jnp.asarray(random.normal(size=(STEPS, INPUTS)), jnp.float32)


def walk(cell: Cell, inputs) -> np.ndarray:
    """Hidden vectors of one sequence, step by step."""
    state, found = cell.initial_state(), []
    for now in inputs:
        state = cell.step(state, now)
        found.append(cell.output(state))
    return np.stack(found)


def chunk(cell: Cell, inputs) -> np.ndarray:
    """The same by `run`, the sequence in the second of two lanes and after a reset."""
    start = jax.tree.map(lambda leaf: jnp.stack([leaf, leaf + 0.5]), cell.initial_state())
    resets = jnp.zeros((STEPS, 2), bool).at[0, 1].set(True)
    both = jnp.stack([jnp.ones_like(inputs), inputs], axis=1)
    return np.asarray(cell.run(start, both, resets, jnp.asarray(STEPS))[1][:, 1])


def double(*arrays):
    return [np.asarray(array, np.float64) for array in arrays]


def drive(cell, inputs):
    weights, bias, inputs = double(cell.input_weights, cell.bias, inputs)
    return inputs @ weights + bias


def assert_agrees(cell, inputs, want):
    np.testing.assert_allclose(walk(cell, inputs), want, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(chunk(cell, inputs), want, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("cell", "activation"), [("lstm", "tanh"), ("lstm,peepholes", "rectifier")])
def test_lstm(cell, activation, inputs):
    made = make(cell, activation)
    peepholes = np.zeros((3, UNITS)) if made.peepholes is None else double(made.peepholes)[0]
    (recurrent,) = double(made.recurrent.reshape(UNITS, 4, UNITS))
    hidden, memory, want = np.zeros(UNITS), np.zeros(UNITS), []
    for now in drive(made, inputs).reshape(STEPS, 4, UNITS):
        hidden, memory = twins.lstm_step(now, hidden, memory, recurrent, peepholes, activation)
        want.append(hidden)
    assert_agrees(made, inputs, want)


@pytest.mark.parametrize(("cell", "activation"), [("gru", "tanh"), ("gru,reset=before", "sigmoid")])
def test_gru(cell, activation, inputs):
    made = make(cell, activation)
    recurrent, bias = double(made.recurrent.reshape(UNITS, 3, UNITS), made.candidate_bias)
    hidden, want = np.zeros(UNITS), []
    for now in drive(made, inputs).reshape(STEPS, 3, UNITS):
        hidden = twins.gru_step(now, hidden, recurrent, bias, activation, before="before" in cell)
        want.append(hidden)
    assert_agrees(made, inputs, want)


def test_the_gru_of_pytorch_written_out(inputs):
    """As its documentation has it, with two biases for every gate; r and z only see their sum."""
    made = make("gru")
    weights, recurrent, input_bias, inner = double(made.input_weights, made.recurrent, made.bias, made.candidate_bias)
    of_inputs, of_hidden = np.split(input_bias * 0.25, 3), np.split(input_bias * 0.75, 3)
    of_inputs[2], of_hidden[2] = np.split(input_bias, 3)[2], inner
    (w_r, w_z, w_n), (u_r, u_z, u_n) = np.split(weights, 3, 1), np.split(recurrent, 3, 1)
    hidden, want = np.zeros(UNITS), []
    for x in double(inputs)[0]:
        r = twins.logistic(x @ w_r + of_inputs[0] + hidden @ u_r + of_hidden[0])
        z = twins.logistic(x @ w_z + of_inputs[1] + hidden @ u_z + of_hidden[1])
        n = np.tanh(x @ w_n + of_inputs[2] + r * (hidden @ u_n + of_hidden[2]))
        hidden = (1 - z) * n + z * hidden
        want.append(hidden)
    assert_agrees(made, inputs, want)


@pytest.mark.parametrize("name", ["lstm", "gru"])
def test_weights_of_equinox_give_the_numbers_of_equinox(name, inputs):
    """Cells and layers alike, with and without an axis of lanes."""
    key = jax.random.key(3)
    theirs = eqx.nn.LSTMCell(INPUTS, UNITS, key=key) if name == "lstm" else eqx.nn.GRUCell(INPUTS, UNITS, key=key)
    weights = {"input_weights": theirs.weight_ih.T, "recurrent": theirs.weight_hh.T, "bias": theirs.bias}
    weights |= {"candidate_bias": theirs.bias_n} if name == "gru" else {}
    state, want = (jnp.zeros(UNITS), jnp.zeros(UNITS)) if name == "lstm" else jnp.zeros(UNITS), []
    for now in inputs:
        state = theirs(now, state)
        want.append(state[0] if name == "lstm" else state)

    def filled(module):
        return eqx.tree_at(lambda m: [getattr(m, each) for each in weights], module, list(weights.values()))

    assert_agrees(filled(make(name)), inputs, want)
    layer = filled((LSTM if name == "lstm" else GRU)(INPUTS, UNITS, key=key))
    hidden, last = layer(inputs)
    np.testing.assert_allclose(hidden, want, rtol=1e-4, atol=1e-5)
    for mine, other in zip(jax.tree.leaves(last), jax.tree.leaves(state), strict=True):
        np.testing.assert_allclose(mine, other, rtol=1e-4, atol=1e-5)
    halves = layer(inputs[:3])[1]
    np.testing.assert_allclose(layer(inputs[3:], halves)[0], want[3:], rtol=1e-4, atol=1e-5)
    both = jnp.stack([inputs, inputs], axis=1)
    resets = jnp.zeros((STEPS, 2), bool).at[3, 1].set(True)
    lanes = layer(both, resets=resets)[0]
    np.testing.assert_allclose(lanes[:, 0], want, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(lanes[3:, 1], layer(inputs[3:])[0], rtol=1e-4, atol=1e-5)


def test_multiplicative(inputs):
    made = make("multiplicative,factors=3", "tanh")
    matrices = double(made.to_factors, made.from_factors)
    hidden, want = np.zeros(UNITS), []
    for now in drive(made, inputs):
        hidden = twins.multiplicative_step(now, hidden, *matrices)
        want.append(hidden)
    assert_agrees(made, inputs, want)


def test_delayed(inputs):
    made = make("delayed,lags=1:3:5", "sigmoid")
    assert_agrees(
        made, inputs, twins.delayed_states(drive(made, inputs), *double(made.recurrent), (1, 3, 5), "sigmoid")
    )


def test_band_pass(inputs):
    made = make("band-pass,slowest=0.1,width=4")
    fast, slow, recurrent = double(made.fast.value, made.slow.value, made.recurrent)
    assert_agrees(made, inputs, twins.band_pass_states(drive(made, inputs), recurrent, slow, fast))


def test_band_pass_units_pass_their_band_at_full_height():
    """A unit that sees nothing but a sine of its middle frequency follows it; much slower and faster ones are lost."""
    made = make("band-pass,slowest=0.0101,width=25")
    made = eqx.tree_at(lambda m: [m.recurrent, m.bias], made, [jnp.zeros((UNITS, UNITS)), jnp.zeros(UNITS)])
    fast = float(made.fast.value[0])
    slow, middle = fast / 25, fast / 5
    only = jnp.zeros((INPUTS, UNITS)).at[0, 0].set(0.01)  # small, where tanh is straight
    made = eqx.tree_at(lambda m: m.input_weights, made, only)

    def height(frequency):
        steps = int(20 * 2 * np.pi / slow)
        wave = np.zeros((steps, 1, INPUTS), np.float32)
        wave[:, 0, 0] = np.sin(frequency * np.arange(steps))
        start = jax.tree.map(lambda leaf: leaf[None], made.initial_state())
        hidden = made.run(start, jnp.asarray(wave), jnp.zeros((steps, 1), bool), jnp.asarray(steps))[1]
        return float(jnp.abs(hidden[steps // 2 :, 0, 0]).max()) / 0.01

    assert height(middle) == pytest.approx(1, rel=0.05)
    assert height(slow / 10) < 0.2
    assert height(10 * fast) < 0.2 or fast > 0.3


def test_linear(inputs):
    made = make("lru", "rectifier")
    decay, phase, readout = double(made.log_decay, made.log_phase, made.readout)
    eigenvalues = np.exp(-np.exp(decay) + 1j * np.exp(phase))
    want = twins.linear_states(
        drive(made, inputs), eigenvalues, np.sqrt(1 - abs(eigenvalues) ** 2), readout[0] + 1j * readout[1], "rectifier"
    )
    assert_agrees(made, inputs, want)


def test_context_adds_decaying_averages_of_the_input_to_the_drive(inputs):
    made = make("delayed,lags=1:2,context=0.5:0.9")
    inner = made.cell
    seen = double(inputs)[0] @ double(made.context_weights)[0]
    averages, added = np.zeros((2, UNITS)), []
    for now in seen.reshape(STEPS, 2, UNITS):
        averages = np.array([[0.5], [0.9]]) * averages + np.array([[0.5], [0.1]]) * now
        added.append(averages.sum(0))
    want = twins.delayed_states(drive(inner, inputs) + np.stack(added), *double(inner.recurrent), (1, 2))
    assert_agrees(made, inputs, want)


@pytest.mark.parametrize("cell", ["rate,tau=2:9,excitatory=0.5,density=0.6", "rate,learn_tau,learn_start"])
def test_rate(cell, inputs):
    made = make(cell)
    tau = getattr(made.log_tau, "value", made.log_tau)
    keep, connections = np.exp(-np.exp(-double(tau)[0])), double(made.recurrent)[0]
    if made.signs is not None and made.mask is not None:
        connections = double(made.signs.value)[0][:, None] * abs(connections) * double(made.mask.value)[0]
        assert set(np.sign(connections[:2]).ravel()) <= {0, 1}
        assert set(np.sign(connections[2:]).ravel()) <= {0, -1}
    start = double(made.initial_state())[0]
    want = twins.rate_states(drive(made, inputs), start, connections, keep, np.zeros((STEPS, UNITS)))
    assert_agrees(made, inputs, want)


def test_rates_fluctuate_by_about_the_noise_whatever_their_time_constants():
    made = make("rate,tau=4:40,noise=0.05", "tanh")
    made = eqx.tree_at(lambda m: [m.recurrent, m.bias], made, [jnp.zeros((UNITS, UNITS)), jnp.zeros(UNITS)])
    steps, lanes = 400, 50
    noisy = with_keys(made, lambda: jax.random.split(jax.random.key(0), lanes))
    still = jnp.zeros((steps, lanes, INPUTS)), jnp.zeros((steps, lanes), bool), jnp.asarray(steps)
    hidden = noisy.run(jnp.zeros((lanes, UNITS)), *still)[1]
    spread = np.asarray(hidden[200:]).std(axis=(0, 1))
    np.testing.assert_allclose(spread, 0.05, rtol=0.2)
    assert not made.run(jnp.zeros((lanes, UNITS)), *still)[1].any()


def test_layers_of_different_cells_and_sizes(inputs):
    made = make("2xlstm,size=3+gru,context=0.9")
    assert [type(cell).__name__ for cell in made.cells] == ["LstmCell", "LstmCell", "ContextCell"]
    first, second, third = made.cells
    assert first.recurrent.shape == second.recurrent.shape == (3, 12)
    assert second.input_weights.shape == (3, 12)
    assert third.cell.recurrent.shape == (UNITS, 3 * UNITS)
    hidden = inputs
    for cell in made.cells:
        hidden = jnp.asarray(walk(cell, hidden))
    assert_agrees(made, inputs, hidden)
    trace = made.trace(
        jax.tree.map(lambda leaf: leaf[None], made.initial_state()),
        inputs[:, None],
        jnp.zeros((STEPS, 1), bool),
        jnp.asarray(STEPS),
    )
    assert trace.inner.shape == (STEPS, 1, 3 + 3 + UNITS)


def test_an_embedding_is_an_affine_map_without_memory(inputs):
    made = make("embedding")
    assert_agrees(made, inputs, drive(made, inputs))
    symbols = jnp.asarray([3, 0, 3])
    np.testing.assert_array_equal(walk(made, symbols), made.input_weights[symbols] + made.bias[None])


def run_with_keys(cell, inputs, lanes=3):
    keys = jax.random.split(jax.random.key(5), lanes)
    start = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (lanes, *leaf.shape)), cell.initial_state())
    side_by_side = jnp.broadcast_to(inputs[:, None], (STEPS, lanes, INPUTS))
    drawing = with_keys(cell, lambda: keys)
    return drawing.run(start, side_by_side, jnp.zeros((STEPS, lanes), bool), jnp.asarray(STEPS))[1]


def test_dropout_between_layers_hides_a_layer_from_the_next_in_training_alone(inputs):
    """With the identity as upper layer, what it is shown can be read off."""
    share = 0.4
    lower, upper = make("2xembedding,size=60").cells
    upper = eqx.tree_at(lambda cell: (cell.input_weights, cell.bias), upper, (jnp.eye(60), jnp.zeros(60)))
    clean = walk(lower, inputs)
    shown = np.asarray(run_with_keys(Stack((lower, upper), dropout=share), inputs))
    hidden = shown == 0
    np.testing.assert_allclose(shown, np.where(hidden, 0, clean[:, None] / (1 - share)), rtol=1e-5)
    assert abs(hidden.mean() - share) < 4 * np.sqrt(share * (1 - share) / hidden.size)
    for one, other in [(hidden[:, 0], hidden[:, 1]), (hidden[0], hidden[1])]:  # lanes and steps are drawn apart
        assert 0.3 < (one != other).mean() < 0.65
    np.testing.assert_allclose(walk(Stack((lower, upper), dropout=share), inputs), clean, rtol=1e-5)
    np.testing.assert_allclose(run_with_keys(Stack((lower, upper)), inputs)[:, 1], clean, rtol=1e-5, atol=1e-6)


def test_the_output_sees_all_of_the_last_layer(inputs):
    made = make("2xembedding,size=60", layer_dropout=0.5)
    assert made.takes_key
    assert np.all(np.asarray(run_with_keys(made, inputs)) != 0)


def test_dropout_between_layers_needs_layers():
    with pytest.raises(InputError, match=r"layer_dropout hides a layer from the next one, and lstm is a single one"):
        TrainConfig(cell="lstm", layer_dropout=0.5)


class Wandering(Cell):
    """A cell of one's own that draws random numbers."""

    @property
    def takes_key(self):
        return True

    def initial_state(self):
        return jnp.zeros(2)

    def step(self, state, inputs, key=None):
        return state if key is None else state + jax.random.normal(key, (2,))

    def output(self, state):
        return state


def test_a_key_of_its_own_reaches_every_step_of_every_lane(inputs):
    drawing = with_keys(Wandering(), lambda: jax.random.split(jax.random.key(0), 2))
    both, still = jnp.stack([inputs, inputs], axis=1), jnp.zeros((STEPS, 2), bool)
    hidden = drawing.run(jnp.zeros((2, 2)), both, still, jnp.asarray(STEPS))[1]
    moves = np.diff(np.asarray(hidden), axis=0, prepend=0).ravel()
    assert len(set(moves.tolist())) == moves.size
    assert not Wandering().run(jnp.zeros((2, 2)), both, still, jnp.asarray(STEPS))[1].any()


@pytest.mark.parametrize(
    ("cell", "words"),
    [
        ("lstn", "unknown cell 'lstn'.*did you mean lstm"),
        ("lstm,peephole", "lstm has no setting 'peephole': expected peepholes, forget_bias, size"),
        ("gru,reset=sometimes", "reset of cell gru cannot be 'sometimes'"),
        ("delayed,lags=0:2", "lags must be different whole numbers from 1"),
        ("lstm,size=-3", "hidden_size must be from 1"),
        ("gru,context=1.5", "context of gru must be between 0 and 1"),
        ("rate,tau=9:2", "tau must be one or two ascending numbers"),
        ("leaky,size=3,size=4", "gives a setting of leaky twice"),
    ],
)
def test_mistakes_in_a_cell_are_one_clear_line(cell, words):
    with pytest.raises(InputError, match=words) as caught:
        check_cell(TrainConfig(cell=cell))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("cell", ["", "lstm+", "+", "0xlstm", "lstm,", "gru,=3", "100xgru", "lstm gru", "lstm,size==3"])
def test_what_cannot_be_read_is_refused_with_the_config(cell):
    with pytest.raises(InputError, match="cannot be read at"):
        TrainConfig(cell=cell)
    assert len(parse_cell("64xlstm")) == 64
    with pytest.raises(InputError, match="at most 64"):
        parse_cell("65xlstm")
