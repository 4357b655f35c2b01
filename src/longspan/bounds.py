"""Bounded types for documents that come from outside, so that what computes with their values need not be careful.

A number from a file may be as large as a float can be, and then a sum or a product of two is infinite, and a rounded
one raises. Within these bounds sums over all epochs, squares and ratios stay finite, and what real runs record lies far
inside them.
"""

from typing import Annotated, Any

from msgspec import Meta

LARGEST = 1e60
"""Far above the sums of what single precision can hold, in which models are trained."""

Whole = Annotated[int, Meta(ge=0, le=2**53)]
Figure = Annotated[float, Meta(ge=-LARGEST, le=LARGEST)]
Size = Annotated[float, Meta(ge=0, le=LARGEST)]
"""A norm, a rate, an error or a count."""
Positive = Annotated[float, Meta(ge=1e-30, le=LARGEST)]
"""Something to divide by."""
Share = Annotated[float, Meta(ge=0, le=1)]
Seconds = Annotated[float, Meta(ge=0, le=1e10)]
"""Up to three centuries."""
Text = Annotated[str, Meta(max_length=2000)]
"""A name or a sentence to be shown."""
Setting = bool | Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)] | Figure | Text | None
"""The value of a setting, as a config holds it."""

Few = Meta(max_length=100)
"""Of a list or dictionary whose parts are rows or columns of a table."""
Figures = Annotated[dict[Text, Figure | None], Few]
"""Scores or counts by name."""


def check_lengths(**lists: Any) -> None:
    """Raise ValueError, which a decoder reports, unless all lists have the same length."""
    if len({len(each) for each in lists.values()}) > 1:
        found = ", ".join(f"{len(each)} {name}" for name, each in lists.items())
        raise ValueError(f"expected lists of one length, got {found}")
