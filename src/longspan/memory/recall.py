"""The recall memory: copies of what the song said before in a situation like this, mixed with the network."""

from __future__ import annotations

import math
from functools import cached_property, partial
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from longspan.data.dataset import Chunks, Dataset
from longspan.data.lookup import NONE, Found, look_up_split, sequences_of
from longspan.errors import InputError
from longspan.evaluation import (
    ACCURACY_SAMPLES,
    Scores,
    corrected_mean,
    estimated_log_probs,
    frame_accuracies,
    hidden_only,
    in_other_units,
    sampled_accuracies,
    some_steps,
)
from longspan.memory import gate
from longspan.memory.adapting import SplitReading, adaptations
from longspan.memory.interface import (
    Adaptation,
    Memory,
    Recollection,
    Trail,
    check_remembers,
    kept_adaptation,
    register_memory,
)
from longspan.memory.sampling import Recalling
from longspan.models.model import SequenceModel
from longspan.models.rbm import Effort, EstimatedOutput

CANDIDATES = {"music": 8, "text": 16}
MOST_CANDIDATES = 64


@register_memory
class Recall(Memory):
    """Candidates from the sequence's own past, weighted by a log-linear gate.

    Args:
        weights: of the features of a candidate, by name.
        candidates: largest number of candidates per step.
        fit: how the weights were found, for the record.
        adaptation: how the network keeps learning while it reads; not at all by default.
    """

    name = "recall"
    adapts: ClassVar[bool] = False

    def __init__(
        self,
        weights: dict[str, float],
        candidates: int,
        fit: dict[str, Any] | None = None,
        adaptation: Adaptation | None = None,
    ):
        if set(weights) != set(gate.FEATURES):
            raise InputError("the recall memory has weights of other features: fit it again by `longspan remember`")
        numbers = all(isinstance(weight, int | float) and math.isfinite(weight) for weight in weights.values())
        if not numbers or type(candidates) is not int or not 1 <= candidates <= MOST_CANDIDATES:
            raise InputError("the recall memory has impossible parameters: fit it again by `longspan remember`")
        self.weights, self.candidates, self.fit, self.adaptation = weights, candidates, fit or {}, adaptation

    @classmethod
    def fitted(cls, model: SequenceModel, data: Dataset, split: str = "valid") -> Recall:
        check_remembers(data.record)
        candidates = CANDIDATES[data.record.kind]
        tried = adaptations(model, data, split) if cls.adapts else [None]
        fits = [gate.fit(_Reading(model, data, split, candidates, each).unbiased_evidence) for each in tried]
        found, adaptation = max(zip(fits, tried, strict=True), key=lambda pair: pair[0].held_out)
        fit = {name: value for name, value in found._asdict().items() if name != "weights"}
        return cls(found.weights, candidates, fit, adaptation)

    @classmethod
    def from_values(cls, values: dict[str, Any]) -> Recall:
        return cls(values["weights"], values["candidates"], values["fit"], kept_adaptation(values))

    def values(self) -> dict[str, Any]:
        learned = {} if self.adaptation is None else {"adaptation": self.adaptation._asdict()}
        return {"candidates": self.candidates, "weights": self.weights, "fit": self.fit, **learned}

    def recollect(self, model: SequenceModel, data: Dataset, split: str) -> Recollection:
        check_remembers(data.record)
        reading = _Reading(model, data, split, self.candidates, self.adaptation)
        evidence = reading.evidence
        mixed = gate.mix(jnp.asarray(evidence.values), jnp.asarray(evidence.exist), self._array)
        steps = np.asarray(gate.mixed_log_prob(mixed, jnp.asarray(evidence.network), jnp.asarray(evidence.hits)))
        copied = np.where(evidence.hits, np.asarray(mixed.candidates), -np.inf)
        recalled = np.logaddexp.reduce(copied, axis=1) > np.asarray(mixed.network) + evidence.network
        mean, error = float(steps.astype(np.float64).mean()), None
        if isinstance(model.output, EstimatedOutput):
            chosen, better = reading.better_estimates(model.output, "accurate", model.output.budget.accurate_steps)
            part = jax.tree.map(lambda leaf: leaf[chosen], mixed)
            accurate = gate.mixed_log_prob(part, jnp.asarray(better), jnp.asarray(evidence.hits[chosen]))
            mean, error = corrected_mean(steps, np.asarray(accurate) - steps[chosen])
        scores = Scores(mean, error, **in_other_units(data, mean), **reading.accuracies(mixed))
        return Recollection(scores, steps, float(recalled.mean()), reading.trails(recalled))

    def proposal(self) -> Recalling:
        return Recalling(self._array, self.candidates)

    @property
    def _array(self) -> Float[Array, " feature"]:
        return jnp.asarray(gate.as_array(self.weights))


@register_memory
class RecallDynamic(Recall):
    """The recall memory over a network that keeps learning while it reads."""

    name = "recall+dynamic"
    adapts = True


class _WithPast(NamedTuple):
    """`Chunks`, and what the past proposes at each of their steps."""

    inputs: Any
    targets: Any
    resets: Any
    mask: Any
    lengths: Any
    recalled: Any


class _Reading:
    """A split read by a model, with the candidates that its past proposes."""

    def __init__(self, model: SequenceModel, data: Dataset, split: str, candidates: int, adaptation: Adaptation | None):
        self.data = data
        self.reading = SplitReading(model, data, split, adaptation)
        self.recalled = look_up_split(self.chunks, candidates)

    @property
    def chunks(self) -> Chunks:
        return self.reading.chunks

    @cached_property
    def evidence(self) -> gate.Evidence:
        """Candidates with their features, by counted step."""
        with_past = _WithPast(*self.chunks, self.recalled.steps)
        walked = self.reading.walk(_log_probs, with_past)
        found = Found(*(part[self.chunks.mask] for part in self.recalled.found))
        exist = found.level > NONE
        network = np.asarray(walked["candidates"])[self.chunks.mask]
        values = gate.features(Found(*map(jnp.asarray, found)), jnp.asarray(network), self._repeats(found, exist))
        return gate.Evidence(
            np.asarray(values),
            exist,
            self._same(self.chunks.targets[self.chunks.mask]) & exist,
            np.asarray(walked["truth"])[self.chunks.mask],
            self._sequence_numbers(),
        )

    @cached_property
    def unbiased_evidence(self) -> gate.Evidence:
        """The evidence; a likelihood that is only estimated, roughly, is shifted to where a better estimate has it."""
        output, evidence = self.reading.model.output, self.evidence
        if not isinstance(output, EstimatedOutput):
            return evidence
        chosen, better = self.better_estimates(output, "comparable", output.budget.glance_steps)
        return evidence._replace(network=evidence.network + np.mean(better - evidence.network[chosen]))

    def better_estimates(self, output: EstimatedOutput, effort: Effort, most: int) -> tuple[np.ndarray, np.ndarray]:
        """Some of the counted steps, and their log-likelihoods under the network, estimated with more effort."""
        key_choice, key_estimate = jax.random.split(jax.random.key(0))
        chosen = some_steps(int(self.chunks.mask.sum()), most, key_choice)
        hidden = np.asarray(self.reading.walk(hidden_only)["hidden"])[self.chunks.mask][chosen]
        targets = self.chunks.targets[self.chunks.mask][chosen]
        return chosen, np.asarray(estimated_log_probs(effort, output, hidden, targets, key_estimate))

    def accuracies(self, mixed: gate.Mixed) -> dict[str, float]:
        """Expected accuracy of a frame drawn from the mixture; the part of the copies needs no sampling."""
        if "accuracy" not in self.data.metrics or not self.reading.model.output.exact:
            return {}  # a frame of an RBM takes a long Markov chain
        walked = self.reading.walk(sampled_accuracies(ACCURACY_SAMPLES))
        true = jnp.asarray(self.chunks.targets[self.chunks.mask])[:, None]
        copies = frame_accuracies(true, jnp.asarray(self.recalled.steps[self.chunks.mask]))
        weight, weights = np.exp(np.asarray(mixed.network)), np.exp(np.asarray(mixed.candidates))
        return {
            name: float(np.mean(weight * np.asarray(drawn)[self.chunks.mask] + np.sum(weights * copies[name], axis=1)))
            for name, drawn in walked.items()
        }

    def trails(self, recalled: np.ndarray) -> list[Trail]:
        """For every sequence, which of its steps were recalled and where from."""
        numbers, found = self.evidence.sequence, Found(*(part[self.chunks.mask] for part in self.recalled.found))
        places = np.take_along_axis(found.place, self.evidence.hits.argmax(axis=1)[:, None], axis=1)[:, 0]
        trails = []
        for number in range(numbers.max() + 1):
            mine = numbers == number
            copied = mine & recalled
            trails.append(Trail(int(mine.sum()), found.step[copied, 0].tolist(), places[copied].tolist()))
        return trails

    def _same(self, steps: np.ndarray) -> np.ndarray:
        """Which candidates equal the given steps, one for each counted step."""
        proposed = self.recalled.steps[self.chunks.mask]
        return (proposed == steps[:, None]).reshape(*proposed.shape[:2], -1).all(axis=2)

    def _repeats(self, found: Found, exist: np.ndarray) -> Array:
        # Whatever was heard in the last step has it as its latest place.
        return jnp.asarray((found.latest == found.step - 1) & exist)

    def _sequence_numbers(self) -> np.ndarray:
        numbers = np.zeros(self.chunks.mask.shape, np.int32)
        for number, sequence in enumerate(sequences_of(self.chunks)):
            numbers[sequence] = number
        return numbers[self.chunks.mask]


def _log_probs(model, hidden, chunk, key):
    """Log-likelihood of the true step and of each candidate."""
    score = partial(model.output.log_prob, hidden, length=chunk.lengths, key=key)
    truth, rows = score(chunk.targets), jnp.moveaxis(chunk.recalled, 2, 0)
    if model.output.exact:
        candidates = jax.lax.map(lambda steps: score(steps), rows)
    else:  # all frames of a step have the same partition function, the costly part
        relative = partial(model.output.relative_log_prob, hidden)
        candidates = jax.lax.map(relative, rows) + (truth - relative(chunk.targets))[None]
    return {"truth": truth, "candidates": jnp.moveaxis(candidates, 0, 2)}
