"""`longspan data`: list, get, describe, import or remove data sets."""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro
from rich.markup import escape
from rich.table import Table

from longspan.cli import print_json
from longspan.cli.options import parse, pick, progress_bar
from longspan.data.benchmarks import DEFAULT_SPAN
from longspan.errors import printable, to_paste
from longspan.metrics import METRICS, number
from longspan.terminal import Console, say

REMARKS_SHOWN = 8
USAGE = """usage: longspan data ACTION [...]      details: longspan data ACTION --help

  list      all data sets that can be used by name
  get       fetch or convert a data set now
  info      songs, frames, notes and trivial baselines of a data set
  import    make a data set from music (MIDI, MusicXML, ABC, Humdrum), a text, arrays or a table
  remove    delete an imported data set
"""


@dataclass(frozen=True)
class ListOptions:
    """All data sets that can be used by name."""

    data_dir: Path | None = None
    """Folder of data sets; by default $LONGSPAN_DATA, else the user's cache."""
    json: bool = False
    """Print only the list, as JSON."""


@dataclass(frozen=True)
class NameOptions:
    """A data set by name or path."""

    name: Annotated[str, tyro.conf.Positional]
    """A name from `longspan data list`, or a path to MIDI files, an .npz file or a text file."""
    span: int = DEFAULT_SPAN
    """Synthetic tasks: approximate sequence length."""
    data_dir: Path | None = None
    """Folder of data sets; by default $LONGSPAN_DATA, else the user's cache."""
    json: bool = False
    """Print only the figures, as JSON."""


@dataclass(frozen=True)
class RemoveOptions:
    """Delete an imported data set. Runs trained on it stay, but cannot be resumed or scored without it."""

    name: Annotated[str, tyro.conf.Positional]
    """Name of the data set."""
    data_dir: Path | None = None
    """Folder of data sets; by default $LONGSPAN_DATA, else the user's cache."""


@dataclass(frozen=True)
class ImportOptions:
    """Make a data set from your own files.

    Music is quantized to a fraction of the beat, transposed to C major or minor and split by songs, versions of a song
    together; a text is split by lines; an .npz of piano rolls is used unchanged.
    """

    path: Annotated[Path, tyro.conf.Positional]
    """Folder of music files, text file, table (.csv, .tsv, .parquet), or arrays (.npz, .npy)."""
    name: str
    """Name of the data set."""
    frames_per_beat: int | None = None
    """Music: frames per quarter note; by default the coarsest grid that fits the notes."""
    transpose: bool = True
    """Music: transpose each song to C major or C minor, according to the key found from its notes."""
    augment: int = 0
    """Music: move every training song up or down by at most this many semitones, differently in every epoch."""
    separate: bool = False
    """Music: release a key a frame early where it is struck again at once, so that repeated notes stay repeated."""
    onsets: bool = False
    """Music: keep which keys are struck again while they sound, as 88 more bits of a frame; repeated notes stay
    repeated at their full length."""
    unit: Literal["character", "byte", "word", "token"] = "character"
    """Text: the kind of symbol: characters, bytes, words between blanks, or tokens, which are words and punctuation
    marks."""
    vocabulary_size: int = 10_000
    """Text: maximum size of the vocabulary; rarer symbols become <unk>."""
    minimum_count: int | None = None
    """Text: symbols seen less often in training become <unk>; by default 2 for words and 1 for characters."""
    inputs: str | None = None
    """Tables: input columns, separated by commas; by default all that are not otherwise used."""
    targets: str | None = None
    """Tables: target columns, separated by commas; by default the next row of the inputs is predicted."""
    ids: str | None = None
    """Tables: column that says which sequence a row belongs to; without it all rows are one sequence."""
    ahead: int = 0
    """Tables: predict the targets of this many rows later."""
    at_end: bool = False
    """Tables: ask for a target at the last row of each sequence only."""
    input_kind: Literal["numbers", "binary", "symbols"] | None = None
    """Tables and arrays: what the inputs are, if it does not follow from them."""
    target_kind: Literal["numbers", "binary", "symbols"] | None = None
    """Tables: what the targets are; by default words and at most 20 different whole numbers are classes."""
    seed: int = 0
    """Music, tables and arrays: determines which songs or ids go to which split."""
    replace: bool = False
    """Replace an existing data set of that name."""
    data_dir: Path | None = None
    """Folder of data sets; by default $LONGSPAN_DATA, else the user's cache."""
    json: bool = False
    """Print only the report, as JSON."""


def run(arguments: list[str]) -> int:
    if not arguments or arguments[0] in ("-h", "--help"):
        say(USAGE)
        return 0
    action, *rest = arguments
    pick(action, list(ACTIONS), "action of `longspan data`")
    ACTIONS[action](rest)
    return 0


def _list(arguments: list[str]) -> None:
    from longspan.data import catalog

    options = parse(ListOptions, arguments, "longspan data list")
    entries = catalog(options.data_dir)
    if options.json:
        print_json([asdict(entry) for entry in entries])
        return
    table = Table(box=None)
    for column in ("name", "state", "what it is"):
        table.add_column(column)
    for entry in entries:
        name, description = escape(printable(entry.name)), escape(printable(entry.description))
        table.add_row(f"[bold]{name}[/]", entry.state, description)
    Console(highlight=False).print(table)


def _get(arguments: list[str]) -> None:
    options = parse(NameOptions, arguments, "longspan data get")
    content = _load(options)
    if options.json:
        print_json({"name": content.name, "fingerprint": content.fingerprint})
    else:
        line = printable(f"{content.name} is ready: `{to_paste('train', '--data', content.name)}`")
        Console(highlight=False).print(line, markup=False)


def _info(arguments: list[str]) -> None:
    from longspan.data import summarize

    options = parse(NameOptions, arguments, "longspan data info")
    summary = summarize(_load(options))
    if options.json:
        print_json(asdict(summary))
    else:
        _show_summary(summary)


def _import(arguments: list[str]) -> None:
    from longspan.data import import_path

    options = parse(ImportOptions, arguments, "longspan data import")
    with progress_bar(quiet=options.json) as progress:
        report = import_path(
            options.path,
            name=options.name,
            data_dir=options.data_dir,
            frames_per_beat=options.frames_per_beat,
            transpose=options.transpose,
            augment=options.augment,
            separate=options.separate,
            onsets=options.onsets,
            seed=options.seed,
            unit=options.unit,
            vocabulary_size=options.vocabulary_size,
            minimum_count=options.minimum_count,
            inputs=_names(options.inputs),
            targets=_names(options.targets),
            ids=options.ids,
            ahead=options.ahead,
            at_end=options.at_end,
            input_kind=options.input_kind,
            target_kind=options.target_kind,
            replace=options.replace,
            progress=progress,
        )
    summary = report.summary
    skipped = [one._asdict() for one in report.skipped]
    if options.json:
        print_json({**asdict(summary), "path": str(report.path), "files": report.files, "skipped": skipped})
        return
    _show_summary(summary)
    Console(highlight=False).print(f"Next:  {to_paste('train', '--data', options.name)}", markup=False)


def _remove(arguments: list[str]) -> None:
    from longspan.data import remove_imported

    options = parse(RemoveOptions, arguments, "longspan data remove")
    gone = remove_imported(options.name, options.data_dir)
    Console(highlight=False).print(printable(f"removed {options.name} ({gone})"), markup=False, soft_wrap=True)


def _names(text: str | None) -> list[str] | None:
    return None if text is None else [name.strip() for name in text.split(",")]


def _load(options: NameOptions):
    from longspan.data import load

    with progress_bar(quiet=options.json) as progress:
        return load(options.name, options.data_dir, span=options.span, progress=progress)


def _show_summary(summary) -> None:
    console = Console(highlight=False)
    console.print(f"[bold]{escape(printable(summary.name))}[/]: {escape(summary.origin)}")
    for remark in summary.remarks[:REMARKS_SHOWN]:
        style = "yellow" if remark.startswith(("warning", "skipped")) else ""
        console.print(f"  {remark}", markup=False, style=style)
    if len(summary.remarks) > REMARKS_SHOWN:
        console.print(f"  and {len(summary.remarks) - REMARKS_SHOWN} more remarks; --json shows all")
    splits = Table(box=None)
    splits.add_column("split")
    columns = list(asdict(next(iter(summary.splits.values()))))
    for column in columns:
        splits.add_column(column.replace("_", " "), justify="right")
    for name, split in summary.splits.items():
        splits.add_row(name, *(number(value) for value in asdict(split).values()))
    console.print(splits)
    console.print(_baseline_table(summary.baselines.rows(), summary.metrics))


def _baseline_table(rows: list[tuple[str, dict[str, float]]], asked: tuple[str, ...]) -> Table:
    names = {name for _, figures in rows for name in figures} & {"log_likelihood", *asked}
    metrics = [metric for name, metric in METRICS.items() if name in names]
    table = Table(box=None)
    table.add_column("simple predictors, test split")
    for metric in metrics:
        table.add_column(metric.heading, justify="right")
    for label, figures in rows:
        table.add_row(label, *(metric.show(figures.get(metric.name)) for metric in metrics))
    return table


ACTIONS = {"list": _list, "get": _get, "info": _info, "import": _import, "remove": _remove}
