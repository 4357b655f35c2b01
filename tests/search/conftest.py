"""What the tests of the search share: a server that keeps studies, and workers that need not compile twice."""

import jax
import pytest

from tests.support import postgresql


@pytest.fixture(scope="module")
def server():
    """The URL of an empty database on a PostgreSQL server of the tests' own."""
    with postgresql.server() as url:
        yield url


@pytest.fixture
def compiled_once(monkeypatch):
    """A worker forgets what it compiled after every slot, because the next may have other shapes; here none has."""
    monkeypatch.setattr(jax, "clear_caches", lambda: None)
