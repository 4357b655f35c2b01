"""Any data set by its name or path: the one door the rest of the program uses."""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from longspan.data.archive import read_set
from longspan.data.chorales import chorales_available, load_chorales
from longspan.data.download import benchmark_files
from longspan.data.kinds import Data, TargetKind, targets_of, targets_of_unit
from longspan.data.midi_folder import gather_midi
from longspan.data.music import read_benchmark_rolls
from longspan.data.names import BACH, BENCHMARKS, BUILT_IN, DEFAULT_SPAN, TASK_DESCRIPTIONS
from longspan.data.progress import Progress
from longspan.data.storage import data_directory, imported_directory
from longspan.data.tasks import TaskData
from longspan.data.text import Unit, load_text_file, read_benchmark_text
from longspan.errors import InputError

UNIT_PREFIXES: dict[str, Unit] = {"words": "word", "chars": "character"}


@dataclass(frozen=True)
class Entry:
    """A line of the list of data sets; `state` says whether it can be used without a download."""

    name: str
    description: str
    state: Literal["ready", "to download", "needs music21"]


def load(
    name: str, data_dir: Path | str | None = None, *, span: int = DEFAULT_SPAN, progress: Progress | None = None
) -> Data:
    """Load a data set.

    Args:
        name: a benchmark (`jsb`, `ptb-words`, ...), `bach`, a synthetic task (`addition`, ...), an imported set, or
            a path: a folder of MIDI files, an `.npz` of piano rolls, a text file (by characters; `words:path`
            reads it by words).
        data_dir: where benchmarks and imported sets are, see `storage.data_directory`.
        span: how long the sequences of a synthetic task are.
        progress: told how far a download or conversion is.

    Returns:
        `MusicData`, `TextData` or `TaskData`; their `kind` tells which.
    """
    if name in TASK_DESCRIPTIONS:
        return TaskData(name, span)
    if name == BACH:
        return load_chorales(progress)
    if name in BENCHMARKS:
        benchmark = BENCHMARKS[name]
        paths = benchmark_files(benchmark, data_dir, progress)
        if benchmark.kind == "music":
            return read_benchmark_rolls(benchmark, paths[0])
        return read_benchmark_text(benchmark, paths)
    prefix, _, rest = name.partition(":")
    if prefix in UNIT_PREFIXES and rest:
        return load_text_file(_existing(rest), name, UNIT_PREFIXES[prefix])
    imported = _imported(data_dir).get(name)
    if imported is not None:
        return read_set(imported, name)
    path = Path(name).expanduser()
    if path.is_dir():
        return gather_midi(path, name=name, progress=progress).data
    if path.suffix.lower() == ".npz":
        return read_set(_existing(name), name)
    if path.suffix.lower() == ".txt" or path.is_file():
        return load_text_file(_existing(name), name)
    raise _unknown(name, data_dir)


def target_kind(name: str, data_dir: Path | str | None = None) -> TargetKind:
    """What the targets of a data set are, found without downloading or converting anything."""
    if name in TASK_DESCRIPTIONS:
        return TaskData(name).kind
    if name in BENCHMARKS:
        return targets_of_unit(BENCHMARKS[name].unit)
    prefix, _, rest = name.partition(":")
    if prefix in UNIT_PREFIXES and rest:
        return targets_of_unit(UNIT_PREFIXES[prefix])
    stored = _imported(data_dir).get(name) or (Path(name).expanduser() if name.lower().endswith(".npz") else None)
    if stored is not None and stored.is_file():
        return targets_of(read_set(stored, name))
    path = Path(name).expanduser()
    return "characters" if path.suffix.lower() == ".txt" or path.is_file() else "frames"


def catalogue(data_dir: Path | str | None = None) -> list[Entry]:
    """All data sets that can be loaded by name."""
    folder = data_directory(data_dir)
    entries = [
        Entry(name, benchmark.description, "ready" if _is_complete(name, folder) else "to download")
        for name, benchmark in BENCHMARKS.items()
    ]
    entries.append(Entry(BACH, BUILT_IN[BACH], "ready" if chorales_available() else "needs music21"))
    entries += [Entry(name, description, "ready") for name, description in TASK_DESCRIPTIONS.items()]
    entries += [Entry(name, f"imported, {path}", "ready") for name, path in _imported(data_dir).items()]
    return entries


def _is_complete(name: str, folder: Path) -> bool:
    return all((folder / file.name).is_file() for file in BENCHMARKS[name].files)


def _imported(data_dir: Path | str | None) -> dict[str, Path]:
    return {path.stem: path for path in sorted(imported_directory(data_dir).glob("*.npz"))}


def _existing(path: str) -> Path:
    found = Path(path).expanduser()
    if not found.is_file():
        raise InputError(f"{path} does not exist or is not a file; check the path")
    return found


def _unknown(name: str, data_dir: Path | str | None) -> InputError:
    names = [*BUILT_IN, *_imported(data_dir)]
    close = difflib.get_close_matches(name, names, n=1)
    hint = f"did you mean '{close[0]}'? " if close else ""
    return InputError(
        f"unknown data set '{name}'; {hint}expected one of {', '.join(names)}, "
        "or the path of a folder of MIDI files, an .npz or a text file"
    )
