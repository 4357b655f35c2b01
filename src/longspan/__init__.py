"""Train recurrent networks well, and see why it is hard.

    import longspan

    trained = longspan.train("sgd+c", "jsb", hidden_size=100)
    trained.evaluate("test").log_likelihood

The public API is what `__all__` lists here and in `longspan.data`, `longspan.models`, `longspan.layers` and
`longspan.optim`. Names are resolved on first use, so that `import longspan` alone does not import JAX.
"""

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.2.0a9"

if TYPE_CHECKING:
    from longspan import data, layers, models, optim, recipes
    from longspan.config import TrainConfig
    from longspan.data import Dataset, load, register_dataset, summarize
    from longspan.errors import Diverged, InputError
    from longspan.evaluation import Scores
    from longspan.library import Trained, diagnose, open_run, resume, train

__all__ = [
    "Dataset",
    "Diverged",
    "InputError",
    "Scores",
    "TrainConfig",
    "Trained",
    "__version__",
    "data",
    "diagnose",
    "layers",
    "load",
    "models",
    "open_run",
    "optim",
    "recipes",
    "register_dataset",
    "resume",
    "summarize",
    "train",
]

_HOMES = {
    "longspan.library": ("Trained", "diagnose", "open_run", "resume", "train"),
    "longspan.data": ("Dataset", "load", "register_dataset", "summarize"),
    "longspan.config": ("TrainConfig",),
    "longspan.errors": ("Diverged", "InputError"),
    "longspan.evaluation": ("Scores",),
}
_MODULES = ("data", "layers", "models", "optim", "recipes")


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return importlib.import_module(f"{__name__}.{name}")
    for home, names in _HOMES.items():
        if name in names:
            return getattr(importlib.import_module(home), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
