"""Parts of users are written as users write them."""

import pytest


@pytest.fixture(autouse=True)
def loose_ranks(as_users_write):
    """Every test of this folder runs parts from outside the package."""
