"""The derivative rule of the leaky recurrence against BPTT by hand, lax.scan autodiff and the cell's own step."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.test_util import check_grads

from longspan.models.cells import LeakyCell, draw_leaks, draw_recurrent
from longspan.models.parts import Constant
from longspan.ops.recurrence import leaky_scan, penalized_scan
from tests.support import reference

ACTIVATIONS = ("tanh", "sigmoid", "rectifier")


@pytest.fixture(params=[(1, 1, 1), (7, 1, 5), (6, 3, 4)], ids=str)
def problem(request, random):
    """Drive, first state, recurrent matrix, leak and resets of some size."""
    steps, lanes, size = request.param
    return {
        "drive": random.normal(size=(steps, lanes, size)).astype(np.float32),
        "first": random.normal(size=(lanes, size)).astype(np.float32),
        "recurrent": (random.normal(size=(size, size)) / np.sqrt(size)).astype(np.float32),
        "leak": random.uniform(0, 0.5, size=size).astype(np.float32),
        "resets": random.random((steps, lanes)) < 0.3,
    }


def plain_scan(activation, drive, first, recurrent, leak, resets, length):
    """The same recurrence as an ordinary scan that JAX differentiates itself."""
    function = {"tanh": jnp.tanh, "sigmoid": jax.nn.sigmoid, "rectifier": jax.nn.relu}[activation]

    def step(state, now):
        drive_now, reset = now
        state = jnp.where(reset[:, None], 0, state)
        state = leak[None] * state + (1 - leak[None]) * function(state @ recurrent + drive_now)
        return state, state

    hidden = jax.lax.scan(step, first, (drive, resets))[1]
    return jnp.where((jnp.arange(len(drive)) < length)[:, None, None], hidden, 0)


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_states_equal_the_numpy_twin(activation, problem):
    expected = reference.leaky_states(activation, **problem)
    found = leaky_scan(activation, *problem.values(), len(expected))
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_gradients_equal_back_propagation_by_hand(activation, problem, random):
    cotangent = random.normal(size=problem["drive"].shape)
    expected = reference.leaky_gradients(activation, **problem, hidden_cotangent=cotangent)

    def run(drive, first, recurrent):
        return leaky_scan(activation, drive, first, recurrent, problem["leak"], problem["resets"], len(drive))

    _, pull = jax.vjp(run, problem["drive"], problem["first"], problem["recurrent"])
    for found, wanted in zip(pull(jnp.asarray(cotangent, jnp.float32)), expected, strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("length", [0, 3, 6])
def test_tangent_gradient_and_gauss_newton_product_equal_autodiff_of_a_plain_scan(activation, length, random):
    steps, lanes, size = 6, 2, 4
    primals = [
        jnp.asarray(random.normal(size=shape), jnp.float32)
        for shape in ((steps, lanes, size), (lanes, size), (size, size))
    ]
    changes = [jnp.asarray(random.normal(size=p.shape), jnp.float32) for p in primals]
    leak = jnp.asarray(random.uniform(0, 0.5, size), jnp.float32)
    resets = jnp.asarray(random.random((steps, lanes)) < 0.3)

    def gauss_newton(scan):
        run = lambda *moving: scan(activation, *moving, leak, resets, length)  # noqa: E731
        hidden, tangent = jax.jvp(run, primals, changes)
        _, pull = jax.vjp(run, *primals)
        return hidden, tangent, pull(jnp.cos(hidden) * tangent)

    for found, wanted in zip(
        jax.tree.leaves(gauss_newton(leaky_scan)), jax.tree.leaves(gauss_newton(plain_scan)), strict=True
    ):
        np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)


def test_rule_agrees_with_finite_differences(random):
    drive = jnp.asarray(random.normal(size=(5, 2, 3)), jnp.float32)
    recurrent = jnp.asarray(random.normal(size=(3, 3)), jnp.float32)
    leak, resets = jnp.array([0.0, 0.1, 0.4]), jnp.zeros((5, 2), bool)
    run = lambda drive, recurrent: leaky_scan("tanh", drive, jnp.ones((2, 3)), recurrent, leak, resets, 5)  # noqa: E731
    check_grads(run, (drive, recurrent), order=1, modes=("fwd", "rev"), atol=2e-2, rtol=2e-2)


def test_states_and_gradients_ignore_what_lies_beyond_the_length(problem):
    steps = len(problem["drive"])
    length = steps // 2
    poisoned = problem["drive"].copy()
    poisoned[length:] = 1e6

    def total(drive, recurrent):
        hidden = leaky_scan("tanh", drive, problem["first"], recurrent, problem["leak"], problem["resets"], length)
        return jnp.sum(jnp.sin(hidden)), hidden

    gradient = jax.grad(total, argnums=(0, 1), has_aux=True)
    (clean_drive, clean_recurrent), hidden = gradient(problem["drive"], problem["recurrent"])
    (found_drive, found_recurrent), found_hidden = gradient(poisoned, problem["recurrent"])
    np.testing.assert_array_equal(hidden[length:], 0)
    np.testing.assert_array_equal(found_hidden, hidden)
    np.testing.assert_array_equal(found_recurrent, clean_recurrent)
    np.testing.assert_array_equal(found_drive[length:], 0)
    np.testing.assert_array_equal(found_drive, clean_drive)


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("kind", ["frames", "symbols"])
def test_fused_run_equals_the_generic_scan_over_the_cells_own_step(activation, kind, random):
    keys = jax.random.split(jax.random.key(1), 3)
    cell = LeakyCell(
        input_weights=jax.random.normal(keys[0], (9, 6)),
        recurrent=draw_recurrent("orthogonal", 6, 0.9, key=keys[1]),
        bias=jnp.linspace(-1, 1, 6),
        leak=Constant(draw_leaks(6, 0.5, 0.02, 0.2, key=keys[2])),
        activation=activation,
    )
    frames = random.random((8, 3, 9)) < 0.3
    inputs = (
        jnp.asarray(frames, jnp.uint8) if kind == "frames" else jnp.asarray(random.integers(0, 9, (8, 3)), jnp.int32)
    )
    resets = jnp.asarray(random.random((8, 3)) < 0.2)
    state = jnp.asarray(random.normal(size=(3, 6)), jnp.float32)
    fused_state, fused = cell.run(state, inputs, resets, jnp.asarray(8))
    generic_state, generic = super(LeakyCell, cell).run(state, inputs, resets, jnp.asarray(8))
    np.testing.assert_allclose(fused, generic, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(fused_state, generic_state, rtol=1e-5, atol=1e-6)


def test_leaks_fall_on_the_chosen_share_and_interval():
    leaks = np.asarray(draw_leaks(200, 0.25, 0.02, 0.2, key=jax.random.key(0)))
    assert np.count_nonzero(leaks) == 50
    assert leaks[leaks > 0].min() >= 0.02
    assert leaks.max() < 0.2
    assert len(np.unique(leaks)) == 51


@pytest.mark.parametrize("kind", ["orthogonal", "normal", "identity"])
def test_recurrent_matrices_have_the_asked_spectral_radius(kind):
    matrix = np.asarray(draw_recurrent(kind, 200, 0.7, key=jax.random.key(0)))
    assert abs(np.abs(np.linalg.eigvals(matrix)).max() - 0.7) < 0.08


@pytest.mark.parametrize("first_moves", [False, True])
def test_the_penalty_on_states_is_the_weighted_sum_and_so_is_its_gradient(problem, random, first_moves):
    """Against autodiff of the plain scan, with rectifiers, whose states are often exactly zero."""
    length = len(problem["drive"])
    weight = random.uniform(0, 1, problem["resets"].shape).astype(np.float32)
    cotangent = random.normal(size=problem["drive"].shape).astype(np.float32)
    fixed = (problem["leak"], problem["resets"], length)

    def ours(drive, recurrent, first):
        hidden, penalty = penalized_scan("rectifier", drive, first, recurrent, *fixed, weight)
        return jnp.vdot(cotangent, hidden) + 3 * penalty

    def plain(drive, recurrent, first):
        hidden = plain_scan("rectifier", drive, first, recurrent, *fixed)
        return jnp.vdot(cotangent, hidden) + 3 * jnp.sum(weight[..., None] * jnp.abs(hidden))

    point = (problem["drive"], problem["recurrent"], problem["first"])
    moving = (0, 1, 2) if first_moves else (0, 1)
    value, gradients = jax.value_and_grad(ours, moving)(*point)
    wanted, wanted_gradients = jax.value_and_grad(plain, moving)(*point)
    np.testing.assert_allclose(value, wanted, rtol=1e-5, atol=1e-5)
    for found, expected in zip(gradients, wanted_gradients, strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)
    tangent = tuple(random.normal(size=leaf.shape).astype(np.float32) for leaf in point[:2])
    _, change = jax.jvp(lambda drive, recurrent: ours(drive, recurrent, point[2]), point[:2], tangent)
    np.testing.assert_allclose(
        change, sum(np.vdot(t, g) for t, g in zip(tangent, wanted_gradients[:2], strict=True)), rtol=1e-3, atol=1e-4
    )
