"""A cell of the tables small enough to be computed in a moment, in this process."""

import dataclasses

import pytest

from longspan import runtime
from longspan.data.archive import write_set
from longspan.data.library import load
from longspan.reproduction.cells import Cell
from longspan.reproduction.run import Reproduction, Settings
from longspan.search.worker import Place, work
from tests.support.catalog import tiny_config, tiny_music

OUT_OF_REACH = Cell("table1", "nade:sgd+crm", "nottingham")
"""What the paper reports here, few songs do not come to in two epochs."""
SPACE = {"learning_rate": {"low": 0.01, "high": 0.1, "log": True}}


def work_here(study, options, *, interrupted, on_tick):
    """A pool that is one worker in this process."""
    on_tick()
    place, data = Place(options.folder, runtime.describe(1)), load(study.definition.base.data)
    return work(study, data, place, worker="me", interrupted=interrupted, limits=options.limits)


@pytest.fixture
def tiny_cell(tmp_path):
    """Reproductions of the cell `OUT_OF_REACH`, or of another one, by a tiny network on few songs."""
    data = tmp_path / "tiny.npz"
    write_set(data, tiny_music())
    base = tiny_config("sgd+c", data=str(data), max_epochs=2)
    fingerprint = load(str(data)).fingerprint

    def reproduction(plan, *, pool=work_here, cell=OUT_OF_REACH, changes=None, space=SPACE, **settings) -> Reproduction:
        where = Settings(tmp_path / "results", tmp_path / "work", 1, **settings)
        return Reproduction(
            [cell],
            plan,
            where,
            lambda name: fingerprint,
            pool=pool,
            recipe=lambda row, data: dataclasses.replace(base, **(changes or {})),
            space=lambda config, targets: space,
        )

    return reproduction
