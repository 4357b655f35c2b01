"""The run folder: everything another command needs to know about a run, and nothing it would have to be told.

config.json        settings, data set and its fingerprint
environment.json   versions and machine
metrics.jsonl      one line per validation; the same bytes however often the run was killed
timing.jsonl       wall-clock figures, kept apart because they never repeat
model.safetensors  the weights with the best validation score
checkpoints/       what resuming needs, each with a manifest of checksums
status.json        running, interrupted, diverged or done
result.json        scores of the best weights, once the run is done
README.md          a card that says all this to a person
"""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Literal

import msgspec
from safetensors import SafetensorError
from safetensors.numpy import load_file, save

from longspan import __version__
from longspan.config import TrainConfig, as_dict, check_output, from_dict
from longspan.data.kinds import Data
from longspan.data.music import KEYS, MusicData
from longspan.data.tasks import TaskData
from longspan.errors import InputError
from longspan.files import explain_disk_errors, folder_written_whole, write_atomic

FORMAT = 1

Status = Literal["running", "interrupted", "diverged", "done"]


class DataRecord(msgspec.Struct, frozen=True):
    """What a run remembers of its data, enough to rebuild and use the model without it."""

    kind: Literal["music", "text", "classes", "numbers"]
    fingerprint: str
    size: int
    """Keys of a frame, symbols of the vocabulary, or answers of a task."""
    input_size: int | None = None
    """Symbols or numbers that come in, where they are not what is predicted."""
    vocabulary: list[str] | None = None
    unit: str | None = None
    frames_per_beat: int | None = None
    octave_shift: int = 0
    end_token: int | None = None

    def kind_to_sample(self) -> Literal["music", "text"]:
        """The kind of data; refused where what is predicted is not what comes in next, so that a model cannot go on."""
        if self.kind == "music" or self.kind == "text":
            return self.kind
        raise InputError(f"a synthetic task asks for {self.kind}, so its runs cannot be sampled: use music or text")

    @staticmethod
    def of(data: Data) -> "DataRecord":
        """The record of a loaded data set."""
        if isinstance(data, TaskData):
            return DataRecord(data.kind, data.fingerprint, data.task.output_size, data.task.input_size)
        if isinstance(data, MusicData):
            return DataRecord(
                data.kind,
                data.fingerprint,
                KEYS,
                frames_per_beat=data.frames_per_beat,
                octave_shift=data.octave_shift,
            )
        return DataRecord(
            data.kind,
            data.fingerprint,
            len(data.vocabulary),
            vocabulary=list(data.vocabulary),
            unit=data.unit,
            end_token=data.end_token,
        )


class RunDescription(msgspec.Struct, frozen=True):
    """The content of config.json."""

    format: int
    longspan: str
    config: dict
    data: DataRecord


class Run:
    """A folder that holds one training run."""

    def __init__(self, path: Path, config: TrainConfig, data: DataRecord):
        self.path = path
        self.config = config
        self.data = data

    @staticmethod
    def create(path: Path, config: TrainConfig, data: DataRecord, environment: dict) -> "Run":
        """Make a new run folder; one that already holds something is refused."""
        check_output(config, data.kind)
        if path.exists() and any(path.iterdir()):
            raise InputError(f"{path} is not empty: `longspan resume {path}` goes on with it, --run-dir names another")
        with explain_disk_errors(path):
            path.parent.mkdir(parents=True, exist_ok=True)
        with folder_written_whole(path) as folder:
            run = Run(folder, config, data)
            (folder / "checkpoints").mkdir()
            (folder / "metrics.jsonl").touch()
            write_atomic(folder / "environment.json", _pretty(environment))
            write_atomic(folder / "README.md", _card(config))
            run.write_config()
        return Run(path, config, data)

    @staticmethod
    def open(path: Path) -> "Run":
        """Open a folder that `create` made."""
        file = path / "config.json"
        if not file.is_file():
            raise InputError(f"expected a run folder with a config.json, got {path}; `longspan train` makes one")
        try:
            description = msgspec.json.decode(file.read_bytes(), type=RunDescription)
        except msgspec.MsgspecError as error:
            raise InputError(f"{file} cannot be read ({error}); restore it or start a new run") from error
        if description.format != FORMAT:
            raise InputError(f"{file} has format {description.format}, this version reads {FORMAT}")
        return Run(path, from_dict(description.config), description.data)

    def write_config(self) -> None:
        """Write config.json."""
        description = RunDescription(FORMAT, __version__, as_dict(self.config), self.data)
        write_atomic(self.path / "config.json", _pretty(msgspec.to_builtins(description)))

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the run against a second process that would train it at the same time."""
        with explain_disk_errors(self.path), (self.path / ".lock").open("w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                raise InputError(f"{self.path} is being trained by another process; wait for it or stop it") from error
            yield

    @property
    def status(self) -> Status:
        """How the run stands; a run killed without warning still says `running`."""
        return self._standing().get("status", "running")

    @property
    def reason(self) -> str:
        """Why the run stands as it does; empty while it runs."""
        return self._standing().get("reason", "")

    @property
    def has_checkpoint(self) -> bool:
        """Whether there is something to resume from."""
        return any(path.name.isdigit() for path in (self.path / "checkpoints").iterdir())

    def _standing(self) -> dict:
        return read_json(self.path / "status.json") or {}

    def set_status(self, status: Status, reason: str = "") -> None:
        write_atomic(self.path / "status.json", _pretty({"status": status, "reason": reason}))

    def append_metrics(self, record: dict) -> int:
        """Append a line to metrics.jsonl; returns the size of the file, which a checkpoint remembers."""
        with explain_disk_errors(self.path), (self.path / "metrics.jsonl").open("ab") as file:
            file.write(msgspec.json.encode(record) + b"\n")
            file.flush()
            os.fsync(file.fileno())
            return file.tell()

    def truncate_metrics(self, size: int) -> None:
        """Forget lines written after the checkpoint that remembered `size`; the run will write them again."""
        file = self.path / "metrics.jsonl"
        found = file.stat().st_size if file.exists() else 0
        if found < size:
            raise InputError(f"{file} has {found} bytes, the checkpoint knows of {size}; restore it or start anew")
        os.truncate(file, size)

    def metrics(self) -> list[dict]:
        """All validations so far."""
        return _records(self.path / "metrics.jsonl")

    def append_timing(self, record: dict) -> None:
        with explain_disk_errors(self.path), (self.path / "timing.jsonl").open("ab") as file:
            file.write(msgspec.json.encode(record) + b"\n")

    def timings(self) -> list[dict]:
        """What each process that trained this run said about its time."""
        return _records(self.path / "timing.jsonl")

    def write_model(self, arrays: dict) -> None:
        """Write the best weights."""
        write_atomic(self.path / "model.safetensors", save(arrays, {"longspan": __version__}))

    def read_model(self) -> dict:
        """The best weights so far."""
        file = self.path / "model.safetensors"
        if not file.exists():
            raise InputError(f"{self.path} has no weights yet: `longspan resume {self.path}` trains to the first")
        try:
            return load_file(file)
        except SafetensorError as error:
            raise InputError(f"{file} is damaged ({error}); `longspan resume {self.path}` writes it again") from error

    def write_result(self, result: dict) -> None:
        write_atomic(self.path / "result.json", _pretty(result))

    def result(self) -> dict | None:
        return read_json(self.path / "result.json")


def next_run_path(root: Path, config: TrainConfig) -> Path:
    """The first unused `root/<data>-<recipe>-<number>`."""
    stem = f"{Path(config.data.split(':')[-1]).stem}-{config.recipe.replace(':', '-')}"
    number = 1
    while (root / f"{stem}-{number}").exists():
        number += 1
    return root / f"{stem}-{number}"


def read_json(file: Path) -> dict | None:
    """What a file of a run holds, None where there is no such file."""
    try:
        return msgspec.json.decode(file.read_bytes(), type=dict) if file.exists() else None
    except msgspec.MsgspecError as error:
        raise InputError(f"{file} cannot be read ({error}); restore it or remove it") from error


def _records(file: Path) -> list[dict]:
    """The lines of a file; one that a crash tore is passed over."""
    records = []
    for line in file.read_bytes().splitlines() if file.exists() else []:
        with suppress(msgspec.DecodeError):
            records.append(msgspec.json.decode(line))
    return records


def _pretty(value: dict) -> bytes:
    return msgspec.json.format(msgspec.json.encode(value), indent=2) + b"\n"


def _card(config: TrainConfig) -> str:
    return (
        f"# {config.recipe} on {config.data}\n\n"
        f"A longspan run: {config.hidden_size} {config.activation} units, {config.output} output, "
        f"seed {config.seed}.\n\n"
        "    longspan resume .       # go on exactly where it stopped\n"
        "    longspan evaluate .     # score the best weights\n"
        "    longspan sample .       # hear or read what it learned\n"
        "    longspan inspect .      # how far gradients travel back through time\n\n"
        "`config.json` holds every setting, `metrics.jsonl` one line per validation, `model.safetensors` the weights\n"
        "with the best validation score, `result.json` their scores once the run is done.\n"
    )
