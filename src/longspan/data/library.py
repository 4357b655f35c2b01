"""Load any data set by its name or path; the rest of the program loads data only through this module."""

from __future__ import annotations

import difflib
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

from longspan.data.archive import describe_set, read_set
from longspan.data.benchmarks import (
    BENCHMARKS,
    BUILT_IN,
    CHORALES,
    DEFAULT_SPAN,
    TASK_DESCRIPTIONS,
    benchmark_files,
    data_directory,
    imported_directory,
)
from longspan.data.checking import check_dataset
from longspan.data.chorales import chorales_available, load_chorales
from longspan.data.dataset import SPLITS, Baselines, Dataset, Progress, TargetKind, Unit
from longspan.data.music import read_benchmark_rolls
from longspan.data.music_folder import gather_music, refuse_single_piece
from longspan.data.own_files import TABLES, read_own_file
from longspan.data.tasks import TaskData
from longspan.data.text import load_text_file, read_benchmark_text
from longspan.errors import InputError
from longspan.files import user_path

UNIT_PREFIXES: dict[str, Unit] = {"words": "word", "tokens": "token", "chars": "character", "bytes": "byte"}
TEXT_TARGETS: dict[Unit, TargetKind] = {
    "word": "words",
    "token": "words",
    "character": "characters",
    "byte": "characters",
}


@dataclass(frozen=True)
class Entry:
    """An entry in the list of data sets; `state` says whether it can be used without a download."""

    name: str
    description: str
    state: Literal["ready", "to download", "needs music21", "damaged"]


class Found(NamedTuple):
    """A data set found by its name but not loaded yet."""

    target_kind: TargetKind
    load: Callable[[], Dataset]


def load(
    name: str, data_dir: Path | str | None = None, *, span: int = DEFAULT_SPAN, progress: Progress | None = None
) -> Dataset:
    """Load a data set.

    Args:
        name: a benchmark (`jsb`, `ptb-words`, ...), `bach`, a synthetic task (`addition`, ...), an imported set, one
            registered by `register_dataset`, or a path: a folder of MIDI files, an `.npz` of piano rolls, a text file
            (by characters; `words:path` reads it by words).
        data_dir: the folder of benchmarks and imported sets, see `storage.data_directory`.
        span: approximate sequence length of a synthetic task.
        progress: called with the progress of a download or conversion.
    """
    return find(name, data_dir, span=span, progress=progress).load()


def target_kind(name: str, data_dir: Path | str | None = None) -> TargetKind:
    """The kind of target of a data set, determined without downloading or converting anything."""
    return find(name, data_dir).target_kind


def is_here(name: str, data_dir: Path | str | None = None) -> bool:
    """Whether loading a data set would not begin with a download."""
    return name not in BENCHMARKS or _is_complete(name, data_directory(data_dir))


def is_named(name: str, data_dir: Path | str | None = None) -> bool:
    """Whether a data set is loaded by its name and not from a path, which may be any folder of the machine."""
    return name in BUILT_IN or name in REGISTERED or name in _imported(data_dir)


def find(
    name: str, data_dir: Path | str | None = None, *, span: int = DEFAULT_SPAN, progress: Progress | None = None
) -> Found:
    """Find out what a name or path refers to; arguments as for `load`."""
    if name in REGISTERED:
        made = REGISTERED[name]()
        return Found(made.target_kind, lambda: check_dataset(made))
    if name in TASK_DESCRIPTIONS:
        task = TaskData(name, span)
        return Found(task.target_kind, lambda: task)
    if name in CHORALES:
        return Found("frames", lambda: load_chorales(progress, name))
    if name in BENCHMARKS:
        return _find_benchmark(name, data_dir, progress)
    return _find_file(name, data_dir, progress)


def _find_benchmark(name: str, data_dir: Path | str | None, progress: Progress | None) -> Found:
    benchmark = BENCHMARKS[name]

    def read() -> Dataset:
        paths = benchmark_files(benchmark, data_dir, progress)
        if benchmark.kind == "music":
            return read_benchmark_rolls(benchmark, paths[0])
        return read_benchmark_text(benchmark, paths)

    return Found("frames" if benchmark.unit is None else TEXT_TARGETS[benchmark.unit], read)


def _find_file(name: str, data_dir: Path | str | None, progress: Progress | None) -> Found:
    prefix, _, rest = name.partition(":")
    if prefix in UNIT_PREFIXES and rest:
        unit = UNIT_PREFIXES[prefix]
        return Found(TEXT_TARGETS[unit], lambda: load_text_file(_existing(rest), name, unit))
    imported = _imported(data_dir).get(name)
    path = user_path(name)
    if imported is not None or path.suffix.lower() == ".npz":
        stored = read_set(imported or _existing(name), name)
        return Found(stored.target_kind, lambda: stored)
    if path.suffix.lower() in (*TABLES, ".npy"):
        own = read_own_file(_existing(name), name)
        return Found(own.target_kind, lambda: own)
    if os.path.isdir(path):
        return Found("frames", lambda: gather_music(path, name=name, progress=progress).data)
    refuse_single_piece(path)
    if path.suffix.lower() == ".txt" or os.path.isfile(path):
        return Found("characters", lambda: load_text_file(_existing(name), name))
    raise _unknown(name, data_dir)


REGISTERED: dict[str, Callable[[], Dataset]] = {}


def register_dataset(name: str, make: Callable[[], Dataset]) -> None:
    """Register your own data set under a name, so that a run folder that refers to it can be opened again."""
    if name in BUILT_IN:
        raise InputError(f"{name!r} is the name of a built-in data set: choose another one")
    REGISTERED[name] = make


def catalog(data_dir: Path | str | None = None) -> list[Entry]:
    """All data sets that can be loaded by name."""
    folder = data_directory(data_dir)
    entries = [
        Entry(name, benchmark.description, "ready" if _is_complete(name, folder) else "to download")
        for name, benchmark in BENCHMARKS.items()
    ]
    state = "ready" if chorales_available() else "needs music21"
    entries += [Entry(name, BUILT_IN[name], state) for name in CHORALES]
    entries += [Entry(name, description, "ready") for name, description in TASK_DESCRIPTIONS.items()]
    entries += [Entry(name, "registered", "ready") for name in REGISTERED]
    entries += [_imported_entry(name, path) for name, path in _imported(data_dir).items()]
    return entries


@dataclass(frozen=True)
class DataSummary:
    """What `longspan data info` shows; the fields that do not apply are None."""

    name: str
    kind: str
    origin: str
    fingerprint: str
    splits: dict[str, Any]
    """A dataclass of sizes for each split."""
    baselines: Baselines
    metrics: tuple[str, ...] = ()
    """Scores that apply, besides the log-likelihood."""
    frames_per_beat: int | None = None
    onsets: bool | None = None
    unit: str | None = None
    vocabulary_size: int | None = None
    span: int | None = None
    remarks: tuple[str, ...] = ()


def summarize(data: Dataset) -> DataSummary:
    """Summarize a data set, with its trivial baselines on the test split."""
    return DataSummary(
        data.name,
        data.record.kind,
        data.origin,
        data.fingerprint,
        {split: data.split_figures(split) for split in SPLITS},
        data.baselines("test"),
        data.metrics,
        remarks=data.remarks,
        **data.details(),
    )


def _size(count: int) -> str:
    return f"{count / 1e3:,.0f} kB" if count < 1e6 else f"{count / 1e6:,.1f} MB"


def _imported_entry(name: str, path: Path) -> Entry:
    try:
        return Entry(name, f"yours: {describe_set(path)}, {_size(path.stat().st_size)}", "ready")
    except (InputError, OSError):
        return Entry(name, f"yours, but {path} cannot be read", "damaged")


def remove_imported(name: str, data_dir: Path | str | None = None) -> Path:
    """Delete an imported data set; return the file that is gone."""
    stored = _imported(data_dir)
    if name not in stored:
        known = f"there are {', '.join(stored)}" if stored else "there are none"
        raise InputError(f"'{name}' is not an imported data set, and no other can be removed: {known}")
    try:
        stored[name].unlink()
    except OSError as error:
        raise InputError(f"cannot remove {stored[name]}: {error.strerror or error}") from error
    return stored[name]


def _is_complete(name: str, folder: Path) -> bool:
    return all(os.path.isfile(folder / file.name) for file in BENCHMARKS[name].files)


def _imported(data_dir: Path | str | None) -> dict[str, Path]:
    folder = imported_directory(data_dir)
    return {path.stem: path for path in sorted(folder.glob("*.npz"))} if os.path.isdir(folder) else {}


def _existing(path: str) -> Path:
    found = user_path(path)
    if not os.path.isfile(found):
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
