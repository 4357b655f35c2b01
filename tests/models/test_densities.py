"""Outputs for numbers against SciPy's densities, and against what their own samples look like."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import expit, log_softmax, logsumexp
from scipy.stats import norm

from longspan.config import TrainConfig
from longspan.errors import InputError
from longspan.models.densities import SMALLEST_SPREAD, Mixture, NumberNade, normal_output

HIDDEN, NUMBERS = 3, 2


def mixture(components: int, scale: float = 0.7) -> Mixture:
    return Mixture.initial(HIDDEN, jnp.zeros(NUMBERS), components, scale, key=jax.random.key(1))


def nade(components: int = 2) -> NumberNade:
    return NumberNade.initial(HIDDEN, 4, jnp.zeros(NUMBERS), components, 0.7, key=jax.random.key(2))


def reference_mixture(model: Mixture, hidden: np.ndarray, target: np.ndarray) -> float:
    flat = hidden @ np.asarray(model.weights, float) + np.asarray(model.bias, float)
    count = model.components
    means, spreads = flat[count:].reshape(2, count, NUMBERS)
    parts = [norm.logpdf(target, means[k], np.exp(spreads[k])).sum() for k in range(count)]
    return float(logsumexp(log_softmax(flat[:count]) + np.array(parts)))


def reference_nade(model: NumberNade, hidden: np.ndarray, target: np.ndarray) -> float:
    visible = (hidden @ np.asarray(model.visible_weights) + np.asarray(model.visible_bias)).reshape(NUMBERS, -1)
    driven = hidden @ np.asarray(model.hidden_weights) + np.asarray(model.hidden_bias)
    total = 0.0
    for number in range(NUMBERS):
        units = expit(driven + target[:number] @ np.asarray(model.weights)[:number])
        shares, means, spreads = np.split(visible[number] + units @ np.asarray(model.readout)[number], 3)
        total += float(np.asarray(logsumexp(log_softmax(shares) + norm.logpdf(target[number], means, np.exp(spreads)))))
    return total


@pytest.mark.parametrize("model", [mixture(1), mixture(3), nade()], ids=["normal", "mdn", "rnade"])
def test_likelihoods_are_those_of_scipy(model, random):
    hidden, targets = random.normal(size=(5, 2, HIDDEN)), random.normal(size=(5, 2, NUMBERS))
    reference = reference_mixture if isinstance(model, Mixture) else reference_nade
    found = model.log_prob(jnp.asarray(hidden, jnp.float32), jnp.asarray(targets, jnp.float32), jnp.asarray(5))
    expected = [[reference(model, hidden[t, lane], targets[t, lane]) for lane in range(2)] for t in range(5)]
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("model", [mixture(1), mixture(3), nade()], ids=["normal", "mdn", "rnade"])
def test_samples_follow_the_density(model, random):
    """Mean and covariance of many samples against those of the density, integrated on a grid."""
    hidden = np.asarray(random.normal(size=HIDDEN), np.float32)
    axis = np.linspace(-12, 12, 241)
    grid = np.stack(np.meshgrid(axis, axis, indexing="ij"), axis=-1).reshape(-1, NUMBERS)
    rows = jnp.broadcast_to(jnp.asarray(hidden), (len(grid), 1, HIDDEN))
    log_density = model.log_prob(rows, jnp.asarray(grid, jnp.float32)[:, None], jnp.asarray(len(grid)))
    weights = np.exp(np.asarray(log_density, float)[:, 0]) * (axis[1] - axis[0]) ** 2
    assert weights.sum() == pytest.approx(1, abs=2e-3)
    drawn = np.asarray(model.sample(jnp.broadcast_to(jnp.asarray(hidden), (40_000, HIDDEN)), key=jax.random.key(5)))
    mean = weights @ grid
    np.testing.assert_allclose(drawn.mean(axis=0), mean, atol=0.06)
    covariance = (grid - mean).T @ (weights[:, None] * (grid - mean))
    np.testing.assert_allclose(np.cov(drawn.T), covariance, atol=0.02 + 0.05 * covariance.max())


def test_a_mixture_answers_with_its_expectation(random):
    model = mixture(3)
    hidden = jnp.asarray(random.normal(size=HIDDEN), jnp.float32)
    drawn = model.sample(jnp.broadcast_to(hidden, (40_000, HIDDEN)), key=jax.random.key(5))
    np.testing.assert_allclose(model.likeliest(hidden), drawn.mean(axis=0), atol=0.06)


def test_what_can_be_predicted_exactly_has_a_likelihood_with_a_limit():
    model = normal_output(TrainConfig(output="normal"), HIDDEN, np.zeros(NUMBERS), key=jax.random.key(0))
    certain = Mixture(jnp.zeros_like(model.weights), model.bias.at[-NUMBERS:].set(-50.0), 1)
    found = certain.log_prob(jnp.zeros((1, 1, HIDDEN)), jnp.zeros((1, 1, NUMBERS)), jnp.asarray(1))
    assert float(found[0, 0]) == pytest.approx(NUMBERS * norm.logpdf(0, 0, SMALLEST_SPREAD), rel=1e-5)


def test_hessian_free_is_refused_where_the_loss_is_not_convex():
    with pytest.raises(InputError, match="convex"):
        TrainConfig(output="mdn", optimizer="hf")
