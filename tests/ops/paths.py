"""Every implementation of the operations that this machine can run, and how a test selects one."""

from longspan.ops import backend


def runnable() -> list[str]:
    """The twin, and each native library that was built and that this processor understands."""
    native = [name for name in backend.INSTRUCTION_SETS if backend.find_native(name).loaded is not None]
    return ["xla", *native]


def each_with(cases: list, few: list) -> list[tuple]:
    """Every native library with all cases, and the twin, which compiles each for seconds, with a few."""
    return [(name, case) for name in runnable() for case in (few if name == "xla" else cases)]


def select(monkeypatch, path: str) -> None:
    """Selects an implementation by name until the test ends."""
    if path == "xla":
        monkeypatch.setenv("LONGSPAN_KERNELS", "xla")
    else:
        monkeypatch.setenv("LONGSPAN_KERNELS", "native")
        monkeypatch.setenv("LONGSPAN_INSTRUCTION_SET", path)
