"""The state dict for PyTorch, against torch's documented equations, and the loader where torch is installed.

Torch is too large to be asked of everybody who runs the tests. What they hold without it are names, layout and the
conventions of gates and biases.
"""

import ast
import importlib.util
import json

import numpy as np
import pytest
from safetensors import safe_open
from safetensors.numpy import load

from longspan.errors import InputError
from longspan.export.writers import export
from tests.export.conftest import Case, make_case

RNN = {"tanh": np.tanh, "relu": lambda z: np.maximum(z, 0), "sigmoid": lambda z: 1 / (1 + np.exp(-z))}


def layer_of_torch(kind: str, activation: str, weights: dict[str, np.ndarray], inputs: np.ndarray) -> np.ndarray:
    """Hidden vectors by the equations in the documentation of `torch.nn.RNN`, `LSTM` and `GRU`, one step at a time."""
    sigmoid, hidden = RNN["sigmoid"], np.zeros((inputs.shape[1], weights["weight_hh_l0"].shape[1]))
    cell, found = hidden, []
    for step in inputs:
        by_input = step @ weights["weight_ih_l0"].T + weights["bias_ih_l0"]
        by_state = hidden @ weights["weight_hh_l0"].T + weights.get("bias_hh_l0", 0)
        if kind == "lstm":
            i, f, g, o = np.split(by_input + by_state, 4, axis=-1)
            cell = sigmoid(f) * cell + sigmoid(i) * np.tanh(g)
            hidden = sigmoid(o) * np.tanh(cell)
        elif kind == "gru":
            (r, z, n), (hr, hz, hn) = np.split(by_input, 3, axis=-1), np.split(by_state, 3, axis=-1)
            z = sigmoid(z + hz)
            hidden = (1 - z) * np.tanh(n + sigmoid(r + hr) * hn) + z * hidden
        else:
            leak = weights.get("leak", 0)
            hidden = leak * hidden + (1 - leak) * RNN[activation](by_input + by_state)
        found.append(hidden)
    return np.array(found)


def logits_of_torch(files: dict[str, bytes], case: Case, tmp_path) -> np.ndarray:
    weights = load(files["exported.safetensors"])
    (tmp_path / "w.safetensors").write_bytes(files["exported.safetensors"])
    with safe_open(tmp_path / "w.safetensors", "np") as file:
        facts = json.loads(file.metadata()["model"])
    values = np.eye(facts["input_size"])[case.inputs] if facts["reads_symbols"] else case.inputs
    for number, layer in enumerate(facts["layers"]):
        prefix = f"layers.{number}."
        own = {name.removeprefix(prefix): array for name, array in weights.items() if name.startswith(prefix)}
        values = layer_of_torch(
            layer["kind"], {"rectifier": "relu"}.get(layer["activation"], layer["activation"]), own, values
        )
    if facts["output"] != "nade":
        return values @ weights["output.weight"].T + weights["output.bias"]
    biases = values @ weights["output.visible.weight"].T + weights["output.visible.bias"]
    units = values @ weights["output.units.weight"].T + weights["output.units.bias"]
    for key in range(biases.shape[-1]):
        biases[..., key] += RNN["sigmoid"](units) @ weights["output.readout"][:, key]
        units = units + case.targets[..., key, None] * weights["output.weights"][key]
    return biases


def test_logits_agree_with_the_equations_of_torch(case: Case, tmp_path):
    try:
        files = export(case.portable, "torch", "exported")
    except InputError:
        layers = case.portable.layers
        assert case.portable.head.kind in ("factored", "tree") or any(
            layer.has_peepholes or layer.reset == "before" for layer in layers
        )
        return
    np.testing.assert_allclose(logits_of_torch(files, case, tmp_path), case.logits, atol=1e-5)


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"activation": "rectifier", "leaky_share": 0.5, "output": "nade"},
        {"cell": "lstm", "output": "softmax"},
        {"cell": "2xgru", "output": "nade"},
    ],
    ids=lambda changes: "/".join(map(str, changes.values())) or "plain",
)
def test_the_loader_computes_the_same_in_torch(changes: dict, tmp_path):
    torch = pytest.importorskip("torch", reason="torch is not installed")
    case = make_case(**changes)
    for name, content in export(case.portable, "torch", "exported").items():
        (tmp_path / name).write_bytes(content)
    spec = importlib.util.spec_from_file_location("exported", tmp_path / "exported.py")
    loader = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(loader)
    model = loader.load(tmp_path / "exported.safetensors")
    symbols = changes.get("output") == "softmax"
    inputs, targets = (torch.tensor(each, dtype=torch.long if symbols else torch.float32) for each in case[2:4])
    half = len(inputs) // 2
    with torch.no_grad():  # in two parts, so that the state is handed on
        first, state = model(inputs[:half], targets=targets[:half])
        second, _ = model(inputs[half:], state, targets=targets[half:])
        logits = torch.cat([first, second])
        nats = model.log_likelihood(logits, targets)
        drawn = model.draw(model.last_hidden if "nade" in changes.values() else logits[-1])
    np.testing.assert_allclose(logits, case.logits, atol=1e-5)
    np.testing.assert_allclose(nats, case.log_likelihood, atol=1e-4)
    assert drawn.shape == targets[0].shape


def test_the_loader_is_valid_python_that_names_its_weights():
    loader = export(make_case().portable, "torch", "exported")["exported.py"].decode()
    ast.parse(loader)
    assert 'load("exported.safetensors")' in loader


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"cell": "lstm,peepholes"}, "peepholes"),
        ({"cell": "lstm", "activation": "sigmoid"}, "tanh"),
        ({"cell": "gru,reset=before"}, "reset gate"),
        ({"cell": "lstm", "output": "factored"}, "factored"),
    ],
)
def test_what_torch_cannot_say_is_refused_by_name(changes: dict, named: str):
    with pytest.raises(InputError, match=named):
        export(make_case(**changes).portable, "torch", "exported")
