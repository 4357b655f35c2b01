"""The training split as chunks, by epoch and block."""

import numpy as np

from longspan.config import TrainConfig
from longspan.data.dataset import Chunks, Dataset


class ChunkSource:
    """The training split as chunks, in the order of an epoch."""

    def __init__(self, config: TrainConfig, data: Dataset):
        self.config = config
        self.data = data

    @property
    def counted_steps(self) -> int:
        """Number of steps per lane of a full chunk at which something is predicted."""
        return self.data.counted_steps(self.config.chunk_length)

    def frames(self) -> np.ndarray:
        """All targets of the training split, concatenated, without their history."""
        chunks = self.data.chunks("train", self.config.chunk_length, 1)
        return chunks.targets[chunks.mask]

    def epoch(self, number: int) -> Chunks:
        """All chunks of an epoch, determined by seed and epoch."""
        config = self.config
        return self.data.epoch(number, seed=config.seed, chunk_length=config.chunk_length, lanes=config.lanes)

    def block(self, chunks: Chunks, position: int) -> tuple[Chunks, int]:
        """A full block from `position` and the number of its chunks that count; the rest is filler."""
        size = min(self.config.block, len(chunks.lengths))
        count = min(size, len(chunks.lengths) - position)
        index = np.resize(np.arange(position, position + count), size)
        return Chunks(*(leaf[index] for leaf in chunks)), count
