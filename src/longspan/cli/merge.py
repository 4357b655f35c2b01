"""`longspan merge`: join the results of any subset of shards, in any order and repeatedly."""

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from longspan import cli
from longspan.arms.records import (
    DEFINITION,
    RESULTS,
    TIMINGS,
    SlotResult,
    SlotTiming,
    merge,
    merge_timings,
    read_lines,
    write_lines,
)
from longspan.cli.options import parse
from longspan.errors import InputError
from longspan.files import read_limited, write_atomic
from longspan.limits import JSON_BYTES


@dataclass(frozen=True)
class MergeOptions:
    """Join result files of `longspan compare-methods` into one per data set, identical to that of a single machine."""

    sources: Annotated[tuple[Path, ...], tyro.conf.Positional]
    """Files of results, or folders that contain them."""
    out: Annotated[Path, tyro.conf.arg(aliases=["-o"])] = Path("results/claims")
    """Folder to write to; results already there are joined, too."""
    allow_mixed: bool = False
    """Join results even if their versions, instruction sets or definitions differ."""


def run(arguments: list[str]) -> int:
    options = parse(MergeOptions, arguments, "longspan merge")
    files = [
        file for source in (*options.sources, options.out) for file in _files(source, required=source != options.out)
    ]
    results = [result for file in files if not file.name.endswith(TIMINGS) for result in read_lines(file, SlotResult)]
    timings = [timing for file in files if file.name.endswith(TIMINGS) for timing in read_lines(file, SlotTiming)]
    merged = merge(results, allow_mixed=options.allow_mixed)
    for data in sorted({result.data for result in merged}):
        of_data = [result for result in merged if result.data == data]
        write_lines(options.out / f"{data}{RESULTS}", of_data)
        write_lines(options.out / f"{data}{TIMINGS}", [each for each in merge_timings(timings) if each.data == data])
        _copy_definition(options, data, of_data[0].definition)
        sys.stdout.write(
            f"{options.out / data}{RESULTS}: {len(of_data)} slots of {len({r.arm for r in of_data})} arms\n"
        )
    return cli.DONE


def _files(source: Path, *, required: bool) -> list[Path]:
    if source.is_dir():
        return sorted(source.glob(f"*{RESULTS}"))
    if source.is_file():
        return [source]
    if required:
        raise InputError(f"expected a file or folder of results, got {source}; `longspan compare-methods` makes one")
    return []


def _copy_definition(options: MergeOptions, data: str, identity: str) -> None:
    for source in options.sources:
        file = (source if source.is_dir() else source.parent) / f"{data}-{identity}{DEFINITION}"
        if file.is_file():
            write_atomic(options.out / f"{data}{DEFINITION}", read_limited(file, JSON_BYTES))
            return
