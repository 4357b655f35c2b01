"""The parts that a user might have written, registered once in a process."""

import sys
from functools import cache
from pathlib import Path
from types import ModuleType

from longspan.registry import load_plugin

OWN_PARTS = Path(__file__).parents[1] / "outside" / "own_parts.py"


@cache
def own_parts() -> ModuleType:
    load_plugin(str(OWN_PARTS))
    return sys.modules["own_parts"]
