"""Data sets: their names, downloads and conversions, the user's own files, and chunks for training.

Nothing here knows of JAX. Names are resolved on first use, so that the table of data sets
(`longspan.data.names`) costs nothing to import.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from longspan.data.baselines import MusicBaselines, TextBaselines, trivial_baselines
    from longspan.data.importing import ImportReport, import_path
    from longspan.data.kinds import Data, TargetKind, targets_of
    from longspan.data.library import Entry, catalogue, load, target_kind
    from longspan.data.music import MusicData
    from longspan.data.progress import Progress
    from longspan.data.sequences import Chunks, arrange, chunk_order, song_order
    from longspan.data.summary import DataSummary, summarize
    from longspan.data.tasks import TaskData
    from longspan.data.text import TextData

__all__ = [
    "Chunks",
    "Data",
    "DataSummary",
    "Entry",
    "ImportReport",
    "MusicBaselines",
    "MusicData",
    "Progress",
    "TargetKind",
    "TaskData",
    "TextBaselines",
    "TextData",
    "arrange",
    "catalogue",
    "chunk_order",
    "import_path",
    "load",
    "song_order",
    "summarize",
    "target_kind",
    "targets_of",
    "trivial_baselines",
]

_HOMES = {
    "baselines": ("MusicBaselines", "TextBaselines", "trivial_baselines"),
    "importing": ("ImportReport", "import_path"),
    "kinds": ("Data", "TargetKind", "targets_of"),
    "library": ("Entry", "catalogue", "load", "target_kind"),
    "music": ("MusicData",),
    "progress": ("Progress",),
    "sequences": ("Chunks", "arrange", "chunk_order", "song_order"),
    "summary": ("DataSummary", "summarize"),
    "tasks": ("TaskData",),
    "text": ("TextData",),
}


def __getattr__(name: str) -> Any:
    for home, names in _HOMES.items():
        if name in names:
            return getattr(importlib.import_module(f"{__name__}.{home}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
