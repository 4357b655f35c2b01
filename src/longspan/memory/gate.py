"""How much to trust the past: weights of the candidates beside the network, log-linear in what is known of them.

.. math:: p(x) = \\frac{p_{net}(x) + \\sum_c e^{s_c} [x = c]}{1 + \\sum_c e^{s_c}}

The score `s_c` of a candidate is a weighted sum of its features, all of which follow from the past alone; so the
mixture is an exact, normalized distribution of the next step. The weights of the features maximize the likelihood of
the validation split (by BFGS).
"""

from collections.abc import Mapping
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import scipy.optimize
from jaxtyping import Array, Float, Int

from longspan.data.lookup import LEVELS, NONE, Found

BARS = (2, 3, 4, 8, 16)
"""Distances in steps at which music tends to repeat itself."""
STRENGTHS = (1e-5, 1e-4, 1e-3)
"""Candidate strengths of the penalty on large weights, times the number of steps; chosen on held-out sequences."""
ITERATIONS = 150

FEATURES = (
    "any",
    "repeats_last",
    *(f"level_{level}" for level in range(LEVELS)),
    "best",
    *(f"best_level_{level}" for level in range(LEVELS)),
    "below_best",
    "log_count",
    "log_age",
    "log_step",
    "network",
    "network_of_likely",
    "network_of_best",
    *(f"bars_of_{bar}" for bar in BARS),
)


def features(
    found: Found, network: Float[Array, "... candidate"], repeats: Array
) -> Float[Array, "... candidate feature"]:
    """The features of candidates, in the order of `FEATURES`; zero where there is no candidate.

    Args:
        found: the candidates.
        network: their log-likelihoods under the network.
        repeats: whether a candidate equals the last step.
    """
    exist = found.level > NONE
    best = jnp.broadcast_to(jnp.arange(exist.shape[-1]) == 0, exist.shape).astype(jnp.float32)
    at_level = jax.nn.one_hot(found.level, LEVELS)
    network = jnp.clip(network, -50.0, 0.0)
    distance = found.step - found.place
    columns = [
        jnp.ones_like(network),
        repeats,
        *jnp.moveaxis(at_level, -1, 0),
        best,
        *jnp.moveaxis(at_level * best[..., None], -1, 0),
        _log1p(found.level[..., :1] - found.level),
        _log1p(found.count),
        _log1p(found.step - found.latest),
        _log1p(found.step),
        network / 10,
        jnp.maximum(network, -5) / 5,
        network / 10 * best,
        *(distance % bar == 0 for bar in BARS),
    ]
    stacked = jnp.stack([jnp.asarray(column, jnp.float32) for column in columns], axis=-1)
    return jnp.where(exist[..., None], stacked, 0)


def _log1p(count: Int[Array, "..."]) -> Float[Array, "..."]:
    return jnp.log1p(jnp.asarray(count, jnp.float32))


class Mixed(NamedTuple):
    """Log-weights of the network and of each candidate; together they sum to one."""

    network: Float[Array, "..."]
    candidates: Float[Array, "... candidate"]


def mix(values: Float[Array, "... candidate feature"], exist: Array, weights: Float[Array, " feature"]) -> Mixed:
    """The mixture that the features of the candidates call for."""
    scores = jnp.where(exist, values @ weights, -jnp.inf)
    total = jnp.logaddexp(0.0, jax.nn.logsumexp(scores, axis=-1))
    return Mixed(-total, scores - total[..., None])


def mixed_log_prob(mixed: Mixed, network: Float[Array, "..."], hits: Array) -> Float[Array, "..."]:
    """Log-likelihood of steps, given that of the network and which candidates are the step."""
    copied = jax.nn.logsumexp(jnp.where(hits, mixed.candidates, -jnp.inf), axis=-1)
    return jnp.logaddexp(mixed.network + network, copied)


class Evidence(NamedTuple):
    """What the gate is fitted to, by step: features, which candidates exist and which are right, and the network."""

    values: np.ndarray
    exist: np.ndarray
    hits: np.ndarray
    network: np.ndarray
    """Log-likelihood of the true step under the network."""
    sequence: np.ndarray
    """Number of the sequence that the step belongs to."""

    def of(self, chosen: np.ndarray) -> "Evidence":
        """The evidence of some steps."""
        return Evidence(*(part[chosen] for part in self))


class Fitted(NamedTuple):
    """Weights of the features, and the log-likelihoods that led to them."""

    weights: dict[str, float]
    strength: float
    log_likelihood: float
    """On the steps that the weights were fitted to."""
    held_out: float
    """On sequences that the weights were not fitted to, by two-fold cross-validation."""
    network: float
    """Log-likelihood of the network alone, on the same steps."""


def fit(evidence: Evidence) -> Fitted:
    """Fit the weights, with the strength of the penalty chosen on sequences held out from the fit."""
    half = evidence.sequence % 2 == 0
    if half.all():  # a single sequence, such as a text: its two halves
        half = np.arange(len(half)) < len(half) // 2
    judged = {}
    for strength in STRENGTHS:
        scores = np.empty(len(half))
        for train, test in ((half, ~half), (~half, half)):
            weights = _descend(evidence.of(train), strength)
            scores[test] = log_likelihoods(evidence.of(test), weights)
        judged[strength] = scores.mean()
    strength = max(judged, key=lambda each: judged[each])
    weights = _descend(evidence, strength)
    return Fitted(
        {name: round(float(weight), 6) for name, weight in zip(FEATURES, weights, strict=True)},
        strength,
        float(log_likelihoods(evidence, weights).mean()),
        float(judged[strength]),
        float(evidence.network.mean()),
    )


def as_array(weights: Mapping[str, float]) -> np.ndarray:
    """The weights in the order of `FEATURES`."""
    return np.array([weights[name] for name in FEATURES], np.float32)


def log_likelihoods(evidence: Evidence, weights: np.ndarray) -> np.ndarray:
    """Log-likelihood of every step under the mixture."""
    return _terms(evidence, evidence.values @ weights.astype(np.float32))[0]


def _descend(evidence: Evidence, strength: float) -> np.ndarray:
    # Products by XLA keep to the threads of the run; those of NumPy take all cores and wait for each other.
    flat = jnp.asarray(evidence.values.reshape(-1, len(FEATURES)))

    def loss(weights):
        scores = np.asarray(_product(flat, weights.astype(np.float32))).reshape(evidence.exist.shape)
        likelihoods, slopes = _terms(evidence, scores)
        value = -likelihoods.mean() + strength * weights @ weights
        pull = np.asarray(_product(slopes.ravel().astype(np.float32), flat), float)
        return value, -pull / len(likelihoods) + 2 * strength * weights

    start = np.zeros(len(FEATURES))
    found = scipy.optimize.minimize(loss, start, jac=True, method="BFGS", options={"maxiter": ITERATIONS})
    return found.x


@jax.jit
def _product(left, right):
    return left @ right


def _terms(evidence: Evidence, scores: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Log-likelihood of every step given the scores of its candidates, and its derivative in each of them."""
    scores = np.where(evidence.exist, scores, -np.inf).astype(float)
    copied = np.logaddexp.reduce(np.where(evidence.hits, scores, -np.inf), axis=1)
    right = np.logaddexp(evidence.network.astype(float), copied)
    total = np.logaddexp(0, np.logaddexp.reduce(scores, axis=1))
    slopes = np.exp(np.where(evidence.hits, scores - right[:, None], -np.inf)) - np.exp(scores - total[:, None])
    return right - total, slopes
