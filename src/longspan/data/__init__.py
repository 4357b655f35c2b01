"""Data sets: their names, downloads and conversions, the user's own files, and chunks for training.

Nothing here uses JAX. Names are resolved on first use, so that importing the table of data sets (`longspan.data.names`)
costs nothing.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from longspan.data.baselines import MusicBaselines, TextBaselines
    from longspan.data.dataset import Chunks, DataRecord, Dataset, DataSummary, TargetKind, fingerprint_of, summarize
    from longspan.data.importing import ImportReport, import_path
    from longspan.data.library import Entry, catalogue, load, register_dataset, target_kind
    from longspan.data.music import MusicData
    from longspan.data.own import Sequences
    from longspan.data.own_files import read_table
    from longspan.data.progress import Progress
    from longspan.data.sequences import arrange, arrange_pairs, song_order
    from longspan.data.tasks import TaskData
    from longspan.data.text import TextData

__all__ = [
    "Chunks",
    "DataRecord",
    "DataSummary",
    "Dataset",
    "Entry",
    "ImportReport",
    "MusicBaselines",
    "MusicData",
    "Progress",
    "Sequences",
    "TargetKind",
    "TaskData",
    "TextBaselines",
    "TextData",
    "arrange",
    "arrange_pairs",
    "catalogue",
    "fingerprint_of",
    "import_path",
    "load",
    "read_table",
    "register_dataset",
    "song_order",
    "summarize",
    "target_kind",
]

_HOMES = {
    "baselines": ("MusicBaselines", "TextBaselines"),
    "dataset": ("Chunks", "DataRecord", "DataSummary", "Dataset", "TargetKind", "fingerprint_of", "summarize"),
    "importing": ("ImportReport", "import_path"),
    "library": ("Entry", "catalogue", "load", "register_dataset", "target_kind"),
    "music": ("MusicData",),
    "own": ("Sequences",),
    "own_files": ("read_table",),
    "progress": ("Progress",),
    "sequences": ("arrange", "arrange_pairs", "song_order"),
    "tasks": ("TaskData",),
    "text": ("TextData",),
}


def __getattr__(name: str) -> Any:
    for home, names in _HOMES.items():
        if name in names:
            return getattr(importlib.import_module(f"{__name__}.{home}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
