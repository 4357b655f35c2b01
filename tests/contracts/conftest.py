"""Which combinations of parts are tried, and how the part that stands for those of users is written."""

import random

import pytest


@pytest.fixture(autouse=True)
def loose_ranks(request):
    """Lets the output from outside the package broadcast as in NumPy, and no other."""
    parts = getattr(request.node, "callspec", None)
    if parts is not None and getattr(parts.params.get("parts"), "output", None) == "mixture":
        request.getfixturevalue("as_users_write")


def pytest_collection_modifyitems(config, items):
    """With `--grid-sample N`, N of the slow combinations, drawn with `--grid-seed`: the whole grid takes hours."""
    count = config.getoption("grid_sample")
    grid = [item for item in items if item.path.parent.name == "contracts" and item.get_closest_marker("slow")]
    if count is None or count >= len(grid):
        return
    drawn = set(random.Random(config.getoption("grid_seed")).sample([item.nodeid for item in grid], count))
    left_out = [item for item in grid if item.nodeid not in drawn]
    config.hook.pytest_deselected(items=left_out)
    items[:] = [item for item in items if item not in set(left_out)]
