"""ONNX files: standard operators alone, and the same logits and states as the package in another runtime."""

import numpy as np
import onnx
import onnxruntime
import pytest

from longspan.errors import InputError
from longspan.export.onnx_file import to_onnx
from longspan.export.portable import to_portable
from tests.export.conftest import BATCH, STEPS, Case, make_case, make_model, record_of


def session_of(case: Case) -> onnxruntime.InferenceSession:
    return onnxruntime.InferenceSession(to_onnx(case.portable), providers=["CPUExecutionProvider"])


def feed(case: Case, session: onnxruntime.InferenceSession) -> dict[str, np.ndarray]:
    """The inputs of a session from the start of the sequences."""
    symbols = case.inputs.dtype == np.int32
    found = {"inputs": case.inputs.astype(np.int64 if symbols else np.float32)}
    for put in session.get_inputs():
        if put.name == "targets":
            found["targets"] = case.targets.astype(np.float32)
        elif put.name != "inputs":
            found[put.name] = np.zeros((BATCH, put.shape[1]), np.float32)
    return found


def run(session: onnxruntime.InferenceSession, fed: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    names = [put.name for put in session.get_outputs()]
    return {name: np.asarray(found) for name, found in zip(names, session.run(None, fed), strict=True)}


def test_logits_and_states_agree(case: Case):
    session = session_of(case)
    found = run(session, feed(case, session))
    np.testing.assert_allclose(found["logits"], case.logits, atol=1e-5)
    states = [found[name] for name in found if name.endswith("_out")]
    assert len(states) == len(case.states)
    for state in case.states:
        assert min(float(np.abs(state - other).max()) for other in states) < 1e-5


def test_a_sequence_in_two_parts_is_the_whole(case: Case):
    session = session_of(case)
    parts = [
        {name: array[part] if len(array) == STEPS else array for name, array in feed(case, session).items()}
        for part in (slice(0, 17), slice(17, None))
    ]
    first = run(session, parts[0])
    entering = {name.removesuffix("_out"): state for name, state in first.items() if name.endswith("_out")}
    second = run(session, {**parts[1], **entering})
    np.testing.assert_allclose(np.concatenate([first["logits"], second["logits"]]), case.logits, atol=1e-5)


def test_only_standard_operators(case: Case):
    model = onnx.load_from_string(to_onnx(case.portable))
    assert [opset.domain for opset in model.opset_import] == [""]
    assert all(node.domain == "" for node in model.graph.node)


@pytest.mark.parametrize(("cell", "operator"), [("leaky", "RNN"), ("lstm", "LSTM"), ("gru", "GRU")])
def test_units_that_onnx_knows_are_its_operators(cell: str, operator: str):
    model = onnx.load_from_string(to_onnx(make_case(cell).portable))
    assert operator in {node.op_type for node in model.graph.node}


def test_the_file_says_what_its_symbols_are():
    model = onnx.load_from_string(to_onnx(make_case("gru", "softmax").portable))
    facts = {entry.key: entry.value for entry in model.metadata_props}
    assert facts["unit"] == "character"
    assert facts["vocabulary"] == '["\\n","a","b","c","d","e","f"]'


@pytest.mark.parametrize(("cell", "output", "named"), [("lru", "nade", "LinearCell"), ("leaky", "rbm", "Rbm")])
def test_what_no_format_expresses_is_refused_by_name(cell: str, output: str, named: str):
    with pytest.raises(InputError, match=named):
        to_portable(make_model(cell, output), record_of(output), "")
