"""The recurrence kernels against a loop in NumPy float64, and against each other."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from longspan.ops import recurrence

ACTIVATIONS = {
    "tanh": (np.tanh, lambda z: 1 - np.tanh(z) ** 2),
    "sigmoid": (lambda z: 1 / (1 + np.exp(-z)), lambda z: np.exp(-z) / (1 + np.exp(-z)) ** 2),
    "rectifier": (lambda z: np.maximum(z, 0), lambda z: (z > 0).astype(float)),
}
# time, lanes, units, length: one of everything, vector widths exactly and not, short, empty and full chunks
SHAPES = [
    (1, 1, 1, 1), (5, 1, 1, 4), (6, 1, 64, 6), (7, 1, 37, 5), (3, 3, 5, 0), (8, 2, 24, 8), (4, 13, 50, 4),
]  # fmt: skip


def make(time, lanes, units, length, *, seed=0, leaky=True):
    rng = np.random.default_rng([seed, time, lanes, units])
    drive, tangent = rng.normal(size=(2, time, lanes, units))
    drive[length:] = np.nan  # ignored steps may hold anything
    tangent[length:] = np.nan
    return {
        "drive": drive,
        "tangent": tangent,
        "first": rng.normal(size=(lanes, units)),
        "recurrent": rng.normal(size=(units, units)) / np.sqrt(units),
        "leak": rng.uniform(0, 0.9, size=units) * leaky,
        "resets": rng.random((time, lanes)) < 0.25,
        "length": length,
    }


def loop(case, activation):
    """The definition, step by step, lane by lane."""
    function, slope = ACTIVATIONS[activation]
    hidden, gain = np.zeros_like(case["drive"]), np.zeros_like(case["drive"])
    state = case["first"].copy()
    for t in range(case["length"]):
        for lane in range(state.shape[0]):
            old = state[lane] * (0 if case["resets"][t, lane] else 1)
            z = old @ case["recurrent"] + case["drive"][t, lane]
            state[lane] = case["leak"] * old + (1 - case["leak"]) * function(z)
            hidden[t, lane], gain[t, lane] = state[lane], (1 - case["leak"]) * slope(z)
    return hidden, gain


def loop_tangent(case, gain):
    result = np.zeros_like(gain)
    state = np.zeros_like(gain[0])
    for t in range(case["length"]):
        for lane in range(state.shape[0]):
            old = state[lane] * (0 if case["resets"][t, lane] else 1)
            c = case["tangent"][t, lane]
            state[lane] = case["leak"] * old + gain[t, lane] * (old @ case["recurrent"] + c)
        result[t] = state
    return result


def loop_adjoint(case, gain, cotangent):
    result = np.zeros_like(gain)
    error = np.zeros_like(gain[0])
    for t in reversed(range(case["length"])):
        error = cotangent[t] + error
        result[t] = gain[t] * error
        handed = case["leak"] * error + result[t] @ case["recurrent"].T
        error = np.where(case["resets"][t][:, None], 0, handed)
    return result


def floats(*arrays):
    return [jnp.asarray(array, jnp.float32) for array in arrays]


def run_forward(case, activation):
    drive, first, recurrent, leak = floats(*(case[name] for name in ("drive", "first", "recurrent", "leak")))
    resets, length = jnp.asarray(case["resets"]), jnp.int32(case["length"])
    return recurrence.forward(drive, first, recurrent, leak, resets, length, activation=activation)


@pytest.mark.parametrize(("shape", "activation"), [*zip(SHAPES, itertools.cycle(ACTIVATIONS), strict=False)], ids=str)
def test_forward_follows_its_definition(path, shape, activation):
    case = make(*shape)
    for got, want in zip(run_forward(case, activation), loop(case, activation), strict=True):
        np.testing.assert_allclose(got, want, rtol=2e-5, atol=2e-6)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_tangent_follows_its_definition_and_adjoint_transposes_it(path, shape):
    case = make(*shape)
    _, gain = loop(case, "tanh")
    want = loop_tangent(case, gain)
    gain[case["length"] :] = np.nan
    residuals = (*floats(case["recurrent"], case["leak"], gain), jnp.asarray(case["resets"]), case["length"])
    got = recurrence.tangent(*residuals, *floats(case["tangent"]))
    np.testing.assert_allclose(got, want, rtol=2e-5, atol=5e-6)

    cotangent = np.random.default_rng(1).normal(size=want.shape)
    cotangent[case["length"] :] = np.nan
    back = np.asarray(recurrence.adjoint(*residuals, *floats(cotangent)), np.float64)
    assert not back[case["length"] :].any()
    used = slice(None, case["length"])
    inner = np.vdot(want[used], cotangent[used])
    np.testing.assert_allclose(np.vdot(back[used], case["tangent"][used]), inner, rtol=1e-4, atol=1e-4)


def make_sparse(units, lanes=1, *, leaky):
    """Rectifiers of which few are on, but for two steps in the middle; some units leak, or none."""
    case = make(12, lanes, units, 11)
    rng = np.random.default_rng(units)
    on = rng.random(case["drive"].shape) < 0.1
    on[5:7] = rng.random(on[5:7].shape) < 0.8
    case["drive"] = np.where(on, 1.0, -9.0) + 0.1 * rng.normal(size=on.shape)
    case["first"] = np.where(on[0], case["first"], 0)
    case["leak"] = np.where(rng.random(units) < (0.1 if leaky else 0), case["leak"], 0)
    return case


@pytest.mark.parametrize("leaky", [False, True], ids=["without leaks", "with leaks"])
@pytest.mark.parametrize(
    ("units", "lanes", "threads"), [(64, 1, "1"), (37, 1, "1"), (5, 1, "1"), (250, 1, "2"), (37, 3, "1")]
)
def test_walks_and_gradients_of_rectifiers_that_are_mostly_off(native_path, units, lanes, leaky, threads, monkeypatch):
    """Whichever rows are read and whichever are passed over, the sums are those of the definition."""
    monkeypatch.setenv("LONGSPAN_THREADS", threads)
    case = make_sparse(units, lanes, leaky=leaky)
    hidden, gain = loop(case, "rectifier")
    assert 0.05 < np.mean(gain != 0) < 0.4
    for got, want in zip(run_forward(case, "rectifier"), (hidden, gain), strict=True):
        np.testing.assert_allclose(got, want, rtol=2e-5, atol=1e-5)
    residuals = (*floats(case["recurrent"], case["leak"], gain), jnp.asarray(case["resets"]), case["length"])
    case["tangent"] = np.where(np.isnan(case["tangent"]), 0, case["tangent"])
    want = loop_tangent(case, gain)
    np.testing.assert_allclose(recurrence.tangent(*residuals, *floats(case["tangent"])), want, rtol=2e-5, atol=1e-4)
    cotangent = np.random.default_rng(1).normal(size=want.shape)
    back = np.asarray(recurrence.adjoint(*residuals, *floats(cotangent)), np.float64)
    expected = loop_adjoint(case, gain, cotangent)
    np.testing.assert_allclose(back, expected, rtol=1e-4, atol=1e-5 * np.abs(expected).max())
    before = np.where(case["resets"][..., None], 0, np.concatenate([case["first"][None], hidden[:-1]]))
    outer = recurrence.previous_outer(*floats(case["first"], hidden), jnp.asarray(case["resets"]), 11, *floats(back))
    expected = np.einsum("tbi,tbo->io", before[:11], back[:11])
    np.testing.assert_allclose(outer, expected, rtol=1e-4, atol=1e-5 * np.abs(expected).max())


def test_adjoint_is_the_transpose_entry_by_entry(path):
    case = make(4, 2, 3, 3)
    _, gain = loop(case, "sigmoid")
    residuals = (*floats(case["recurrent"], case["leak"], gain), jnp.asarray(case["resets"]), case["length"])
    basis = np.eye(gain.size, dtype=np.float32).reshape(-1, *gain.shape)
    columns, rows = (
        jax.jit(jax.vmap(lambda e, kernel=kernel: jnp.ravel(kernel(*residuals, e))))(basis)
        for kernel in (recurrence.tangent, recurrence.adjoint)
    )
    assert np.abs(columns).max() > 0.1
    np.testing.assert_allclose(rows, columns.T, atol=1e-6)


@pytest.mark.parametrize(("bad", "lanes"), [(np.nan, 1), (np.inf, 1), (-np.inf, 3)])
@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_values_that_are_not_finite_travel_as_in_the_twin(native_path, activation, bad, lanes):
    case = make(6, lanes, 11, 6, leaky=False)
    case["resets"][:] = False
    case["resets"][4, 0] = True  # a reset forgets even a NaN
    case["drive"][2, 0, 3] = bad
    drive, first, recurrent, leak = floats(*(case[name] for name in ("drive", "first", "recurrent", "leak")))
    arguments = (drive, first, recurrent, leak, jnp.asarray(case["resets"]), jnp.int32(6))
    want = recurrence.forward_twin(*arguments, activation=activation)
    got = recurrence.forward(*arguments, activation=activation)
    for one, other in zip(got, want, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)


def test_extreme_drives_saturate_exactly(path):
    drive = jnp.asarray([-1e30, -200.0, -90.0, -20.0, -1e-30, 0.0, 1e-30, 20.0, 90.0, 200.0, 1e30], jnp.float32)
    units = drive.size
    still = (jnp.zeros((1, units)), jnp.zeros((units, units)), jnp.zeros(units), jnp.zeros((1, 1), bool))
    for activation, (function, _) in ACTIVATIONS.items():
        with np.errstate(over="ignore"):
            want = function(np.asarray(drive, np.float64))
        hidden, gain = recurrence.forward(drive[None, None], *still, jnp.int32(1), activation=activation)
        np.testing.assert_allclose(hidden[0, 0], want, rtol=1e-6, atol=2e-38)  # below: flushed to zero
        assert np.all(gain >= 0)


def test_activations_are_accurate_everywhere(path):
    drive = np.concatenate([np.linspace(-30, 30, 4001), np.logspace(-20, 1, 400), -np.logspace(-20, 1, 400)])
    drive = drive.astype(np.float32)
    units, lanes = 1, drive.size
    still = (
        jnp.zeros((lanes, units)),
        jnp.zeros((units, units)),
        jnp.zeros(units),
        jnp.zeros((1, lanes), bool),
    )
    for activation in ("tanh", "sigmoid"):
        want = ACTIVATIONS[activation][0](drive.astype(np.float64))
        hidden, _ = recurrence.forward(drive[None, :, None], *still, jnp.int32(1), activation=activation)
        np.testing.assert_allclose(hidden[0, :, 0], want, rtol=1e-6)


@pytest.mark.parametrize("shape", [(1, 1, 1, 1), (7, 1, 37, 5), (4, 3, 12, 4), (3, 3, 5, 0), (500, 2, 9, 470)], ids=str)
def test_products_with_the_states_before_each_step(path, shape):
    case = make(*shape)
    case["resets"][5:300] = False  # so that a long walk has stretches without any, whose states are read in place
    hidden, _ = loop(case, "tanh")
    length, resets = case["length"], case["resets"]
    before = np.concatenate([case["first"][None], hidden[:-1]]) * ~resets[..., None]
    hidden[length:] = np.nan
    first, states, weights, cotangent = floats(case["first"], hidden, case["recurrent"], case["tangent"])
    got = recurrence.previous_product(first, states, resets, length, weights)
    np.testing.assert_allclose(got[:length], before[:length] @ case["recurrent"], rtol=1e-5, atol=1e-5)
    assert not np.any(got[length:])
    got = recurrence.previous_outer(first, states, resets, length, cotangent)
    want = np.einsum("tbi,tbo->io", before[:length], case["tangent"][:length])
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)


def test_length_beyond_the_chunk_means_all_of_it(path):
    case = make(3, 2, 5, 3)
    full = run_forward(case, "tanh")
    case["length"] = 99
    for one, other in zip(run_forward(case, "tanh"), full, strict=True):
        np.testing.assert_array_equal(one, other)


def test_vmap_and_jit_agree_with_a_loop(path):
    cases = [make(5, 2, 9, 4, seed=seed) for seed in range(3)]
    want = np.stack([run_forward(case, "tanh")[0] for case in cases])
    stacked = [jnp.stack(floats(*(case[name] for case in cases))) for name in ("drive", "first", "recurrent", "leak")]
    resets = jnp.stack([jnp.asarray(case["resets"]) for case in cases])

    def run(drive, first, recurrent, leak, resets):
        return recurrence.forward(drive, first, recurrent, leak, resets, jnp.int32(4), activation="tanh")[0]

    np.testing.assert_allclose(jax.jit(jax.vmap(run))(*stacked, resets), want, rtol=1e-5, atol=1e-6)
