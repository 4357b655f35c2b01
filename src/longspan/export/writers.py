"""A trained model as files of a format: ONNX, PyTorch's state dict with a loader, or one Python file for NumPy.

The Python files are in `assets/`, where they can be read, checked and tested as they are; what is added is the weights.
"""

from __future__ import annotations

import base64
import io
import textwrap
from collections.abc import Callable
from importlib import resources
from typing import Any, Literal

import msgspec
import numpy as np
from safetensors.numpy import save

from longspan.errors import InputError
from longspan.export.onnx_file import to_onnx
from longspan.export.portable import Layer, Portable, lowest_pitch_of, metadata

Format = Literal["onnx", "torch", "numpy"]


def export(model: Portable, format_: Format, name: str) -> dict[str, bytes]:
    """The files of a model in a format, by name; `name` is what they are called, without their endings.

    A model that the format cannot express is refused.
    """
    return WRITERS[format_](model, name)


def _onnx_files(model: Portable, name: str) -> dict[str, bytes]:
    return {f"{name}.onnx": to_onnx(model)}


def _numpy_files(model: Portable, name: str) -> dict[str, bytes]:
    """One Python file, whose last lines hold the weights."""
    if model.head.kind == "gaussian":
        raise InputError("the NumPy file draws frames and symbols, and this model predicts numbers: export it to onnx")
    if model.record.kind == "music" and model.input_size != model.record.size:
        raise InputError("the NumPy file reads nothing but the last frame, and this model has cues: export it to onnx")
    arrays = {f"head.{key}": array for key, array in model.head.arrays.items()}
    for number, layer in enumerate(model.layers):
        arrays |= {f"layer_{number}.{key}": array for key, array in layer.arrays.items()}
    layers = [(layer.kind, layer.activation, layer.reset) for layer in model.layers]
    facts = np.frombuffer(msgspec.json.encode({**_facts(model), "layers": layers}), np.uint8)
    packed = io.BytesIO()
    np.savez_compressed(packed, facts=facts, **arrays)  # pyright: ignore[reportArgumentType]
    lines = "\n".join(textwrap.wrap(base64.b64encode(packed.getvalue()).decode(), 120))
    source = _asset("numpy_model.py").replace("THIS_FILE", name)
    filled = source.replace('PACKED = ""', f'PACKED = """\n{lines}\n"""\n\nif __name__ == "__main__":\n    main()')
    return {f"{name}.py": filled.encode()}


def _torch_files(model: Portable, name: str) -> dict[str, bytes]:
    """A state dict in the names and layout of PyTorch, and the Python file that loads it."""
    if model.head.kind not in ("bernoulli", "nade", "softmax", "gaussian"):
        raise InputError(f"the loader for PyTorch has no {model.head.kind} output: export to onnx or numpy")
    arrays: dict[str, np.ndarray] = {}
    for number, layer in enumerate(model.layers):
        arrays |= {f"layers.{number}.{key}": array for key, array in torch_weights(layer).items()}
    arrays |= {f"output.{key}": array for key, array in _torch_output(model).items()}
    layers = [
        {"kind": _torch_kind(layer), "size": layer.size, "activation": _torch_activation(layer)}
        for layer in model.layers
    ]
    facts = {**_facts(model), "layers": layers, "input_size": model.input_size}
    if model.head.kind == "nade":
        facts["nade_size"] = len(model.head.arrays["hidden_bias"])
    weights = save(
        {key: np.ascontiguousarray(array) for key, array in arrays.items()},
        {**metadata(model), "model": msgspec.json.encode(facts).decode()},
    )
    loader = _asset("torch_model.py").replace("THIS_FILE", name).replace("THE_WEIGHTS", name)
    return {f"{name}.safetensors": weights, f"{name}.py": loader.encode()}


WRITERS: dict[Format, Callable[[Portable, str], dict[str, bytes]]] = {
    "onnx": _onnx_files,
    "torch": _torch_files,
    "numpy": _numpy_files,
}


def torch_weights(layer: Layer) -> dict[str, np.ndarray]:
    """The arrays of a layer as PyTorch's RNN, LSTM and GRU name and lay them out.

    Gates have the same order here and there, and matrices are transposed. Where torch adds two biases, the second one
    is zero, except in a GRU's candidate, where the reset gate acts on it.
    """
    if layer.kind == "lstm" and (layer.has_peepholes or layer.activation != "tanh"):
        raise InputError("PyTorch's LSTM has tanh units without peepholes: export to onnx or numpy")
    if layer.kind == "gru" and (layer.reset != "after" or layer.activation != "tanh"):
        raise InputError(
            "PyTorch's GRU has tanh units whose reset gate acts after the product: export to onnx or numpy"
        )
    arrays = layer.arrays
    found = {
        "weight_ih_l0": arrays["input_weights"].T,
        "weight_hh_l0": arrays["recurrent"].T,
        "bias_ih_l0": arrays["bias"],
    }
    if _torch_kind(layer) == "leaky":
        return {**found, "leak": arrays["leak"]}
    second = np.zeros_like(arrays["bias"])
    if layer.kind == "gru":
        second[2 * layer.size :] = arrays["candidate_bias"]
    return {**found, "bias_hh_l0": second}


def _torch_kind(layer: Layer) -> str:
    """torch's RNN has neither leaks nor sigmoid units; the loader has."""
    if layer.kind != "leaky":
        return layer.kind
    return "leaky" if layer.has_leak or layer.activation == "sigmoid" else "rnn"


def _torch_activation(layer: Layer) -> str:
    return "relu" if _torch_kind(layer) == "rnn" and layer.activation == "rectifier" else layer.activation


def _torch_output(model: Portable) -> dict[str, np.ndarray]:
    arrays = model.head.arrays
    if model.head.kind != "nade":
        return {"weight": arrays["weights"].T, "bias": arrays["bias"]}
    return {
        "visible.weight": arrays["visible_weights"].T,
        "visible.bias": arrays["visible_bias"],
        "units.weight": arrays["hidden_weights"].T,
        "units.bias": arrays["hidden_bias"],
        "weights": arrays["weights"],
        "readout": arrays["readout"],
    }


def _facts(model: Portable) -> dict[str, Any]:
    record = model.record
    return {
        "kind": record.kind,
        "output": model.head.kind,
        "size": record.size,
        "reads_symbols": model.reads_symbols,
        "recipe": model.recipe,
        "unit": record.unit,
        "vocabulary": record.vocabulary or record.labels,
        "end_token": record.end_token,
        "frames_per_beat": record.frames_per_beat,
        "lowest_pitch": lowest_pitch_of(record),
    }


def _asset(name: str) -> str:
    return resources.files("longspan.export").joinpath("assets", name).read_text(encoding="utf-8")
