"""A recurrent network trained by longspan, for PyTorch.

    from THIS_FILE import load
    model = load("THE_WEIGHTS.safetensors")
    logits, state = model(inputs)              frames: (time, batch, keys) float; symbols: (time, batch) long
    logits, state = model(more, state)         goes on from there
    nats = model.log_likelihood(logits, targets)
    model.draw(logits[-1])                     the next frame or symbol of every sequence of the batch

With NADE each key is predicted from those below it: `model(inputs, targets=frames)` gives the logits of the keys of
`frames`, and `model.draw(model.last_hidden)` draws frames. Layers without a leak are torch's own RNN, LSTM and GRU, so
their part of the state dict can be loaded wherever these are used. Reading the weights needs `safetensors`.
"""

# pyright: reportMissingImports=false

import json

import torch
from torch import nn

FUNCTIONS = {"tanh": torch.tanh, "sigmoid": torch.sigmoid, "rectifier": torch.relu}


class Leaky(nn.Module):
    """Leaky units: h' = leak h + (1 - leak) f(W x + U h + b), called like `nn.RNN`."""

    leak: torch.Tensor

    def __init__(self, inputs, size, activation):
        super().__init__()
        self.function = FUNCTIONS[activation]
        self.weight_ih_l0 = nn.Parameter(torch.empty(size, inputs))
        self.weight_hh_l0 = nn.Parameter(torch.empty(size, size))
        self.bias_ih_l0 = nn.Parameter(torch.empty(size))
        self.register_buffer("leak", torch.empty(size))

    def forward(self, inputs, state=None):
        drive = inputs @ self.weight_ih_l0.T + self.bias_ih_l0
        hidden = drive.new_zeros(drive.shape[1:]) if state is None else state[0]
        found = []
        for step in drive:
            value = self.function(hidden @ self.weight_hh_l0.T + step)
            hidden = self.leak * hidden + (1 - self.leak) * value
            found.append(hidden)
        return torch.stack(found), hidden[None]


class Nade(nn.Module):
    """Keys in ascending order, each predicted from the hidden vector and the keys below it."""

    def __init__(self, hidden, keys, units):
        super().__init__()
        self.visible, self.units = nn.Linear(hidden, keys), nn.Linear(hidden, units)
        self.weights = nn.Parameter(torch.empty(keys, units))
        self.readout = nn.Parameter(torch.empty(units, keys))

    def forward(self, hidden, targets):
        notes = targets.to(self.weights.dtype)[..., None] * self.weights
        below = torch.cumsum(notes, -2) - notes
        seen = torch.sigmoid(self.units(hidden)[..., None, :] + below)
        return self.visible(hidden) + (seen * self.readout.T).sum(-1)

    def draw(self, hidden):
        units, biases = self.units(hidden), self.visible(hidden)
        keys = []
        for key in range(len(self.weights)):
            logit = biases[..., key] + torch.sigmoid(units) @ self.readout[:, key]
            keys.append(torch.bernoulli(torch.sigmoid(logit)))
            units = units + keys[-1][..., None] * self.weights[key]
        return torch.stack(keys, -1)


class Model(nn.Module):
    """Layers and an output, as `facts` describes them."""

    def __init__(self, facts):
        super().__init__()
        self.facts, self.last_hidden = facts, None
        sizes = [facts["input_size"], *(layer["size"] for layer in facts["layers"])]
        self.layers = nn.ModuleList(
            _layer(layer, inputs) for layer, inputs in zip(facts["layers"], sizes[:-1], strict=True)
        )
        if facts["output"] == "nade":
            self.output = Nade(sizes[-1], facts["size"], facts["nade_size"])
        else:
            self.output = nn.Linear(sizes[-1], facts["size"])

    def forward(self, inputs, state=None, targets=None):
        hidden = inputs
        if self.facts["reads_symbols"]:
            hidden = nn.functional.one_hot(inputs, self.facts["input_size"]).to(next(self.parameters()).dtype)
        after = []
        for layer, before in zip(self.layers, state or [None] * len(self.layers), strict=True):
            hidden, last = layer(hidden, before)
            after.append(last)
        self.last_hidden = hidden[-1]
        if self.facts["output"] != "nade":
            return self.output(hidden), after
        return None if targets is None else self.output(hidden, targets), after

    def log_likelihood(self, logits, targets):
        """Nats of every step of every sequence."""
        if self.facts["output"] == "softmax":
            return torch.log_softmax(logits, -1).gather(-1, targets[..., None])[..., 0]
        return -nn.functional.binary_cross_entropy_with_logits(logits, targets, reduction="none").sum(-1)

    def draw(self, logits):
        """The next step, from the logits of the last one; with NADE from `last_hidden`."""
        if isinstance(self.output, Nade):
            return self.output.draw(logits)
        if self.facts["output"] == "softmax":
            return torch.distributions.Categorical(logits=logits).sample()
        return torch.bernoulli(torch.sigmoid(logits))


def _layer(layer, inputs):
    if layer["kind"] == "rnn":
        return nn.RNN(inputs, layer["size"], nonlinearity=layer["activation"])
    if layer["kind"] == "leaky":
        return Leaky(inputs, layer["size"], layer["activation"])
    return {"lstm": nn.LSTM, "gru": nn.GRU}[layer["kind"]](inputs, layer["size"])


def load(path):
    """The model in a .safetensors file that `longspan export` wrote."""
    from safetensors import safe_open

    with safe_open(path, "pt") as file:
        model = Model(json.loads(file.metadata()["model"]))
        model.load_state_dict({name: file.get_tensor(name) for name in file.keys()})  # noqa: SIM118
    return model.eval()
