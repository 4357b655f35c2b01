"""Where data are stored on disk."""

from __future__ import annotations

import os
from pathlib import Path

from longspan.files import user_path

DATA_VARIABLE = "LONGSPAN_DATA"


def cache_directory() -> Path:
    """The user's cache folder for longspan."""
    import platformdirs

    return Path(platformdirs.user_cache_dir("longspan", appauthor=False))


def data_directory(data_dir: Path | str | None = None) -> Path:
    """The folder of benchmarks and imported sets: the argument, else `LONGSPAN_DATA`, else the user's cache."""
    chosen = data_dir or os.environ.get(DATA_VARIABLE)
    return user_path(chosen) if chosen else cache_directory()


def imported_directory(data_dir: Path | str | None = None) -> Path:
    """The folder of sets made by `longspan data import`."""
    return data_directory(data_dir) / "imported"
