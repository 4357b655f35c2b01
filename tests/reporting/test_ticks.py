"""The ticks of charts of any numbers, since they may be those of somebody else: their script ends, in Node."""

import json
import shutil
import subprocess
from pathlib import Path

import pytest

import longspan.reporting

CHARTS = Path(longspan.reporting.__file__).parent / "assets" / "charts.js"
HANG = 60
"""A guard and no measure of speed."""


@pytest.fixture(scope="module")
def ticks():
    """A function that gives the ticks of a scale over some values."""
    node = shutil.which("node")
    if node is None:
        pytest.skip("no Node on this machine")

    def found(values: list[float], *, log: bool) -> list[float]:
        asked = f"makeScale({json.dumps(values)}, 0, 100, {{ log: {json.dumps(log)} }}).ticks(5)"
        page = "const document = { querySelectorAll: () => [] };\n" + CHARTS.read_text()
        told = subprocess.run(
            [node, "--max-old-space-size=200", "-e", f"{page}\nconsole.log(JSON.stringify({asked}));"],
            capture_output=True,
            timeout=HANG,
            check=True,
        )
        return json.loads(told.stdout)

    return found


@pytest.mark.parametrize(
    ("values", "log"),
    [
        ([1.0, 1.0000000000000002], False),
        ([1e30, 1.0000000000000002e30], False),
        ([-1e60, -9.999999999999999e59], False),
        ([-1e60, 1e60], False),
        ([0.0, 5e-324], False),
        ([5e-324, 1.0], True),
        ([1e-30, 1e60], True),
    ],
)
def test_there_are_some_ticks_and_not_many(ticks, values, log):
    """A count that is no longer changed by adding one, and powers of ten from minus infinity on, had no end."""
    assert 1 <= len(ticks(values, log=log)) <= 20


@pytest.mark.parametrize(
    ("values", "log", "expected"),
    [
        ([0.1, 0.9], False, [0.2, 0.4, 0.6, 0.8]),
        ([-9.5, -8.7], False, [-9.4, -9.2, -9, -8.8]),
        ([0.01, 100.0], True, [0.01, 0.1, 1, 10, 100]),
    ],
)
def test_ordinary_ticks(ticks, values, log, expected):
    assert ticks(values, log=log) == expected
