"""A trained model as plain arrays: what the exported formats have in common.

Not every format can express every model. What one cannot is refused by name, before anything is written.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import msgspec
import numpy as np

from longspan import __version__
from longspan.data.dataset import DataRecord
from longspan.errors import InputError
from longspan.models.cells import EmbeddingCell, LeakyCell
from longspan.models.factored import ClassFactored
from longspan.models.gated import GruCell, LstmCell
from longspan.models.model import SequenceModel, Stack
from longspan.models.outputs import Bernoulli, Gaussian, Nade, Softmax
from longspan.models.parts import Cell, Constant, Output
from longspan.models.tree import HuffmanTree
from longspan.sampling.notes import lowest_sounding_pitch

Arrays = Mapping[str, np.ndarray]


class Layer(NamedTuple):
    """A layer of recurrent units: `leaky`, `lstm` or `gru`, with arrays named as in `longspan.models`."""

    kind: str
    activation: str
    arrays: Arrays
    reset: str = "after"
    """Whether the reset gate of a GRU acts after or before the recurrent product."""

    @property
    def size(self) -> int:
        """Number of hidden units."""
        return self.arrays["recurrent"].shape[0]

    @property
    def has_leak(self) -> bool:
        return bool(np.any(self.arrays.get("leak", 0)))

    @property
    def has_peepholes(self) -> bool:
        return "peepholes" in self.arrays


class Head(NamedTuple):
    """The output, by its name in a config, with arrays as in `longspan.models`."""

    kind: str
    arrays: Arrays


@dataclass(frozen=True)
class Portable:
    """A model as layers and an output, and what its data were."""

    layers: tuple[Layer, ...]
    head: Head
    record: DataRecord
    recipe: str

    @property
    def input_size(self) -> int:
        """Length of an input vector, or number of symbols."""
        return self.layers[0].arrays["input_weights"].shape[0]

    @property
    def reads_symbols(self) -> bool:
        """Whether the inputs are symbols rather than vectors."""
        return self.record.kind == "text" or (self.record.input_size is None and self.record.predicted == "symbols")


def to_portable(model: SequenceModel, record: DataRecord, recipe: str) -> Portable:
    """The arrays of a model; a cell or an output that no format can express is refused."""
    cells = model.cell.cells if isinstance(model.cell, Stack) else (model.cell,)
    first = next((number for number, cell in enumerate(cells) if not isinstance(cell, EmbeddingCell)), 0)
    layers = [_layer(cell) for cell in cells[first:]]
    for below in reversed(cells[:first]):
        layers[0] = _reading_through(below, layers[0])
    return Portable(tuple(layers), _head(model.output), record, recipe)


def _reading_through(below: Cell, layer: Layer) -> Layer:
    """The layer with the inputs of the embedding below it: two affine maps in a row are one."""
    arrays, weights = _arrays(below, "input_weights", "bias"), layer.arrays["input_weights"]
    joined = {
        "input_weights": arrays["input_weights"] @ weights,
        "bias": arrays["bias"] @ weights + layer.arrays["bias"],
    }
    return layer._replace(arrays={**layer.arrays, **joined})


def _layer(cell: Cell) -> Layer:
    if isinstance(cell, LeakyCell):
        return Layer("leaky", cell.activation, _arrays(cell, "input_weights", "recurrent", "bias", "leak"))
    if isinstance(cell, LstmCell):
        optional = () if cell.peepholes is None else ("peepholes",)
        return Layer("lstm", cell.activation, _arrays(cell, "input_weights", "recurrent", "bias", *optional))
    if isinstance(cell, GruCell):
        arrays = _arrays(cell, "input_weights", "recurrent", "bias", "candidate_bias")
        return Layer("gru", cell.activation, arrays, cell.reset)
    raise InputError(
        f"a model with the cell {type(cell).__name__} cannot be exported: expected leaky, lstm, gru or layers "
        "of them, on embeddings or not"
    )


HEADS: dict[type[Output], tuple[str, tuple[str, ...]]] = {
    Bernoulli: ("bernoulli", ("weights", "bias")),
    Softmax: ("softmax", ("weights", "bias")),
    Gaussian: ("gaussian", ("weights", "bias")),
    ClassFactored: ("factored", ("class_weights", "class_bias", "weights", "bias", "starts")),
    HuffmanTree: ("tree", ("weights", "bias", "paths")),
    Nade: ("nade", ("visible_weights", "visible_bias", "hidden_weights", "hidden_bias", "weights", "readout")),
}


def _head(output: Output) -> Head:
    if type(output) not in HEADS:
        known = ", ".join(name for name, _ in HEADS.values())
        raise InputError(f"a model with the output {type(output).__name__} cannot be exported: expected {known}")
    kind, names = HEADS[type(output)]
    return Head(kind, _arrays(output, *names))


def _arrays(part: Cell | Output, *names: str) -> dict[str, np.ndarray]:
    values = ((name, getattr(part, name)) for name in names)
    return {name: np.asarray(value.value if isinstance(value, Constant) else value) for name, value in values}


def lowest_pitch_of(record: DataRecord) -> int | None:
    """The MIDI pitch of the first key of a frame of music."""
    return lowest_sounding_pitch(record.octave_shift) if record.kind == "music" else None


def metadata(model: Portable) -> dict[str, str]:
    """What a user of the model needs to know about its data, as text by name."""
    record = model.record
    facts = {
        "format": "longspan",
        "version": __version__,
        "recipe": model.recipe,
        "kind": record.kind,
        "output": model.head.kind,
        "frames_per_beat": record.frames_per_beat,
        "lowest_pitch": lowest_pitch_of(record),
        "unit": record.unit,
        "end_token": record.end_token,
        "vocabulary": record.vocabulary or record.labels,
        "columns": record.columns,
        "input_scaling": record.input_scaling,
        "target_scaling": record.target_scaling,
    }
    return {
        name: value if isinstance(value, str) else msgspec.json.encode(value).decode()
        for name, value in facts.items()
        if value is not None
    }
