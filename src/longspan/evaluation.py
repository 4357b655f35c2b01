"""Scores of a model on a split, computed exactly as in the paper's tables.

Log-likelihood is in nats, summed over keys and averaged over all frames of the split, including the first frame of each
song. Expected accuracy compares a *sampled* frame with the true one, given the true history. A likelihood that can only
be estimated is reported with its standard error.
"""

import math
from collections.abc import Callable
from functools import cache, partial

import jax
import jax.numpy as jnp
import msgspec
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray, Shaped

from longspan.data.dataset import SPLITS, Dataset
from longspan.data.synthetic import SQUARED_ERROR
from longspan.errors import InputError
from longspan.models.model import SequenceModel
from longspan.models.rbm import Effort, EstimatedOutput

CHUNK_LENGTH = 200
ACCURACY_SAMPLES = 10
"""Frames sampled for every true frame when accuracy is estimated."""
CHAINS_AT_A_TIME = 500
"""Markov chains per batch, chosen to fit the cache."""


class Scores(msgspec.Struct, frozen=True, omit_defaults=True):
    """The scores on one split; those that do not apply to its kind of data are None."""

    log_likelihood: float
    log_likelihood_error: float | None = None
    """Standard error where the log-likelihood is an estimate; None where it is exact."""
    accuracy: float | None = None
    accuracy_union: float | None = None
    perplexity: float | None = None
    bits_per_character: float | None = None
    bits_per_byte: float | None = None
    error_rate: float | None = None
    """Fraction of sequences with any wrong answer."""
    class_accuracy: float | None = None
    """Fraction of right answers."""
    squared_error: float | None = None
    """Mean over all numbers, in the units of the data."""
    r2: float | None = None
    """Share of the variance explained, averaged over the columns."""

    def __repr__(self) -> str:
        known = {name: getattr(self, name) for name in self.__struct_fields__}
        return f"Scores({', '.join(f'{name}={value!r}' for name, value in known.items() if value is not None)})"


class SplitEvaluator:
    """Scores models on one split, arranged and compiled once.

    Args:
        data: a data set, such as `longspan.data.load` returns.
        split: `train`, `valid` or `test`.
    """

    def __init__(self, data: Dataset, split: str):
        check_split(split)
        self.data = data
        self.lanes = data.evaluation_lanes(split)
        self.chunks = data.chunks(split, CHUNK_LENGTH, self.lanes)
        self.steps = int(self.chunks.mask.sum())

    def log_likelihood(self, model: SequenceModel) -> float:
        """Mean log-likelihood per step in nats; if it is not exact, an estimate over a subset of the steps.

        Such an estimate serves to compare the epochs of one run. The subset's mean differs from that over all steps, so
        runs are compared by `reported_log_likelihood`.
        """
        if isinstance(model.output, EstimatedOutput):
            return self._glance(model, model.output, jax.random.key(0))
        return self._means(_log_probs, model, jax.random.key(0))["log_likelihood"] - self.data.record.log_volume

    def reported_log_likelihood(self, model: SequenceModel, key: PRNGKeyArray) -> tuple[float, float | None]:
        """Mean log-likelihood of all steps, with its standard error where it can only be estimated."""
        if isinstance(model.output, EstimatedOutput):
            return self._estimate(model, model.output, key)
        return self.log_likelihood(model), None

    def errors(self, model: SequenceModel) -> dict[str, float]:
        """The errors that apply to these data, such as `error_rate` or `squared_error`; none for music and text."""
        asked = [name for name in self.data.metrics if name in ERRORS]
        if not asked:
            return {}
        walked = walk(_errors, self.lanes, model, self.chunks, jax.random.key(0))
        counted = {name: self._counted(values).astype(np.float64) for name, values in walked.items()}
        found = self._of_squares(counted.pop("squares")) if "squares" in counted else {}
        found |= {name: float(values.mean()) for name, values in counted.items()}
        return {name: found[name] for name in asked}

    def _of_squares(self, squares: Float[np.ndarray, "step number"]) -> dict[str, float]:
        """Mean squared error in the units of the data, and the share of the variance explained."""
        by_column = squares.mean(axis=0)
        variances = self._counted(self.chunks.targets).astype(np.float64).var(axis=0)
        varying = variances > 0
        scaling = self.data.record.target_scaling
        units = 1.0 if scaling is None else np.square(scaling.scale)
        return {
            "squared_error": float((units * by_column).mean()),
            "r2": float(np.mean(1 - by_column[varying] / variances[varying])) if varying.any() else 0.0,
        }

    def scores(self, model: SequenceModel, *, seed: int = 0) -> Scores:
        """Every score that applies to this kind of data."""
        key_likelihood, key_accuracy = jax.random.split(jax.random.key(seed))
        log_likelihood, error = self.reported_log_likelihood(model, key_likelihood)
        others: dict[str, float] = self.errors(model)
        if "accuracy" in self.data.metrics:
            others |= self._accuracy(model, key_accuracy)
        return Scores(log_likelihood, error, **others, **in_other_units(self.data, log_likelihood))

    def _means(self, figures: Callable, model: SequenceModel, key: PRNGKeyArray) -> dict[str, float]:
        walked = walk(figures, self.lanes, model, self.chunks, key)
        return {name: float(self._counted(values).astype(np.float64).mean()) for name, values in walked.items()}

    def _accuracy(self, model: SequenceModel, key: PRNGKeyArray) -> dict[str, float]:
        if not isinstance(model.output, EstimatedOutput):
            return self._means(sampled_accuracies(ACCURACY_SAMPLES), model, key)
        key_choice, key_chains = jax.random.split(key)
        hidden = self._counted(walk(hidden_only, self.lanes, model, self.chunks, key)["hidden"])
        targets = self._counted(self.chunks.targets)
        # Steps are used equally often, up to a difference of one.
        order = np.resize(np.asarray(jax.random.permutation(key_choice, self.steps)), model.output.budget.chains)
        parts = [
            _chain_accuracies(model.output, hidden[chosen], targets[chosen], jax.random.fold_in(key_chains, number))
            for number, chosen in enumerate(order.reshape(-1, CHAINS_AT_A_TIME))
        ]
        return {name: float(np.mean([part[name] for part in parts], dtype=np.float64)) for name in parts[0]}

    def _glance(self, model: SequenceModel, output: EstimatedOutput, key: PRNGKeyArray) -> float:
        key_choice, key_estimate = jax.random.split(key)
        hidden = self._counted(walk(hidden_only, self.lanes, model, self.chunks, key)["hidden"])
        chosen = self._some_steps(output.budget.glance_steps, key_choice)
        targets = self._counted(self.chunks.targets)[chosen]
        comparable = np.asarray(estimated_log_probs("comparable", output, hidden[chosen], targets, key_estimate))
        return float(comparable.astype(np.float64).mean())

    def _estimate(self, model: SequenceModel, output: EstimatedOutput, key: PRNGKeyArray) -> tuple[float, float]:
        """Mean log-likelihood and its standard error: a rough pass over all steps, corrected by an accurate subset."""
        key_rough, key_choice, key_accurate = jax.random.split(key, 3)
        walked = walk(_log_probs_and_hidden, self.lanes, model, self.chunks, key_rough)
        rough, hidden = self._counted(walked["log_likelihood"]), self._counted(walked["hidden"])
        chosen = self._some_steps(output.budget.accurate_steps, key_choice)
        targets = self._counted(self.chunks.targets)[chosen]
        accurate = estimated_log_probs("accurate", output, hidden[chosen], targets, key_accurate)
        return corrected_mean(rough, np.asarray(accurate) - rough[chosen])

    def _some_steps(self, most: int, key: PRNGKeyArray) -> np.ndarray:
        return some_steps(self.steps, most, key)

    def _counted(self, values) -> np.ndarray:
        return np.asarray(values)[self.chunks.mask]


def in_other_units(data: Dataset, log_likelihood: float) -> dict[str, float]:
    """The log-likelihood as the other scores that apply to these data; that of strange weights may be any number."""
    bits = -log_likelihood / math.log(2)
    with np.errstate(over="ignore"):
        units = {"perplexity": float(np.exp(-log_likelihood)), "bits_per_character": bits, "bits_per_byte": bits}
    return {name: value for name, value in units.items() if name in data.metrics}


def some_steps(steps: int, most: int, key: PRNGKeyArray) -> np.ndarray:
    """At most so many of some steps, drawn at random."""
    return np.asarray(jax.random.choice(key, steps, (min(most, steps),), replace=False))


def corrected_mean(rough: Float[np.ndarray, " step"], corrections: Float[np.ndarray, " chosen"]) -> tuple[float, float]:
    """Mean of rough values, corrected by the mean error of a random subset; and its standard error.

    The rough values may be wrong as long as they are off by a similar amount everywhere: the standard error is that of
    the mean correction, whatever the spread of the values themselves.
    """
    corrections = np.asarray(corrections, np.float64)
    error = corrections.std(ddof=1) / math.sqrt(len(corrections)) if len(corrections) > 1 else math.inf
    return float(np.asarray(rough, np.float64).mean() + corrections.mean()), float(error)


def check_split(split: str) -> None:
    """Refuse an unknown split."""
    if split not in SPLITS:
        raise InputError(f"unknown split {split!r}: expected {', '.join(SPLITS)}")


def frame_accuracies(
    true: Shaped[Array, "... key"], predicted: Shaped[Array, "... key"]
) -> dict[str, Float[Array, "..."]]:
    """Agreement of predicted frames with the true ones; silence predicted as silence counts as 1.

    `accuracy` is the paper's: hits divided by the larger of the numbers of true and predicted notes. `accuracy_union`
    is the usual TP / (TP + FP + FN).
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


def hidden_only(model, hidden, chunk, key):
    """Figures for `walk`: what the output sees."""
    del model, chunk, key
    return {"hidden": hidden}


def _log_probs_and_hidden(model, hidden, chunk, key):
    return {**_log_probs(model, hidden, chunk, key), "hidden": hidden}


def _errors(model, hidden, chunk, key):
    """Whether the likeliest answer is right, by step and by whole sequence; for numbers, also the squared errors."""
    del key
    answers = model.output.likeliest(hidden)
    if jnp.issubdtype(chunk.targets.dtype, jnp.integer):
        missed, squares = answers != chunk.targets, {}
    else:
        off = jnp.square(answers - chunk.targets)
        missed, squares = jnp.sum(off, axis=-1) > SQUARED_ERROR, {"squares": off}
    return {
        "error_rate": _any_counted(missed, chunk.mask),
        "class_accuracy": 1 - missed.astype(jnp.float32),
        **squares,
    }


def _any_counted(missed, mask):
    """One at every step of a sequence that is wrong anywhere.

    All sequences have the same number of counted steps, so the mean is the fraction of wrong sequences.
    """
    return jnp.broadcast_to(jnp.any(missed & mask, axis=0), mask.shape).astype(jnp.float32)


ERRORS = ("error_rate", "class_accuracy", "squared_error", "r2")
"""Scores that compare the likeliest answer with the right one."""


@cache
def sampled_accuracies(samples: int) -> Callable:
    """Figures for `walk`: the accuracies of frames drawn from the output, averaged over some draws."""

    def figures(model, hidden, chunk, key):
        def one(key):
            return frame_accuracies(chunk.targets, model.output.sample(hidden, key=key))

        each = jax.lax.map(one, jax.random.split(key, samples))
        return jax.tree.map(lambda values: jnp.mean(values, axis=0), each)

    return figures


@partial(jax.jit, static_argnums=(0, 1))
def walk(
    figures: Callable, lanes: int, model: SequenceModel, chunks: tuple, key: PRNGKeyArray
) -> dict[str, Float[Array, "chunk time lane ..."]]:
    """Compute `figures` at every step of a split.

    Args:
        figures: a function `(model, hidden, chunk, key)` of a chunk that returns arrays by name.
        lanes: number of parallel streams.
        model: the model, which is started anew.
        chunks: the split as `Chunks`; a tuple with more fields is passed on to `figures` chunk by chunk.
        key: randomness, for outputs that estimate.
    """

    def step(carry, chunk):
        state, number = carry
        state, hidden = model.run(state, chunk.inputs, chunk.resets, chunk.lengths)
        return (state, number + 1), figures(model, hidden, chunk, jax.random.fold_in(key, number))

    return jax.lax.scan(step, (model.start(lanes), jnp.zeros((), jnp.int32)), chunks)[1]


@partial(jax.jit, static_argnums=0)
def estimated_log_probs(effort: Effort, output: EstimatedOutput, hidden, targets, key: PRNGKeyArray):
    """Log-likelihoods of some steps, estimated with more effort than the output's `log_prob` takes."""
    return output.estimated_log_prob(hidden, targets, effort, key=key)


@jax.jit
def _chain_accuracies(output: EstimatedOutput, hidden, targets, key: PRNGKeyArray) -> dict[str, Float[Array, " step"]]:
    return frame_accuracies(targets, output.sample(hidden, key=key))
