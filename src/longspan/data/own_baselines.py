"""What simple predictors reach on a user's own sequences: the mean, the last value, and a linear model of the past.

The linear model sees the last few inputs, or for one target per sequence also the mean of all inputs. How many it sees
is chosen on the validation split. For numbers it is ridge regression, for classes and keys logistic regression. Numbers
get a Gaussian whose variance is that of the training residuals, so that every row has a likelihood. At the start of a
sequence, where the past is shorter than a predictor of numbers looks back, one that looks back less takes its place,
with a variance of its own: a few steps that nobody can predict would otherwise widen the Gaussian of all others.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from longspan.data.dataset import Baselines

if TYPE_CHECKING:
    from longspan.data.own import Pair, Sequences

LAGS = (1, 2, 4, 8, 16)
"""Numbers of past inputs that the linear model may see."""
MOST_FEATURES = 400
MOST_COLUMNS = 1000
"""Inputs of a step that the linear model takes at all: its matrices have as many rows and columns."""
MOST_ROWS = 20_000
"""Steps of the training split that it is fitted to, evenly spaced: enough for that many features."""
MOST_OUTPUTS = 200
"""With more classes or keys than this, logistic regression would take longer than training."""
RIDGE = 1e-3
"""Penalty on squared weights, as a share of the number of rows."""
SMALLEST_VARIANCE = 1e-6
AT_ONCE = 2**23
"""Numbers that the linear model sees at a time: all steps of a long sequence, each with its past, fill no memory."""


@dataclass(frozen=True)
class OwnBaselines(Baselines):
    """Labels and scores of the simple predictors."""

    found: tuple[tuple[str, dict[str, float]], ...]

    def rows(self) -> list[tuple[str, dict[str, float]]]:
        return list(self.found)


def sequence_baselines(data: Sequences, split: str) -> OwnBaselines:
    """Simple predictors, fitted to the training split and measured on another."""
    kind = data.description.target_kind
    if kind == "numbers":
        return OwnBaselines(tuple(_number_rows(data, split)))
    usual = "always the usual answer" if kind == "symbols" else "one rate per column"
    rows: list[tuple[str, dict[str, float]]] = [(usual, _constant(data, split))]
    if data.description.next_step:
        rows.append(("the last step again", _repeated(data, split)))
    if data.description.target_size <= MOST_OUTPUTS and _has_few_inputs(data):
        rows.append(_linear_row(data, split))
    return OwnBaselines(tuple(rows))


class _Predictor(NamedTuple):
    """What predicts numbers from the step of a sequence on that has all the past it looks at."""

    first: int
    predict: Callable[[Pair, np.ndarray], np.ndarray]
    variance: np.ndarray


def _number_rows(data: Sequences, split: str) -> list[tuple[str, dict[str, float]]]:
    center = data._asked("train").mean(axis=0)
    mean = _measured(data, 0, lambda pair, steps: np.broadcast_to(center, (len(steps), len(center))))
    rows = [("the mean", _number_scores(data, split, [mean]))]
    if data.description.next_step:
        last = _measured(data, 1, lambda pair, steps: pair.inputs[steps])
        rows.append(("the last value", _number_scores(data, split, [mean, last])))
    return [*rows, _linear_numbers(data, split, mean)] if _has_few_inputs(data) else rows


def _linear_numbers(data: Sequences, split: str, mean: _Predictor) -> tuple[str, dict[str, float]]:
    """Ridge regression on as many inputs as give the validation split the highest likelihood, in any units."""
    ladder = [mean]
    ladders = {1: ladder}
    for lags in _tried(data):
        first = lags - 1 + data.description.next_step  # the input before the first step is none of the data's
        rows = sum(int(pair.mask[first:].sum()) for pair in data.pairs["train"])
        if rows > (0 if lags == 1 else 1 + lags * data.description.input_size):
            predict = _linear(data, lags, _fit(data, lags, first))
            ladder = [*ladder, _measured(data, first, predict)]
            ladders[lags] = ladder
    best = max(ladders, key=lambda lags: _number_scores(data, "valid", ladders[lags])["log_likelihood"])
    return _linear_label(data, best), _number_scores(data, split, ladders[best])


def _measured(data: Sequences, first: int, predict: Callable[[Pair, np.ndarray], np.ndarray]) -> _Predictor:
    """A predictor with the mean square of its errors in training."""
    squares = [np.square(pair.targets[steps] - predict(pair, steps)) for pair, steps in _asked_from(data, first)]
    found = np.concatenate(squares).astype(np.float64)
    spread = found.mean(axis=0) if len(found) else np.ones(found.shape[1])
    return _Predictor(first, predict, np.maximum(spread, SMALLEST_VARIANCE))


def _asked_from(data: Sequences, first: int) -> list[tuple[Pair, np.ndarray]]:
    """The training sequences, each with its steps from a first one on that have a target."""
    return [(pair, first + np.flatnonzero(pair.mask[first:])) for pair in data.pairs["train"]]


def _has_few_inputs(data: Sequences) -> bool:
    """Whether a linear model of the inputs stays small: symbols become one column for each."""
    return data.description.input_size <= (MOST_FEATURES if data.description.input_kind == "symbols" else MOST_COLUMNS)


def _number_scores(data: Sequences, split: str, predictors: list[_Predictor]) -> dict[str, float]:
    """Scores in the units of the data: each step is predicted by the last one of those that have their past."""
    firsts, parts, variances = [each.first for each in predictors], [], []
    for pair in data.pairs[split]:
        asked = np.flatnonzero(pair.mask)
        chosen = np.searchsorted(firsts, asked, side="right") - 1
        for number, each in enumerate(predictors):
            steps = asked[chosen == number]
            parts.append(np.square(pair.targets[steps] - each.predict(pair, steps)))
            variances.append(np.broadcast_to(each.variance, parts[-1].shape))
    squares, variance = np.concatenate(parts).astype(np.float64), np.concatenate(variances)
    density = -0.5 * np.mean(np.sum(squares / variance + np.log(2 * math.pi * variance), axis=1))
    spread = data._asked(split).astype(np.float64).var(axis=0)
    scaling, varying = data.description.target_scaling, spread > 0
    units = 1.0 if scaling is None else np.square(scaling.scale)
    explained = 1 - squares.mean(axis=0)[varying] / spread[varying]
    return {
        "log_likelihood": float(density) - data.record.log_volume,
        "squared_error": float((units * squares.mean(axis=0)).mean()),
        "r2": float(explained.mean()) if varying.any() else 0.0,
    }


def _constant(data: Sequences, split: str) -> dict[str, float]:
    """Training frequencies, each counted half a time more, because some may be missing in training."""
    train, test, size = data._asked("train"), data._asked(split), data.description.target_size
    if data.description.target_kind == "symbols":
        counts = np.bincount(train, minlength=size) + 0.5
        chances = np.log(counts / counts.sum())
        return {
            "log_likelihood": float(chances[test].mean()),
            "class_accuracy": float(np.mean(test == counts.argmax())),
        }
    rates = (train.sum(axis=0) + 0.5) / (len(train) + 1)
    return _key_scores(np.broadcast_to(np.log(rates / (1 - rates)), test.shape), test)


def _repeated(data: Sequences, split: str) -> dict[str, float]:
    """The step before, right as often as it is in training and otherwise wrong anywhere else."""

    def agreement(name: str) -> np.ndarray:
        return np.concatenate([(pair.inputs == pair.targets)[pair.mask] for pair in data.pairs[name]])

    right, size = agreement(split), data.description.target_size
    rate = (agreement("train").sum() + 0.5) / (agreement("train").size + 1)
    wrong = (1 - rate) / (size - 1) if data.description.target_kind == "symbols" else 1 - rate
    likelihood = np.where(right, math.log(rate), math.log(wrong))
    if data.description.target_kind == "symbols":
        return {"log_likelihood": float(likelihood.mean()), "class_accuracy": float(right.mean())}
    return {"log_likelihood": float(likelihood.sum(axis=1).mean())}


def _linear_row(data: Sequences, split: str) -> tuple[str, dict[str, float]]:
    fitted = {lags: _fit(data, lags) for lags in _tried(data)}
    scores = {lags: _logistic_scores(data, "valid", lags, weights) for lags, weights in fitted.items()}
    best = max(scores, key=lambda lags: scores[lags]["log_likelihood"])
    return _linear_label(data, best), _logistic_scores(data, split, best, fitted[best])


def _tried(data: Sequences) -> list[int]:
    return [lags for lags in LAGS if lags * data.description.input_size <= MOST_FEATURES] or [1]


def _linear_label(data: Sequences, lags: int) -> str:
    seen = f"{lags} inputs" if lags > 1 else "input"
    return f"linear, last {seen}" + (" and their mean" if data.description.at_end else "")


def _fit(data: Sequences, lags: int, first: int = 0) -> np.ndarray:
    """Weights fitted to the steps of the training sequences from a first one on."""
    pairs, asked = zip(*_asked_from(data, first), strict=True)
    ends = np.cumsum([len(steps) for steps in asked])
    some = np.linspace(0, ends[-1] - 1, min(MOST_ROWS, ends[-1])).astype(int)
    parts = np.split(some, np.searchsorted(some, ends[:-1]))
    chosen = [steps[part - end + len(steps)] for steps, part, end in zip(asked, parts, ends, strict=True)]
    features = np.concatenate([_features(data, pair, lags, steps) for pair, steps in zip(pairs, chosen, strict=True)])
    targets = np.concatenate([pair.targets[steps] for pair, steps in zip(pairs, chosen, strict=True)])
    if data.description.target_kind == "numbers":
        return _ridge(features, targets.astype(np.float64))
    if data.description.target_kind == "symbols":
        targets = np.eye(data.description.target_size)[targets]
    return _logistic(features, targets.astype(np.float64), joint=data.description.target_kind == "symbols")


def _features(data: Sequences, pair: Pair, lags: int, steps: np.ndarray) -> np.ndarray:
    """For each of some steps a one and the last inputs, zeros before the first; at the end also the mean over time."""

    symbols, size = data.description.input_kind == "symbols", data.description.input_size

    def vectors(inputs: np.ndarray) -> np.ndarray:
        return np.eye(size, dtype=np.float32)[inputs] if symbols else inputs

    columns = [np.ones((len(steps), 1))]
    for lag in range(lags):
        before = vectors(pair.inputs[np.maximum(steps - lag, 0)])
        columns.append(np.where((steps >= lag)[:, None], before, 0.0))
    if data.description.at_end:
        mean = np.bincount(pair.inputs, minlength=size) / len(pair.inputs) if symbols else pair.inputs.mean(axis=0)
        columns.append(np.broadcast_to(mean, columns[-1].shape))
    return np.concatenate(columns, axis=1)


def _in_parts(data: Sequences, pair: Pair, lags: int, steps: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Some steps of a sequence and their features, part by part."""
    height = max(1, AT_ONCE // (1 + (lags + data.description.at_end) * data.description.input_size))
    for start in range(0, max(len(steps), 1), height):
        part = steps[start : start + height]
        yield part, _features(data, pair, lags, part)


def _ridge(features: np.ndarray, targets: np.ndarray) -> np.ndarray:
    penalty = RIDGE * len(features) * np.eye(features.shape[1])
    penalty[0, 0] = 1e-9
    return np.linalg.solve(features.T @ features + penalty, features.T @ targets)


def _logistic(features: np.ndarray, targets: np.ndarray, *, joint: bool) -> np.ndarray:
    """Weights of logistic regression, over classes jointly or for every key alone."""
    from scipy.optimize import minimize
    from scipy.special import expit, log_softmax

    def loss_and_gradient(flat: np.ndarray):
        weights = flat.reshape(features.shape[1], -1)
        scores = features @ weights
        if joint:
            log_chances = log_softmax(scores, axis=1)
            loss, off = -np.sum(targets * log_chances), np.exp(log_chances) - targets
        else:
            loss, off = np.sum(np.logaddexp(0, scores) - targets * scores), expit(scores) - targets
        penalty = RIDGE * np.sum(np.square(weights)) / 2
        return loss / len(targets) + penalty, (features.T @ off / len(targets) + RIDGE * weights).ravel()

    start = np.zeros(features.shape[1] * targets.shape[1])
    found = minimize(loss_and_gradient, start, jac=True, method="L-BFGS-B", options={"maxiter": 200})
    return found.x.reshape(features.shape[1], -1)


def _linear(data: Sequences, lags: int, weights: np.ndarray) -> Callable[[Pair, np.ndarray], np.ndarray]:
    return lambda pair, steps: np.concatenate(
        [features @ weights for _, features in _in_parts(data, pair, lags, steps)]
    )


def _logistic_scores(data: Sequences, split: str, lags: int, weights: np.ndarray) -> dict[str, float]:
    likelihoods, right = [], []
    for pair in data.pairs[split]:
        for part, features in _in_parts(data, pair, lags, np.flatnonzero(pair.mask)):
            scores, targets = features @ weights, pair.targets[part]
            if data.description.target_kind == "binary":
                likelihoods.append(_key_likelihoods(scores, targets))
                continue
            largest = scores.max(axis=1, keepdims=True)
            log_chances = scores - largest - np.log(np.exp(scores - largest).sum(axis=1, keepdims=True))
            likelihoods.append(log_chances[np.arange(len(targets)), targets])
            right.append(scores.argmax(axis=1) == targets)
    accuracy = {"class_accuracy": float(np.mean(np.concatenate(right)))} if right else {}
    return {"log_likelihood": float(np.concatenate(likelihoods).mean()), **accuracy}


def _key_scores(scores: np.ndarray, targets: np.ndarray) -> dict[str, float]:
    """Log-likelihood of keys with these log-odds."""
    return {"log_likelihood": float(_key_likelihoods(scores, targets).mean())}


def _key_likelihoods(scores: np.ndarray, targets: np.ndarray) -> np.ndarray:
    return np.sum(targets * scores - np.logaddexp(0, scores), axis=1)
