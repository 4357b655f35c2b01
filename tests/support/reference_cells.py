"""One step of each cell in NumPy float64, written from its equations. Nothing here imports longspan."""

import numpy as np

from tests.support.reference import ACTIVATIONS


def logistic(z):
    return 1 / (1 + np.exp(-z))


def lstm_step(drive, hidden, cell, recurrent, peepholes, activation="tanh"):
    """Hochreiter and Schmidhuber's cell with Gers's forget gate and peepholes.

    Gates: input, forget, candidate, output.
    """
    function = ACTIVATIONS[activation][0]
    z = [hidden @ recurrent[:, gate] + drive[gate] for gate in range(4)]
    entering = logistic(z[0] + peepholes[0] * cell)
    kept = logistic(z[1] + peepholes[1] * cell)
    cell = kept * cell + entering * function(z[2])
    return logistic(z[3] + peepholes[2] * cell) * function(cell), cell


def gru_step(drive, hidden, recurrent, candidate_bias, activation="tanh", before=False):
    """Gates: reset, update, candidate; the reset gate acts after the recurrent product, as in PyTorch, or before it."""
    function = ACTIVATIONS[activation][0]
    reset = logistic(hidden @ recurrent[:, 0] + drive[0])
    update = logistic(hidden @ recurrent[:, 1] + drive[1])
    if before:
        recurred = (reset * hidden) @ recurrent[:, 2] + candidate_bias
    else:
        recurred = reset * (hidden @ recurrent[:, 2] + candidate_bias)
    return (1 - update) * function(drive[2] + recurred) + update * hidden


def multiplicative_step(drive, hidden, to_factors, from_factors, activation="tanh"):
    """Sutskever, Martens and Hinton (2011): the input chooses the recurrent matrix, as a product of factors."""
    factors = to_factors.shape[1]
    chosen = drive[:factors] * (hidden @ to_factors)
    return ACTIVATIONS[activation][0](chosen @ from_factors + drive[factors:])


def delayed_states(drive, recurrent, lags, activation="tanh"):
    """Lin et al. (1995): states of one sequence from rest, each seeing those at the lags before it."""
    states = np.zeros_like(drive)
    for step in range(len(drive)):
        z = drive[step].copy()
        for tap, lag in enumerate(lags):
            if step >= lag:
                z += states[step - lag] @ recurrent[tap]
        states[step] = ACTIVATIONS[activation][0](z)
    return states


def band_pass_states(drive, recurrent, low, high, activation="tanh"):
    """Siewert and Wustlich (2007): what a slow average leaves of a fast one, scaled to pass its best frequency."""
    fast, slow, state, states = 0.0, 0.0, np.zeros(drive.shape[1]), []
    for step in drive:
        value = ACTIVATIONS[activation][0](state @ recurrent + step)
        fast = (1 - high) * fast + high * value
        slow = (1 - low) * slow + low * fast
        state = (1 + low / high) * (fast - slow)
        states.append(state)
    return np.stack(states)


def linear_states(drive, eigenvalues, scale, readout, activation="tanh"):
    """Orvieto et al. (2023): a diagonal complex recurrence, read out by a complex matrix.

    The drive holds the real and the imaginary part of what enters, then what goes past the recurrence.
    """
    state, states = np.zeros(len(eigenvalues), complex), []
    units = len(eigenvalues)
    for step in drive:
        state = eigenvalues * state + scale * (step[:units] + 1j * step[units : 2 * units])
        states.append(ACTIVATIONS[activation][0]((state @ readout).real + step[2 * units :]))
    return np.stack(states)


def rate_states(drive, first, recurrent, keep, noise, activation="tanh"):
    """Firing rates with a time constant for each unit; `noise` is added to what drives them."""
    state, states = first, []
    for step, added in zip(drive, noise, strict=True):
        state = keep * state + (1 - keep) * ACTIVATIONS[activation][0](state @ recurrent + step + added)
        states.append(state)
    return np.stack(states)
