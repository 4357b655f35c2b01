"""A trained model as the player page carries it: what to compute, and weights of one or two bytes.

A matrix is rounded to int8 with one scale for each row, or to half precision; vectors stay as they are. The page
computes with the rounded weights, so `rounded` gives the model that it runs, and what the rounding costs is measured
with that.
"""

from __future__ import annotations

import base64
from pathlib import PurePath
from typing import Any, Literal

import jax
import jax.numpy as jnp
import msgspec
import numpy as np

from longspan.config import TrainConfig
from longspan.data.dataset import DataRecord, Dataset
from longspan.data.library import is_here, is_named, load
from longspan.data.lookup import ORDERS
from longspan.data.music import WITH_ONSETS
from longspan.data.vocabulary import Vocabulary
from longspan.errors import InputError
from longspan.evaluation import SplitEvaluator
from longspan.memory.gate import BARS, as_array
from longspan.memory.interface import Memory, memory_of
from longspan.memory.recall import Recall
from longspan.models.cells import LeakyCell
from longspan.models.factored import ClassFactored
from longspan.models.gated import GruCell, LstmCell
from longspan.models.model import SequenceModel, Stack, hidden_size_of
from longspan.models.outputs import Bernoulli, Nade, Softmax
from longspan.models.parts import Constant
from longspan.models.tree import HuffmanTree
from longspan.sampling.notes import lowest_sounding_pitch
from longspan.training.rounding import Rows
from longspan.training.runs import Run
from longspan.training.setup import trained_model

Precision = Literal["int8", "f16"]
CELLS = {"leaky": LeakyCell, "lstm": LstmCell, "gru": GruCell}
OUTPUTS = {
    "bernoulli": Bernoulli,
    "nade": Nade,
    "softmax": Softmax,
    "factored": ClassFactored,
    "tree": HuffmanTree,
}
"""The parts that the page knows, by the names of their descriptions; a cell may also be a stack of them."""


class PackedArray(msgspec.Struct, frozen=True):
    """Where an array lies among the bytes, and how it is written; the scales of int8 rows come before their numbers."""

    at: int
    shape: list[int]
    type: Literal["int8", "f16", "f32", "int32"]


class Rounding(msgspec.Struct, frozen=True):
    """Mean log-likelihood of the validation split before and after rounding, in nats per step."""

    exact: float
    rounded: float

    @property
    def lost(self) -> float:
        return self.exact - self.rounded

    @property
    def told(self) -> str:
        """What is lost, to four decimals; rounding may happen to help.

        Example:
            >>> Rounding(-8.1, -8.12).told, Rounding(-8.12, -8.1).told, Rounding(-8.1, -8.10001).told
            ('0.0200 lost', '0.0200 better', 'nothing lost')
        """
        if round(self.lost, 4) == 0:
            return "nothing lost"
        return f"{abs(self.lost):.4f} {'lost' if self.lost > 0 else 'better'}"


class Packed(msgspec.Struct, frozen=True):
    """All that the page knows of a run."""

    name: str
    recipe: str
    data: str
    title: str
    """The data in a word, without a path."""
    kind: Literal["music", "text"]
    about: str
    """The network in a line."""
    weights: int
    """Number of weights."""
    precision: Precision
    cells: list[dict[str, Any]]
    output: dict[str, Any]
    memory: dict[str, Any] | None
    record: dict[str, Any]
    """What the data say about frames and symbols."""
    content: str
    """The bytes of all arrays, in base64."""
    rounding: Rounding | None = None

    def measured(self, rounding: Rounding | None) -> Packed:
        return msgspec.structs.replace(self, rounding=rounding)


def pack(run: Run, precision: Precision = "int8") -> Packed:
    """Pack the best weights of a run; refused if the page cannot run its model."""
    memory = None if run.memory_name is None else memory_of(run)
    name = run.path.resolve().name
    return pack_model(trained_model(run), run.config, run.data, name=name, memory=memory, precision=precision)


def pack_model(
    model: SequenceModel,
    config: TrainConfig,
    record: DataRecord,
    *,
    name: str,
    memory: Memory | None = None,
    precision: Precision = "int8",
) -> Packed:
    """Pack a model of music or text.

    Args:
        model: the model.
        config: the settings that it was built from.
        record: what its data say about frames and symbols.
        name: what the page calls the run.
        memory: the memory of the song; only `recall` can be drawn from, so the page leaves out any other.
        precision: how matrices are written.
    """
    if record.kind != "music" and record.kind != "text":
        raise InputError(f"the page plays music and text, but the data of {name} ask for {record.kind}")
    if record.kind == "music" and record.size == WITH_ONSETS:
        raise InputError(f"the page holds keys and does not strike them again, but the data of {name} have onsets")
    if config.cues != "none":
        raise InputError(f"the page gives a network its last step and nothing else: got cues {config.cues}")
    content = _Bytes(precision)
    cells, output = _describe(model, content, config)
    hidden = " + ".join(f"{cell['size']} {cell['activation']}" for cell in cells)
    kinds = "/".join(dict.fromkeys(cell["kind"] for cell in cells))
    return Packed(
        name=name,
        recipe=config.recipe,
        data=config.data,
        title=PurePath(config.data.partition(":")[2] or config.data).stem,
        kind=record.kind,
        about=f"{hidden} units ({kinds}), {config.output} output",
        weights=sum(leaf.size for leaf in jax.tree.leaves(model)),
        precision=precision,
        cells=cells,
        output=output,
        memory=_described_memory(memory) if isinstance(memory, Recall) else None,
        record=_music(record) if record.kind == "music" else _text(record),
        content=base64.b64encode(content.content).decode(),
    )


def rounded(model: SequenceModel, precision: Precision) -> SequenceModel:
    """The model with its weights as the page has them."""
    return jax.tree.map(lambda leaf: jnp.asarray(_restored(np.asarray(leaf), precision)), model)


def measure(run: Run, precision: Precision, data: Dataset) -> Rounding:
    """What rounding does to the likelihood of the validation split."""
    evaluator, model = SplitEvaluator(data, "valid"), trained_model(run)
    return Rounding(evaluator.log_likelihood(model), evaluator.log_likelihood(rounded(model, precision)))


def measure_if_here(run: Run, precision: Precision) -> Rounding | None:
    """`measure`, if the data of the run have a name, are there unchanged and need no download."""
    name = run.config.data
    if not (is_named(name) and is_here(name)):
        return None
    try:
        data = load(name, span=run.config.span)
        run.check_data(data)
    except InputError:
        return None
    return measure(run, precision, data)


def _restored(array: np.ndarray, precision: Precision) -> np.ndarray:
    if array.ndim != 2 or array.dtype != np.float32:
        return array
    if precision == "f16":
        return array.astype(np.float16).astype(np.float32)
    return Rows.of(array).restored()


class _Bytes:
    """The bytes of arrays, one after the other."""

    def __init__(self, precision: Precision):
        self.precision: Precision = precision
        self.content = bytearray()

    def add(self, array: Any) -> PackedArray:
        values, at = np.asarray(array), len(self.content)
        shape = list(values.shape)
        if values.dtype.kind == "i":
            self.content += values.astype("<i4").tobytes()
            return PackedArray(at, shape, "int32")
        if values.ndim != 2:
            self.content += values.astype("<f4").tobytes()
            return PackedArray(at, shape, "f32")
        if self.precision == "f16":
            self.content += values.astype("<f2").tobytes()
            return PackedArray(at, shape, "f16")
        numbers, scales = Rows.of(values)
        self.content += scales.astype("<f4").tobytes() + numbers.tobytes()
        return PackedArray(at, shape, "int8")


def _describe(
    model: SequenceModel, content: _Bytes, config: TrainConfig
) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    cells = []
    for layer in model.cell.cells if isinstance(model.cell, Stack) else (model.cell,):
        described = _part(layer, CELLS, content)
        if described is None:
            raise InputError(f"the page runs the cells {', '.join(CELLS)}, alone or in layers: got {config.cell}")
        cells.append({**described, "size": hidden_size_of(layer)})
    output = _part(model.output, OUTPUTS, content)
    if output is None:
        raise InputError(f"the page runs the outputs {', '.join(OUTPUTS)}: got {config.output}")
    return cells, output


def _part(part: Any, known: dict[str, type], content: _Bytes) -> dict[str, Any] | None:
    """The fields of a cell or output under their names, arrays packed; None if the page does not know it."""
    kind = next((name for name, type_ in known.items() if type(part) is type_), None)
    if kind is None:
        return None
    described: dict[str, Any] = {"kind": kind}
    for field, value in vars(part).items():
        if isinstance(value, Constant):
            value = value.value
        described[field] = content.add(value) if isinstance(value, jax.Array) else value
    return described


def _described_memory(memory: Memory) -> dict[str, Any]:
    values = memory.values()
    weights = [float(weight) for weight in as_array(values["weights"])]
    return {"candidates": values["candidates"], "weights": weights, "orders": ORDERS, "bars": BARS}


def _music(record: DataRecord) -> dict[str, Any]:
    return {
        "size": record.size,
        "frames_per_beat": record.frames_per_beat or 1,
        "lowest_pitch": lowest_sounding_pitch(record.octave_shift),
    }


def _text(record: DataRecord) -> dict[str, Any]:
    vocabulary = Vocabulary.of(record)
    return {
        "size": record.size,
        "unit": vocabulary.unit,
        "tokens": vocabulary.tokens,
        "end_token": record.end_token or 0,
        "unknown": vocabulary.unknown,
    }
