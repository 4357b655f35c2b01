"""Fast recurrent layers for your own JAX or Equinox code, without our models, trainer or data.

On a CPU the walk through time runs in native kernels wherever arrays are float32, inside your own `jit`, `grad`, `jvp`,
`vmap` and `scan`; elsewhere the same numbers come from XLA. Every layer has one form:

    hidden, state = layer(inputs, state=None, resets=None)

`inputs` are vectors (`[time, lane, input]` of floats), counts (the same of uint8 or bool, nearly all zero) or symbols
(`[time, lane]` of any other integer dtype); `hidden` is `[time, lane, hidden]` and `state` is what the next chunk of
the same sequences starts from: an array, or for an `LSTM` a pair of them. Lanes are sequences side by side; for a
single one leave their axis out everywhere.

    >>> import equinox as eqx, jax, longspan
    >>> layer = longspan.layers.LeakyRNN(5, 8, key=jax.random.key(0))
    >>> hidden, state = eqx.filter_jit(layer)(jax.numpy.ones((20, 3, 5)))
    >>> hidden.shape, state.shape
    ((20, 3, 8), (3, 8))
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, PRNGKeyArray, Shaped

from longspan.errors import InputError
from longspan.ops import linear
from longspan.ops.gated import gru_scan, lstm_scan
from longspan.ops.recurrence import Activation, Precision, leaky_scan

__all__ = ["GRU", "LSTM", "LeakyRNN", "leaky_rnn", "project"]


class LeakyRNN(eqx.Module):
    r"""A recurrent layer whose units integrate their input with a leak.

    .. math:: h_t = \alpha h_{t-1} + (1 - \alpha) f(h_{t-1} U + x_t W + b)

    With `leak` zero it is the simple recurrent network, which other libraries call Elman's.

    Attributes:
        input_weights: W.
        recurrent: U.
        bias: b.
        leak: alpha of every unit; a constant, whose gradient is zero.
        activation: f.
        precision: of U as it is read; see `leaky_rnn`.

    Example:
        >>> layer = LeakyRNN(5, 8, activation="rectifier", leak=0.1, key=jax.random.key(0))
        >>> loss = lambda layer, inputs: jnp.mean(layer(inputs)[0] ** 2)
        >>> jax.grad(loss)(layer, jnp.ones((20, 5))).recurrent.shape
        (8, 8)
    """

    input_weights: Float[Array, "input hidden"]
    recurrent: Float[Array, "hidden hidden"]
    bias: Float[Array, " hidden"]
    leak: Float[Array, " hidden"]
    activation: Activation = eqx.field(static=True)
    precision: Precision = eqx.field(static=True)

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        *,
        activation: Activation = "tanh",
        leak: float | Float[Array, " hidden"] = 0.0,
        precision: Precision = "float32",
        dtype: jnp.dtype | type = jnp.float32,
        key: PRNGKeyArray,
    ):
        """Draws the weights: an orthogonal recurrent matrix, input weights of variance 1 / input_size, no bias.

        Args:
            input_size: numbers that come in at a step, or symbols of a vocabulary.
            hidden_size: units.
            activation: "tanh", "sigmoid" or "rectifier".
            leak: the share of its old state that a unit keeps, for all units or for each.
            precision: of the recurrent matrix as it is read; see `leaky_rnn`.
            dtype: of all weights; native kernels need float32.
            key: randomness of the weights.
        """
        key_input, key_recurrent = jax.random.split(key)
        self.input_weights = jax.random.normal(key_input, (input_size, hidden_size), dtype) / input_size**0.5
        self.recurrent = jax.random.orthogonal(key_recurrent, hidden_size).astype(dtype)
        self.bias = jnp.zeros(hidden_size, dtype)
        self.leak = jnp.broadcast_to(jnp.asarray(leak, dtype), (hidden_size,))
        self.activation = activation
        self.precision = precision

    def __call__(
        self,
        inputs: Shaped[Array | np.ndarray, "time ..."],
        state: Float[Array | np.ndarray, "... hidden"] | None = None,
        resets: Bool[Array | np.ndarray, "time ..."] | None = None,
    ) -> tuple[Float[Array, "time ... hidden"], Float[Array, "... hidden"]]:
        """The hidden states of all steps, and the last one.

        Args:
            inputs: vectors, counts or symbols of every step.
            state: where the sequences stand; zero by default.
            resets: steps before which a lane forgets its state; none by default.
        """
        drive = project(inputs, self.input_weights, self.bias)
        walked = (drive, self.recurrent, self.leak, state, resets)
        return leaky_rnn(*walked, activation=self.activation, precision=self.precision)


class LSTM(eqx.Module):
    r"""Long short-term memory with a forget gate, and peepholes if they are asked for.

    .. math::
        i, f &= \sigma(x W_{i,f} + h U_{i,f} + b_{i,f} + p_{i,f} c) \\
        c' &= f c + i \, a(x W_g + h U_g + b_g) \\
        h' &= \sigma(x W_o + h U_o + b_o + p_o c') \, a(c')

    Gates stand in the order i, f, g, o: the transposed weights of `torch.nn.LSTM` and `equinox.nn.LSTMCell` fit as they
    are, PyTorch's two biases added up. The state is `(h, c)`.

    Attributes:
        input_weights: W of all gates, side by side.
        recurrent: U of all gates.
        bias: b of all gates.
        peepholes: p of input, forget and output gates, or None.
        activation: a.

    Example:
        >>> hidden, (last, cell) = LSTM(5, 8, key=jax.random.key(0))(jnp.ones((20, 3, 5)))
        >>> hidden.shape, cell.shape
        ((20, 3, 8), (3, 8))
    """

    input_weights: Float[Array, "input gates"]
    recurrent: Float[Array, "hidden gates"]
    bias: Float[Array, " gates"]
    peepholes: Float[Array, "3 hidden"] | None
    activation: Activation = eqx.field(static=True)

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        *,
        peepholes: bool = False,
        activation: Activation = "tanh",
        dtype: jnp.dtype | type = jnp.float32,
        key: PRNGKeyArray,
    ):
        """Draws the weights as `LeakyRNN` does, for each gate; forget gates start with a bias of one.

        Args:
            input_size: numbers that come in at a step, or symbols of a vocabulary.
            hidden_size: units.
            peepholes: whether gates see the cell state, with weights that start at zero.
            activation: "tanh", "sigmoid" or "rectifier", of the candidate and of the cell state in the output.
            dtype: of all weights; native kernels need float32.
            key: randomness of the weights.
        """
        self.input_weights, self.recurrent = _draw_gates(input_size, hidden_size, 4, dtype, key)
        self.bias = jnp.zeros(4 * hidden_size, dtype).at[hidden_size : 2 * hidden_size].set(1)
        self.peepholes = jnp.zeros((3, hidden_size), dtype) if peepholes else None
        self.activation = activation

    def __call__(
        self,
        inputs: Shaped[Array | np.ndarray, "time ..."],
        state: tuple[Float[Array | np.ndarray, "... hidden"], Float[Array | np.ndarray, "... hidden"]] | None = None,
        resets: Bool[Array | np.ndarray, "time ..."] | None = None,
    ) -> tuple[Float[Array, "time ... hidden"], tuple[Float[Array, "... hidden"], Float[Array, "... hidden"]]]:
        """The hidden states of all steps, and the last hidden and cell state; arguments as for `LeakyRNN`."""
        size, dtype = self.recurrent.shape[0], self.bias.dtype
        drive = project(inputs, self.input_weights, self.bias)
        drive, resets, lanes = _in_lanes(drive, resets, (4, size))
        rest = jnp.zeros((drive.shape[1], size), dtype)
        first, cell = (rest, rest) if state is None else (jnp.asarray(each).reshape(rest.shape) for each in state)
        peepholes = jnp.zeros((3, size), dtype) if self.peepholes is None else self.peepholes
        recurrent, time = self.recurrent.reshape(size, 4, size), jnp.asarray(len(drive))
        hidden, cell = lstm_scan(self.activation, drive, first, cell, recurrent, peepholes, resets, time)
        last = hidden[-1] if len(drive) else first
        return (hidden, (last, cell)) if lanes else (hidden[:, 0], (last[0], cell[0]))


class GRU(eqx.Module):
    r"""The gated recurrent unit, its reset gate acting after the recurrent product.

    .. math::
        r, z &= \sigma(x W_{r,z} + h U_{r,z} + b_{r,z}) \\
        n &= a(x W_n + b_n + r (h U_n + d)) \\
        h' &= (1 - z) n + z h

    Gates stand in the order r, z, n: the transposed weights of `torch.nn.GRU` and `equinox.nn.GRUCell` fit as they are.
    Of PyTorch's two biases those of r and z are added up; that of n which belongs to the recurrent weights is d.

    Attributes:
        input_weights: W of all gates, side by side.
        recurrent: U of all gates.
        bias: b of all gates.
        candidate_bias: d.
        activation: a.

    Example:
        >>> hidden, state = GRU(5, 8, key=jax.random.key(0))(jnp.ones((20, 3, 5)))
        >>> hidden.shape, state.shape
        ((20, 3, 8), (3, 8))
    """

    input_weights: Float[Array, "input gates"]
    recurrent: Float[Array, "hidden gates"]
    bias: Float[Array, " gates"]
    candidate_bias: Float[Array, " hidden"]
    activation: Activation = eqx.field(static=True)

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        *,
        activation: Activation = "tanh",
        dtype: jnp.dtype | type = jnp.float32,
        key: PRNGKeyArray,
    ):
        """Draws the weights as `LeakyRNN` does, for each gate.

        Args:
            input_size: numbers that come in at a step, or symbols of a vocabulary.
            hidden_size: units.
            activation: "tanh", "sigmoid" or "rectifier", of the candidate.
            dtype: of all weights; native kernels need float32.
            key: randomness of the weights.
        """
        self.input_weights, self.recurrent = _draw_gates(input_size, hidden_size, 3, dtype, key)
        self.bias = jnp.zeros(3 * hidden_size, dtype)
        self.candidate_bias = jnp.zeros(hidden_size, dtype)
        self.activation = activation

    def __call__(
        self,
        inputs: Shaped[Array | np.ndarray, "time ..."],
        state: Float[Array | np.ndarray, "... hidden"] | None = None,
        resets: Bool[Array | np.ndarray, "time ..."] | None = None,
    ) -> tuple[Float[Array, "time ... hidden"], Float[Array, "... hidden"]]:
        """The hidden states of all steps, and the last one; arguments as for `LeakyRNN`."""
        size = self.recurrent.shape[0]
        drive = project(inputs, self.input_weights, self.bias)
        drive, resets, lanes = _in_lanes(drive, resets, (3, size))
        rest = jnp.zeros((drive.shape[1], size), self.bias.dtype)
        first = rest if state is None else jnp.asarray(state).reshape(rest.shape)
        recurrent, time = self.recurrent.reshape(size, 3, size), jnp.asarray(len(drive))
        hidden = gru_scan(self.activation, drive, first, recurrent, self.candidate_bias, resets, time)
        last = hidden[-1] if len(drive) else first
        return (hidden, last) if lanes else (hidden[:, 0], last[0])


def leaky_rnn(
    drive: Float[Array, "time ... hidden"],
    recurrent: Float[Array, "hidden hidden"],
    leak: float | Float[Array, " hidden"] = 0.0,
    state: Float[Array | np.ndarray, "... hidden"] | None = None,
    resets: Bool[Array | np.ndarray, "time ..."] | None = None,
    *,
    activation: Activation = "tanh",
    precision: Precision = "float32",
) -> tuple[Float[Array, "time ... hidden"], Float[Array, "... hidden"]]:
    r"""The leaky recurrence as a function: :math:`h_t = \alpha h_{t-1} + (1 - \alpha) f(h_{t-1} U + u_t)`.

    Derivatives flow into the drive, the recurrent matrix and the state. The leak is a constant.

    Args:
        drive: u_t, the inputs already multiplied by their weights, such as `project` gives them.
        recurrent: U, applied from the right.
        leak: alpha, for all units or for each.
        state: where the sequences stand; zero by default.
        resets: steps before which a lane forgets its state; none by default.
        activation: f: "tanh", "sigmoid" or "rectifier".
        precision: "bfloat16" reads U from a rounded copy, which is faster for a single sequence of a few hundred units;
            all sums and all gradients, that of U too, are float32 in either case.

    Returns:
        The hidden states of all steps, and the last one.

    Example:
        >>> hidden, state = leaky_rnn(jnp.ones((20, 8)), 0.5 * jnp.eye(8))
        >>> hidden.shape, state.shape
        ((20, 8), (8,))
    """
    if drive.ndim not in (2, 3):
        raise InputError(f"leaky_rnn: expected drive[time, lane, hidden] or drive[time, hidden], got {drive.shape}.")
    if drive.ndim == 2:
        one = _leaky_rnn(
            drive[:, None],
            recurrent,
            leak,
            None if state is None else state[None],
            None if resets is None else resets[:, None],
            activation,
            precision,
        )
        return one[0][:, 0], one[1][0]
    return _leaky_rnn(drive, recurrent, leak, state, resets, activation, precision)


def project(
    inputs: Shaped[Array | np.ndarray, "time ..."], weights: Float[Array, "input hidden"], bias: Float[Array, " hidden"]
) -> Float[Array, "time ... hidden"]:
    """What inputs of any kind add to the pre-activations of a layer: x_t W + b, by the operation that suits them.

    Args:
        inputs: vectors, counts (uint8 or bool) or symbols (any other integer dtype; one out of range means the nearest)
            of every step, with or without an axis of lanes.
        weights: W, one row for each input.
        bias: b.

    Example:
        >>> project(jnp.array([2, 0, 1]), jnp.arange(6.0).reshape(3, 2), jnp.zeros(2)).tolist()
        [[4.0, 5.0], [0.0, 1.0], [2.0, 3.0]]
    """
    inputs = jnp.asarray(inputs)
    axes = 1 if jnp.issubdtype(inputs.dtype, jnp.integer) and inputs.dtype != jnp.uint8 else 2
    if inputs.ndim not in (axes, axes + 1):
        feature = ", input" * (axes - 1)
        raise InputError(
            f"project: expected {inputs.dtype}[time, lane{feature}] or [time{feature}], got {inputs.shape}."
        )
    if axes == 2 and inputs.shape[-1] != len(weights):
        raise InputError(
            f"project: the inputs have {inputs.shape[-1]} numbers at a step (shape {inputs.shape}), but the layer was "
            f"made for {len(weights)}: expected an input_size of {inputs.shape[-1]}, or other inputs"
        )
    lanes = inputs.ndim > axes
    drive = linear.project(inputs if lanes else inputs[:, None], weights, bias, jnp.asarray(len(inputs)))
    return drive if lanes else drive[:, 0]


def _leaky_rnn(drive, recurrent, leak, state, resets, activation, precision):
    time, lanes, hidden = drive.shape
    state = jnp.zeros((lanes, hidden), drive.dtype) if state is None else jnp.asarray(state)
    resets = jnp.zeros((time, lanes), bool) if resets is None else resets
    leak = jnp.full(hidden, leak, drive.dtype) if jnp.ndim(leak) == 0 else leak
    walked = (drive, state, recurrent, jax.lax.stop_gradient(leak), resets, jnp.asarray(time))
    states = leaky_scan(activation, *walked, precision=precision)
    return states, states[-1] if time else state


def _draw_gates(input_size: int, hidden_size: int, gates: int, dtype, key: PRNGKeyArray):
    """Input weights of variance 1 / input_size, and an orthogonal recurrent matrix for each gate."""
    key_input, *keys = jax.random.split(key, gates + 1)
    weights = jax.random.normal(key_input, (input_size, gates * hidden_size), dtype) / input_size**0.5
    squares = [jax.random.orthogonal(each, hidden_size).astype(dtype) for each in keys]
    return weights, jnp.concatenate(squares, axis=1)


def _in_lanes(drive, resets, gates: tuple[int, int]) -> tuple[jax.Array, jax.Array, bool]:
    """Drive and resets with an axis of lanes, the drive gate by gate; and whether there was one before."""
    lanes = drive.ndim == 3
    drive = drive if lanes else drive[:, None]
    resets = jnp.zeros(drive.shape[:2], bool) if resets is None else jnp.asarray(resets).reshape(drive.shape[:2])
    return drive.reshape(*drive.shape[:2], *gates), resets, lanes
