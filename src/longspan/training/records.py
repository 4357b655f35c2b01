"""What the documents of a run folder must contain, checked as they are read.

A checksum says that a file is as it was written, not by whom: a folder may come from somebody else, or from a version
without checksums. So whatever other code relies on is checked once, here; further values, which differ from run to run,
are left as they are.
"""

from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec

from longspan.errors import InputError

Whole = Annotated[int, msgspec.Meta(ge=0, le=2**53)]
Status = Literal["running", "interrupted", "diverged", "done"]


class Standing(msgspec.Struct, frozen=True):
    """The content of status.json."""

    status: Status = "running"
    reason: str = ""


class Validation(msgspec.Struct, frozen=True):
    """A line of metrics.jsonl."""

    epoch: Whole
    valid_log_likelihood: float
    step: Whole = 0
    train_log_likelihood: float | None = None
    exact: bool = True
    best: bool = False
    gradient_norm: float | None = None
    clipped: float | None = None
    learning_rate: float | None = None
    gradient_by_lag: dict[str, float | None] = {}
    dead_units: float | None = None


class Timing(msgspec.Struct, frozen=True):
    """A line of timing.jsonl."""

    epoch: Whole
    seconds: float
    processor_seconds: float = 0.0


class Result(msgspec.Struct, frozen=True):
    """The content of result.json."""

    test: dict[str, float | None] = {}
    baselines: dict[str, dict[str, float | None]] = {}
    splits: dict[str, dict[str, Any]] = {}


class Environment(msgspec.Struct, frozen=True):
    """The content of environment.json."""

    versions: dict[str, str | None] = {}
    earlier: list[dict[str, Any]] = []


UNREADABLE = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, OverflowError)
"""What decoding and checking raise; a whole number may be too large to be a float."""
Kind = type[Standing] | type[Validation] | type[Timing] | type[Result] | type[Environment] | type[dict]


def document(content: bytes, kind: Kind, file: Path) -> dict:
    """Decode a document and check what is relied on."""
    try:
        return _checked(content, kind)
    except UNREADABLE as error:
        raise InputError(f"{file} cannot be read ({error}); restore it or remove it") from error


def lines(content: bytes | None, kind: Kind, file: Path) -> list[dict]:
    """Decode a document of lines; a last line that was torn by a crash is skipped."""
    found = []
    for number, line in enumerate((content or b"").splitlines(keepends=True), 1):
        try:
            found.append(_checked(line, kind))
        except UNREADABLE as error:
            if not line.endswith(b"\n"):
                break
            raise InputError(f"line {number} of {file} cannot be read ({error}); restore the file") from error
    return found


def _checked(content: bytes, kind: Kind) -> dict:
    found = msgspec.json.decode(content, type=dict)
    msgspec.convert(found, kind)
    return _plain(found)


def _plain(value: Any) -> Any:
    """The value with floats in place of whole numbers that only a float can come near to."""
    if isinstance(value, dict):
        return {name: _plain(part) for name, part in value.items()}
    if isinstance(value, list):
        return [_plain(part) for part in value]
    return float(value) if isinstance(value, int) and value.bit_length() > 63 else value
