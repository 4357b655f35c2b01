"""The optimizer as a whole and its small parts: damping, step choice, preconditioner."""

import copy
import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from longspan.errors import InputError
from longspan.optim import conjugate_gradient as cg
from longspan.optim.conjugate_gradient import Interrupted, Iterate
from longspan.optim.curvature import WithStructure, inverse_preconditioner, mean_squared_gradients
from longspan.optim.hessian_free import HessianFree, HessianFreeSettings
from longspan.optim.steps import adjust_damping, backtrack, line_search, reduction_ratio

HIDDEN = 6


def recurrent_problem(seed=0, examples=24, scale=1.5):
    """Recall the first input's sign after some steps; the large weights make plain Newton steps overshoot."""
    rng = np.random.default_rng(seed)
    shapes = {"u": (1, HIDDEN), "w": (HIDDEN, HIDDEN), "v": (HIDDEN, 1)}
    params = {name: jnp.asarray(scale * rng.normal(size=s), jnp.float32) for name, s in shapes.items()}
    inputs = rng.normal(size=(7, examples, 1))
    batch = {"x": jnp.asarray(inputs, jnp.float32), "y": jnp.asarray(inputs[0] > 0, jnp.float32)}
    return params, batch


AXES = {"x": 1, "y": 0}


def recurrent_network(params, batch):
    def step(hidden, x):
        pre = hidden @ params["w"] + x @ params["u"]
        return jnp.tanh(pre), pre

    first = jnp.zeros((batch["x"].shape[1], HIDDEN))
    last, pre = jax.lax.scan(step, first, batch["x"])
    return WithStructure(last @ params["v"], pre, 1 - jnp.tanh(pre) ** 2)


def binary_loss(outputs, batch):
    return jnp.mean(jax.nn.softplus(outputs) - batch["y"] * outputs)


@jax.jit
def recurrent_value(params, batch):
    return binary_loss(recurrent_network(params, batch).outputs, batch)


@functools.cache
def compiled():
    return HessianFree(recurrent_network, binary_loss, batch_axis=AXES)


def optimizer(**settings):
    """An optimizer with settings that ask for no other compiled code, so that the tests share it."""
    method = copy.copy(compiled())
    method.settings = HessianFreeSettings(**settings)
    return method


def take(batch, start, stop):
    return {"x": batch["x"][:, start:stop], "y": batch["y"][start:stop]}


def assert_same(tree, other):
    jax.tree.map(np.testing.assert_array_equal, tree, other)


def test_linear_regression_reaches_the_least_squares_solution():
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(30, 5)), rng.normal(size=30)
    method = HessianFree(lambda w, b: b["x"] @ w, lambda out, b: jnp.mean((out - b["y"]) ** 2))
    batch = {"x": jnp.asarray(x, jnp.float32), "y": jnp.asarray(y, jnp.float32)}
    params = jnp.zeros(5)
    state = method.init(params)
    for _ in range(15):
        params, state, info = method.update(params, state, batch)
        # The model of a quadratic is exact, so all of the promise is kept.
        assert not info.accepted or info.ratio == pytest.approx(1, abs=0.05) or info.gradient_norm < 1e-3
    np.testing.assert_allclose(params, np.linalg.lstsq(x, y)[0], rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("exponent", [0.0, 0.75])
@pytest.mark.parametrize("seed", range(3))
def test_the_objective_never_rises_on_the_gradient_batch(seed, exponent):
    params, data = recurrent_problem(seed, scale=3.0)
    method = optimizer(initial_damping=1e-3, preconditioner_exponent=exponent)
    state = method.init(params)
    infos = []
    for _ in range(25):
        params_before = params
        params, state, info = method.update(params, state, data, take(data, 0, 8))
        infos.append(info)
        assert info.objective_before == pytest.approx(float(recurrent_value(params_before, data)), rel=1e-5)
        assert info.objective_after == pytest.approx(float(recurrent_value(params, data)), rel=1e-5)
        assert info.objective_after <= info.objective_before
        if not info.accepted:
            assert_same(params, params_before)
    # The problem must be hard enough for the safeguards to have had work.
    assert any(info.share < 1 or info.backtracks > 0 for info in infos)
    assert infos[-1].objective_after < 0.5 * infos[0].objective_before


def test_a_step_into_the_undefined_is_rejected_and_damped():
    def network(params, batch):
        return jnp.where(jnp.abs(params) > 1e-4, jnp.nan, params)

    method = HessianFree(network, lambda out, b: jnp.sum((out - b[0]) ** 2), HessianFreeSettings())
    params = jnp.zeros(2)
    state = method.init(params)
    moved, after, info = method.update(params, state, jnp.ones((1, 2)))
    assert not info.accepted
    assert math.isnan(info.ratio)
    assert_same(moved, params)
    assert float(after.damping) == pytest.approx(1.5 * float(state.damping))


def test_at_a_minimum_nothing_happens():
    method = HessianFree(lambda w, b: w, lambda out, b: jnp.mean(out**2))
    params = jnp.zeros(3)
    moved, _, info = method.update(params, method.init(params), jnp.zeros((1, 1)))
    assert_same(moved, params)
    assert info.iterations == 0
    assert not info.accepted


def test_parameters_without_an_objective_are_reported():
    method = HessianFree(lambda w, b: w, lambda out, b: jnp.sum(jnp.log(out)))
    params = -jnp.ones(2)
    with pytest.raises(FloatingPointError, match="nan"):
        method.update(params, method.init(params), jnp.zeros((1, 1)))


def test_integer_parameters_are_refused():
    with pytest.raises(InputError, match="floating point"):
        optimizer().init({"table": jnp.arange(3)})


def test_settings_out_of_range_are_refused():
    with pytest.raises(InputError, match="line_search_shrink must lie"):
        HessianFreeSettings(line_search_shrink=1.0)
    with pytest.raises(InputError, match="initial_damping"):
        HessianFreeSettings(initial_damping=math.nan)


def test_a_run_resumed_from_its_arrays_is_the_same_run():
    params, batch = recurrent_problem(1)
    method = optimizer()
    state = method.init(params)
    for _ in range(3):
        params, state, _ = method.update(params, state, batch)
    leaves, structure = jax.tree.flatten((params, state))
    stored = [np.asarray(leaf).copy() for leaf in leaves]
    params_again, state_again = jax.tree.unflatten(structure, [jnp.asarray(leaf) for leaf in stored])
    fresh = optimizer()
    for _ in range(3):
        params, state, info = method.update(params, state, batch)
        params_again, state_again, info_again = fresh.update(params_again, state_again, batch)
        assert info == info_again
    assert_same((params, state), (params_again, state_again))
    assert int(state.step) == 6


def test_an_interrupted_update_leaves_everything_as_it_was():
    params, batch = recurrent_problem(2)
    method = optimizer(burst_seconds=0.0)
    params, state, _ = method.update(params, method.init(params), batch)
    copies = jax.tree.map(np.array, (params, state))
    looks = []

    def should_stop():
        looks.append(None)
        return len(looks) > 3

    with pytest.raises(Interrupted):
        method.update(params, state, batch, should_stop=should_stop)
    assert_same((params, state), copies)
    assert len(looks) == 4


def test_updates_compile_nothing_anew():
    params, batch = recurrent_problem(3)
    method = optimizer(preconditioner_exponent=0.75)
    params, state, _ = method.update(params, method.init(params), batch)
    before = cg._burst._cache_size()
    for _ in range(2):
        params, state, _ = method.update(params, state, batch)
    assert cg._burst._cache_size() == before


def test_slices_change_the_memory_and_not_the_update():
    params, batch = recurrent_problem(4, scale=0.5)
    results = []
    sliced = HessianFree(recurrent_network, binary_loss, HessianFreeSettings(slice_size=4), AXES)
    for method in (optimizer(), sliced):
        moved, _, info = method.update(params, method.init(params), batch, take(batch, 0, 8))
        results.append((moved, info.objective_after))
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=2e-3, atol=1e-4), *results)


def test_structural_damping_holds_the_hidden_units_still():
    params, batch = recurrent_problem(5, scale=0.7)
    before = np.asarray(recurrent_network(params, batch).structural)
    changes = []
    for mu in (1e-6, 30.0):
        method = optimizer(structural_damping=mu, initial_damping=0.1)
        moved, _, info = method.update(params, method.init(params), batch)
        assert info.accepted
        after = np.asarray(recurrent_network(moved, batch).structural)
        changes.append(np.mean((1 - np.tanh(before) ** 2) * (after - before) ** 2))
    assert changes[1] < 0.5 * changes[0]


def test_the_next_solve_starts_from_the_last_solution():
    params, batch = recurrent_problem(6, scale=0.5)
    method = optimizer(line_search_tries=1, sufficient_decrease=0.999)  # rejects, so the problem stays the same
    state = method.init(params)
    moved, state, first = method.update(params, state, batch)
    assert not first.accepted
    assert_same(moved, params)
    warm = method.update(params, state, batch)[2]
    cold = method.update(params, method.init(params)._replace(damping=state.damping), batch)[2]
    assert warm.iterations < cold.iterations


@pytest.mark.parametrize("at_a_time", [1, 5])
def test_squared_gradients_are_those_of_single_examples(at_a_time):
    params, batch = recurrent_problem(7)

    def value(params, batch):
        return binary_loss(recurrent_network(params, batch).outputs, batch)

    made = jax.jit(lambda p, b: mean_squared_gradients(value, p, b, at_a_time, AXES))(params, batch)
    gradient = jax.jit(jax.grad(value))
    squares = [np.square(np.asarray(gradient(params, take(batch, i, i + 1))["w"])) for i in range(24)]
    np.testing.assert_allclose(made["w"], np.mean(squares, axis=0), rtol=1e-4, atol=1e-7)


def test_preconditioner_is_a_power_of_the_damped_diagonal():
    made = inverse_preconditioner({"w": jnp.array([0.0, 15.0])}, 1.0, exponent=0.75)
    np.testing.assert_allclose(made["w"], [1, 1 / 8], rtol=1e-6)


def test_own_squared_gradients_are_used():
    seen = []

    def squared_gradients(params, batch):
        seen.append(batch.shape)
        return jnp.ones_like(params)

    settings = HessianFreeSettings(preconditioner_exponent=0.75)
    method = HessianFree(lambda w, x: x @ w, lambda out, x: jnp.mean((out - 1) ** 2), settings, 0, squared_gradients)
    params = jnp.zeros(2)
    method.update(params, method.init(params), jnp.ones((4, 2)), jnp.ones((3, 2)))
    assert seen == [(3, 2)]


@pytest.mark.parametrize(
    ("ratio", "expected"), [(-1, 1.5), (0.24, 1.5), (0.25, 1), (0.75, 1), (0.76, 1 / 1.5), (math.nan, 1.5)]
)
def test_damping_follows_levenberg_and_marquardt(ratio, expected):
    assert adjust_damping(1.0, ratio) == pytest.approx(expected)


def test_damping_keeps_its_floor():
    assert adjust_damping(1e-3, 1.0, floor=9e-4) == 9e-4


def test_the_ratio_compares_change_with_promise():
    assert reduction_ratio(before=3.0, after=2.5, predicted=-1.0) == 0.5
    assert reduction_ratio(before=3.0, after=3.5, predicted=-1.0) == -0.5
    assert math.isnan(reduction_ratio(before=3.0, after=2.5, predicted=0.0))


def iterates(*values):
    return [Iterate(iteration, iteration, value) for iteration, value in enumerate(values, start=1)]


@pytest.mark.parametrize(
    ("objectives", "chosen"),
    [
        ({1: 5, 2: 4, 3: 3, 4: 2}, 4),
        ({1: 5, 2: 3, 3: 4, 4: 6}, 2),
        ({1: 1, 2: 9, 3: 4, 4: 6}, 3),  # stops at the first rise, though an earlier one is lower still
        ({1: 5, 2: 4, 3: math.nan, 4: math.inf}, 2),
        ({1: math.nan, 2: 4, 3: 5, 4: 6}, 2),
    ],
)
def test_backtracking_walks_while_the_objective_falls(objectives, chosen):
    result = backtrack(iterates(-1, -2, -3, -4), objectives.__getitem__)
    assert result is not None
    assert result.iterate.iteration == chosen
    assert result.backtracks == 4 - chosen


def test_iterates_that_do_not_descend_are_not_looked_at():
    result = backtrack(iterates(2, 1, -1, -2), {3: 8, 4: 9}.__getitem__)
    assert result is not None
    assert result.iterate.iteration == 3
    assert backtrack(iterates(2, 1), {}.__getitem__) is None
    assert backtrack([], {}.__getitem__) is None


def test_line_search_takes_the_first_share_that_lowers_enough():
    asked = []

    def objective(share):
        asked.append(share)
        return 10 - share + 4 * share**2

    found = line_search(objective, before=10.0, slope=-1.0, shrink=0.5, sufficient=0.1)
    # 10 - s + 4 s^2 <= 10 - 0.1 s holds from s = 0.225 downwards.
    assert found.share == 0.125
    assert found.value == objective(0.125)
    assert found.whole == 13
    assert asked[:-1] == [1, 0.5, 0.25, 0.125]


@pytest.mark.parametrize("after", [11.0, 10.0, math.nan, math.inf])
def test_line_search_rejects_what_never_lowers(after):
    found = line_search(lambda share: after, before=10.0, slope=-1.0, tries=7)
    assert found.share == 0
    assert found.value == 10.0
