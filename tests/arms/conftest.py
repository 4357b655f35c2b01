"""A study of the paper's methods that takes seconds."""

import dataclasses

import jax
import pytest

from longspan.arms import protocol
from longspan.arms.protocol import BUDGETS, Budget
from tests.support.catalog import tiny_music


@pytest.fixture
def tiny(monkeypatch):
    """A study of three short slots per arm on a few songs."""
    data = dataclasses.replace(tiny_music(), name="jsb")
    monkeypatch.setitem(BUDGETS, "jsb", Budget(3, 10))
    monkeypatch.setattr(jax, "clear_caches", lambda: None)  # the few shapes there are come again and again
    small = protocol.MUSIC_NUISANCES | {"hidden_size": [6, 9]}
    monkeypatch.setitem(protocol.NUISANCES, "frames", small)
    monkeypatch.setitem(protocol.NADE_SETTINGS, "nade_size", [5])
    return data
