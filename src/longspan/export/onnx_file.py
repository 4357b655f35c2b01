"""A model as an ONNX file, by standard operators alone: RNN, LSTM, GRU, Scan for leaky units, MatMul.

Inputs, time first: `inputs`, frames or numbers (time x batch x size) or symbols (time x batch), and the state of each
layer (batch x units), zeros at the start of a sequence. Outputs: `logits`, of which a sigmoid or softmax gives
probabilities (for words already log-probabilities, for numbers the means), and the states after the last step, to
continue from. NADE predicts each key from those below it, so it also takes `targets`, the frames whose logits are asked
for; `visible_bias` and `hidden_bias` are all that drawing a frame needs besides the initializers `nade.weights` and
`nade.readout`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from longspan import __version__
from longspan.errors import InputError
from longspan.export.portable import Head, Layer, Portable, metadata

if TYPE_CHECKING:
    from onnx import ModelProto

OPSET, IR_VERSION = 17, 9
"""Old enough for runtimes of 2023, new enough for all operators used."""
ACTIVATIONS = {"tanh": "Tanh", "sigmoid": "Sigmoid", "rectifier": "Relu"}


def to_onnx(model: Portable) -> bytes:
    """The content of an ONNX file."""
    return _Graph(model).finished().SerializeToString()


class _Graph:
    """An ONNX graph while it is put together."""

    def __init__(self, model: Portable):
        try:
            from onnx import helper, numpy_helper
        except ImportError as error:
            raise InputError("ONNX files need onnx: pip install 'longspan[export]'") from error
        self.helper, self.numpy_helper = helper, numpy_helper
        self.model = model
        self.nodes: list[Any] = []
        self.constants: dict[str, Any] = {}
        self.inputs: list[Any] = []
        self.outputs: list[Any] = []

    def finished(self) -> ModelProto:
        """The checked model."""
        import onnx

        model = self.model
        width = [] if model.reads_symbols else [model.input_size]
        self.take("inputs", ["time", "batch", *width], whole=model.reads_symbols)
        hidden = "inputs"
        for number, layer in enumerate(model.layers):
            hidden = self.layer(number, layer, hidden)
        self.head(model.head, hidden)
        graph = self.helper.make_graph(
            self.nodes, "longspan", self.inputs, self.outputs, initializer=list(self.constants.values())
        )
        made = self.helper.make_model(
            graph,
            opset_imports=[self.helper.make_opsetid("", OPSET)],
            ir_version=IR_VERSION,
            producer_name="longspan",
            producer_version=__version__,
            doc_string=f"{model.recipe}; states are zero at the start of a sequence",
        )
        self.helper.set_model_props(made, metadata(model))
        onnx.checker.check_model(made, full_check=True)
        return made

    def layer(self, number: int, layer: Layer, inputs: str) -> str:
        """Add a layer; return the name of its hidden vectors."""
        state, after = f"hidden_{number}", f"hidden_{number}_out"
        self.take(state, ["batch", layer.size])
        if layer.has_leak:
            hidden = self.leaky(layer, inputs, state, after, f"layer_{number}")
        else:
            hidden = self.standard(number, layer, inputs, state, after)
        self.give(after, ["batch", layer.size])
        return hidden

    def leaky(self, layer: Layer, inputs: str, state: str, after: str, name: str) -> str:
        """Leaky units by a Scan, since RNN knows no leak."""
        arrays, helper = layer.arrays, self.helper
        weights = self.constant(f"{name}.input_weights", arrays["input_weights"])
        looked_up = self.model.reads_symbols and inputs == "inputs"
        product = self.add("Gather", weights, inputs) if looked_up else self.add("MatMul", inputs, weights)
        drive = self.add("Add", product, self.constant(f"{name}.bias", arrays["bias"]))
        recurrent = self.constant(f"{name}.recurrent", arrays["recurrent"])
        leak = self.constant(f"{name}.leak", arrays["leak"])
        share = self.constant(f"{name}.share", 1 - arrays["leak"])
        step = [
            helper.make_node("MatMul", ["before", recurrent], ["recurred"]),
            helper.make_node("Add", ["recurred", "drive"], ["sum"]),
            helper.make_node(ACTIVATIONS[layer.activation], ["sum"], ["value"]),
            helper.make_node("Mul", [leak, "before"], ["kept"]),
            helper.make_node("Mul", [share, "value"], ["added"]),
            helper.make_node("Add", ["kept", "added"], ["after"]),
            helper.make_node("Identity", ["after"], ["shown"]),
        ]
        of_batch = ["batch", layer.size]
        body = helper.make_graph(
            step,
            f"{name}_step",
            [self.value("before", of_batch), self.value("drive", of_batch)],
            [self.value("after", of_batch), self.value("shown", of_batch)],
        )
        hidden = f"{name}.hidden"
        self.nodes.append(helper.make_node("Scan", [state, drive], [after, hidden], body=body, num_scan_inputs=1))
        return hidden

    def standard(self, number: int, layer: Layer, inputs: str, state: str, after: str) -> str:
        """A layer by the operator RNN, LSTM or GRU."""
        if self.model.reads_symbols and inputs == "inputs":
            depth = self.constant("symbols", np.array(self.model.input_size, np.int64))
            off_on = self.constant("off_on", np.array([0, 1], np.float32))
            inputs = self.add("OneHot", inputs, depth, off_on)
        directions = self.constant("first_axis", np.array([0], np.int64))
        arguments = [
            self.constant(f"layer_{number}.{name}", array[None]) for name, array in operator_weights(layer).items()
        ]
        initial = [self.add("Unsqueeze", state, directions)]
        last, found = f"layer_{number}.last", f"layer_{number}.all"
        returned, given = [found, last], [*arguments[:3], "", *initial]
        if layer.kind == "lstm":
            cell = f"cell_{number}"
            self.take(cell, ["batch", layer.size])
            initial.append(self.add("Unsqueeze", cell, directions))
            returned.append(f"layer_{number}.last_cell")
            given = [*arguments[:3], "", *initial, *arguments[3:]]
        operator = {"leaky": "RNN", "lstm": "LSTM", "gru": "GRU"}[layer.kind]
        self.nodes.append(
            self.helper.make_node(operator, [inputs, *given], returned, hidden_size=layer.size, **_attributes(layer))
        )
        self.add("Squeeze", last, directions, output=after)
        if layer.kind == "lstm":
            self.add("Squeeze", returned[2], directions, output=f"cell_{number}_out")
            self.give(f"cell_{number}_out", ["batch", layer.size])
        return self.add("Squeeze", found, self.constant("second_axis", np.array([1], np.int64)))

    def head(self, head: Head, hidden: str) -> None:
        """Add the output."""
        if head.kind == "nade":
            size = self.nade(head, hidden)
        elif head.kind == "factored":
            size = self.factored(head, hidden)
        elif head.kind == "tree":
            size = self.tree(head, hidden)
        else:
            size = self.affine(head, "weights", "bias", hidden, "logits")
        self.give("logits", ["time", "batch", size])

    def affine(self, head: Head, weights: str, bias: str, hidden: str, output: str) -> int:
        """Add an affine map of the hidden vectors; return its width."""
        product = self.add("MatMul", hidden, self.constant(f"{head.kind}.{weights}", head.arrays[weights]))
        self.add("Add", product, self.constant(f"{head.kind}.{bias}", head.arrays[bias]), output=output)
        return len(head.arrays[bias])

    def nade(self, head: Head, hidden: str) -> int:
        """Logits of all keys at once: what key i sees is a running sum over the notes below it."""
        keys = self.affine(head, "visible_weights", "visible_bias", hidden, "visible_bias")
        units = self.affine(head, "hidden_weights", "hidden_bias", hidden, "hidden_bias")
        self.take("targets", ["time", "batch", keys])
        last = self.constant("last_axis", np.array([-1], np.int64))
        notes = self.add("Unsqueeze", "targets", last)
        brought = self.add("Mul", notes, self.constant("nade.weights", head.arrays["weights"]))
        below = self.add("CumSum", brought, self.constant("key_axis", np.array(-2, np.int64)), exclusive=1)
        before_last = self.constant("axis_before_last", np.array([-2], np.int64))
        seen = self.add("Sigmoid", self.add("Add", self.add("Unsqueeze", "hidden_bias", before_last), below))
        read = self.add("Mul", seen, self.constant("nade.readout", head.arrays["readout"].T))
        self.add("Add", "visible_bias", self.add("ReduceSum", read, last, keepdims=0), output="logits")
        self.give("visible_bias", ["time", "batch", keys])
        self.give("hidden_bias", ["time", "batch", units])
        return keys

    def factored(self, head: Head, hidden: str) -> int:
        """Log-probabilities of all words: those of their class, and within it."""
        starts = head.arrays["starts"]
        filled = np.flatnonzero(np.diff(starts) > 0)
        chosen = {name: head.arrays[name][..., filled] for name in ("class_weights", "class_bias")}
        words = {"weights": head.arrays["weights"].T, "bias": head.arrays["bias"]}
        self.affine(Head("factored", {**chosen, **words}), "class_weights", "class_bias", hidden, "class_logits")
        size = self.affine(Head("factored", {**chosen, **words}), "weights", "bias", hidden, "word_logits")
        classes = self.add("LogSoftmax", "class_logits", axis=-1)
        axis = self.constant("word_axis", np.array([2], np.int64))
        parts = []
        for number, which in enumerate(filled):
            first, stop = self.index(starts[which]), self.index(starts[which + 1])
            members = self.add("LogSoftmax", self.add("Slice", "word_logits", first, stop, axis), axis=-1)
            own = self.add("Slice", classes, self.index(number), self.index(number + 1), axis)
            parts.append(self.add("Add", members, own))
        self.add("Concat", *parts, output="logits", axis=2)
        return size

    def tree(self, head: Head, hidden: str) -> int:
        """Log-probabilities of all words: the sum of those of their decisions, one of each path after the other."""
        paths = head.arrays["paths"].astype(np.int64)
        arrays = {"weights": head.arrays["weights"].T, "bias": head.arrays["bias"]}
        nodes = self.affine(Head("tree", arrays), "weights", "bias", hidden, "node_logits")
        against = [self.add("Neg", self.add("Softplus", "node_logits"))]
        against.append(self.add("Neg", self.add("Softplus", self.add("Neg", "node_logits"))))
        some = self.add("Slice", "node_logits", self.index(0), self.index(1), self.index(2))
        certain = self.add("Mul", some, self.constant("nothing", np.zeros(1, np.float32)))
        branches = self.add("Concat", *against, certain, axis=2)
        chosen = np.where(paths < 0, 2 * nodes, paths // 2 + nodes * (paths % 2))
        parts = [
            self.add("Gather", branches, self.constant(f"tree.decision_{depth}", column), axis=2)
            for depth, column in enumerate(chosen.T)
        ]
        self.add("Sum", *parts, output="logits")
        return len(paths)

    def add(self, operator: str, *inputs: str, output: str | None = None, **attributes: Any) -> str:
        """Add a node; return the name of its output."""
        name = output or f"{operator.lower()}_{len(self.nodes)}"
        self.nodes.append(self.helper.make_node(operator, list(inputs), [name], **attributes))
        return name

    def constant(self, name: str, array: np.ndarray) -> str:
        """Add an array once; return its name."""
        self.constants.setdefault(name, self.numpy_helper.from_array(np.ascontiguousarray(array), name))
        return name

    def index(self, number: int) -> str:
        return self.constant(f"index_{number}", np.array([number], np.int64))

    def take(self, name: str, shape: list, *, whole: bool = False) -> None:
        self.inputs.append(self.value(name, shape, whole=whole))

    def give(self, name: str, shape: list) -> None:
        self.outputs.append(self.value(name, shape))

    def value(self, name: str, shape: list, *, whole: bool = False) -> Any:
        from onnx import TensorProto

        kind = TensorProto.INT64 if whole else TensorProto.FLOAT
        return self.helper.make_tensor_value_info(name, kind, shape)


def operator_weights(layer: Layer) -> dict[str, np.ndarray]:
    """The arrays W, R, B and P of the operator of a layer, in the order of the gates that ONNX prescribes."""
    order = {"leaky": (0,), "lstm": (0, 3, 1, 2), "gru": (1, 0, 2)}[layer.kind]
    arrays, size = layer.arrays, layer.size

    def stacked(array: np.ndarray) -> np.ndarray:
        gates = np.split(array, len(order), axis=-1)
        return np.concatenate([gates[gate] for gate in order], axis=-1)

    recurrent_bias = np.zeros(len(order) * size, np.float32)
    if layer.kind == "gru":
        recurrent_bias[2 * size :] = arrays["candidate_bias"]
    found = {
        "W": stacked(arrays["input_weights"]).T,
        "R": stacked(arrays["recurrent"]).T,
        "B": np.concatenate([stacked(arrays["bias"]), recurrent_bias]),
    }
    if layer.has_peepholes:
        found["P"] = arrays["peepholes"][[0, 2, 1]].reshape(-1)
    return found


def _attributes(layer: Layer) -> dict[str, Any]:
    function = ACTIVATIONS[layer.activation]
    if layer.kind == "leaky":
        return {"activations": [function]}
    if layer.kind == "lstm":
        return {"activations": ["Sigmoid", function, function]}
    return {"activations": ["Sigmoid", function], "linear_before_reset": int(layer.reset == "after")}
