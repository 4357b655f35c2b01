"""One of the outputs stands for those of users, and is written as they write."""

import pytest


@pytest.fixture(autouse=True)
def loose_ranks(request):
    """Lets the output from outside the package broadcast as in NumPy, and no other."""
    parts = getattr(request.node, "callspec", None)
    if parts is not None and getattr(parts.params.get("parts"), "output", None) == "mixture":
        request.getfixturevalue("as_users_write")
