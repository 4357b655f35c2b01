"""Fixtures that run a test once for every implementation of the operations."""

import pytest

from tests.ops import paths

NOT_BUILT = pytest.param("", marks=pytest.mark.skip("native kernels are not built"))


@pytest.fixture(params=paths.runnable())
def path(request, monkeypatch) -> str:
    """Selects one implementation for a test and names it."""
    paths.select(monkeypatch, request.param)
    return request.param


@pytest.fixture(params=paths.runnable()[1:] or [NOT_BUILT])
def native_path(request, monkeypatch) -> str:
    """Selects one native library, for tests that compare with the twin."""
    paths.select(monkeypatch, request.param)
    return request.param


@pytest.fixture(params=["xla", *paths.runnable()[1:2]])
def either_path(request, monkeypatch) -> str:
    """The twin or the best native library, for tests that do not depend on the instruction set."""
    paths.select(monkeypatch, request.param)
    return request.param
