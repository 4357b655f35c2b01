"""LSTM and GRU through time, with their derivative rules.

Per lane, with k_t = 1 - reset_t, h and c the states before a step times k_t, s the logistic function, and gates in the
order of PyTorch and Equinox:

    LSTM   i = s(h U_i + u_i + p_i c)     f = s(h U_f + u_f + p_f c)     g = a(h U_g + u_g)
           c' = f c + i g                 o = s(h U_o + u_o + p_o c')    h' = o a(c')
    GRU    r = s(h U_r + u_r)     z = s(h U_z + u_z)     n = a(u_n + r (h U_n + b))     h' = (1 - z) n + z h

As for the leaky recurrence, the tangent is a linear walk whose parameter part is one matrix product outside of it, and
its transpose walks backwards; peepholes p only change the coefficients of the walk. Steps from `length` on are zero in
every result and ignored in every argument.
"""

from functools import partial
from typing import TypeAlias

import jax
import jax.numpy as jnp
from jax.custom_derivatives import SymbolicZero
from jaxtyping import Array, Bool, Float, Integer

from longspan.ops import backend
from longspan.ops.backend import operation
from longspan.ops.linear import instantiate, linear_map
from longspan.ops.recurrence import ACTIVATIONS, Activation, check_activation, follow_recurrent, previous_states

Steps: TypeAlias = Float[Array, "time lane hidden"]
State: TypeAlias = Float[Array, "lane hidden"]
Resets: TypeAlias = Bool[Array, "time lane"]
Length: TypeAlias = Integer[Array, ""]
Gates4: TypeAlias = Float[Array, "time lane 4 hidden"]
Gates3: TypeAlias = Float[Array, "time lane 3 hidden"]
Keeps: TypeAlias = Float[Array, "time lane 2 hidden"]
Recurrent4: TypeAlias = Float[Array, "hidden 4 hidden"]
Recurrent3: TypeAlias = Float[Array, "hidden 3 hidden"]


@operation
def lstm_scan(
    activation: Activation,
    drive: Gates4,
    first: State,
    first_cell: State,
    recurrent: Recurrent4,
    peepholes: Float[Array, "3 hidden"],
    resets: Resets,
    length: Length,
) -> tuple[Steps, State]:
    """Hidden states of all steps and the last cell state, differentiable in all floating-point operands.

    Args:
        activation: a, of the candidate and of the cell state in the output.
        drive: u_t, the input of each step already multiplied by its weights, for input, forget, candidate and output
            gates.
        first: the hidden state before the first step.
        first_cell: the cell state there.
        recurrent: U, applied from the right.
        peepholes: p, from the cell state to the input, forget and output gates; zero for none.
        resets: steps before which a lane forgets its states.
        length: steps that count; the others cost nothing.
    """
    return _lstm(check_activation(activation), drive, first, first_cell, recurrent, peepholes, resets, length)


@operation
def gru_scan(
    activation: Activation,
    drive: Gates3,
    first: State,
    recurrent: Recurrent3,
    candidate_bias: Float[Array, " hidden"],
    resets: Resets,
    length: Length,
) -> Steps:
    """Hidden states of all steps, differentiable in all floating-point operands.

    Args:
        activation: a, of the candidate.
        drive: u_t, the input of each step already multiplied by its weights, for reset, update and candidate.
        first: the state before the first step.
        recurrent: U, applied from the right.
        candidate_bias: b, which the reset gate multiplies.
        resets: steps before which a lane forgets its state.
        length: steps that count; the others cost nothing.
    """
    return _gru(check_activation(activation), drive, first, recurrent, candidate_bias, resets, length)


@operation
def lstm_forward(
    drive: Gates4,
    first: State,
    first_cell: State,
    recurrent: Recurrent4,
    peepholes: Float[Array, "3 hidden"],
    resets: Resets,
    length: Length,
    *,
    activation: Activation,
) -> tuple[Steps, Steps, Gates4, Keeps]:
    """Hidden and cell states, and the coefficients of the two linear walks.

    These are dc'/d(i, f, g) and dh'/do by pre-activation, then dc'/dc and dh'/dc'.
    """
    twin = partial(lstm_twin, activation=check_activation(activation))
    results = [_like(drive, ()), _like(drive, ()), drive, _like(drive, (2,))]
    operands = (drive, first, first_cell, recurrent, peepholes, resets, length)
    return backend.run(f"lstm_{activation}", twin, results, *operands)


@operation
def lstm_tangent(
    recurrent: Recurrent4,
    slopes: Gates4,
    keeps: Keeps,
    resets: Resets,
    length: Length,
    drive_tangent: Gates4,
    first_tangent: State,
    first_cell_tangent: State,
) -> tuple[Steps, State]:
    """Tangents of the hidden states and of the last cell state."""
    operands = (recurrent, slopes, keeps, resets, length, drive_tangent, first_tangent, first_cell_tangent)
    return backend.run("lstm_tangent", _lstm_tangent_twin, [_like(slopes, ()), first_tangent], *operands)


@operation
def lstm_adjoint(
    recurrent: Recurrent4,
    slopes: Gates4,
    keeps: Keeps,
    resets: Resets,
    length: Length,
    hidden_cotangent: Steps,
    cell_cotangent: State,
) -> tuple[Gates4, State, State]:
    """Cotangents of the drive and of the first states: the exact transpose of `lstm_tangent`."""
    operands = (recurrent, slopes, keeps, resets, length, hidden_cotangent, cell_cotangent)
    return backend.run("lstm_adjoint", _lstm_adjoint_twin, [slopes, cell_cotangent, cell_cotangent], *operands)


@operation
def gru_forward(
    drive: Gates3,
    first: State,
    recurrent: Recurrent3,
    candidate_bias: Float[Array, " hidden"],
    resets: Resets,
    length: Length,
    *,
    activation: Activation,
) -> tuple[Steps, Gates3, Keeps]:
    """Hidden states, and the coefficients of the two linear walks.

    These are dh'/d(h U) by gate, then dh'/dh past the matrix and dh'/du_n.
    """
    twin = partial(gru_twin, activation=check_activation(activation))
    results = [_like(drive, ()), drive, _like(drive, (2,))]
    return backend.run(f"gru_{activation}", twin, results, drive, first, recurrent, candidate_bias, resets, length)


@operation
def gru_tangent(
    recurrent: Recurrent3,
    slopes: Gates3,
    keeps: Keeps,
    resets: Resets,
    length: Length,
    drive_tangent: Gates3,
    recurrent_tangent: Gates3,
    first_tangent: State,
) -> Steps:
    """Tangent of the hidden states, given those of the drive and of what the recurrent weights and b add to it."""
    operands = (recurrent, slopes, keeps, resets, length, drive_tangent, recurrent_tangent, first_tangent)
    return backend.run("gru_tangent", _gru_tangent_twin, [_like(slopes, ())], *operands)


@operation
def gru_adjoint(
    recurrent: Recurrent3, slopes: Gates3, keeps: Keeps, resets: Resets, length: Length, hidden_cotangent: Steps
) -> tuple[Gates3, Gates3, State]:
    """Cotangents of the operands in which `gru_tangent` is linear: its exact transpose."""
    operands = (recurrent, slopes, keeps, resets, length, hidden_cotangent)
    first = jax.ShapeDtypeStruct(hidden_cotangent.shape[1:], hidden_cotangent.dtype)
    return backend.run("gru_adjoint", _gru_adjoint_twin, [slopes, slopes, first], *operands)


def _like(gates, parts: tuple[int, ...]) -> jax.ShapeDtypeStruct:
    time, lanes, _, hidden = gates.shape
    return jax.ShapeDtypeStruct((time, lanes, *parts, hidden), gates.dtype)


# Derivative rules.

_push_lstm = linear_map(lstm_tangent, lstm_adjoint, operands=3)
_push_gru = linear_map(gru_tangent, gru_adjoint, operands=3)


@partial(jax.custom_jvp, nondiff_argnums=(0,))
def _lstm(activation, *walked):
    hidden, cells, _, _ = lstm_forward(*walked, activation=activation)
    return hidden, _last(cells, walked[2], walked[6])


def _differentiate_lstm(activation, primals, tangents):
    drive, first, first_cell, recurrent, _, resets, length = primals
    hidden, cells, slopes, keeps = lstm_forward(*primals, activation=activation)
    change = instantiate(tangents[0], drive)
    if not isinstance(tangents[3], SymbolicZero):
        change = change + _through_recurrent(first, hidden, resets, length, tangents[3])
    if not isinstance(tangents[4], SymbolicZero):
        before = previous_states(first_cell, cells, resets)
        by_input, by_forget, by_output = tangents[4][:, None, None]
        seen = [before * by_input, before * by_forget, jnp.zeros_like(cells), cells * by_output]
        change = change + jnp.stack(seen, axis=2)
    starts = instantiate(tangents[1], first), instantiate(tangents[2], first_cell)
    changes = _push_lstm(recurrent, slopes, keeps, resets, length, change, *starts)
    return (hidden, _last(cells, first_cell, length)), changes


_lstm.defjvp(_differentiate_lstm, symbolic_zeros=True)


@partial(jax.custom_jvp, nondiff_argnums=(0,))
def _gru(activation, *walked):
    return gru_forward(*walked, activation=activation)[0]


def _differentiate_gru(activation, primals, tangents):
    drive, first, recurrent, candidate_bias, resets, length = primals
    hidden, slopes, keeps = gru_forward(*primals, activation=activation)
    change = jnp.zeros_like(drive)
    if not isinstance(tangents[2], SymbolicZero):
        change = _through_recurrent(first, hidden, resets, length, tangents[2])
    if not isinstance(tangents[3], SymbolicZero):
        nothing = jnp.zeros_like(candidate_bias)
        change = change + jnp.stack([nothing, nothing, tangents[3]])[None, None]
    changes = instantiate(tangents[0], drive), change, instantiate(tangents[1], first)
    return hidden, _push_gru(recurrent, slopes, keeps, resets, length, *changes)


_gru.defjvp(_differentiate_gru, symbolic_zeros=True)


def _through_recurrent(first, hidden, resets, length, tangent):
    """What a change of the recurrent matrix adds to the gates, if the state before each step stayed what it is."""
    units, gates, _ = tangent.shape
    added = follow_recurrent(first, hidden, resets, length, tangent.reshape(units, gates * units))
    return added.reshape(*hidden.shape[:2], gates, units)


def _last(cells, first_cell, length):
    """The cell state after the last step that counts."""
    return jnp.where(length > 0, cells[jnp.clip(length, 1, len(cells)) - 1], first_cell) if len(cells) else first_cell


# The XLA twins.


def _shorten(steps, length):
    """The same steps, those from `length` on set to zero."""
    numbers = jnp.arange(steps.shape[0]).reshape(-1, *[1] * (steps.ndim - 1))
    return jnp.where(numbers < length, steps, 0)


def _unless(reset, state):
    return jnp.where(reset[:, None], 0, state)


def _product(state, recurrent):
    """State times matrix, gate after gate."""
    return jnp.einsum("bi,igj->gbj", state, recurrent)


def lstm_twin(drive, first, first_cell, recurrent, peepholes, resets, length, *, activation: Activation):
    """`lstm_forward` in XLA."""
    function, logistic = ACTIVATIONS[activation], ACTIVATIONS["sigmoid"]
    peepholes = peepholes[:, None]

    def step(states, now):
        drive, reset = now
        hidden, cell = (_unless(reset, state) for state in states)
        z = _product(hidden, recurrent) + jnp.moveaxis(drive, 1, 0)
        i = logistic.value(z[0] + peepholes[0] * cell)
        f = logistic.value(z[1] + peepholes[1] * cell)
        g = function.value(z[2])
        new_cell = f * cell + i * g
        o = logistic.value(z[3] + peepholes[2] * new_cell)
        shown = function.value(new_cell)
        by_input, by_forget, by_output = g * i * (1 - i), cell * f * (1 - f), shown * o * (1 - o)
        slopes = jnp.stack([by_input, by_forget, i * function.slope(z[2], g), by_output], axis=1)
        kept = f + by_input * peepholes[0] + by_forget * peepholes[1]
        keeps = jnp.stack([kept, o * function.slope(new_cell, shown) + by_output * peepholes[2]], axis=1)
        return (o * shown, new_cell), (o * shown, new_cell, slopes, keeps)

    _, results = jax.lax.scan(step, (first, first_cell), (drive, resets))
    return tuple(_shorten(result, length) for result in results)


def _lstm_tangent_twin(recurrent, slopes, keeps, resets, length, drive, first, first_cell):
    def step(states, now):
        number, slopes, keeps, drive, reset = now
        hidden, cell = (_unless(reset, state) for state in states)
        through = jnp.moveaxis(slopes, 1, 0) * (_product(hidden, recurrent) + jnp.moveaxis(drive, 1, 0))
        cell = keeps[:, 0] * cell + through[0] + through[1] + through[2]
        hidden = keeps[:, 1] * cell + through[3]
        return (hidden, jnp.where(number < length, cell, states[1])), hidden

    numbers = jnp.arange(len(resets))
    (_, cell), hidden = jax.lax.scan(step, (first, first_cell), (numbers, slopes, keeps, drive, resets))
    return _shorten(hidden, length), cell


def _lstm_adjoint_twin(recurrent, slopes, keeps, resets, length, hidden_cotangent, cell_cotangent):
    def step(errors, now):
        number, slopes, keeps, cotangent, reset = now
        inside = number < length
        hidden = jnp.where(inside, errors[0] + cotangent, 0)
        cell = errors[1] + keeps[:, 1] * hidden
        drive = jnp.where(inside, slopes * jnp.stack([cell, cell, cell, hidden], axis=1), 0)
        before = _unless(reset, jnp.einsum("bgj,igj->bi", drive, recurrent)), _unless(reset, keeps[:, 0] * cell)
        return jax.tree.map(lambda new, old: jnp.where(inside, new, old), before, errors), drive

    start = jnp.zeros_like(cell_cotangent), cell_cotangent
    numbers = jnp.arange(len(resets))
    (first, first_cell), drive = jax.lax.scan(
        step, start, (numbers, slopes, keeps, hidden_cotangent, resets), reverse=True
    )
    return drive, first, first_cell


def gru_twin(drive, first, recurrent, candidate_bias, resets, length, *, activation: Activation):
    """`gru_forward` in XLA."""
    function, logistic = ACTIVATIONS[activation], ACTIVATIONS["sigmoid"]

    def step(hidden, now):
        drive, reset = now
        before = _unless(reset, hidden)
        to_reset, to_update, recurred = _product(before, recurrent)
        r, z = logistic.value(to_reset + drive[:, 0]), logistic.value(to_update + drive[:, 1])
        recurred = recurred + candidate_bias[None]
        inner = drive[:, 2] + r * recurred
        n = function.value(inner)
        by_drive = (1 - z) * function.slope(inner, n)
        slopes = [by_drive * recurred * r * (1 - r), (before - n) * z * (1 - z), by_drive * r]
        hidden = n + z * (before - n)
        return hidden, (hidden, jnp.stack(slopes, axis=1), jnp.stack([z, by_drive], axis=1))

    _, results = jax.lax.scan(step, first, (drive, resets))
    return tuple(_shorten(result, length) for result in results)


def _gru_tangent_twin(recurrent, slopes, keeps, resets, length, drive, recurrent_drive, first):
    def step(hidden, now):
        slopes, keeps, drive, added, reset = now
        before = _unless(reset, hidden)
        recurred = jnp.moveaxis(_product(before, recurrent), 0, 1) + added
        hidden = keeps[:, 0] * before + jnp.sum(slopes * recurred, axis=1)
        hidden = hidden + jnp.sum(slopes[:, :2] * drive[:, :2], axis=1) + keeps[:, 1] * drive[:, 2]
        return hidden, hidden

    _, hidden = jax.lax.scan(step, first, (slopes, keeps, drive, recurrent_drive, resets))
    return _shorten(hidden, length)


def _gru_adjoint_twin(recurrent, slopes, keeps, resets, length, hidden_cotangent):
    def step(error, now):
        slopes, keeps, cotangent, reset = now
        error = error + cotangent
        recurred = slopes * error[:, None]
        drive = jnp.concatenate([recurred[:, :2], (keeps[:, 1] * error)[:, None]], axis=1)
        before = keeps[:, 0] * error + jnp.einsum("bgj,igj->bi", recurred, recurrent)
        return _unless(reset, before), (drive, recurred)

    # Steps that do not count have no cotangent, and must leave none behind.
    counted = (_shorten(steps, length) for steps in (slopes, keeps, hidden_cotangent))
    start = jnp.zeros(hidden_cotangent.shape[1:], hidden_cotangent.dtype)
    first, (drive, recurred) = jax.lax.scan(step, start, (*counted, resets), reverse=True)
    return drive, recurred, first
