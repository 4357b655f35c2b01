"""Slow NumPy twins of the probes for a leaky network with Bernoulli keys, in double precision; no longspan in here.

A network is a dictionary of arrays; the Jacobian of a step has the entry `d after[i] / d before[j]` in row i, column j.
"""

import numpy as np

from tests.support.reference import ACTIVATIONS, bernoulli_log_prob


def drive(network, x):
    return np.asarray(x, float) @ network["input"] + network["bias"]


def step(network, state, x):
    function, _ = ACTIVATIONS[network["activation"]]
    leak = network["leak"]
    return leak * state + (1 - leak) * function(state @ network["recurrent"] + drive(network, x))


def jacobian(network, state, x):
    _, slope = ACTIVATIONS[network["activation"]]
    gain = (1 - network["leak"]) * slope(state @ network["recurrent"] + drive(network, x))
    return np.diag(network["leak"]) + gain[:, None] * network["recurrent"].T


def states(network, song):
    """The initial state and those after every step."""
    found = [np.zeros(len(network["bias"]))]
    for x in song:
        found.append(step(network, found[-1], x))
    return found


def log_prob(network, state, target):
    return float(bernoulli_log_prob(state @ network["weights"] + network["keys"], target))


def gradient_by_lag(network, songs, lags):
    """Mean norms, lag by lag, of products of Jacobians written out for every counted step."""
    norms = [[] for _ in range(lags + 1)]
    for inputs, targets, counted in songs:
        path = states(network, inputs)
        for time in np.flatnonzero(counted):
            logits = path[time + 1] @ network["weights"] + network["keys"]
            sent = network["weights"] @ (1 / (1 + np.exp(-logits)) - targets[time])
            for lag in range(min(lags, time) + 1):
                product = np.eye(len(sent))
                for at in range(time - lag + 1, time + 1):
                    product = jacobian(network, path[at], inputs[at]) @ product
                norms[lag].append(np.linalg.norm(product.T @ sent))
    return [np.mean(each) for each in norms if each]


def lyapunov(network, song, basis, skipped):
    """Exponents from QR decompositions along one song, leaving out the first `skipped` steps."""
    path, logs = states(network, song), []
    for time, x in enumerate(song):
        basis, triangle = np.linalg.qr(jacobian(network, path[time], x) @ basis)
        logs.append(np.log(np.abs(np.diag(triangle))))
    return np.mean(logs[skipped:], axis=0)


def history(network, songs, length):
    """Mean log-likelihood of the counted steps when each is reached from the initial state in `length` steps."""
    scores = []
    for inputs, targets, counted in songs:
        for time in np.flatnonzero(counted):
            seen = inputs[max(0, time - length + 1) : time + 1]
            scores.append(log_prob(network, states(network, seen)[-1], targets[time]))
    return np.mean(scores)


def match_length(song, time):
    """Length of the longest earlier match of the past if what followed its latest place is what comes, else 0."""
    best, place = 0, None
    for other in range(1, time):
        length = 0
        while length < other and np.array_equal(song[other - 1 - length], song[time - 1 - length]):
            length += 1
        if length and length >= best:
            best, place = length, other
    return best if place is not None and np.array_equal(song[place], song[time]) else 0


def markov_loss(train, before, now):
    """Loss of a frame given the one before, key by key, from counts over training songs."""
    total = 0.0
    for key in range(len(now)):
        seen = hits = 0
        for song in train:
            previous = 0
            for frame in song:
                if previous == before[key]:
                    seen += 1
                    hits += int(frame[key])
                previous = frame[key]
        rate = (hits + 0.5) / (seen + 1)
        total -= np.log(rate if now[key] else 1 - rate)
    return total
