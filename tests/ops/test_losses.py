"""Bernoulli and softmax losses against SciPy in float64: values, derivatives, masks, extremes."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.special

from longspan.ops.outputs import bernoulli_loss, softmax_loss

SHAPES = [(1, 1, 1), (3, 2, 8), (4, 1, 88), (2, 3, 50)]


def bernoulli_oracle(logits, targets, mask):
    logits = np.asarray(logits, np.float64)
    p = scipy.special.expit(logits)
    cost = np.logaddexp(0, logits) - targets * logits
    value = np.where(mask != 0, cost.sum(-1) * mask, 0)
    hessian = np.einsum("...i,ij->...ij", p * (1 - p), np.eye(p.shape[-1]))
    return value, (p - targets) * mask[..., None], hessian * mask[..., None, None]


def softmax_oracle(logits, targets, mask):
    logits = np.asarray(logits, np.float64)
    p = scipy.special.softmax(logits, -1)
    onehot = np.eye(logits.shape[-1])[targets]
    value = (scipy.special.logsumexp(logits, -1) - (onehot * logits).sum(-1)) * mask
    hessian = np.einsum("...i,ij->...ij", p, np.eye(p.shape[-1])) - np.einsum("...i,...j->...ij", p, p)
    return value, (p - onehot) * mask[..., None], hessian * mask[..., None, None]


FAMILIES = {"bernoulli": (bernoulli_loss, bernoulli_oracle), "softmax": (softmax_loss, softmax_oracle)}


def make(family, time, lanes, outputs):
    rng = np.random.default_rng([time, lanes, outputs])
    logits = (3 * rng.normal(size=(time, lanes, outputs))).astype(np.float32)
    if family == "bernoulli":
        targets = (rng.random(logits.shape) < 0.3).astype(np.uint8)
    else:
        targets = rng.integers(0, outputs, size=(time, lanes)).astype(np.int32)
    mask = rng.uniform(0.5, 2, size=(time, lanes)).astype(np.float32) * (rng.random((time, lanes)) < 0.7)
    mask[0, 0] = 1.5
    return logits, targets, mask


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("family", FAMILIES)
def test_value_gradient_and_hessian_product(path, family, shape):
    loss, oracle = FAMILIES[family]
    logits, targets, mask = make(family, *shape)
    direction = np.random.default_rng(1).normal(size=logits.shape).astype(np.float32)
    value, gradient, hessian = oracle(logits, targets, mask)

    def total(logits):
        return loss(logits, targets, mask).sum()

    np.testing.assert_allclose(loss(logits, targets, mask), value, rtol=2e-6, atol=1e-6)
    slope = jax.grad(total)
    np.testing.assert_allclose(slope(logits), gradient, rtol=2e-6, atol=1e-6)
    _, product = jax.jvp(slope, (logits,), (direction,))
    np.testing.assert_allclose(product, np.einsum("...ij,...j->...i", hessian, direction), rtol=1e-5, atol=2e-6)
    _, tangent = jax.jvp(total, (logits,), (direction,))
    np.testing.assert_allclose(tangent, np.vdot(gradient, direction), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("family", FAMILIES)
def test_masked_steps_count_nothing_even_when_they_are_nan(path, family):
    loss, _ = FAMILIES[family]
    logits, targets, _ = make(family, 4, 1, 13)
    logits[2:] = np.nan
    mask = jnp.asarray([[True], [True], [False], [False]])
    value, gradient = jax.value_and_grad(lambda logits: loss(logits, targets, mask).sum())(logits)
    assert np.isfinite(value)
    assert np.isfinite(gradient).all()
    assert not np.any(gradient[2:])
    assert np.any(gradient[:2])


def test_bernoulli_extremes(path):
    logits = np.asarray([-500, -100, -30, -1e-20, 0, 1e-20, 30, 100, 500], np.float32)
    for on in (0, 1):
        targets = np.full((logits.size, 1, 1), on, np.uint8)
        mask = jnp.ones((logits.size, 1))
        want = np.logaddexp(0, (-1) ** on * logits.astype(np.float64))
        np.testing.assert_allclose(
            bernoulli_loss(logits[:, None, None], targets, mask)[:, 0], want, rtol=1e-6, atol=2e-38
        )


@pytest.mark.parametrize("shift", [0.0, 1e4, -1e4])
def test_softmax_does_not_overflow(path, shift):
    logits = np.asarray([[[0.0, 1.0, 2.0]]], np.float32) + np.float32(shift)
    targets, mask = np.asarray([[1]], np.int32), jnp.ones((1, 1))
    value, gradient = jax.value_and_grad(lambda logits: softmax_loss(logits, targets, mask).sum())(logits)
    want = softmax_oracle(logits, targets, np.ones((1, 1)))
    np.testing.assert_allclose(value, want[0][0, 0], rtol=1e-3)
    np.testing.assert_allclose(gradient, want[1], atol=1e-3)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("family", FAMILIES)
def test_logits_that_are_not_finite_show(path, family, bad):
    """-inf is a legal softmax logit (a symbol that cannot come); what was impossible and came costs infinity."""
    loss, _ = FAMILIES[family]
    logits, targets, _ = make(family, 2, 1, 13)
    mask = jnp.ones((2, 1))
    if family == "softmax":
        targets[1, 0] = 3
    else:
        targets[1, 0, 5] = bad == -np.inf
    logits[1, 0, 5] = bad
    value, gradient = jax.value_and_grad(lambda logits: loss(logits, targets, mask)[1, 0])(logits)
    if family == "softmax" and bad == -np.inf:
        others = np.delete(logits[1, 0], 5)
        np.testing.assert_allclose(value, scipy.special.logsumexp(others) - logits[1, 0, 3], rtol=1e-5)
        assert gradient[1, 0, 5] == 0
    else:
        assert not np.isfinite(value)
    assert np.isfinite(loss(logits, targets, mask)[0, 0])
