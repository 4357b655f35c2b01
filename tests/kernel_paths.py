"""Every implementation of the kernels that this machine can run, as fixtures for their tests."""

import pytest

from longspan.kernels import library


def runnable() -> list[str]:
    """The twin, and each native library that was built and that this processor understands."""
    native = [name for name in library.INSTRUCTION_SETS if library._find_native(name).loaded is not None]
    return ["xla", *native]


def each_with(cases: list, few: list) -> list[tuple]:
    """Every native library with all cases, and the twin, which compiles each for seconds, with a few."""
    return [(name, case) for name in runnable() for case in (few if name == "xla" else cases)]


@pytest.fixture(params=runnable())
def path(request, monkeypatch) -> str:
    """Selects one implementation for a test and names it."""
    select(monkeypatch, request.param)
    return request.param


@pytest.fixture(params=runnable()[1:] or [pytest.param("", marks=pytest.mark.skip("native kernels are not built"))])
def native_path(request, monkeypatch) -> str:
    """Selects one native library, for tests that compare with the twin."""
    select(monkeypatch, request.param)
    return request.param


def select(monkeypatch, path: str) -> None:
    """Selects an implementation by name until the test ends."""
    if path == "xla":
        monkeypatch.setenv("LONGSPAN_KERNELS", "xla")
    else:
        monkeypatch.setenv("LONGSPAN_KERNELS", "native")
        monkeypatch.setenv("LONGSPAN_INSTRUCTION_SET", path)
