"""How well a model predicts a split, exactly as the paper's tables count it.

Log-likelihood is in nats, summed over keys and pooled over all frames of the split, each song's first frame
included. Expected accuracy compares a *sampled* frame with the true one, given the true history. A likelihood that can
only be estimated comes with its standard error.
"""

import math
from collections.abc import Callable
from functools import cache, partial

import jax
import jax.numpy as jnp
import msgspec
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray, Shaped

from longspan.data.kinds import Data
from longspan.data.music import MusicData
from longspan.data.sequences import Chunks, arrange
from longspan.data.synthetic import SQUARED_ERROR
from longspan.data.tasks import TaskData
from longspan.models.outputs import Effort, EstimatedOutput
from longspan.models.sequence import SequenceModel

LANES = 16
"""Songs evaluated side by side; the score does not depend on it beyond rounding."""
CHUNK_LENGTH = 200
TASK_LANES = 100
ACCURACY_SAMPLES = 10
"""Frames sampled for every true frame when accuracy is estimated."""
CHAINS, CHAINS_AT_A_TIME = 10_000, 500
"""Where a sample is the end of a long Markov chain, so many frames of a split will do, for a standard error of half a
percent at most; and how many chains run together, few enough for a cache."""
ACCURATE_STEPS = 800
"""Steps whose likelihood is estimated well, to correct the rough estimate of all."""
GLANCE_STEPS = 400
"""Steps whose likelihood is estimated after every epoch, always the same ones by the same draws: what is compared is
one model with another. On nottingham the mean of so many is off that of all steps by 0.17 nats (standard deviation)."""


class Scores(msgspec.Struct, frozen=True, omit_defaults=True):
    """The figures of one split; those that do not apply to its kind of data are None."""

    log_likelihood: float
    log_likelihood_error: float | None = None
    """Standard error where the log-likelihood is an estimate; None where it is exact."""
    accuracy: float | None = None
    accuracy_union: float | None = None
    perplexity: float | None = None
    bits_per_character: float | None = None
    error_rate: float | None = None
    squared_error: float | None = None


class SplitEvaluator:
    """Scores models on one split, arranged and compiled once.

    Args:
        data: a data set as `longspan.data.load` gives it.
        split: `train`, `valid` or `test`.
    """

    def __init__(self, data: Data, split: str):
        self.data = data
        self.lanes = _lanes(data, split)
        self.chunks = arrange_split(data, split, CHUNK_LENGTH, self.lanes)
        self.steps = int(self.chunks.mask.sum())

    def log_likelihood(self, model: SequenceModel) -> float:
        """Mean log-likelihood of a step in nats; if it is not exact, an estimate for some steps.

        Such an estimate tells one epoch's weights from another's. What it says of some steps is not what all of them
        would say, so runs are compared by `reported_log_likelihood`.
        """
        if isinstance(model.output, EstimatedOutput):
            return self._glance(model, jax.random.key(0))
        return self._means(_log_probs, model, jax.random.key(0))["log_likelihood"]

    def reported_log_likelihood(self, model: SequenceModel, key: PRNGKeyArray) -> tuple[float, float | None]:
        """Mean log-likelihood of all steps, with its standard error where it can only be estimated."""
        if isinstance(model.output, EstimatedOutput):
            return self._estimate(model, key)
        return self.log_likelihood(model), None

    def errors(self, model: SequenceModel) -> dict[str, float]:
        """What a synthetic task is judged by: `error_rate`, and `squared_error` of numbers; nothing for other data."""
        if not isinstance(self.data, TaskData):
            return {}
        figures = _class_errors if self.data.kind == "classes" else _number_errors
        return self._means(figures, model, jax.random.key(0))

    def scores(self, model: SequenceModel, *, seed: int = 0) -> Scores:
        """Every figure that applies to this kind of data."""
        key_likelihood, key_accuracy = jax.random.split(jax.random.key(seed))
        log_likelihood, error = self.reported_log_likelihood(model, key_likelihood)
        if isinstance(self.data, MusicData):
            return Scores(log_likelihood, error, **self._accuracy(model, key_accuracy))
        if isinstance(self.data, TaskData):
            return Scores(log_likelihood, error, **self.errors(model))
        if self.data.unit == "word":
            return Scores(log_likelihood, error, perplexity=math.exp(-log_likelihood))
        return Scores(log_likelihood, error, bits_per_character=-log_likelihood / math.log(2))

    def _means(self, figures: Callable, model: SequenceModel, key: PRNGKeyArray) -> dict[str, float]:
        walked = _walk(figures, self.lanes, model, self.chunks, key)
        return {name: float(self._counted(values).astype(np.float64).mean()) for name, values in walked.items()}

    def _accuracy(self, model: SequenceModel, key: PRNGKeyArray) -> dict[str, float]:
        if not isinstance(model.output, EstimatedOutput):
            return self._means(_accuracies(ACCURACY_SAMPLES), model, key)
        key_choice, key_chains = jax.random.split(key)
        hidden = self._counted(_walk(_hidden, self.lanes, model, self.chunks, key)["hidden"])
        targets = self._counted(self.chunks.targets)
        # Every step as often as any other, but for one time more or less.
        order = np.resize(np.asarray(jax.random.permutation(key_choice, self.steps)), CHAINS)
        parts = [
            _chain_accuracies(model.output, hidden[chosen], targets[chosen], jax.random.fold_in(key_chains, number))
            for number, chosen in enumerate(order.reshape(-1, CHAINS_AT_A_TIME))
        ]
        return {name: float(np.mean([part[name] for part in parts], dtype=np.float64)) for name in parts[0]}

    def _glance(self, model: SequenceModel, key: PRNGKeyArray) -> float:
        key_choice, key_estimate = jax.random.split(key)
        hidden = self._counted(_walk(_hidden, self.lanes, model, self.chunks, key)["hidden"])
        chosen = self._some_steps(GLANCE_STEPS, key_choice)
        targets = self._counted(self.chunks.targets)[chosen]
        comparable = np.asarray(_estimated_log_probs("comparable", model.output, hidden[chosen], targets, key_estimate))
        return float(comparable.astype(np.float64).mean())

    def _estimate(self, model: SequenceModel, key: PRNGKeyArray) -> tuple[float, float]:
        """Mean log-likelihood and its standard error, by a rough pass over all steps and an accurate one over some."""
        key_rough, key_choice, key_accurate = jax.random.split(key, 3)
        walked = _walk(_log_probs_and_hidden, self.lanes, model, self.chunks, key_rough)
        rough, hidden = self._counted(walked["log_likelihood"]), self._counted(walked["hidden"])
        chosen = self._some_steps(ACCURATE_STEPS, key_choice)
        targets = self._counted(self.chunks.targets)[chosen]
        accurate = _estimated_log_probs("accurate", model.output, hidden[chosen], targets, key_accurate)
        return corrected_mean(rough, np.asarray(accurate) - rough[chosen])

    def _some_steps(self, most: int, key: PRNGKeyArray) -> np.ndarray:
        return np.asarray(jax.random.choice(key, self.steps, (min(most, self.steps),), replace=False))

    def _counted(self, values) -> np.ndarray:
        return np.asarray(values)[self.chunks.mask]


def corrected_mean(rough: Float[np.ndarray, " step"], corrections: Float[np.ndarray, " chosen"]) -> tuple[float, float]:
    """Mean of rough values, corrected by what some of them, chosen at random, are off; and its standard error.

    The rough values need not be right, only wrong by much the same everywhere: the error is that of the mean
    correction, whatever the spread of the values themselves.
    """
    corrections = np.asarray(corrections, np.float64)
    error = corrections.std(ddof=1) / math.sqrt(len(corrections)) if len(corrections) > 1 else math.inf
    return float(np.asarray(rough, np.float64).mean() + corrections.mean()), float(error)


def _lanes(data: Data, split: str) -> int:
    if isinstance(data, TaskData):
        return TASK_LANES
    # A text is one stream whose state is carried from end to end, so it cannot be cut into lanes.
    return min(LANES, len(data.splits[split])) if isinstance(data, MusicData) else 1


def arrange_split(data: Data, split: str, chunk_length: int, lanes: int) -> Chunks:
    """A split in its own order, as chunks; of a task, the fixed set it is judged by."""
    if isinstance(data, TaskData):
        return data.judged_chunks(split, lanes)
    if isinstance(data, MusicData):
        return arrange(data.splits[split], chunk_length, lanes)
    return arrange(data.splits[split], chunk_length, lanes, end_token=data.end_token)


def frame_accuracies(
    true: Shaped[Array, "... key"], predicted: Shaped[Array, "... key"]
) -> dict[str, Float[Array, "..."]]:
    """How far predicted frames agree with the true ones; silence predicted as silence counts as 1.

    `accuracy` is the paper's: hits over the larger of the numbers of true and predicted notes. `accuracy_union` is
    the usual TP / (TP + FP + FN).
    """
    count_true = jnp.sum(true, axis=-1, dtype=jnp.float32)
    count_predicted = jnp.sum(predicted, axis=-1, dtype=jnp.float32)
    hits = jnp.sum(true & predicted, axis=-1, dtype=jnp.float32)
    silent = (count_true == 0) & (count_predicted == 0)
    totals = {
        "accuracy": jnp.maximum(count_true, count_predicted),
        "accuracy_union": count_true + count_predicted - hits,
    }
    return {name: jnp.where(silent, 1.0, hits / total) for name, total in totals.items()}


def _log_probs(model, hidden, chunk, key):
    return {"log_likelihood": model.output.log_prob(hidden, chunk.targets, chunk.lengths, key=key)}


def _hidden(model, hidden, chunk, key):
    del model, chunk, key
    return {"hidden": hidden}


def _log_probs_and_hidden(model, hidden, chunk, key):
    return {**_log_probs(model, hidden, chunk, key), "hidden": hidden}


def _class_errors(model, hidden, chunk, key):
    missed = model.output.sample(hidden, key=key, temperature=0) != chunk.targets
    return {"error_rate": _any_counted(missed, chunk.mask)}


def _number_errors(model, hidden, chunk, key):
    answers = model.output.sample(hidden, key=key, temperature=0)
    squares = jnp.sum(jnp.square(answers - chunk.targets), axis=-1)
    return {"error_rate": _any_counted(squares > SQUARED_ERROR, chunk.mask), "squared_error": squares}


def _any_counted(missed, mask):
    """One at all steps of a sequence that is wrong anywhere; each has as many that count, so their mean is a share."""
    return jnp.broadcast_to(jnp.any(missed & mask, axis=0), mask.shape).astype(jnp.float32)


@cache
def _accuracies(samples: int) -> Callable:
    def figures(model, hidden, chunk, key):
        def one(key):
            return frame_accuracies(chunk.targets, model.output.sample(hidden, key=key))

        each = jax.lax.map(one, jax.random.split(key, samples))
        return jax.tree.map(lambda values: jnp.mean(values, axis=0), each)

    return figures


@partial(jax.jit, static_argnums=(0, 1))
def _walk(
    figures: Callable, lanes: int, model: SequenceModel, chunks: Chunks, key: PRNGKeyArray
) -> dict[str, Float[Array, "chunk time lane ..."]]:
    """Figures of every step of a split."""

    def step(carry, chunk):
        state, number = carry
        state, hidden = model.run(state, chunk.inputs, chunk.resets, chunk.lengths)
        return (state, number + 1), figures(model, hidden, chunk, jax.random.fold_in(key, number))

    return jax.lax.scan(step, (model.start(lanes), jnp.zeros((), jnp.int32)), chunks)[1]


@partial(jax.jit, static_argnums=0)
def _estimated_log_probs(effort: Effort, output: EstimatedOutput, hidden, targets, key: PRNGKeyArray):
    return output.estimated_log_prob(hidden, targets, effort, key=key)


@jax.jit
def _chain_accuracies(output: EstimatedOutput, hidden, targets, key: PRNGKeyArray) -> dict[str, Float[Array, " step"]]:
    return frame_accuracies(targets, output.sample(hidden, key=key))
