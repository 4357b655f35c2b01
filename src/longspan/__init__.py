"""Train recurrent networks well, and see why training them is hard.

    import longspan

    trained = longspan.train("sgd+c", "jsb", hidden_size=100)
    trained.evaluate("test").log_likelihood

Names are resolved on first use, so that `import longspan` alone does not wait for JAX.
"""

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from longspan.data import load, summarize
    from longspan.library import Trained, open_run, resume, train

__all__ = ["Trained", "__version__", "load", "open_run", "resume", "summarize", "train"]

_HOMES = {
    "longspan.library": ("Trained", "open_run", "resume", "train"),
    "longspan.data": ("load", "summarize"),
}


def __getattr__(name: str) -> Any:
    for home, names in _HOMES.items():
        if name in names:
            return getattr(importlib.import_module(home), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
