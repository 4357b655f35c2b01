"""A cell of the tables small enough to be computed in a moment, in this process."""

import jax
import pytest

from longspan import recipes, runtime
from longspan.data.archive import write_set
from longspan.data.library import load
from longspan.reproduction import run, tables
from longspan.reproduction.run import Reproduction, Settings
from longspan.search.worker import Place, work
from tests.support.catalog import tiny_config, tiny_music
from tests.support.reproduction_results import JSB

SPACE = {"learning_rate": {"low": 0.01, "high": 0.1, "log": True}}


def work_here(study, options, *, interrupted, on_tick):
    """A pool that is one worker in this process."""
    on_tick()
    place, data = Place(options.folder, runtime.describe(1)), load(study.definition.base.data)
    return work(study, data, place, worker="me", interrupted=interrupted, limits=options.limits)


@pytest.fixture
def tiny_cell(tmp_path, monkeypatch):
    """Reproductions of the cell JSB on few songs, with a paper that is out of reach."""
    data = tmp_path / "tiny.npz"
    write_set(data, tiny_music())
    config = tiny_config("sgd+c", data=str(data), max_epochs=2)
    monkeypatch.setattr(recipes, "settings", lambda recipe, name: config)
    monkeypatch.setattr(run, "paper_space", lambda config, targets: SPACE)
    monkeypatch.setattr(jax, "clear_caches", lambda: None)  # all slots have the same shapes
    monkeypatch.setitem(tables.TABLE1, ("sgd+c", "jsb"), tables.MusicCell(-0.01, -0.01, 100.0))
    fingerprint = load(str(data)).fingerprint

    def reproduction(plan, *, pool=work_here, **settings) -> Reproduction:
        where = Settings(tmp_path / "results", tmp_path / "work", 1, **settings)
        return Reproduction([JSB], plan, where, lambda name: fingerprint, pool=pool)

    return reproduction
