"""What the tests of the search share: a server that keeps studies, and workers that need not compile twice."""

import os
from pathlib import Path

import jax
import pytest

from longspan.data.archive import write_set
from tests.support import postgresql
from tests.support.catalog import tiny_music


@pytest.fixture(scope="module")
def server():
    """The URL of an empty database on a PostgreSQL server of the tests' own."""
    with postgresql.server() as url:
        yield url


@pytest.fixture
def compiled_once(monkeypatch):
    """A worker forgets what it compiled after every slot, because the next may have other shapes; here none has."""
    monkeypatch.setattr(jax, "clear_caches", lambda: None)


@pytest.fixture(scope="module")
def inputs(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("inputs")
    write_set(folder / "tiny.npz", tiny_music())
    from tests.search.test_kill_workers import SPACE

    (folder / "space.toml").write_text(SPACE)
    return folder


@pytest.fixture(scope="module")
def environment(tmp_path_factory) -> dict[str, str]:
    compiled = str(tmp_path_factory.mktemp("compiled"))
    return {
        **os.environ,
        "JAX_COMPILATION_CACHE_DIR": compiled,
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
    }
