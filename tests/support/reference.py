"""Slow, obvious NumPy twins in double precision: the oracles of the tests. Nothing here imports longspan."""

import numpy as np

ACTIVATIONS = {
    "tanh": (np.tanh, lambda z: 1 - np.tanh(z) ** 2),
    "sigmoid": (lambda z: 1 / (1 + np.exp(-z)), lambda z: np.exp(-z) / (1 + np.exp(-z)) ** 2),
    "rectifier": (lambda z: np.maximum(z, 0), lambda z: (z > 0).astype(float)),
}


def leaky_states(activation, drive, first, recurrent, leak, resets):
    """Hidden states of the leaky recurrence, one lane and one step at a time."""
    function, _ = ACTIVATIONS[activation]
    steps, lanes, _ = drive.shape
    hidden = np.zeros(drive.shape)
    for lane in range(lanes):
        state = np.array(first[lane], float)
        for step in range(steps):
            if resets[step, lane]:
                state = np.zeros_like(state)
            state = leak * state + (1 - leak) * function(state @ recurrent + drive[step, lane])
            hidden[step, lane] = state
    return hidden


def leaky_gradients(activation, drive, first, recurrent, leak, resets, hidden_cotangent):
    """Back-propagation through time by hand: gradients of drive, first state and recurrent matrix."""
    _, slope = ACTIVATIONS[activation]
    hidden = leaky_states(activation, drive, first, recurrent, leak, resets)
    steps, lanes, _ = drive.shape
    drive_gradient, first_gradient = np.zeros(drive.shape), np.zeros(first.shape)
    recurrent_gradient = np.zeros(recurrent.shape)
    for lane in range(lanes):
        pulled = np.zeros(first.shape[1])
        for step in reversed(range(steps)):
            before = hidden[step - 1, lane] if step else np.array(first[lane], float)
            if resets[step, lane]:
                before = np.zeros_like(before)
            total = hidden_cotangent[step, lane] + pulled
            inner = total * (1 - leak) * slope(before @ recurrent + drive[step, lane])
            drive_gradient[step, lane] = inner
            recurrent_gradient += np.outer(before, inner)
            pulled = leak * total + recurrent @ inner
            if resets[step, lane]:
                pulled = np.zeros_like(pulled)
        first_gradient[lane] = pulled
    return drive_gradient, first_gradient, recurrent_gradient


def bernoulli_log_prob(logits, targets):
    """Log-likelihood of on/off targets, summed over the last axis, from the probabilities themselves."""
    on = 1 / (1 + np.exp(-np.asarray(logits, float)))
    return np.sum(np.where(targets, np.log(on), np.log(1 - on)), axis=-1)


def softmax_log_prob(logits, target):
    """Log-likelihood of one symbol."""
    exponentials = np.exp(np.asarray(logits, float))
    return np.log(exponentials[target] / exponentials.sum())


def sutskever_nesterov(gradient, start, rates, momenta, steps):
    """Nesterov's method in Sutskever's look-ahead form; returns theta and velocity after every step."""
    theta, velocity = np.array(start, float), np.zeros_like(np.array(start, float))
    path = [(theta, velocity)]
    for t in range(steps):
        velocity = momenta[t] * velocity - rates[t] * gradient(theta + momenta[t] * velocity)
        theta = theta + velocity
        path.append((theta, velocity))
    return path


def frame_accuracies(true, predicted):
    """Both accuracies of one frame: hits over the larger count, hits over the union."""
    hits = sum(1 for a, b in zip(true, predicted, strict=True) if a and b)
    larger = max(sum(map(bool, true)), sum(map(bool, predicted)))
    union = sum(1 for a, b in zip(true, predicted, strict=True) if a or b)
    return (hits / larger if larger else 1.0), (hits / union if union else 1.0)


def changes_of_gradients(activation, drive, first, recurrent, leak, resets, sent, weights=None):
    """Omega for one lane at a time: mean of (|e_t J_t|^2 / |e_t|^2 - 1)^2 over steps that start from another state.

    `weights` stands for the recurrent matrix in the last Jacobian alone, for derivatives that hold all else constant.
    """
    weights = recurrent if weights is None else weights
    _, slope = ACTIVATIONS[activation]
    hidden = leaky_states(activation, drive, first, recurrent, leak, resets)
    steps, lanes, _ = drive.shape
    changes = []
    for lane in range(lanes):
        handed = np.zeros(first.shape[1])
        for step in reversed(range(steps)):
            before = np.array(first[lane], float) if step == 0 else hidden[step - 1, lane]
            before = np.zeros_like(before) if resets[step, lane] else before
            arriving = sent[step, lane] + handed
            inner = arriving * (1 - leak) * slope(before @ recurrent + drive[step, lane])
            handed = np.zeros_like(arriving) if resets[step, lane] else leak * arriving + recurrent @ inner
            if not resets[step, lane] and np.any(arriving):
                through = leak * arriving + weights @ inner
                changes.append((through @ through / (arriving @ arriving) - 1) ** 2)
    return np.mean(changes)
