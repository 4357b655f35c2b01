"""What outputs over many words, class-factored or a tree, are held to alike."""

from collections.abc import Callable, Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from longspan.models.parts import split_constants

loss = eqx.filter_jit(lambda output, hidden, targets, length: output.loss(hidden, targets, length))
log_probs_of_words = eqx.filter_jit(lambda output, hidden: output.log_probs(hidden))


def steps_of(words: int, hidden_size: int, time: int = 20, lanes: int = 2, seed: int = 0):
    """Hidden states and words to predict from them."""
    rng = np.random.default_rng(seed)
    hidden = jnp.asarray(rng.normal(size=(time, lanes, hidden_size)), jnp.float32)
    return hidden, jnp.asarray(rng.integers(0, words, (time, lanes)), jnp.int32)


def assert_log_probs(output, state: np.ndarray, twin: Sequence[float]) -> None:
    """Every word after a state has its twin's log-probability, by its loss and among all; they sum to one."""
    words = len(twin)
    hidden = jnp.broadcast_to(jnp.asarray(state, jnp.float32), (words, 1, len(state)))
    log_probs = -loss(output, hidden, jnp.arange(words, dtype=jnp.int32)[:, None], jnp.asarray(words))[:, 0]
    np.testing.assert_allclose(log_probs, twin, rtol=1e-5, atol=1e-5)
    assert np.exp(np.asarray(log_probs, np.float64)).sum() == pytest.approx(1, abs=1e-5)
    np.testing.assert_allclose(log_probs_of_words(output, hidden[0, 0]), twin, rtol=1e-5, atol=1e-5)


def assert_same_loss(output, hidden, targets, other: Callable) -> None:
    """Some weighted sum of the losses has the value and the gradients of `other(output, hidden)`, a loss by step."""
    params, constants = split_constants(output)
    weighting = jnp.asarray(np.random.default_rng(1).normal(size=targets.shape), jnp.float32)

    def summed(losses: Callable):
        def value(params, hidden):
            return jnp.sum(weighting * losses(eqx.combine(params, constants), hidden))

        return jax.tree.leaves(jax.jit(jax.value_and_grad(value, argnums=(0, 1)))(params, hidden))

    own = summed(lambda output, hidden: output.loss(hidden, targets, jnp.asarray(len(targets))))
    for one, another in zip(own, summed(other), strict=True):
        np.testing.assert_allclose(one, another, rtol=1e-4, atol=1e-5 * float(np.abs(another).max()))
