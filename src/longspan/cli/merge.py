"""`longspan merge`: join the results of any subset of shards, in any order and repeatedly."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from longspan import cli
from longspan.arms.protocol import Definition, check_data
from longspan.arms.records import (
    DEFINITION,
    RESULTS,
    TIMINGS,
    WINNERS,
    SlotResult,
    SlotTiming,
    WinnerResult,
    check_one,
    merge,
    merge_timings,
    read_all,
    write_lines,
)
from longspan.cli.options import parse
from longspan.errors import InputError
from longspan.files import decode_json, read_limited, write_atomic
from longspan.limits import JSON_BYTES
from longspan.terminal import say


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
    slots = merge(read_all(files, SlotResult), allow_mixed=options.allow_mixed)
    winners = merge(read_all(files, WinnerResult), allow_mixed=options.allow_mixed)
    # Winners may be made by a later version than the slots they were chosen from, but never from other draws.
    check_one([*slots, *winners], "definition", allow_mixed=options.allow_mixed)
    timings = merge_timings(read_all(files, SlotTiming))
    identities = {result.data: result.definition for result in reversed([*slots, *winners])}
    for data in identities:
        check_data(data)
    definitions = {data: _definition(options, data, identity) for data, identity in identities.items()}
    for data in sorted(identities):
        lines = {
            RESULTS: [each for each in slots if each.data == data],
            TIMINGS: [each for each in timings if each.data == data],
            WINNERS: [each for each in winners if each.data == data],
        }
        for ending, found in lines.items():
            if found:
                write_lines(options.out / f"{data}{ending}", found)
        definition = definitions[data]
        if definition is not None:
            write_atomic(options.out / f"{data}{DEFINITION}", definition)
        say(f"{options.out / data}{RESULTS}: {_counted(lines[RESULTS], lines[WINNERS])}\n")
    return cli.DONE


def _counted(slots: list[SlotResult], winners: list[WinnerResult]) -> str:
    counted = f"{len(slots)} slots of {len({result.arm for result in slots})} arms"
    return counted + (f", {len(winners)} runs of {len({each.arm for each in winners})} winners" if winners else "")


def _files(source: Path, *, required: bool) -> list[Path]:
    if source.is_dir():
        return sorted(source.glob(f"*{RESULTS}"))
    if source.is_file() and source.name.endswith(RESULTS):
        return [source]
    if required:
        raise InputError(
            f"expected a {RESULTS} file or a folder of results, got {source}; `longspan compare-methods` makes one"
        )
    return []


def _definition(options: MergeOptions, data: str, identity: str) -> bytes | None:
    """The content of the definition's file beside the results, refused if it is something else; None without one."""
    for source in options.sources:
        file = (source if source.is_dir() else source.parent) / f"{data}-{identity}{DEFINITION}"
        if file.is_file():
            content = read_limited(file, JSON_BYTES)
            if decode_json(content, Definition, file, "restore it or remove it").data != data:
                raise InputError(f"{file} is not a definition on {data}: restore it or remove it")
            return content
    return None
