"""Small models with arbitrary weights, packed for the page, and the page in a browser."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from longspan.config import TrainConfig
from longspan.data.dataset import DataRecord
from longspan.models.model import build
from longspan.playing.packing import pack_model
from longspan.playing.page import render
from tests.support.browser import quiet_pages

KEYS = 88
TOKENS = ["\n", *"abcdefghijklmnopqrstuvwxyz ."]
MUSIC = DataRecord("music", "none", KEYS, frames_per_beat=2)
TEXT = DataRecord("text", "none", len(TOKENS), vocabulary=TOKENS, unit="character", end_token=0)


def made(record: DataRecord, seed: int = 0, **settings):
    """A config and a model whose every weight is arbitrary, so that none of them can be mixed up or left out."""
    rates = np.full(record.size, 1 / record.size)
    if record.size == KEYS:
        rates = np.where((np.arange(KEYS) > 24) & (np.arange(KEYS) < 60), 0.1, 1e-4)
    chosen = {
        "hidden_size": 6,
        "nade_size": 5,
        "leaky_share": 0.5,
        "classes": 4,
        "recurrent_scale": 0.4,
        "data": "tiny",
        **settings,
    }
    config = dataclasses.replace(TrainConfig(), **chosen)
    model = build(config, record.size, rates, key=jax.random.key(seed))
    keys = iter(jax.random.split(jax.random.key(seed + 1), 100))

    def stirred(leaf):
        noise = 0.15 * jax.random.normal(next(keys), leaf.shape)
        return leaf + noise if jnp.issubdtype(leaf.dtype, jnp.floating) else leaf

    return config, jax.tree.map(stirred, model)


def song(length: int = 24, keys: int = KEYS, seed: int = 0) -> np.ndarray:
    """Random frames whose second half repeats some of the first, so that there is something to recall."""
    drawn = (np.random.default_rng(seed).random((length, keys)) < 0.06).astype(np.uint8)
    drawn[length // 2 :] = drawn[: length - length // 2]
    drawn[-3] = 0
    return drawn


@pytest.fixture
def open_model(browser, tmp_path):
    """Opens the page of a packed model, after a fragment of settings."""
    with quiet_pages(browser) as open_one:

        def open_model(packed, fragment="", **options):
            path = tmp_path / f"{packed.kind}.html"
            path.write_text(render(packed))
            return open_one(path.as_uri() + fragment, **options)

        yield open_model


@pytest.fixture(scope="session")
def music():
    config, model = made(MUSIC, output="nade", hidden_size=12, nade_size=8)
    return pack_model(model, config, MUSIC, name="tiny run")


@pytest.fixture(scope="session")
def text():
    config, model = made(TEXT, output="softmax", hidden_size=12)
    return pack_model(model, config, TEXT, name="tiny run")
