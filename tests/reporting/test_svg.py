"""Pictures of any numbers, since results may be those of somebody else: each is drawn, and all of it has a place."""

import re

import pytest

from longspan.reporting.charts import Chart, Series
from longspan.reporting.svg import WIDTH, picture


@pytest.mark.parametrize("log", [False, True])
@pytest.mark.parametrize(
    "values",
    [
        (1.0, 1.0),
        (1.0, 1.0000000000000002),
        (1e60, 1e60),
        (1e60, 9.9999999999999e59),
        (5e-324, 5e-324),
        (5e-324, 1e60),
        (1e-3, 1e-2),
        (0.2, 0.9),
    ],
)
def test_any_numbers_are_drawn(values, log):
    """Two equal scores of 1e60 had no room between them, and a rate of 5e-324 a tick at zero."""
    series = [Series("x", [(value, value) for value in values], "first")]
    drawn = picture([Chart("x", "x", "y", series, x_log=log, y_log=log)], "about")
    places = [float(number) for number in re.findall(r"\b(?:x|y)=\"([^\"]*)\"", drawn)]
    assert len(places) > 4
    assert all(-10 <= place <= WIDTH for place in places)
    assert drawn.count("<text") < 1000
