"""The documents of a run folder: what they must contain, checked as they are read, and the model card made of them.

A checksum says that a file is as it was written, not by whom: a folder may come from somebody else, or from a version
without checksums. So whatever other code relies on is checked once, here; further values, which differ from run to run,
are left as they are.

The card is README.md in the folder: what the model is, what it learned from, how good it is. It is made from the other
files of the folder alone, and again whenever their scores change, so that it says the same however often a run was
interrupted. People may add to it, so it has no checksum.
"""

from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec

from longspan import __version__
from longspan.bounds import Few, Figure, Figures, Seconds, Share, Size, Text, Whole, check_lengths
from longspan.config import TrainConfig
from longspan.data.dataset import DataRecord
from longspan.errors import InputError
from longspan.files import in_markdown
from longspan.metrics import METRICS, number

Status = Literal["running", "interrupted", "diverged", "done"]


class Standing(msgspec.Struct, frozen=True):
    """The content of status.json."""

    status: Status = "running"
    reason: Text = ""


class Validation(msgspec.Struct, frozen=True):
    """A line of metrics.jsonl."""

    epoch: Whole
    valid_log_likelihood: Figure
    step: Whole = 0
    train_log_likelihood: Figure | None = None
    exact: bool = True
    best: bool = False
    gradient_norm: Size | None = None
    clipped: Share | None = None
    learning_rate: Size | None = None
    gradient_by_lag: dict[Text, Size | None] = {}
    dead_units: Share | None = None


class Timing(msgspec.Struct, frozen=True):
    """A line of timing.jsonl."""

    epoch: Whole
    seconds: Seconds
    processor_seconds: Seconds = 0.0


class Trail(msgspec.Struct, frozen=True):
    """A song or text of the test split, which of its steps were recalled, and from which earlier steps."""

    sequence: Whole
    length: Whole
    steps: list[Whole]
    places: list[Whole]

    def __post_init__(self) -> None:
        check_lengths(steps=self.steps, places=self.places)


class Remembered(msgspec.Struct, frozen=True):
    """The scores of a run with its memory."""

    memory: Text
    recalled: Share
    test: Figures = {}
    valid: Figures = {}
    learned_every: Whole | None = None
    trails: list[Trail] = []


class Result(msgspec.Struct, frozen=True):
    """The content of result.json."""

    test: Figures = {}
    valid: Figures = {}
    baselines: Annotated[dict[Text, Figures], Few] = {}
    splits: Annotated[dict[Text, Figures], Few] = {}
    with_memory: Remembered | None = None


class Environment(msgspec.Struct, frozen=True):
    """The content of environment.json."""

    versions: dict[Text, Text | None] = {}
    python: Text | None = None
    platform: Text | None = None
    earlier: list[dict[str, Any]] = []


class Memory(msgspec.Struct, frozen=True):
    """What memory.json holds besides the parameters, which each kind of memory checks itself."""

    memory: Text
    model: Text = ""


UNREADABLE = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, OverflowError)
"""What decoding and checking raise; a whole number may be too large to be a float."""
Kind = type[Standing] | type[Validation] | type[Timing] | type[Result] | type[Environment] | type[Memory] | type[dict]


RELIED_ON: dict[type, dict] = {
    Validation: {"step": 0, "train_log_likelihood": None, "exact": True},
    Timing: {"processor_seconds": 0.0},
}
"""What every line has, for those who read it, even if it was written without."""


def document(content: bytes, kind: Kind, file: Path) -> dict:
    """Decode a document and check what is relied on."""
    try:
        return _checked(content, kind)
    except UNREADABLE as error:
        raise InputError(f"{file} cannot be read ({error}); restore it or remove it") from error


def lines(content: bytes | None, kind: Kind, file: Path) -> list[dict]:
    """Decode a document of lines; a last line that was torn by a crash is skipped."""
    found = []
    for place, line in enumerate((content or b"").splitlines(keepends=True), 1):
        try:
            found.append(RELIED_ON.get(kind, {}) | _checked(line, kind))
        except UNREADABLE as error:
            if not line.endswith(b"\n"):
                break
            raise InputError(f"line {place} of {file} cannot be read ({error}); restore the file") from error
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


PREDICTS = {
    "music": "the next frame of piano music, a set of keys, from the frames before it",
    "text": "the next {unit} of a text from those before it",
    "keys": "keys that are on or off, step by step",
    "classes": "a class, step by step",
    "numbers": "numbers, step by step",
}
LIMITS = {
    "music": "It knows keys that are on or off on a grid of {grid}: no loudness, pedal or tempo. It writes in the\n"
    "style of what it was trained on, and may repeat some of it.",
    "text": "It knows {size:,} {unit}s and no facts: what it writes looks like its training text, and may repeat some\n"
    "of it.",
}


COUNTS = ("songs", "frames", "lines", "tokens", "sequences", "steps")
"""Sizes of a split that are worth a mention, by their names in `Dataset.split_figures`."""


NO_SCORES = "None yet. `longspan evaluate .` shows them; `longspan resume .` ends the run and writes them here."


def model_card(
    config: TrainConfig,
    data: DataRecord,
    *,
    weights: int | None = None,
    result: dict | None = None,
    notes: str = "",
    shipped_as: str | None = None,
) -> str:
    """The card.

    Args:
        config: settings of the run.
        data: what the run recorded about its data.
        weights: number of weights, once there are any.
        result: the content of result.json, once the run is done.
        notes: further sections, as Markdown.
        shipped_as: the name of a model that comes with the package.
    """
    facts = {"unit": data.unit, "size": data.size, "grid": _grid(data)}
    parts = [
        f"# {_plain_text(config.recipe)} on {_plain_text(config.data)}",
        f"A recurrent network that predicts {PREDICTS[data.kind].format(**facts)}.\n"
        f"Trained with longspan {__version__}.",
        "## Model",
        _table(_model_rows(config, weights)),
        "## Data",
        _table(_data_rows(config, data, (result or {}).get("splits", {}))),
        "## Scores",
        _scores(result, config.seed) if result else NO_SCORES,
        *([notes] if notes else []),
        "## Use",
        _commands(data, shipped_as),
        *(["## Limits", LIMITS[data.kind].format(**facts)] if data.kind in LIMITS else []),
        "## Files",
        "`config.json` holds every setting, `metrics.jsonl` one line per validation, `model.safetensors` the weights\n"
        "with the best validation score, `result.json` their scores once the run is done.",
    ]
    return "\n\n".join(parts) + "\n"


def _model_rows(config: TrainConfig, weights: int | None) -> list[tuple[str, str]]:
    rows = [
        ("cell", f"`{_plain_text(config.cell)}`, {_plain_text(config.units)}"),
        ("output", f"`{_plain_text(config.output)}`"),
        ("optimizer", f"`{_plain_text(config.optimizer)}`, recipe `{_plain_text(config.recipe)}`, seed {config.seed}"),
    ]
    return rows if weights is None else [*rows, ("weights", number(weights))]


def _data_rows(config: TrainConfig, data: DataRecord, splits: dict[str, dict]) -> list[tuple[str, str]]:
    rows = [("name", f"`{_plain_text(config.data)}`"), ("kind", data.kind)]
    if data.frames_per_beat:
        rows.append(("grid", _grid(data)))
    if data.vocabulary:
        rows.append(("vocabulary", f"{data.size:,} {data.unit}s"))
    for split, figures in splits.items():
        counts = [f"{figures[name]:,} {name}" for name in COUNTS if figures.get(name) is not None]
        rows.append((_plain_text(split), ", ".join(counts)))
    return [*rows, ("fingerprint", f"`{_plain_text(data.fingerprint[:16])}`")]


def _grid(data: DataRecord) -> str:
    frames = data.frames_per_beat or 1
    return f"{frames} frame{'s' * (frames > 1)} per quarter note"


def _scores(result: dict[str, Any], seed: int) -> str:
    split = next((name for name in ("test", "valid") if name in result), None)
    if split is None:
        return "None on a split of the data."
    metrics = [metric for name, metric in METRICS.items() if result[split].get(name) is not None]
    rows = [("this model", result[split])]
    if remembered := result.get("with_memory"):
        rows.append((f"with memory ({_plain_text(remembered['memory'])})", remembered.get(split, {})))
    rows += result.get("baselines", {}).items()
    lines = [f"| {split} split | {' | '.join(metric.heading for metric in metrics)} |"]
    lines.append("| --- |" + " ---: |" * len(metrics))
    for label, figures in rows:
        lines.append(
            f"| {_plain_text(label)} | {' | '.join(metric.show(figures.get(metric.name)) for metric in metrics)} |"
        )
    return "\n".join(lines) + f"\n\nOf one run, seed {seed}; the weights were chosen on the validation split."


def _commands(data: DataRecord, shipped_as: str | None) -> str:
    sampled = data.kind in ("music", "text") or data.next_step
    run = shipped_as or "."
    commands = {
        f"sample {run}": "hear or read what it learned" if sampled else None,
        f"evaluate {run}": "score the best weights",
        f"diagnose {run}": "how far it remembers, what is wrong and what to do",
        f"export {run}": "take it elsewhere: ONNX, PyTorch, NumPy",
        f"resume {run}": None if shipped_as else "continue exactly where it stopped",
    }
    return "\n".join(f"    longspan {command:<18} # {purpose}" for command, purpose in commands.items() if purpose)


def _plain_text(text: str) -> str:
    """Text from a run folder, which may be of somebody else, as part of a cell or of what stands in backquotes."""
    return in_markdown(text).translate(str.maketrans({"|": "¦", "`": "'"}))


def _table(rows: list[tuple[str, str]]) -> str:
    return "\n".join(["| | |", "| --- | --- |", *(f"| {name} | {value} |" for name, value in rows)])
