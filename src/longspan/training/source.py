"""The training split as chunks, epoch by epoch and block by block."""

import numpy as np

from longspan.config import TrainConfig
from longspan.data.music import MusicData
from longspan.data.sequences import Chunks, arrange, song_order
from longspan.data.text import TextData
from longspan.evaluation import arrange_split


class ChunkSource:
    """The training split as chunks, in the order of an epoch."""

    def __init__(self, config: TrainConfig, data: MusicData | TextData):
        self.config = config
        self.content = data.splits["train"]
        self.fixed = arrange_split(data, "train", config.chunk_length, config.lanes) if data.kind == "text" else None

    def epoch(self, number: int) -> Chunks:
        """All chunks of an epoch: songs in an order that only seed and epoch decide; a text has only one order."""
        if self.fixed is not None:
            return self.fixed
        order = song_order(len(self.content), self.config.seed, number)
        return arrange(self.content, self.config.chunk_length, self.config.lanes, order)

    def block(self, chunks: Chunks, position: int) -> tuple[Chunks, int]:
        """A full block from `position` on and how many of its chunks count; the rest is filler of the same shape."""
        size = min(self.config.block, len(chunks.lengths))
        count = min(size, len(chunks.lengths) - position)
        index = np.resize(np.arange(position, position + count), size)
        return Chunks(*(leaf[index] for leaf in chunks)), count


def base_rates(data: MusicData | TextData) -> np.ndarray:
    """How often each key is on, or each symbol occurs, in the training split."""
    if isinstance(data, MusicData):
        return np.concatenate(data.splits["train"]).mean(axis=0)
    counts = np.bincount(data.splits["train"], minlength=len(data.vocabulary))
    return counts / counts.sum()
