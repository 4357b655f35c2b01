"""Results of a paired study as lines, one per slot of an arm: the same bytes wherever and in whatever order it was run.

Winners, which are slots chosen by validation and trained again with fresh seeds, have lines of their own. Values that
are not reproducible, such as seconds, are in another file. Files of any number of shards merge to the same bytes as one
run over all slots.
"""

import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Annotated, Literal, NamedTuple, TypeVar

import msgspec

from longspan.arms.protocol import MOST_SLOTS, RECIPE_SLOT, Definition
from longspan.bounds import Figure, Seconds, Setting, Text, Whole
from longspan.errors import InputError
from longspan.files import is_plain_name, read_json, read_limited, write_atomic
from longspan.limits import RESULT_LINE_BYTES, RESULT_VALUES, RESULTS_BYTES

RESULTS, TIMINGS, WINNERS, DEFINITION = ".jsonl", ".timing.jsonl", ".winners.jsonl", ".definition.json"
Settings = Annotated[dict[Text, Setting], msgspec.Meta(max_length=RESULT_VALUES)]
Scores = Annotated[dict[Text, Figure], msgspec.Meta(max_length=RESULT_VALUES)]


class _OfSlot(msgspec.Struct, frozen=True):
    """A line about a slot of an arm on a data set.

    Lines come from other machines and people; what they name becomes part of names of files and of pages.
    """

    data: Text
    slot: Annotated[int, msgspec.Meta(ge=RECIPE_SLOT, lt=MOST_SLOTS)]
    arm: Text

    def __post_init__(self) -> None:
        for what in ("data", "definition", "version", "instruction_set"):
            name = getattr(self, what, "none")
            if not is_plain_name(name):
                raise ValueError(f"{what} cannot be {name!r}")
        if "." in self.data:  # "jsb.winners" would own the file of the winners on jsb
            raise ValueError(f"data cannot be {self.data!r}, which has a dot")


class SlotResult(_OfSlot, frozen=True):
    """How one slot of one arm ended."""

    status: Literal["done", "diverged"]
    valid: Figure | None
    """Best validation log-likelihood in nats; None if the slot diverged."""
    train: Figure | None
    """Log-likelihood of the training split with those weights."""
    best_epoch: Whole | None
    epochs: Whole
    updates: Whole
    reason: Text
    settings: Settings
    """The settings that were drawn."""
    definition: str
    version: str
    instruction_set: str

    @property
    def key(self) -> tuple:
        return self.data, self.slot, self.arm


class WinnerResult(_OfSlot, frozen=True):
    """How the slot that validation chose for an arm ended with a fresh seed, and its scores on the test split."""

    seed: Whole
    status: Literal["done", "diverged"]
    valid: Figure | None
    train: Figure | None
    test: Scores
    """Scores by the names of metrics; empty if it diverged."""
    updates: Whole
    definition: str
    version: str
    instruction_set: str

    @property
    def key(self) -> tuple:
        return self.data, self.slot, self.arm, self.seed


class SlotTiming(_OfSlot, frozen=True):
    """The time that one slot of one arm took."""

    definition: str
    processor_seconds: Seconds
    processor: Text

    @property
    def key(self) -> tuple:
        return self.data, self.slot, self.arm


Result = TypeVar("Result", SlotResult, WinnerResult)
OnData = TypeVar("OnData", SlotResult, WinnerResult, SlotTiming)
Line = TypeVar("Line", bound=msgspec.Struct)
KINDS = {RESULTS: SlotResult, WINNERS: WinnerResult, TIMINGS: SlotTiming}


def read_lines(file: Path, kind: type[Line]) -> list[Line]:
    """Read the lines of a file; a last line torn by a crash is skipped."""
    return read_lines_after(file, 0, kind)[0]


def read_lines_after(file: Path, start: int, kind: type[Line]) -> tuple[list[Line], int]:
    """The lines from a position on, and the position after the last of them that is whole."""
    content = read_limited(file, RESULTS_BYTES)
    start = start if content[:start].endswith(b"\n") else 0
    end = content.rfind(b"\n") + 1
    found = []
    for number, line in enumerate(content[start:end].splitlines(), content.count(b"\n", 0, start) + 1):
        if len(line) > RESULT_LINE_BYTES:
            raise InputError(
                f"line {number} of {file} has {len(line)} bytes, more than the {RESULT_LINE_BYTES} of a result: "
                "restore the file"
            )
        try:
            found.append(msgspec.json.decode(line, type=kind))
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise InputError(f"line {number} of {file} is not a result ({error}): restore the file") from error
    return found, end


def read_all(files: Iterable[Path], kind: type[Line]) -> list[Line]:
    """Read the lines of one kind from those of the files that hold it."""
    return read_together([file for file in files if kind_of(file) is kind], kind)


def read_together(files: Sequence[Path], kind: type[Line]) -> list[Line]:
    """Read the lines of all files, which together may be as large as one."""
    size = sum(os.path.getsize(file) for file in files)
    if size > RESULTS_BYTES:
        raise InputError(f"{len(files)} files of results have {size} bytes, more than the {RESULTS_BYTES} allowed")
    return [line for file in files for line in read_lines(file, kind)]


def kind_of(file: Path) -> type | None:
    """The kind of the lines of a file, by its name; None if it has none."""
    endings = [ending for ending in KINDS if file.name.endswith(ending)]
    return KINDS[max(endings, key=len)] if endings else None


def encode_line(line: SlotResult | WinnerResult | SlotTiming) -> bytes:
    """A line as it is stored."""
    return msgspec.json.encode(line, order="deterministic") + b"\n"


def merge(results: Iterable[Result], *, allow_mixed: bool = False) -> list[Result]:
    """Merge results into one sorted list without repetitions, independent of their order.

    Results of different definitions, versions or instruction sets are refused unless `allow_mixed`; contradictory
    results of one slot are always refused.
    """
    merged: dict[tuple, Result] = {}
    for result in sorted(results, key=lambda each: (*each.key, encode_line(each))):
        known = merged.setdefault(result.key, result)
        if known != result:
            raise InputError(f"slot {result.slot} of {result.arm} on {result.data} has two results: remove one of them")
    for what in ("definition", "version", "instruction_set"):
        check_one(merged.values(), what, allow_mixed=allow_mixed)
    return [merged[key] for key in sorted(merged)]


def check_one(results: Iterable[SlotResult | WinnerResult], what: str, *, allow_mixed: bool) -> None:
    """Refuse results on a data set that differ in their definition, version or instruction set."""
    by_data: dict[str, set] = {}
    for result in results:
        by_data.setdefault(result.data, set()).add(getattr(result, what))
    for data, found in by_data.items():
        if len(found) > 1 and not allow_mixed:
            raise InputError(
                f"results on {data} are of more than one {what.replace('_', ' ')} ({', '.join(sorted(found))}) and not "
                "comparable: merge those of one, or allow the mixture with allow_mixed",
                fields=["allow_mixed"],
            )


def merge_timings(timings: Iterable[SlotTiming]) -> list[SlotTiming]:
    """Keep one timing per slot: the shortest, because of several runs of a slot it was disturbed least."""
    merged: dict[tuple, SlotTiming] = {}
    for timing in sorted(timings, key=lambda each: (*each.key, each.processor_seconds, each.processor)):
        merged.setdefault(timing.key, timing)
    return [merged[key] for key in sorted(merged)]


def write_lines(file: Path, lines: Iterable[SlotResult] | Iterable[WinnerResult] | Iterable[SlotTiming]) -> None:
    """Write a whole file of lines."""
    write_atomic(file, b"".join(map(encode_line, lines)))


class StudyResults(NamedTuple):
    """All that is known of the study of one data set."""

    definition: Definition
    slots: list[SlotResult]
    winners: list[WinnerResult]
    timings: list[SlotTiming]


def read_studies(folder: Path) -> dict[str, StudyResults]:
    """Read the studies in a folder, merged or as shards left them, by data set."""
    files = sorted(folder.glob(f"*{RESULTS}"))
    slots, winners = merge(read_all(files, SlotResult)), merge(read_all(files, WinnerResult))
    check_one([*slots, *winners], "definition", allow_mixed=False)
    timings = merge_timings(read_all(files, SlotTiming))
    definitions = {(each.data, each.identity): each for each in map(_read_definition, folder.glob(f"*{DEFINITION}"))}
    studies = {}
    for data, identity in sorted({(result.data, result.definition) for result in (*slots, *winners)}):
        if (data, identity) not in definitions:
            raise InputError(
                f"{folder} holds results on {data} of definition {identity} but no definition that has this digest: "
                "copy its file, which `longspan compare-methods` wrote, or read it with the version that wrote it"
            )
        studies[data] = StudyResults(
            definitions[data, identity], _of(slots, data), _of(winners, data), _of(timings, data)
        )
    return studies


def _of(lines: list[OnData], data: str) -> list[OnData]:
    return [line for line in lines if line.data == data]


def _read_definition(file: Path) -> Definition:
    return read_json(file, Definition, "restore it or remove it")
