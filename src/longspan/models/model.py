"""The sequence model, a recurrent cell or layers of them and an output distribution, and how a config becomes one."""

import dataclasses
from typing import Any, get_type_hints

import equinox as eqx
import jax
import jax.numpy as jnp
import msgspec
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Key, PRNGKeyArray, PyTree, Shaped

from longspan.config import TYPES, TrainConfig
from longspan.errors import InputError
from longspan.models.cells import DrivenCell, EmbeddingCell
from longspan.models.outputs import SymbolOutput
from longspan.models.parts import CELLS, OUTPUTS, Cell, Hidden, Output, Trace, split_constants, with_keys
from longspan.models.timescales import with_context
from longspan.ops.outputs import Dropout
from longspan.registry import LayerSpec, parse_cell

ALIKE = (
    "activation",
    "input_scale",
    "recurrent_init",
    "recurrent_scale",
    "leaky_share",
    "leak_low",
    "leak_high",
    "leak_spread",
)
OF_ANY_LAYER = {"size": "hidden_size", **{name: name for name in ALIKE}}
"""Settings that any layer may have for itself, and the fields of the config that they replace there."""
CONTEXT = "context"
"""The setting of any layer for decaying averages of its input."""


class SequenceModel(eqx.Module):
    """Predicts every step of a sequence from the steps before it.

    If it is tied, the vectors by which its output predicts symbols are those of its embedding: equal wherever the model
    is used, and one matrix where it is trained (`trained_part`).
    """

    cell: Cell
    output: Output
    tied: bool = eqx.field(static=True, default=False)

    def start(self, lanes: int) -> PyTree:
        """The state of `lanes` songs before their first step."""
        state = self.cell.initial_state()
        return jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (lanes, *leaf.shape)), state)

    def run(
        self,
        state: PyTree,
        inputs: Shaped[Array, "time lane ..."],
        resets: Bool[Array, "time lane"],
        length: Int[Array, ""],
    ) -> tuple[PyTree, Float[Array, "time lane hidden"]]:
        """Last state and hidden vectors of a chunk."""
        return self.cell.run(state, inputs, resets, length)


def build(
    config: TrainConfig, input_size: int, base_rates: Float[np.ndarray, " target"], *, key: PRNGKeyArray
) -> SequenceModel:
    """Build an initial model with the cell and the output that a config names.

    Args:
        config: names, sizes and scales.
        input_size: number of keys per frame, symbols in the vocabulary, or input numbers per step.
        base_rates: frequencies of keys or symbols in training, or means of numbers, which the output initially
            predicts.
        key: random key of the initial weights.
    """
    cell = make_cell(config, input_size, key=key)
    key_output = jax.random.split(key, 4)[3]  # cells use the other three
    output = OUTPUTS[config.output].make(config, hidden_size_of(cell), base_rates, key=key_output)
    model = SequenceModel(cell, output, config.tied == "embedding")
    return _with_one_matrix(model) if model.tied else model


def trained_part(model: SequenceModel) -> tuple[SequenceModel, SequenceModel]:
    """Split a model into its trained weights and the rest; `whole` joins them again.

    The output of a tied model has no matrix in either part, so what is done to the trained weights is done to one.
    """
    trained, constants = split_constants(model)
    if model.tied:
        trained = eqx.tree_at(_matrix_of_output, trained, replace_fn=lambda _: None)
    return trained, constants


def whole(trained: SequenceModel, constants: SequenceModel) -> SequenceModel:
    """The model of trained weights and the rest."""
    model = eqx.combine(trained, constants)
    return _with_one_matrix(model) if model.tied else model


def _with_one_matrix(model: SequenceModel) -> SequenceModel:
    """The model whose output has the vectors of the embedding as its own."""
    embedding, output = first_layer(model.cell), model.output
    assert isinstance(output, SymbolOutput)
    if not isinstance(embedding, EmbeddingCell):
        raise InputError("tied shares the matrix of an embedding without a context", fields=["tied", "cell"])
    vectors = embedding.input_weights if output.vector_axis == 0 else embedding.input_weights.T
    own = _matrix_of_output(model)
    if own is not None and own.shape != vectors.shape:
        read, predicted = (" of ".join(map(str, shape)) for shape in (vectors.shape, own.shape))
        raise InputError(
            f"tied shares one matrix, of embedding and output: got {read} and {predicted} numbers; give the embedding "
            "and the last layer one size, and predict the symbols that are read",
            fields=["tied", "cell"],
        )
    return eqx.tree_at(_matrix_of_output, model, vectors, is_leaf=lambda leaf: leaf is None)


def _matrix_of_output(model: Any) -> Any:
    return model.output.weights


class Stack(Cell):
    """Cells on top of each other: each reads the hidden vectors of the one below, and the output sees the last one's.

    Every layer is run through a whole chunk before the next, so each uses what is fastest for it. In training,
    `dropout` is the fraction of what a layer shows that the next one does not see.
    """

    cells: tuple[Cell, ...]
    dropout: float = eqx.field(static=True, default=0.0)

    @property
    def takes_key(self):
        return self.dropout > 0 or any(cell.takes_key for cell in self.cells)

    def initial_state(self):
        return tuple(cell.initial_state() for cell in self.cells)

    def at_precision(self, precision):
        return Stack(tuple(cell.at_precision(precision) for cell in self.cells), self.dropout)

    def step(self, state, inputs, key=None):
        states = []
        for number, (cell, old) in enumerate(zip(self.cells, state, strict=True)):
            drawn = (jax.random.fold_in(key, number),) if key is not None and cell.takes_key else ()
            states.append(cell.step(old, inputs, *drawn))
            inputs = self._passed_on(cell.output(states[-1]), number, key)
        return tuple(states)

    def output(self, state):
        return self.cells[-1].output(state[-1])

    def run(self, state, inputs, resets, length, keys=None):
        states = []
        for number, (cell, old) in enumerate(zip(self.cells, state, strict=True)):
            new, hidden = self._drawing(cell, number, keys).run(old, inputs, resets, length)
            states.append(new)
            inputs = hidden if keys is None else self._passed_on_by_lanes(hidden, number, keys)
        return tuple(states), inputs

    def trace(self, state, inputs, resets, length):
        """The inner values of all layers, side by side."""
        traces = []
        for cell, old in zip(self.cells, state, strict=True):
            traces.append(cell.trace(old, inputs, resets, length))
            inputs = traces[-1].hidden
        inner = jnp.concatenate([trace.inner for trace in traces], axis=-1)
        return Trace(inputs, inner, jnp.concatenate([trace.weights for trace in traces], axis=-1))

    def _passed_on(
        self, hidden: Float[Array, "*time hidden"], number: int, key: PRNGKeyArray | None
    ) -> Float[Array, "*time hidden"]:
        """What is seen of a layer's hidden vectors by the one above it; the output sees all of the last layer's."""
        if key is None or self.dropout == 0 or number == len(self.cells) - 1:
            return hidden
        own = jax.random.fold_in(key, len(self.cells) + number)  # smaller numbers are the noise of the layers
        dropout = Dropout.of(self.dropout)
        return dropout.apply(hidden, dropout.mask(own, hidden.shape))

    def _passed_on_by_lanes(self, hidden: Hidden, number: int, keys: Key[Array, " lane"]) -> Hidden:
        return jax.vmap(lambda each, key: self._passed_on(each, number, key), in_axes=(1, 0), out_axes=1)(hidden, keys)

    @staticmethod
    def _drawing(cell: Cell, number: int, keys: Key[Array, " lane"] | None) -> Cell:
        if keys is None:
            return cell
        return with_keys(cell, lambda: jax.vmap(jax.random.fold_in, (0, None))(keys, number))


class _GivenDrive(Cell):
    """A cell whose inputs are the drives themselves."""

    cell: DrivenCell

    def initial_state(self):
        return self.cell.initial_state()

    def step(self, state, inputs):
        return self.cell.step_driven(state, inputs)

    def output(self, state):
        return self.cell.output(state)

    def run(self, state, inputs, resets, length, keys=None):
        del keys
        return self.cell.run_driven(state, inputs, resets, length)

    def run_penalized(self, state, inputs, resets, length, weight):
        return self.cell.run_driven_penalized(state, inputs, resets, length, weight)


def first_layer(cell: Cell) -> Cell:
    """The layer that reads the inputs, which may be the only one."""
    return cell.cells[0] if isinstance(cell, Stack) else cell


def reader_of(cell: Cell) -> DrivenCell | None:
    """The cell, or the layer, that reads the inputs through one affine map; None if there is none without noise."""
    first = first_layer(cell)
    return first if isinstance(first, DrivenCell) and not first.takes_key else None


def given_drive(cell: Cell) -> Cell:
    """The cell with the drive of its `reader_of` as its inputs."""
    if isinstance(cell, Stack):
        return dataclasses.replace(cell, cells=(given_drive(cell.cells[0]), *cell.cells[1:]))
    assert isinstance(cell, DrivenCell)
    return _GivenDrive(cell)


def make_cell(config: TrainConfig, input_size: int, *, key: PRNGKeyArray) -> Cell:
    """The initial cell, or stack of cells, that a config describes."""
    layers = parse_cell(config.cell)
    if len(layers) == 1:
        return _make_layer(config, layers[0], input_size, key)
    cells = []
    for layer, layer_key in zip(layers, jax.random.split(key, len(layers)), strict=True):
        cells.append(_make_layer(config, layer, input_size, layer_key))
        input_size = hidden_size_of(cells[-1])
    return Stack(tuple(cells), config.layer_dropout)


def hidden_size_of(cell: Cell) -> int:
    """Size of the hidden vector that a cell shows."""
    return jax.eval_shape(lambda: cell.output(cell.initial_state())).size


def check_cell(config: TrainConfig) -> None:
    """Refuse unknown cells, and settings that a cell does not have or values it does not take."""
    for layer in parse_cell(config.cell):
        _settings_of(config, layer)


def _make_layer(config: TrainConfig, layer: LayerSpec, input_size: int, key: PRNGKeyArray) -> Cell:
    config, own, decays = _settings_of(config, layer)
    arguments = (config, input_size) if own is None else (config, input_size, own)
    cell = CELLS[layer.name].make(*arguments, key=key)
    return with_context(cell, decays, input_size, config.input_scale, key=key) if decays else cell


def _settings_of(config: TrainConfig, layer: LayerSpec) -> tuple[TrainConfig, Any, tuple[float, ...]]:
    """The config as a layer sees it, its own settings, if it has any, and the decays of its context."""
    kind, given = CELLS[layer.name].settings, dict(layer.options)
    own_names = [field.name for field in dataclasses.fields(kind)] if kind else []
    own = {name: value for name, value in given.items() if name in own_names}
    general = {name: value for name, value in given.items() if name in OF_ANY_LAYER and name not in own}
    unknown = [name for name in given if name not in {*own, *general, CONTEXT}]
    if unknown:
        expected = ", ".join([*own_names, *OF_ANY_LAYER, CONTEXT])
        raise InputError(f"cell {layer.name} has no setting {unknown[0]!r}: expected {expected}", fields=["cell"])
    changed = {
        OF_ANY_LAYER[name]: _read(layer, name, value, TYPES[OF_ANY_LAYER[name]]) for name, value in general.items()
    }
    decays = _read(layer, CONTEXT, given[CONTEXT], tuple[float, ...]) if CONTEXT in given else ()
    if not all(0 < decay < 1 for decay in decays):
        raise InputError(f"context of {layer.name} must be between 0 and 1: got {given[CONTEXT]}", fields=["cell"])
    return dataclasses.replace(config, **changed), _own_settings(layer, kind, own), decays


def _own_settings(layer: LayerSpec, kind: type | None, given: dict[str, str]) -> Any:
    if kind is None:
        return None
    types = get_type_hints(kind)
    return kind(**{name: _read(layer, name, value, types[name]) for name, value in given.items()})


def _read(layer: LayerSpec, name: str, text: str, type_: Any) -> Any:
    """A value from text: several are separated by colons, none at all switches something on."""
    several = getattr(type_, "__origin__", None) is tuple
    value = text.split(":") if several else text or "true"
    try:
        return msgspec.convert(value, type_, strict=False)
    except msgspec.ValidationError as error:
        raise InputError(f"{name} of cell {layer.name} cannot be {text!r}: {error}", fields=["cell"]) from error
