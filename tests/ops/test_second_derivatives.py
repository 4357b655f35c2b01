"""Second derivatives of every family against JAX's own of a plain form, natively and in XLA."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from longspan.ops import factored, outputs, tree
from longspan.ops.linear import sum_rows
from longspan.ops.recurrence import leaky_scan, leaky_trace, penalized_scan

RNG = np.random.default_rng(0)
TIME, LANES, UNITS = 4, 2, 3
DRIVE, FIRST, RECURRENT = (
    jnp.asarray(RNG.normal(size=shape), jnp.float32) for shape in [(TIME, LANES, UNITS), (LANES, UNITS), (UNITS, UNITS)]
)
LEAK = jnp.array([0.0, 0.2, 0.5])
RESETS = jnp.asarray(RNG.random((TIME, LANES)) < 0.3)


def plain_walk(drive, first, recurrent):
    """Hidden states and pre-activations of the leaky recurrence, as a scan that JAX differentiates itself."""

    def step(state, now):
        drive_now, reset = now
        state = jnp.where(reset[:, None], 0, state)
        inner = state @ recurrent + drive_now
        state = LEAK[None] * state + (1 - LEAK[None]) * jnp.tanh(inner)
        return state, (state, inner)

    return jax.lax.scan(step, first, (drive, RESETS))[1]


def scanned(drive, first, recurrent):
    return jnp.sum(jnp.sin(leaky_scan("tanh", drive, first, recurrent, LEAK, RESETS, TIME)))


def penalized(drive, first, recurrent):
    hidden, penalty = penalized_scan("tanh", drive, first, recurrent, LEAK, RESETS, TIME, jnp.ones((TIME, LANES)))
    return jnp.sum(jnp.sin(hidden)) + penalty


def traced(drive, first, recurrent):
    hidden, inner, _ = leaky_trace("tanh", drive, first, recurrent, LEAK, RESETS, TIME)
    return jnp.sum(hidden * inner**2)


PLAIN = {
    scanned: lambda *point: jnp.sum(jnp.sin(plain_walk(*point)[0])),
    penalized: lambda *point: jnp.sum(jnp.sin(plain_walk(*point)[0]) + jnp.abs(plain_walk(*point)[0])),
    traced: lambda *point: jnp.sum(plain_walk(*point)[0] * plain_walk(*point)[1] ** 2),
}
FORWARD_OVER_REVERSE = jax.hessian
REVERSE_OVER_REVERSE = lambda f, argnums: jax.jacrev(jax.grad(f, argnums), argnums)  # noqa: E731


@pytest.mark.parametrize("second", [FORWARD_OVER_REVERSE, REVERSE_OVER_REVERSE], ids=["forward", "reverse"])
@pytest.mark.parametrize("ours", PLAIN, ids=lambda function: function.__name__)
def test_of_the_recurrence(either_path, ours, second):
    got, want = (second(function, (0, 1, 2))(DRIVE, FIRST, RECURRENT) for function in (ours, PLAIN[ours]))
    for one, other in zip(jax.tree.leaves(got), jax.tree.leaves(want), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-3, atol=1e-4)


def test_of_nade(either_path):
    keys, hidden = 5, 3
    shapes = [(TIME, 1, keys), (TIME, 1, hidden), (keys, hidden), (hidden, keys)]
    parameters = [jnp.asarray(RNG.normal(size=shape), jnp.float32) for shape in shapes]
    targets = jnp.asarray(RNG.random(shapes[0]) < 0.4, jnp.uint8)

    def plain(visible_bias, hidden_bias, weights, readout):
        added = targets[..., None].astype(jnp.float32) * weights[None, None]
        before = jnp.cumsum(added, axis=2) - added
        units = jax.nn.sigmoid(hidden_bias[:, :, None] + before)
        return jnp.sum(jnp.cos(visible_bias + jnp.einsum("tbkh,hk->tbk", units, readout)))

    def ours(*parameters):
        return jnp.sum(jnp.cos(outputs.nade_logits(*parameters, targets, TIME)))

    got, want = (jax.hessian(function, (1, 2, 3))(*parameters) for function in (ours, plain))
    for one, other in zip(jax.tree.leaves(got), jax.tree.leaves(want), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-3, atol=1e-4)


def test_of_a_softmax_over_a_range(either_path):
    hidden, weights, bias = (jnp.asarray(RNG.normal(size=shape), jnp.float32) for shape in [(4, 3), (6, 3), (6,)])
    target = jnp.array([0, 2, 4, 5])
    start, stop = jnp.array([0, 0, 3, 3]), jnp.array([3, 3, 6, 6])

    def plain(*floats):
        logits = floats[0] @ floats[1].T + floats[2][None]
        words = jnp.arange(6)[None]
        inside = (start[:, None] <= words) & (words < stop[:, None])
        normalizer = jax.nn.logsumexp(logits, axis=1, where=inside)
        return jnp.sum(jnp.exp(logits[jnp.arange(4), target] - normalizer))

    def ours(*floats):
        return jnp.sum(jnp.exp(factored.log_prob(*floats, target, start, stop)))

    got, want = (jax.hessian(function, (0, 1, 2))(hidden, weights, bias) for function in (ours, plain))
    for one, other in zip(jax.tree.leaves(got), jax.tree.leaves(want), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-3, atol=1e-4)


def test_of_logits_along_paths(either_path):
    hidden, weights, bias = (jnp.asarray(RNG.normal(size=shape), jnp.float32) for shape in [(4, 3), (5, 3), (5,)])
    nodes = jnp.array([[0, 1, 4], [0, 2, -1], [0, 2, 3], [0, -1, -1]])

    def plain(*floats):
        logits = floats[0] @ floats[1].T + floats[2][None]
        chosen = jnp.take_along_axis(logits, jnp.maximum(nodes, 0), axis=1)
        return jnp.sum(jnp.where(nodes >= 0, jax.nn.log_sigmoid(chosen), 0))

    def ours(*floats):
        return jnp.sum(jnp.where(nodes >= 0, jax.nn.log_sigmoid(tree.path_logits(*floats, nodes)), 0))

    got, want = (jax.hessian(function, (0, 1, 2))(hidden, weights, bias) for function in (ours, plain))
    for one, other in zip(jax.tree.leaves(got), jax.tree.leaves(want), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-3, atol=1e-4)


def test_of_rows_and_losses(either_path):
    weights, symbols = jnp.asarray(RNG.normal(size=(5, 4)), jnp.float32), jnp.array([[1], [4], [1]])
    targets = jnp.array([[0], [3], [2]])

    def ours(weights):
        return jnp.sum(outputs.softmax_loss(sum_rows(weights, symbols, 3), targets, jnp.ones((3, 1))) ** 2)

    def plain(weights):
        chosen = jax.nn.log_softmax(weights[symbols[:, 0]])[jnp.arange(3), targets[:, 0]]
        return jnp.sum(chosen**2)

    np.testing.assert_allclose(jax.hessian(ours)(weights), jax.hessian(plain)(weights), rtol=1e-3, atol=1e-4)
