"""The cache memory for text: symbols used lately are likely to be used again, most of all in a similar state.

.. math:: p(x) = \\lambda_0 p_{net}(x) + \\sum_k \\lambda_k \\frac{\\sum_i a_{ki} [x = x_i]}{\\sum_i a_{ki}}, \\quad
    a_{ki} = e^{-\\theta_k |h - h_i|^2 / 2} (t - i)^{-\\alpha_k}

over the last steps `i`, whose hidden states `h_i` led to the symbols `x_i`. There are three kernels: one weighs all
symbols of the last hundred steps alike, one by how alike the states are, and one those of a longer window by both
likeness and age.

Reference: Grave, Joulin and Usunier, *Improving Neural Language Models with a Continuous Cache*, 2017; the first kernel
alone is the cache of Kuhn and De Mori, 1990.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any, ClassVar, NamedTuple

import numpy as np

from longspan.data.dataset import Dataset
from longspan.data.lookup import sequences_of
from longspan.errors import InputError
from longspan.evaluation import Scores, in_other_units
from longspan.memory.adapting import SplitReading, adaptations
from longspan.memory.interface import (
    Adaptation,
    Memory,
    Recollection,
    Trail,
    kept_adaptation,
    register_memory,
)
from longspan.models.model import SequenceModel
from longspan.models.rbm import EstimatedOutput

STEPS_TO_CHOOSE = 20_000
"""Steps of the validation split by which the last kernel is chosen; the shares are fitted to all."""
BLOCK = 500
ROUNDS = 80
MOST_KERNELS, LONGEST_WINDOW, SHARPEST = 16, 100_000, 1e6
"""More than any fit chooses: a block of the text is compared with a window of it once for every kernel."""


class Kernel(NamedTuple):
    """How the steps of the past are weighted."""

    window: int
    """Number of steps that are kept."""
    sharpness: float
    """Theta: how strongly steps with similar states are favored."""
    fading: float
    """Alpha: how strongly older steps are discounted."""


def _is_sensible(kernel: Kernel) -> bool:
    """Whether a kernel, which may be out of a file, can have been fitted."""
    powers = all(isinstance(each, int | float) and 0 <= each <= SHARPEST for each in kernel[1:])
    return type(kernel.window) is int and 1 <= kernel.window <= LONGEST_WINDOW and powers


LATELY = [Kernel(100, 0.0, 0.0), Kernel(100, 2.0, 0.0)]
CHOICES = [Kernel(*each) for each in itertools.product((500, 1000, 2000), (0.0, 0.5, 1.0, 2.0, 3.0), (0.0, 0.5))]


@register_memory
class Cache(Memory):
    """A mixture of the network with the symbols used lately.

    Args:
        kernels: how the past is weighed.
        shares: the weight of the network, then of the cache of each kernel; they sum to one.
        fit: how the parameters were found, for the record.
        adaptation: how the network keeps learning while it reads; not at all by default.
    """

    name = "cache"
    adapts: ClassVar[bool] = False

    def __init__(
        self,
        kernels: Sequence[Kernel],
        shares: Sequence[float],
        fit: dict[str, float] | None = None,
        adaptation: Adaptation | None = None,
    ):
        sensible = 1 <= len(kernels) <= MOST_KERNELS and all(map(_is_sensible, kernels))
        shared = len(shares) == len(kernels) + 1 and min(shares) >= 0 and abs(sum(shares) - 1) <= 1e-6  # nor NaN
        if not sensible or not shared:
            raise InputError("the cache memory has impossible parameters: fit it again by `longspan remember`")
        self.kernels, self.shares, self.fit = list(kernels), list(shares), fit or {}
        self.adaptation = adaptation

    @classmethod
    def fitted(cls, model: SequenceModel, data: Dataset, split: str = "valid") -> Cache:
        tried = adaptations(model, data, split) if cls.adapts else [None]
        fits: list[Cache] = [cls._fitted(model, data, split, each) for each in tried]
        return max(fits, key=lambda each: each.fit["log_likelihood"])

    @classmethod
    def _fitted(cls, model: SequenceModel, data: Dataset, split: str, adaptation: Adaptation | None) -> Cache:
        read = _read(model, data, split, adaptation)
        few = [read[0].first(STEPS_TO_CHOOSE)]
        rows = _probabilities(few, [*LATELY, *CHOICES])
        fixed, choices = rows[: 1 + len(LATELY)], rows[1 + len(LATELY) :]
        judged = [_fit_shares(np.vstack([fixed, copied]))[1] for copied in choices]
        kernels = [*LATELY, CHOICES[int(np.argmax(judged))]]
        probabilities = _probabilities(read, kernels)
        shares, mean = _fit_shares(probabilities)
        network = float(np.log(probabilities[0]).mean())
        return cls(kernels, shares, {"log_likelihood": mean, "network": network}, adaptation)

    @classmethod
    def from_values(cls, values: dict[str, Any]) -> Cache:
        kernels = [Kernel(**kernel) for kernel in values["kernels"]]
        return cls(kernels, values["shares"], values["fit"], kept_adaptation(values))

    def values(self) -> dict[str, Any]:
        kernels = [kernel._asdict() for kernel in self.kernels]
        learned = {} if self.adaptation is None else {"adaptation": self.adaptation._asdict()}
        return {"kernels": kernels, "shares": self.shares, "fit": self.fit, **learned}

    def recollect(self, model: SequenceModel, data: Dataset, split: str) -> Recollection:
        read = _read(model, data, split, self.adaptation)
        weighted = np.asarray(self.shares)[:, None] * _probabilities(read, self.kernels)
        steps = np.log(weighted.sum(axis=0))
        recalled = weighted[1:].sum(axis=0) > weighted[0]
        mean = float(steps.mean())
        bounds = np.cumsum([len(part.symbols) for part in read])[:-1]
        trails = [_trail(part.symbols, each) for part, each in zip(read, np.split(recalled, bounds), strict=True)]
        return Recollection(Scores(mean, **in_other_units(data, mean)), steps, float(recalled.mean()), trails)


@register_memory
class CacheDynamic(Cache):
    """The cache over a network that keeps learning while it reads."""

    name = "cache+dynamic"
    adapts = True


class _Text(NamedTuple):
    """A text as a model read it, step by step."""

    network: np.ndarray
    """Log-likelihood under the network."""
    hidden: np.ndarray
    symbols: np.ndarray

    def first(self, most: int) -> _Text:
        return _Text(*(part[:most] for part in self))


def _read(model: SequenceModel, data: Dataset, split: str, adaptation: Adaptation | None) -> list[_Text]:
    if data.record.kind != "text":
        raise InputError(f"the cache memory is for text, these data are {data.record.kind}: use recall")
    if isinstance(model.output, EstimatedOutput):
        raise InputError(f"the cache memory needs an exact likelihood: got {type(model.output).__name__}")
    reading = SplitReading(model, data, split, adaptation)
    walked = reading.walk(_log_probs_and_hidden)
    network, hidden = np.asarray(walked["network"]), np.asarray(walked["hidden"])
    return [
        _Text(network[sequence], hidden[sequence], reading.chunks.targets[sequence])
        for sequence in sequences_of(reading.chunks)
    ]


def _log_probs_and_hidden(model, hidden, chunk, key):
    return {"network": model.output.log_prob(hidden, chunk.targets, chunk.lengths, key=key), "hidden": hidden}


def _probabilities(texts: list[_Text], kernels: Sequence[Kernel]) -> np.ndarray:
    """Probability of each true symbol (columns) under the network and the cache of each kernel (rows)."""
    rows = [np.vstack([np.exp(text.network.astype(np.float64)), _copied(text, kernels)]) for text in texts]
    return np.concatenate(rows, axis=1)


def _copied(text: _Text, kernels: Sequence[Kernel]) -> np.ndarray:
    """For one text, block by block: the states of a block against those of the longest window before its last step."""
    found = np.zeros((len(kernels), len(text.symbols)))
    squares = np.sum(np.square(text.hidden), axis=1) / 2
    longest = max(kernel.window for kernel in kernels)
    for start in range(0, len(text.symbols), BLOCK):
        now = slice(start, min(start + BLOCK, len(text.symbols)))
        kept = slice(max(0, start - longest), now.stop)
        near = text.hidden[now] @ text.hidden[kept].T - squares[kept] - squares[now, None]
        age = np.arange(now.start, now.stop)[:, None] - np.arange(kept.start, kept.stop)
        right = text.symbols[now, None] == text.symbols[kept]
        old = np.log(np.maximum(age, 1), dtype=np.float32)
        for row, kernel in zip(found, kernels, strict=True):
            inside = (age > 0) & (age <= kernel.window)
            exponents = np.where(inside, kernel.sharpness * near - kernel.fading * old, -np.inf)
            weights = np.exp(exponents - np.maximum(exponents.max(axis=1, keepdims=True), -1e30))
            row[now] = np.sum(weights * right, axis=1) / np.maximum(np.sum(weights, axis=1), 1)
    # The first step has nothing to recall, so that its mixture has to be the network itself.
    found[:, 0] = np.exp(text.network[0])
    return found


def _fit_shares(probabilities: np.ndarray) -> tuple[list[float], float]:
    """The shares under which steps are likeliest, by expectation maximization, and the mean log-likelihood."""
    shares = np.full(len(probabilities), 1 / len(probabilities))
    for _ in range(ROUNDS):
        weighted = shares[:, None] * probabilities
        shares = np.mean(weighted / weighted.sum(axis=0), axis=1)
    return shares.tolist(), float(np.log(shares @ probabilities).mean())


def _trail(symbols: np.ndarray, recalled: np.ndarray) -> Trail:
    """Recalled steps, with the last place of the same symbol before each."""
    steps, places, last = [], [], {}
    for step, symbol in enumerate(symbols.tolist()):
        if recalled[step] and symbol in last:
            steps.append(step)
            places.append(last[symbol])
        last[symbol] = step
    return Trail(len(symbols), steps, places)
