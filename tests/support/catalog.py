"""Small things to train on, shared by the tests."""

import dataclasses

import numpy as np

from longspan import recipes
from longspan.config import TrainConfig
from longspan.data.music import MusicData
from longspan.data.own import Sequences
from longspan.data.text import TextData

TINY = {"hidden_size": 8, "dropout": 0.0, "chunk_length": 10, "block": 4, "max_epochs": 3, "learning_rate": 0.05}


def tiny_music(songs: int = 6, seed: int = 0) -> MusicData:
    """Rising scales from different notes and of different lengths over a held bass note, three splits of them."""
    random = np.random.default_rng(seed)

    def song():
        frames = np.zeros((int(random.integers(5, 35)), 88), np.uint8)
        melody = 40 + (random.integers(7) + np.arange(len(frames))) % 7
        frames[np.arange(len(frames)), melody] = 1
        frames[:, 15] = 1
        return frames

    return MusicData("tiny", {split: [song() for _ in range(songs)] for split in ("train", "valid", "test")}, 1)


def tiny_text(length: int = 400, seed: int = 0) -> TextData:
    """A noisy cycle over five characters with line ends."""
    random = np.random.default_rng(seed)
    vocabulary = ("\n", "a", "b", "c", "d")

    def stream():
        ids = np.arange(length) % 5
        noisy = random.random(length) < 0.1
        return np.where(noisy, random.integers(0, 5, length), ids).astype(np.int32)

    return TextData("tiny", "character", vocabulary, {split: stream() for split in ("train", "valid", "test")}, 0)


def tiny_series(seed: int = 0) -> Sequences:
    """Two waves around 20 with noise, of which the next step is to be predicted."""
    steps, noise = np.arange(240)[:, None], np.random.default_rng(seed).normal(0, 0.1, (240, 2))
    return Sequences(20 + 3 * np.sin(steps / np.array([3, 5])) + noise, name="tiny")


def tiny_labels(sequences: int = 24, seed: int = 0) -> Sequences:
    """Noise of different lengths and, at the end, whether most of it was positive."""
    random = np.random.default_rng(seed)
    inputs = [random.normal(size=(int(random.integers(6, 12)), 2)) for _ in range(sequences)]
    return Sequences(inputs, ["up" if part[:, 0].mean() > 0 else "down" for part in inputs], name="tiny")


def tiny_config(recipe: str = "sgd+clrm", **changes) -> TrainConfig:
    """A recipe cut down to run in a moment."""
    return dataclasses.replace(recipes.settings(recipe, "tiny", "frames"), **{**TINY, **changes})
