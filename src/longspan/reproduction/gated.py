"""The table of gated networks, as text for both pages: its columns, and what stands beside our figures."""

from longspan.metrics import number
from longspan.reproduction.past import with_spread
from longspan.reproduction.values import GatedCellValue, test_of

ABOUT = (
    "LSTM and GRU, which the paper does not train, by the rules of our best: the same number of slots for "
    "all rows of a kind, chosen on validation, the winner on fresh seeds, means over seeds ± standard deviation. A row "
    "without dropout hides no units in any of its slots. The recipes before NADE were tuned by hand in a few runs, the "
    "others are not tuned yet. “Our best plain row” is the row of the paper’s tables above with the same output whose "
    "mean on the test split is best, so chance favors it. Figures that are at or better than it, rounded to two "
    "decimals, stand out. “Published” are LSTM and GRU in Bai, Kolter and Koltun (2018), “An Empirical Evaluation of "
    "Generic Convolutional and Recurrent Networks for Sequence Modeling”, of other sizes than ours (words: 13 million "
    "weights); blank where it has none."
)
NONE_YET = "No row has a result yet; `longspan reproduce gated` computes them ([search.md](search.md))."
OURS = 4
"""The column, behind the name of the row, of our test figure."""


def gated_header(cell: GatedCellValue) -> list[str]:
    """The titles of the columns of a data set."""
    music = cell.metric == "log_likelihood"
    figures = ["train, our best", "test, published", "test, our best plain row", "test, our best"]
    return [
        "",
        *figures,
        *(["accuracy %, our best"] if music else []),
        "seeds",
        "trials",
        "frames/s" if music else "symbols/s",
    ]


def gated_cells(cell: GatedCellValue) -> list[str]:
    """A row below that header, its name first."""
    ours, spread, plain = cell.ours, cell.spread, cell.plain
    train = with_spread(ours.train if ours else None, spread.train if spread else None)
    beside = f"{test_of(plain)} ({plain.row})" if plain else ""
    found = [cell.row, train, number(cell.published), beside, test_of(cell) if ours else "diverged"]
    if cell.metric == "log_likelihood":
        found.append(with_spread(_percent(ours and ours.accuracy), _percent(spread and spread.accuracy)))
    speed = "" if cell.frames_per_second is None else f"{cell.frames_per_second:,.0f}"
    return [*found, str(cell.seeds or ""), str(cell.tried), speed]


def by_data(cells: list[GatedCellValue]) -> dict[str, list[GatedCellValue]]:
    """The cells of each data set."""
    return {data: [cell for cell in cells if cell.data == data] for data in dict.fromkeys(cell.data for cell in cells)}


def _percent(value: float | None) -> float | None:
    return None if value is None else 100 * value
