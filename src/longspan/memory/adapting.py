"""Dynamic evaluation: a network that keeps learning from the song or text that it reads.

Every step is predicted before anything is learned from it, by weights that depend on the steps before it in the same
sequence alone; so the likelihood is exact, and that of a normalized distribution. After each segment of a few steps the
weights move along the gradient `g` of its loss, and a little back to what they were when training ended:

.. math:: w \\leftarrow w - \\eta \\frac{g}{r + \\bar r} + \\lambda (w_0 - w)

where `r` is the root of the mean square of each weight's gradient over segments of the training split. A new song
begins with the weights of training.

Reference: Mikolov et al., *Recurrent neural network based language model*, 2010; the scaling and the way back are those
of Krause et al., *Dynamic evaluation of neural sequence models*, 2018.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PRNGKeyArray, PyTree

from longspan.data.dataset import Chunks, Dataset
from longspan.errors import InputError
from longspan.evaluation import ACCURACY_SAMPLES, Scores, SplitEvaluator, in_other_units, sampled_accuracies, walk
from longspan.memory.interface import (
    Adaptation,
    Memory,
    Recollection,
    check_remembers,
    kept_adaptation,
    register_memory,
)
from longspan.models.model import SequenceModel, trained_part, whole
from longspan.models.rbm import EstimatedOutput

SEGMENTS = (1, 4, 16)
"""Steps between two updates that are tried, as far as they can be afforded."""
FIRST_RATE = 5e-4
DECAYS = (0.003, 0.02)
SLOWER = (1, 4, 16)
STEPS_TO_CHOOSE = 20_000
"""Steps of the validation split by which segment, rate and decay are chosen."""
AFFORDABLE = 1e10
"""Changes of single weights, at most, in a pass over these steps: with the vocabulary of a word model, short segments
would take an hour."""
SCALED_BY = 1000
"""Segments of the training split that the gradients are compared with."""


class SplitReading:
    """A model reads a split: with the weights of training throughout, or with weights that learn on the way.

    Args:
        model: the model.
        data: a data set.
        split: the split that is read.
        adaptation: how the model learns; not at all by default.
    """

    def __init__(self, model: SequenceModel, data: Dataset, split: str, adaptation: Adaptation | None = None):
        self.model, self.adaptation = model, adaptation
        if adaptation is None:
            evaluator = SplitEvaluator(data, split)
            self.lanes, self.chunks = evaluator.lanes, evaluator.chunks
        else:
            self.lanes, self.chunks = 1, data.chunks(split, adaptation.segment, 1)
            self.scales = gradient_scales(model, data, adaptation.segment)

    def walk(self, figures: Callable, chunks: tuple | None = None) -> dict[str, Array]:
        """`figures` at every step, as `evaluation.walk` computes them; `chunks` may have more fields than the split's.

        With weights that learn, the figures of a segment are those before anything was learned from it.
        """
        chunks, key = self.chunks if chunks is None else chunks, jax.random.key(0)
        if self.adaptation is None:
            return walk(figures, self.lanes, self.model, chunks, key)
        _, rate, decay = self.adaptation
        return adapting_walk(figures, self.model, chunks, key, rate, decay, self.scales)

    def means(self, figures: Callable) -> dict[str, float]:
        """Means of the figures over the counted steps."""
        return {
            name: float(np.asarray(values, np.float64)[self.chunks.mask].mean())
            for name, values in self.walk(figures).items()
        }


@partial(jax.jit, static_argnums=0)
def adapting_walk(
    figures: Callable, model: SequenceModel, chunks: tuple, key: PRNGKeyArray, rate, decay, scales: PyTree
) -> dict[str, Array]:
    """Compute `figures` at every step of a split in one lane, and learn from every chunk after that."""
    trained, constants = trained_part(model)
    pull = jax.value_and_grad(_loss, has_aux=True)

    def step(carry, chunk):
        params, state, number = carry
        params = jax.lax.cond(chunk.resets[0, 0], lambda: trained, lambda: params)
        (_, (after, hidden)), gradient = pull(params, constants, state, chunk, key)
        found = figures(whole(params, constants), hidden, chunk, jax.random.fold_in(key, number))
        moved = jax.tree.map(
            lambda now, first, slope, scale: now - rate * slope / scale + decay * (first - now),
            params,
            trained,
            gradient,
            scales,
        )
        return (moved, after, number + 1), found

    return jax.lax.scan(step, (trained, model.start(1), jnp.zeros((), jnp.int32)), chunks)[1]


def _loss(params, constants, state, chunk, key):
    model = whole(params, constants)
    state, hidden = model.run(state, chunk.inputs, chunk.resets, chunk.lengths)
    likelihoods = model.output.log_prob(hidden, chunk.targets, chunk.lengths, key=key)
    return -jnp.sum(likelihoods, where=chunk.mask), (state, hidden)


def gradient_scales(model: SequenceModel, data: Dataset, segment: int) -> PyTree:
    """What the gradient of each weight is divided by: its usual size in training, plus the mean of all of them."""
    chunks = data.chunks("train", segment, 1)
    sizes = _usual_sizes(model, jax.tree.map(lambda leaf: leaf[:SCALED_BY], chunks))
    leaves = jax.tree.leaves(sizes)
    mean = sum(jnp.sum(leaf) for leaf in leaves) / sum(leaf.size for leaf in leaves)
    return jax.tree.map(lambda size: size + mean, sizes)


@jax.jit
def _usual_sizes(model: SequenceModel, chunks: Chunks) -> PyTree:
    trained, constants = trained_part(model)
    pull = jax.grad(_loss, has_aux=True)

    def step(carry, chunk):
        squares, state = carry
        gradient, (state, _) = pull(trained, constants, state, chunk, jax.random.key(0))
        return (jax.tree.map(lambda total, slope: total + jnp.square(slope), squares, gradient), state), None

    zeros = jax.tree.map(jnp.zeros_like, trained)
    (squares, _), _ = jax.lax.scan(step, (zeros, model.start(1)), chunks)
    return jax.tree.map(lambda total: jnp.sqrt(total / len(chunks.lengths)), squares)


def adaptations(model: SequenceModel, data: Dataset, split: str) -> list[Adaptation]:
    """What to try below another memory: what suits the network alone, and slower ones, which leave copying to it."""
    alone = choose_adaptation(model, data, split)
    return [alone._replace(rate=alone.rate / slower) for slower in SLOWER]


def choose_adaptation(model: SequenceModel, data: Dataset, split: str) -> Adaptation:
    """The segment, rate and decay by which the network alone does best on the beginning of a split."""
    check_remembers(data.record)
    if isinstance(model.output, EstimatedOutput):
        raise InputError(f"dynamic evaluation needs an exact likelihood: got {type(model.output).__name__}")
    size = sum(leaf.size for leaf in jax.tree.leaves(trained_part(model)[0]))
    affordable = [segment for segment in SEGMENTS if STEPS_TO_CHOOSE / segment * size <= AFFORDABLE]
    tried = [_best_for_segment(model, data, split, segment) for segment in affordable or SEGMENTS[-1:]]
    return max(tried)[1]


def _best_for_segment(model: SequenceModel, data: Dataset, split: str, segment: int) -> tuple[float, Adaptation]:
    """Double or halve the rate as long as that helps, then try to go back to the weights of training."""
    chunks = _beginning(data.chunks(split, segment, 1), STEPS_TO_CHOOSE)
    scales = gradient_scales(model, data, segment)

    def judged(rate: float, decay: float) -> tuple[float, Adaptation]:
        found = adapting_walk(_log_probs, model, chunks, jax.random.key(0), rate, decay, scales)["network"]
        mean = float(np.asarray(found, np.float64)[chunks.mask].mean())
        return (mean if np.isfinite(mean) else -np.inf), Adaptation(segment, rate, decay)

    best = judged(FIRST_RATE, 0.0)
    for factor in (2.0, 0.5):
        while (other := judged(factor * best[1].rate, 0.0)) > best and other[1].rate > 1e-8:
            best = other
    return max([best, *(judged(best[1].rate, decay) for decay in DECAYS)])


def _beginning(chunks: Chunks, steps: int) -> Chunks:
    count = int(np.searchsorted(np.cumsum(chunks.mask.sum(axis=(1, 2))), steps)) + 1
    return Chunks(*(leaf[:count] for leaf in chunks))


def _log_probs(model, hidden, chunk, key):
    return {"network": model.output.log_prob(hidden, chunk.targets, chunk.lengths, key=key)}


@register_memory
class Dynamic(Memory):
    """A network that keeps learning from the sequence it reads; nothing is copied.

    Args:
        adaptation: how it learns.
    """

    name = "dynamic"

    def __init__(self, adaptation: Adaptation):
        self.adaptation = adaptation

    @classmethod
    def fitted(cls, model: SequenceModel, data: Dataset, split: str = "valid") -> Dynamic:
        return cls(choose_adaptation(model, data, split))

    @classmethod
    def from_values(cls, values: dict[str, Any]) -> Dynamic:
        adaptation = kept_adaptation(values)
        if adaptation is None:
            raise KeyError("adaptation")
        return cls(adaptation)

    def values(self) -> dict[str, Any]:
        assert self.adaptation is not None
        return {"adaptation": self.adaptation._asdict()}

    def recollect(self, model: SequenceModel, data: Dataset, split: str) -> Recollection:
        reading = SplitReading(model, data, split, self.adaptation)
        steps = np.asarray(reading.walk(_log_probs)["network"])[reading.chunks.mask]
        mean = float(steps.astype(np.float64).mean())
        accuracies = reading.means(sampled_accuracies(ACCURACY_SAMPLES)) if "accuracy" in data.metrics else {}
        return Recollection(Scores(mean, **in_other_units(data, mean), **accuracies), steps, 0.0, [])
