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


def class_of_words(counts, classes):
    """Word classes by the loop of the rule: a word joins the class, which closes once its share of mass is passed."""
    membership, current, accumulated = [], 0, 0.0
    for count in counts:
        accumulated += count / sum(counts)
        membership.append(current)
        if accumulated > (current + 1) / classes and current < classes - 1:
            current += 1
    return np.array(membership)


def factored_log_prob(hidden, class_weights, class_bias, weights, bias, membership, word):
    """Probability of the word's class times that of the word among its class, as a logarithm."""
    class_scores = np.exp(hidden @ class_weights + class_bias)
    in_use = np.isin(np.arange(len(class_scores)), membership)
    own = membership == membership[word]
    word_scores = np.exp(weights @ hidden + bias)
    class_probability = class_scores[membership[word]] / class_scores[in_use].sum()
    return np.log(class_probability * word_scores[word] / word_scores[own].sum())


def tree_log_prob(hidden, weights, bias, path):
    """Product of the probabilities of a word's decisions, as a logarithm."""
    decisions = [(turn // 2, 1 if turn % 2 else -1) for turn in path if turn >= 0]
    return sum(np.log(sigmoid(side * (weights[node] @ hidden + bias[node]))) for node, side in decisions)


def rbm_free_energy(visible_bias, hidden_bias, weights, frame):
    """Minus the logarithm of the sum of exp(-energy) over all states of the hidden units."""
    units = len(hidden_bias)
    energies = [
        -(visible_bias @ frame) - (hidden_bias @ state) - frame @ weights @ state
        for state in all_frames(units).astype(float)
    ]
    return -np.log(np.sum(np.exp(-np.array(energies))))


def rbm_log_partition(visible_bias, hidden_bias, weights):
    """Logarithm of the sum over every frame."""
    energies = [
        rbm_free_energy(visible_bias, hidden_bias, weights, frame.astype(float))
        for frame in all_frames(len(visible_bias))
    ]
    return np.log(np.sum(np.exp(-np.array(energies))))
