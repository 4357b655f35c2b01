"""Trained models that come with the package: run folders without checkpoints, found by name.

A model is used by its name wherever a run folder can be, unless there is a run folder at that path: a folder `bach` in
the current directory is that folder. Weights are rounded to int8 (`longspan.training.rounding`); the README.md of each
says what it was trained on, under which license, and what the rounding cost. `benchmarks/pretrained.py` makes them.
"""

from importlib import resources
from pathlib import Path

HOME = Path(str(resources.files(__name__)))


def names() -> list[str]:
    """The models that come with the package."""
    return sorted(path.parent.name for path in HOME.glob("*/config.json"))


def located(path: Path) -> Path:
    """The folder of a shipped model if `path` is its name and no run folder; `path` itself otherwise."""
    is_name = len(path.parts) == 1 and not (path / "config.json").exists()
    return HOME / path if is_name and path.name in names() else path
