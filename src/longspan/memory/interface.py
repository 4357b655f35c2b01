"""Memories: what turns a model's expectation of the next step into one that also knows the sequence's own past.

A memory is attached to a trained model. Its few parameters are chosen on the validation split; what it reports is the
exact likelihood of a normalized distribution that uses nothing but the past of the same sequence.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from typing import Any, ClassVar, NamedTuple, TypeVar

import numpy as np

from longspan.data.cues import NO_CUES, Cues
from longspan.data.dataset import DataRecord, Dataset
from longspan.errors import InputError, to_paste
from longspan.evaluation import Scores
from longspan.models.model import SequenceModel
from longspan.registry import Registry
from longspan.sampling.generate import Proposal
from longspan.sampling.reading import Reader, WithCues
from longspan.training.runs import Run

MEMORIES: Registry[type[Memory]] = Registry("memory", "longspan.memory")
"""All memories by name, yours included."""


class Recollection(NamedTuple):
    """How a model with a memory did on a split."""

    scores: Scores
    steps: np.ndarray
    """Log-likelihood of every counted step, in the order of the split's chunks."""
    recalled: float
    """Share of the steps that were more likely copied from the past than newly made."""
    trails: list[Trail]
    """Which steps were recalled, for every sequence."""

    def longest_trails(self, most: int = 3, steps: int = 2000) -> list[dict[str, Any]]:
        """As plain values, the sequences in which most was recalled, each with its number and its first steps."""
        chosen = sorted(range(len(self.trails)), key=lambda number: -len(self.trails[number].steps))[:most]
        return [{"sequence": number, **self.trails[number].beginning(steps)._asdict()} for number in chosen]


class Trail(NamedTuple):
    """The steps of one sequence that were recalled, and where from."""

    length: int
    """Number of steps of the sequence."""
    steps: list[int]
    places: list[int]
    """For each of the recalled steps, the earlier step that was copied."""

    def beginning(self, length: int) -> Trail:
        """The trail of the first steps of the sequence."""
        count = sum(step < length for step in self.steps)
        return Trail(min(length, self.length), self.steps[:count], self.places[:count])


LONGEST_SEGMENT = 1000
"""Steps between two updates of a network that learns from what it reads; with more it would hardly learn in time."""


class Adaptation(NamedTuple):
    """How a network learns from what it reads."""

    segment: int
    """Steps between two updates."""
    rate: float
    """Size of an update, in weights."""
    decay: float
    """Share of the way back to the weights of training, taken at every update."""


def kept_adaptation(values: dict[str, Any]) -> Adaptation | None:
    """The adaptation in the values of a memory; None if it has none."""
    kept = values.get("adaptation")
    if kept is None:
        return None
    found = Adaptation(**kept)
    numbers = all(isinstance(each, int | float) for each in (found.rate, found.decay))
    if (
        type(found.segment) is not int
        or not 1 <= found.segment <= LONGEST_SEGMENT
        or not (numbers and 0 < found.rate < math.inf and 0 <= found.decay < 1)
    ):
        raise InputError("the memory has impossible parameters: fit it again by `longspan remember`")
    return found


class Memory(ABC):
    """A memory with its parameters; derive your own and register it with `register_memory`."""

    name: ClassVar[str]
    adaptation: Adaptation | None = None
    """How the network keeps learning while it is scored; None if it does not."""

    @classmethod
    @abstractmethod
    def fitted(cls, model: SequenceModel, data: Dataset, split: str = "valid") -> Memory:
        """The memory with the parameters that suit a model best on a split."""

    @classmethod
    @abstractmethod
    def from_values(cls, values: dict[str, Any]) -> Memory:
        """Inverse of `values`."""

    @abstractmethod
    def values(self) -> dict[str, Any]:
        """The parameters as plain values, for the run folder."""

    @abstractmethod
    def recollect(self, model: SequenceModel, data: Dataset, split: str) -> Recollection:
        """Score a model with this memory on a split."""

    def proposal(self) -> Proposal | None:
        """The distribution to sample from; None where the memory serves to score only."""
        return None


Kind = TypeVar("Kind", bound=type[Memory])


def register_memory(memory: Kind) -> Kind:
    """A decorator that registers a class of memories under its name."""
    MEMORIES.register(memory.name)(memory)
    return memory


def remember(run: Run, name: str, model: SequenceModel, data: Dataset) -> Memory:
    """Fit a memory to the best weights of a run and keep it in the run folder."""
    memory = MEMORIES[name].fitted(model, data)
    run.write_memory({"memory": name, "model": run.model_checksum(), **memory.values()})
    return memory


def memory_of(run: Run) -> Memory:
    """The memory in a run folder; refused if there is none, or if it was fitted to other weights."""
    kept, command = run.memory(), to_paste("remember", run.path)
    if kept is None:
        raise InputError(f"{run.path} has no memory: `{command}` fits one")
    if kept.pop("model", None) != run.model_checksum():
        raise InputError(
            f"the memory in {run.path} was fitted to other weights than it has now: `{command}` fits it again"
        )
    try:
        return MEMORIES[kept.pop("memory")].from_values(kept)
    except (LookupError, TypeError, ValueError, ArithmeticError, AttributeError) as error:
        raise InputError(
            f"{run.path / 'memory.json'} cannot be used ({type(error).__name__}: {error}): `{command}` fits it again"
        ) from error


def proposal_of(run: Run) -> Proposal | None:
    """What to sample from with the memory of a run; None if it has none or one that only scores."""
    return None if run.memory_name is None else memory_of(run).proposal()


def reader_of(run: Run) -> Reader | None:
    """What the network of a run reads before each step of a sample; None if that is the last step alone.

    Refused if the network reads anything else, which only its data could tell.
    """
    cues, record = Cues.named(run.config.cues), run.data
    reads, drawn = record.input_size or record.size, cues.width(record.size)
    if record.predicted != "symbols" and reads != drawn:
        raise InputError(
            f"{run.path} reads {reads} inputs at a step, but {drawn} follow from what it predicts: such a network "
            "cannot be sampled"
        )
    return None if cues == NO_CUES else WithCues(cues)


def check_memory(name: str, record: DataRecord) -> None:
    """Refuse a memory that does not exist or has nothing to recall, before a run folder is created."""
    check_remembers(record)
    _ = MEMORIES[name]


def check_remembers(record: DataRecord) -> None:
    """Refuse data whose targets are not the next inputs: they have no past of their own to recall."""
    if record.kind not in ("music", "text"):
        raise InputError(f"these data ask for {record.kind}, which have no past to recall: use music or text")
