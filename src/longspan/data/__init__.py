"""Data sets: their names, downloads and conversions, the user's own files, and chunks for training.

Nothing here uses JAX. Names are resolved on first use, so that importing one module of
this package does not import all of them.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from longspan.data.dataset import (
        Chunks,
        DataRecord,
        Dataset,
        Progress,
        TargetKind,
        fingerprint_of,
    )
    from longspan.data.importing import ImportReport, import_path
    from longspan.data.library import (
        DataSummary,
        Entry,
        catalog,
        load,
        register_dataset,
        remove_imported,
        summarize,
        target_kind,
    )
    from longspan.data.music import MusicBaselines, MusicData
    from longspan.data.ngrams import TextBaselines
    from longspan.data.own import Sequences
    from longspan.data.own_files import read_table
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
    "catalog",
    "fingerprint_of",
    "import_path",
    "load",
    "read_table",
    "register_dataset",
    "remove_imported",
    "song_order",
    "summarize",
    "target_kind",
]

_HOMES = {
    "dataset": (
        "Chunks",
        "DataRecord",
        "Dataset",
        "Progress",
        "TargetKind",
        "fingerprint_of",
    ),
    "importing": ("ImportReport", "import_path"),
    "library": (
        "DataSummary",
        "Entry",
        "catalog",
        "load",
        "register_dataset",
        "remove_imported",
        "summarize",
        "target_kind",
    ),
    "music": ("MusicBaselines", "MusicData"),
    "own": ("Sequences",),
    "own_files": ("read_table",),
    "sequences": ("arrange", "arrange_pairs", "song_order"),
    "tasks": ("TaskData",),
    "ngrams": ("TextBaselines",),
    "text": ("TextData",),
}


def __getattr__(name: str) -> Any:
    for home, names in _HOMES.items():
        if name in names:
            return getattr(importlib.import_module(f"{__name__}.{home}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
