"""Small songs of three keys that repeat themselves, and an untrained model of them."""

import jax
import numpy as np
import pytest

from longspan.config import TrainConfig
from longspan.data.dataset import DataRecord, Dataset
from longspan.data.sequences import arrange
from longspan.models.model import build

KEYS = 3


class FewKeys(Dataset):
    """Songs of few keys, so that all possible frames can be listed."""

    def __init__(self, **splits):
        self.name, self.splits = "few-keys", splits

    @property
    def record(self):
        return DataRecord("music", "none", KEYS)

    def chunks(self, split, chunk_length, lanes):
        return arrange(self.splits[split], chunk_length, lanes)


def repeating_song(seed: int, length: int = 40) -> np.ndarray:
    generator = np.random.default_rng(seed)
    theme = generator.integers(0, 2, (7, KEYS)).astype(np.uint8)
    song = np.concatenate([theme, generator.integers(0, 2, (3, KEYS)), theme, theme] * 3)[:length]
    return song.astype(np.uint8)


@pytest.fixture(scope="session")
def songs():
    return [repeating_song(seed) for seed in range(4)]


@pytest.fixture(scope="session")
def few_keys(songs):
    return FewKeys(train=songs, valid=songs, test=songs[:2])


@pytest.fixture(scope="session", params=["nade", "bernoulli"])
def model(request):
    config = TrainConfig(hidden_size=4, nade_size=3, output=request.param, output_scale=0.5)
    return build(config, KEYS, np.full(KEYS, 0.4), key=jax.random.key(0))
