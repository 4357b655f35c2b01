"""Slow, obvious NumPy twins of the structured output models, in double precision, one frame at a time."""

import itertools

import numpy as np


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def all_frames(keys: int) -> np.ndarray:
    """Every frame of so many keys."""
    return np.array(list(itertools.product((0, 1), repeat=keys)), np.uint8)


def nade_logits(visible_bias, hidden_bias, weights, readout, frame):
    """The recursion over all keys, one hidden vector a key."""
    pre_activation = np.array(hidden_bias, np.float64)
    logits = []
    for key, on in enumerate(frame):
        logits.append(visible_bias[key] + sigmoid(pre_activation) @ readout[:, key])
        pre_activation = pre_activation + on * weights[key]
    return np.array(logits)


def nade_log_prob(visible_bias, hidden_bias, weights, readout, frame):
    """Product of the conditionals, as a logarithm."""
    probabilities = sigmoid(nade_logits(visible_bias, hidden_bias, weights, readout, frame))
    return np.sum(np.log(np.where(frame, probabilities, 1 - probabilities)))
