"""Every operation refuses operands of a wrong rank, size or dtype, when it is traced, and alike on both paths.

Operands and mistakes are made from the contracts; the contracts are held to what the XLA twins compute.
"""

import ast
import inspect
import itertools
import re
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from longspan.errors import InputError
from longspan.models.cells import LeakyCell
from longspan.models.parts import Constant
from longspan.ops import backend, factored, gated, gibbs, lagging, linear, outputs, recurrence, tree, update
from longspan.ops.backend import CONTRACTS, OPERATIONS, saturated
from tests.ops import paths

FAMILIES = [linear, recurrence, lagging, gated, outputs, gibbs, factored, tree, update]
# All different, so that one axis cannot stand in for another.
AXES = ["time", "lane", "hidden", "input", "output", "key", "symbol", "step", "row", "number", "node", "depth"]
SIZES = dict(zip(AXES, (5, 3, 7, 4, 6, 8, 9, 10, 11, 2, 12, 13), strict=True)) | {"column": 14, "update": 15}
SIZES |= {"machine": 16, "unit": 17, "level": 18}
DTYPES = {"Float": "float32", "Integer": "int32", "Bool": "bool", "UInt8": "uint8", "UInt32": "uint32"}
WRONG_DTYPES = {
    "Float": ("int32", "bool", "complex64", "float16"),
    "Integer": ("float32", "bool"),
    "Bool": ("int32", "uint8", "float32"),
    "UInt8": ("float32", "bool", "int8"),
    "UInt32": ("float32", "int32", "bool"),
}
BEST = paths.runnable()[1:2]


def shape_of(form) -> tuple[int, ...]:
    return tuple(int(axis) if axis.isdecimal() else SIZES[axis] for axis in form.axes)


def draw(rng, name, form):
    """Values that mean something: a length within the chunk, one range for all steps, shares between 0 and 1."""
    shape = shape_of(form)
    if name in ("length", "start", "stop"):
        return jnp.full(shape, {"length": 4, "start": 0, "stop": SIZES["row"]}[name], jnp.int32)
    if form.kind == "Float":
        return jnp.asarray(rng.uniform(0.1, 0.9, shape), jnp.float32)
    return jnp.asarray(rng.integers(0, 2, shape), DTYPES[form.kind])


def operands_of(name, choice=0):
    """Operands that fulfill the contract, each in one of its forms."""
    rng = np.random.default_rng(0)
    forms = {operand: forms[choice % len(forms)] for operand, forms in CONTRACTS[name].operands.items()}
    return {operand: draw(rng, operand, form) for operand, form in forms.items()}, forms


def call(operation, operands):
    needs_activation = "activation" in operation.__wrapped__.__annotations__
    return operation(**operands, **({"activation": "tanh"} if needs_activation else {}))


def mistakes(operands, forms, contract):
    """One wrong operand at a time: as a struct, since only shapes and dtypes may count."""
    axes = list(itertools.chain.from_iterable(form.axes for form in forms.values()))
    for name, form in forms.items():
        shape, dtype = operands[name].shape, operands[name].dtype
        yield name, jax.ShapeDtypeStruct((1, *shape), dtype)
        if shape:
            yield name, jax.ShapeDtypeStruct(shape[1:], dtype)
        for place, axis in enumerate(form.axes):
            if axes.count(axis) > 1 or axis.isdecimal():
                for size in (1, shape[place] + 1, shape[place] - 1, 2 * shape[place]):
                    yield name, jax.ShapeDtypeStruct((*shape[:place], size, *shape[place + 1 :]), dtype)
        alone = sum(other.kind == "Float" for other in forms.values()) == 1
        right = {DTYPES[other.kind] for other in contract.operands[name] if other.axes == form.axes}
        for wrong in {*WRONG_DTYPES[form.kind]} - right:
            if not (wrong == "float16" and alone):
                yield name, jax.ShapeDtypeStruct(shape, wrong)


CASES = [
    (name, choice)
    for name, contract in CONTRACTS.items()
    for choice in range(max(len(forms) for forms in contract.operands.values()))
]


@pytest.mark.parametrize(("name", "choice"), CASES, ids=lambda value: str(value))
@pytest.mark.parametrize("native", BEST or [pytest.param("", marks=pytest.mark.skip("native kernels are not built"))])
def test_the_contract_describes_what_both_paths_compute(name, choice, native, monkeypatch):
    operation = OPERATIONS[name]
    operands, _ = operands_of(name, choice)
    paths.select(monkeypatch, "xla")
    want = jax.tree.leaves(call(operation, operands))  # with a wrong axis in the contract, JAX would raise
    paths.select(monkeypatch, native)
    got = jax.tree.leaves(call(operation, operands))
    for one, other in zip(got, want, strict=True):
        if other.size:  # what a native softmax keeps has no twin
            np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)
    for found, form in zip(want, CONTRACTS[name].results, strict=False):
        assert (found.shape, found.dtype) == (shape_of(form), "float32")


@pytest.mark.parametrize(("name", "choice"), CASES, ids=lambda value: str(value))
def test_every_wrong_rank_size_and_dtype_is_refused_with_the_same_words(name, choice, monkeypatch):
    operation = OPERATIONS[name]
    operands, forms = operands_of(name, choice)
    for operand, wrong in mistakes(operands, forms, CONTRACTS[name]):
        messages = set()
        for path in ["xla", *BEST]:
            paths.select(monkeypatch, path)
            with pytest.raises(InputError, match=f"^{name}: expected ") as caught:
                jax.eval_shape(lambda operands: call(operation, operands), operands | {operand: wrong})
            messages.add(str(caught.value))
        assert len(messages) == 1
        assert "\n" not in messages.pop()


@pytest.mark.parametrize(("name", "choice"), CASES, ids=lambda value: str(value))
@pytest.mark.parametrize("path", ["xla", *BEST])
def test_nothing_along_an_axis_is_computed_or_refused(name, choice, path, monkeypatch):
    paths.select(monkeypatch, path)
    operands, forms = operands_of(name, choice)
    for axis in {axis for form in forms.values() for axis in form.axes if not axis.isdecimal()}:
        empty = {
            operand: jnp.zeros([0 if own == axis else size for own, size in zip(form.axes, value.shape, strict=True)])
            for operand, form in forms.items()
            for value in [operands[operand]]
        }
        empty = {operand: value.astype(operands[operand].dtype) for operand, value in empty.items()}
        if axis in CONTRACTS[name].filled:
            with pytest.raises(InputError, match=f"^{name}: expected .* at least one {axis}, got none"):
                call(OPERATIONS[name], empty)
        else:
            jax.block_until_ready(call(OPERATIONS[name], empty))


def test_every_public_function_that_chooses_a_path_has_a_contract():
    leaves_in_lists = {"update.clip_nesterov", "update.clip_descend"}  # checked by hand, and below
    found = set()
    for module in FAMILIES:
        for name, function in inspect.getmembers(module, inspect.isfunction):
            own = function.__module__ == module.__name__ and not name.startswith("_")
            if own and "backend." in inspect.getsource(function):
                found.add(f"{module.__name__.rpartition('.')[2]}.{name}")
    assert found >= {"linear.product", "recurrence.forward", "factored.add_range_gradient"}
    assert found <= set(OPERATIONS) | leaves_in_lists


def test_every_native_handler_is_in_use_and_every_operation_has_one():
    bindings = Path(backend.__file__).parent / "native" / "bindings.cc"
    handlers = set(re.findall(r"OPERATION\(longspan_(\w+),", bindings.read_text()))
    asked = {
        node.args[0].value
        for module in FAMILIES
        for node in ast.walk(ast.parse(inspect.getsource(module)))
        if isinstance(node, ast.Call) and node.args and isinstance(node.args[0], ast.Constant)
        and isinstance(node.func, ast.Attribute) and node.func.attr in ("run", "call")
    }  # fmt: skip
    chosen = {f"{family}_{name}" for family in ("recurrence", "lstm", "gru") for name in recurrence.ACTIVATIONS}
    chosen |= {f"recurrence_{name}" for name in ("tangent", "adjoint", "penalized_adjoint")}
    chosen |= {f"{name}_bfloat16" for name in chosen if name.startswith("recurrence")}
    chosen |= {"sum_rows", "take_rows", "add_to_rows", "put_rows"}
    assert handlers == asked | chosen


def make_cell(**changes):
    rng = np.random.default_rng(0)
    arrays = {"input_weights": (5, 8), "recurrent": (8, 8), "bias": (8,), "leak": (8,)}
    leaves = {name: jnp.asarray(rng.uniform(-0.5, 0.5, shape), jnp.float32) for name, shape in arrays.items()} | changes
    return LeakyCell(**leaves | {"leak": Constant(leaves["leak"])}, activation="tanh")


def run_cell(cell, state=None, inputs=None, resets=None):
    time, lanes = 6, 2
    state = jnp.zeros((lanes, 8)) if state is None else state
    inputs = jnp.ones((time, lanes, 5)) if inputs is None else inputs
    resets = jnp.zeros((time, lanes), bool) if resets is None else resets
    return cell.run(state, inputs, resets, jnp.asarray(time))[1]


@pytest.mark.parametrize(
    ("cell", "run", "words"),
    [
        ({"leak": jnp.zeros(())}, {}, r"leak to be float32\[hidden=8\], got float32\[\]"),
        ({"leak": jnp.zeros(1)}, {}, r"leak to be float32\[hidden=8\], got float32\[1\]"),
        ({}, {"resets": jnp.zeros((6, 1), bool)}, r"resets to be bool\[time=6, lane=2\], got bool\[6, 1\]"),
        ({"recurrent": jnp.zeros((8, 6))}, {}, r"recurrent to be float32\[hidden=8, hidden=8\], got float32\[8, 6\]"),
        ({"recurrent": jnp.zeros((6, 6))}, {}, "recurrent"),
        ({"recurrent": jnp.zeros((16, 16))}, {}, "recurrent"),
        ({"bias": jnp.zeros(6)}, {}, r"bias to be float32\[output=8\], got float32\[6\]"),
        ({}, {"state": jnp.zeros((3, 8))}, "first"),
        ({}, {"inputs": jnp.ones((6, 2, 3))}, "weights"),
        ({}, {"resets": jnp.zeros((6, 2), jnp.int32)}, "resets"),
        ({"recurrent": jnp.zeros((8, 8), jnp.bfloat16)}, {}, "recurrent"),
    ],
)
@pytest.mark.usefixtures("unchecked")
def test_mistakes_that_new_users_make_with_a_cell(either_path, cell, run, words):
    run_cell(make_cell())  # without a mistake it runs
    with pytest.raises(InputError, match=words):
        run_cell(make_cell(**cell), **run)


@pytest.mark.parametrize("dtype", ["int8", "int16", "uint16", "uint32", "int64", "uint64"])
def test_symbols_of_any_integer_dtype_are_the_same_symbols(either_path, dtype):
    symbols = np.random.default_rng(0).integers(0, 5, (6, 2))
    want = run_cell(make_cell(), inputs=jnp.asarray(symbols, jnp.int32))
    np.testing.assert_array_equal(run_cell(make_cell(), inputs=jnp.asarray(symbols.astype(dtype))), want)
    with jax.enable_x64(True):
        weights = jnp.asarray(np.eye(5), jnp.float32)
        wide = linear.sum_rows(weights, jnp.asarray(symbols.astype(dtype)), 6)
    np.testing.assert_array_equal(wide, np.eye(5)[symbols])


def test_whole_numbers_beyond_int32_become_the_nearest_and_so_the_nearest_row(either_path):
    huge = np.array([2**32 + 1, -(2**40), 2**31, 3])
    want = [2**31 - 1, -(2**31), 2**31 - 1, 3]
    assert saturated(huge).tolist() == want
    with jax.enable_x64(True):
        assert saturated(jnp.asarray(huge)).tolist() == want
        assert saturated(jnp.asarray([2**32 - 1, 7], jnp.uint32)).tolist() == [2**31 - 1, 7]
    got = linear.sum_rows(jnp.eye(5), huge[:, None], 4)
    np.testing.assert_array_equal(got[:, 0], np.eye(5)[[4, 0, 4, 3]])


@pytest.mark.parametrize(
    ("parameters", "gradients", "words"),
    [
        ([(4,), (2, 3)], [(4,)], "as many gradients as parameters, 2, got 1"),
        ([(4,), (2, 3)], [(4,), (3, 2)], r"gradients\[1\] to be float32\[2, 3\], got float32\[3, 2\]"),
        ([(1000,)], [(3,)], r"gradients\[0\] to be float32\[1000\], got float32\[3\]"),
    ],
)
def test_leaves_of_an_update_must_match(either_path, parameters, gradients, words):
    parameters, gradients = ([jnp.ones(shape) for shape in shapes] for shapes in (parameters, gradients))
    with pytest.raises(InputError, match=words):
        update.clip_descend(parameters, gradients, learning_rate=0.1, threshold=1.0)
    numbers = {"learning_rate": 0.1, "momentum_previous": 0.5, "momentum_next": 0.5, "threshold": 1.0}
    with pytest.raises(InputError, match=words):
        update.clip_nesterov(parameters, parameters, gradients, **numbers)
    velocity = [jnp.ones((1, *leaf.shape)) for leaf in parameters]
    with pytest.raises(InputError, match=r"velocity\[0\]"):
        update.clip_nesterov(parameters, velocity, parameters, **numbers)


@pytest.mark.usefixtures("unchecked")
def test_an_update_takes_float_leaves_and_single_numbers(either_path):
    leaf, whole = jnp.ones(4), jnp.ones(4, jnp.int32)
    with pytest.raises(InputError, match=r"parameters\[0\] to have a float dtype, got int32"):
        update.clip_descend([whole], [whole], learning_rate=0.1, threshold=1.0)
    with pytest.raises(InputError, match=r"gradients\[0\] to be float32\[4\], got int32\[4\]"):
        update.clip_descend([leaf], [whole], learning_rate=0.1, threshold=1.0)
    with pytest.raises(InputError, match="scalars"):
        update.clip_descend([leaf], [leaf], learning_rate=jnp.ones(4), threshold=1.0)


@pytest.mark.usefixtures("unchecked")
def test_gradients_by_rows_must_match_their_matrix(either_path):
    gradient = linear.RowGradient(jnp.zeros(3, jnp.int32), jnp.ones((3, 7)))
    with pytest.raises(InputError, match="add_selected: expected parts"):
        gradient.descend((jnp.ones((5, 6)),), jnp.float32(0.1))
    indices = jnp.zeros(4, jnp.int32)
    arrays = (jnp.ones((4, 3)), jnp.ones((6, 3)), jnp.ones(6), indices, indices, indices + 6)
    _, gradient = factored.log_prob_and_gradient(*arrays, jnp.ones(4))
    with pytest.raises(InputError, match="add_range_gradient: expected bias"):
        gradient.descend((jnp.ones((7, 3)), jnp.ones(6)), jnp.float32(0.1))


def test_under_vmap_the_contract_is_of_one_example(either_path):
    x, weights = jnp.ones((4, 5, 3, 2)), jnp.ones((2, 6))
    over_batch = jax.vmap(linear.affine, in_axes=(0, None, None, None))
    assert over_batch(x, weights, jnp.ones(6), 5).shape == (4, 5, 3, 6)
    with pytest.raises(InputError, match=r"bias to be float32\[output=6\], got float32\[5\]"):
        over_batch(x, weights, jnp.ones(5), 5)


@pytest.mark.usefixtures("unchecked")
def test_an_unknown_activation_or_precision_is_refused_by_name(either_path):
    parts = jnp.ones((5, 8)), jnp.eye(8), jnp.zeros(8), Constant(jnp.zeros(8))
    with pytest.raises(InputError, match="one of tanh, sigmoid, rectifier, got 'relu'"):
        run_cell(LeakyCell(*parts, "relu"))
    with pytest.raises(InputError, match="one of float32, bfloat16, got 'float16'"):
        run_cell(LeakyCell(*parts, "tanh", "float16"))


@pytest.mark.parametrize("zero", ["time", "lane", "hidden"])
def test_empty_axes_give_empty_or_zero_results(either_path, zero):
    size = {"time": 4, "lane": 3, "hidden": 5} | {zero: 0}
    time, lane, hidden = size.values()
    scan = OPERATIONS["recurrence.leaky_scan"]
    arrays = (jnp.ones((time, lane, hidden)), jnp.ones((lane, hidden)), jnp.ones((hidden, hidden)), jnp.zeros(hidden))

    def total(recurrent):
        walked = (*arrays[:2], recurrent, arrays[3], jnp.zeros((time, lane), bool), time)
        return jnp.sum(scan("tanh", *walked))

    value, gradient = jax.value_and_grad(total)(arrays[2])
    assert value == 0
    assert not gradient.any()
    assert outputs.bernoulli_loss(arrays[0], arrays[0].astype(jnp.uint8), jnp.ones((time, lane), bool)).shape == (
        time,
        lane,
    )


FLOATS = jax.ShapeDtypeStruct((5, 3, 6), jnp.float32)


@pytest.mark.parametrize(
    ("name", "results", "operands"),
    [
        ("affine", [FLOATS], [jnp.ones((5, 3, 4)), jnp.int32(5), jnp.ones((4, 6)), jnp.ones(5)]),
        ("affine", [FLOATS], [jnp.ones((5, 3, 4)), jnp.int32(5), jnp.ones((4, 600)), jnp.ones(600)]),
        ("affine", [FLOATS], [jnp.ones((5, 3)), jnp.int32(5), jnp.ones((4, 6)), jnp.ones(6)]),
        ("take_rows", [FLOATS], [jnp.ones((5, 3), jnp.int16), jnp.int32(5), jnp.ones((4, 6)), jnp.ones(6)]),
        ("clip_descend", [FLOATS] * 3, [jnp.ones(3), jnp.ones((5, 3, 6)), jnp.ones(7)]),
    ],
)
def test_handlers_refuse_what_no_contract_has_checked(native_path, name, results, operands):
    with pytest.raises(jax.errors.JaxRuntimeError):
        jax.block_until_ready(backend.call(name, results, *operands))
