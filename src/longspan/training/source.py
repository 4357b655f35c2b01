"""The training split as chunks, epoch by epoch and block by block."""

from collections.abc import Sequence
from functools import cached_property

import numpy as np

from longspan.config import TrainConfig
from longspan.data.kinds import Data
from longspan.data.music import MusicData
from longspan.data.sequences import Chunks, arrange, song_order
from longspan.data.tasks import TaskData
from longspan.evaluation import arrange_split


class ChunkSource:
    """The training split as chunks, in the order of an epoch."""

    def __init__(self, config: TrainConfig, data: Data):
        self.config = config
        self.data = data

    @property
    def content(self) -> Sequence[np.ndarray] | np.ndarray:
        """Songs or tokens of the training split; a task has nothing that stays."""
        return [] if isinstance(self.data, TaskData) else self.data.splits["train"]

    @cached_property
    def _text(self) -> Chunks:
        return arrange_split(self.data, "train", self.config.chunk_length, self.config.lanes)

    @property
    def counted_steps(self) -> int:
        """Steps of a full chunk at which something is predicted, in each lane."""
        return self.data.counted_steps if isinstance(self.data, TaskData) else self.config.chunk_length

    def epoch(self, number: int) -> Chunks:
        """All chunks of an epoch, decided by seed and epoch: songs in some order, or the sequences of a task.

        A text has only one order.
        """
        config = self.config
        if isinstance(self.data, TaskData):
            return self.data.training_chunks(config.lanes, seed=config.seed, epoch=number)
        if isinstance(self.data, MusicData):
            songs = self.data.splits["train"]
            return arrange(songs, config.chunk_length, config.lanes, song_order(len(songs), config.seed, number))
        return self._text

    def block(self, chunks: Chunks, position: int) -> tuple[Chunks, int]:
        """A full block from `position` on and how many of its chunks count; the rest is filler of the same shape."""
        size = min(self.config.block, len(chunks.lengths))
        count = min(size, len(chunks.lengths) - position)
        index = np.resize(np.arange(position, position + count), size)
        return Chunks(*(leaf[index] for leaf in chunks)), count


def base_rates(data: Data) -> np.ndarray:
    """How often each key is on, or each symbol or class occurs, in the training split; of numbers, their mean."""
    if isinstance(data, TaskData):
        chunks = data.judged_chunks("train", lanes=1)
        asked = chunks.targets[chunks.mask]
        return asked.mean(axis=0) if data.kind == "numbers" else _shares(asked, data.task.output_size)
    if isinstance(data, MusicData):
        return np.concatenate(data.splits["train"]).mean(axis=0)
    return _shares(data.splits["train"], len(data.vocabulary))


def _shares(numbers: np.ndarray, size: int) -> np.ndarray:
    counts = np.bincount(numbers, minlength=size)
    return counts / counts.sum()
