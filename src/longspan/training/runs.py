"""The run folder: self-contained, so that other commands need nothing but its path.

config.json        settings, data set and its fingerprint
environment.json   versions and machine, compared when the run is resumed
metrics.jsonl      one line per validation; the same bytes however often the run was interrupted
timing.jsonl       timings, kept separate because they are not reproducible
start.safetensors  the weights it began with, if they were those of another run
model.safetensors  the weights with the best validation score
memory.json        the memory fitted to them, if the run has one
checkpoints/       what resuming needs, each with a manifest of checksums
status.json        running, interrupted, diverged or done
result.json        scores of the best weights, once the run is done
diagnosis.json     what `longspan diagnose` found last
checksums.json     checksums of the above; damaged files are refused
README.md          a model card for people
"""

import hashlib
import warnings
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import msgspec
from safetensors.numpy import save

from longspan import __version__
from longspan.config import TrainConfig, as_dict, check_output, from_dict
from longspan.data.checking import check_record
from longspan.data.dataset import DataRecord, Dataset
from longspan.errors import InputError, to_paste
from longspan.files import (
    NameTaken,
    decode_json,
    explain_disk_errors,
    folder_written_whole,
    read_limited,
    refuse_link,
    remove_leftovers,
    to_plain_name,
    try_file_lock,
    write_atomic,
)
from longspan.limits import JSON_BYTES
from longspan.pretrained import located, names
from longspan.runtime import check_same_environment, succeeding_environment
from longspan.training import records
from longspan.training.records import Status, model_card
from longspan.training.rounding import SCALE, restored
from longspan.training.seals import SealedFolder, arrays_of, discard_newer_checkpoints, newest_checkpoint_number

FORMAT = 2
"""Format 2 added checksums.json. Folders of format 1 have none and are opened with a warning."""
OLDEST_FORMAT = 1
PartName = Literal["model", "optimizer"]
"""A part that a user may pass as an object."""


def refuse_other_data(data: Dataset, fingerprint: str, name: str) -> None:
    """Refuse data whose fingerprint differs from that of the data `name` referred to when it was first used."""
    if data.fingerprint != fingerprint:
        raise InputError(f"the data of {name!r} have changed since they were first used; restore them or start again")


class RunDescription(msgspec.Struct, frozen=True):
    """The content of config.json."""

    format: int
    longspan: str
    config: dict
    data: DataRecord
    handed_in: dict[PartName, str] = {}
    """Parts that were passed as objects instead of named, with a description of each."""

    @staticmethod
    def decoded(content: bytes, file: Path) -> "RunDescription":
        """The description in the content of a file, refused if no run of these formats can have it."""
        found = decode_json(content, RunDescription, file, "restore it or start a new run")
        if not OLDEST_FORMAT <= found.format <= FORMAT:
            raise InputError(f"{file} has format {found.format}, this version reads {OLDEST_FORMAT} to {FORMAT}")
        check_record(found.data, f"{file} cannot be used")
        return found

    def settings(self, file: Path) -> TrainConfig:
        """The settings, refused if no run on such data can have them."""
        config = from_dict(self.config)
        try:
            check_output(config, self.data.predicted)
        except InputError as error:
            raise InputError(f"{file} cannot be used: {error}") from error
        return config


class RunIsBusy(InputError):
    """Another process is training the run."""


class UnsealedRun(UserWarning):
    """A run folder from a version that kept no checksums, so damage to its files would go unnoticed."""

    def __init__(self, path: Path):
        super().__init__(f"{path} has no checksums, so damage would go unnoticed; `{to_paste('seal', path)}` adds them")


@dataclass(frozen=True)
class Given:
    """Parts that a user passes as objects instead of naming them in the config; a run folder only describes them."""

    model: Any = None
    """A `SequenceModel`, whose weights training starts from."""
    optimizer: Any = None
    """An Optax transformation."""
    start: dict | None = None
    """Weights of another run to begin with; the folder keeps them, so they need not be given again."""

    def described(self) -> dict[PartName, str]:
        """A description of each part, for the run folder."""
        found: dict[PartName, str] = {}
        if self.model is not None:
            found["model"] = f"{type(self.model.cell).__name__} with {type(self.model.output).__name__}"
        if self.optimizer is not None:
            found["optimizer"] = type(self.optimizer).__name__
        return found


class Run:
    """A folder that holds one training run."""

    def __init__(
        self,
        path: Path,
        config: TrainConfig,
        data: DataRecord,
        given: Given | None = None,
        handed_in: dict[PartName, str] | None = None,
    ):
        self.path = path
        self.config = config
        self.data = data
        self.given = given or Given()
        self.handed_in = self.given.described() if handed_in is None else handed_in
        self.files = SealedFolder(path)

    def part(self, name: PartName) -> Any:
        """The user's part, or None if the config names it; raises if the run had one that is not given now."""
        part = getattr(self.given, name)
        if part is None and name in self.handed_in:
            raise InputError(
                f"{self.path} was trained with a {name} of your own ({self.handed_in[name]}), which the folder does "
                f"not contain: pass it again, as in open_run(path, {name}=...)"
            )
        return part

    @staticmethod
    def create(
        path: Path, config: TrainConfig, data: DataRecord, environment: dict, given: Given | None = None
    ) -> "Run":
        """Create a run folder; a folder that is not empty is refused."""
        check_output(config, data.predicted)
        if path.exists() and not path.is_dir():
            raise InputError(f"{path} is a file: run_dir names a folder", fields=["run_dir"])
        if path.exists() and any(path.iterdir()):
            raise NameTaken(
                f"{path} is not empty: `{to_paste('resume', path)}` continues it, run_dir names another",
                fields=["run_dir"],
            )
        with explain_disk_errors(path):
            path.parent.mkdir(parents=True, exist_ok=True)
        with folder_written_whole(path) as folder:
            run = Run(folder, config, data, given)
            (folder / "checkpoints").mkdir()
            (folder / "metrics.jsonl").touch()
            write_atomic(folder / "environment.json", _pretty(environment))
            write_atomic(folder / "README.md", model_card(config, data))
            if run.given.start is not None:
                write_atomic(folder / "start.safetensors", save(run.given.start, {"longspan": __version__}))
            run.write_config()
            run.files.seal()
        return Run(path, config, data, given)

    @staticmethod
    def open(path: Path, given: Given | None = None) -> "Run":
        """Open a folder made by `create`, or a model that comes with the package, by its name.

        Parts given to `create` must be given again.
        """
        path = located(path)
        files = SealedFolder(path)
        content = files.read("config.json") if path.is_dir() else None
        if content is None:
            raise InputError(
                f"expected a run folder with a config.json or a model that comes with longspan ({', '.join(names())}), "
                f"got {path}; `longspan train` makes one"
            )
        description = RunDescription.decoded(content, path / "config.json")
        if not files.sealed:
            if description.format > OLDEST_FORMAT:
                raise InputError(
                    f"{path} has no checksums.json: restore it, or recreate it by `{to_paste('seal', path)}`"
                )
            warnings.warn(UnsealedRun(path), stacklevel=2)
        return Run(path, description.settings(path / "config.json"), description.data, given, description.handed_in)

    @staticmethod
    def seal(path: Path) -> list[str]:
        """Write checksums of the files of a run folder as they are now, whatever its format; return their names."""
        if not (path / "config.json").is_file():
            raise InputError(f"expected a run folder with a config.json, got {path}; `longspan train` makes one")
        with _locked(path):
            file = path / "config.json"
            description = RunDescription.decoded(read_limited(file, JSON_BYTES, follow=False), file)
            description.settings(file)  # refused before anything is written
            SealedFolder(path).seal()
            run = Run.open(path)
            run.write_config()
            return run.files.seal()

    def write_config(self) -> None:
        """Write config.json."""
        description = RunDescription(FORMAT, __version__, as_dict(self.config), self.data, self.handed_in)
        self.files.write("config.json", _pretty(msgspec.to_builtins(description)))

    def start_anew(self, environment: dict) -> None:
        """Forget all that was trained, so that the run begins again in this environment."""
        discard_newer_checkpoints(self.path / "checkpoints", -1)
        self.truncate_metrics(0)
        for name in ("model.safetensors", "timing.jsonl", "result.json"):
            self.files.remove(name)
        self.files.write("environment.json", _pretty(environment))
        self.write_card()

    def check_data(self, data: Dataset) -> None:
        """Refuse data other than those the run started with, or of other sizes than its model was made for.

        The fingerprint says that the data are the same. What the record says of them decides the shapes of the model.
        """
        refuse_other_data(data, self.data.fingerprint, self.config.data)
        told = data.with_cues(self.config.cues, self.config.cue_dropout).record  # cues widen the inputs
        for name in ("kind", "size", "input_size"):
            expected, got = getattr(told, name), getattr(self.data, name)
            if expected != got:
                raise InputError(
                    f"{self.path / 'config.json'} says that {name} of the data is {got}, but it is {expected}; restore "
                    "it or start a new run"
                )

    def locked(self) -> AbstractContextManager[None]:
        """Lock the run for writing, so that no other process trains it at the same time."""
        if not (self.path / "checkpoints").is_dir():
            raise InputError(
                f"{self.path.name} is a model without checkpoints, like those of longspan, and is not changed: "
                "start a run of your own from its weights"
            )
        refuse_link(self.path / "checkpoints")
        return _locked(self.path)

    @property
    def status(self) -> Status:
        """The status of the run; one that was killed without warning still says `running`."""
        return self._standing().get("status", "running")

    @property
    def reason(self) -> str:
        """The reason for the status; empty while the run is running."""
        return self._standing().get("reason", "")

    @property
    def has_checkpoint(self) -> bool:
        """Whether there is something to resume from."""
        return newest_checkpoint_number(self.path / "checkpoints") >= 0

    def remove_leftovers(self) -> None:
        """Remove what killed processes left half written; the run must be locked."""
        for folder in (self.path, self.path / "checkpoints"):
            remove_leftovers(folder)

    def _standing(self) -> dict:
        return self._read_json("status.json", records.Standing) or {}

    def set_status(self, status: Status, reason: str = "") -> None:
        self.files.write("status.json", _pretty({"status": status, "reason": reason}))

    def append_metrics(self, record: dict) -> int:
        """Append a line to metrics.jsonl; return the size of the file, which checkpoints record."""
        return self.files.append("metrics.jsonl", msgspec.json.encode(record) + b"\n")

    def truncate_metrics(self, size: int) -> None:
        """Remove lines written after the checkpoint that recorded `size`; the run will write them again."""
        self.files.truncate("metrics.jsonl", size)

    def metrics(self) -> list[dict]:
        """All validations so far."""
        return records.lines(self.files.read("metrics.jsonl"), records.Validation, self.path / "metrics.jsonl")

    def append_timing(self, record: dict) -> None:
        self.files.append("timing.jsonl", msgspec.json.encode(record) + b"\n")

    def timings(self) -> list[dict]:
        """The timing records of all processes that trained this run."""
        return records.lines(self.files.read("timing.jsonl"), records.Timing, self.path / "timing.jsonl")

    def write_model(self, arrays: dict) -> None:
        """Write the best weights."""
        self.files.write("model.safetensors", save(arrays, {"longspan": __version__}))

    def read_start(self) -> dict | None:
        """The weights of another run that this one begins with, if any."""
        name = "start.safetensors"
        content = self.files.read(name)
        return None if content is None else arrays_of(content, self.path / name, "restore it or start a new run")

    def read_model(self) -> dict:
        """The best weights so far."""
        resume = to_paste("resume", self.path)
        remedy = f"`{resume}` restores it from the newest checkpoint"
        content = self.files.read("model.safetensors", remedy)
        if content is None:
            raise InputError(f"{self.path} has no weights yet: `{resume}` trains to the first")
        arrays = arrays_of(content, self.path / "model.safetensors", remedy)
        return restored(arrays) if any(name.endswith(SCALE) for name in arrays) else arrays

    def write_memory(self, values: dict) -> None:
        self.files.write("memory.json", _pretty(values))

    def memory(self) -> dict | None:
        """The memory in the folder, which may have been fitted to earlier weights; None if there is none."""
        return self._read_json("memory.json", records.Memory)

    @property
    def memory_name(self) -> str | None:
        return (self.memory() or {}).get("memory")

    def model_checksum(self) -> str:
        return hashlib.sha256(self.files.read("model.safetensors") or b"").hexdigest()

    def write_result(self, result: dict) -> None:
        """Write result.json, and the card that shows it."""
        self.files.write("result.json", _pretty(result))
        self.write_card()

    def write_card(self, notes: str = "", *, shipped_as: str | None = None) -> None:
        """Write README.md anew, see `model_card`."""
        weights = sum(array.size for array in self.read_model().values()) if self.has_good_model else None
        facts = {"weights": weights, "result": self.result(), "notes": notes, "shipped_as": shipped_as}
        write_atomic(self.path / "README.md", model_card(self.config, self.data, **facts))

    def result(self) -> dict | None:
        return self._read_json("result.json", records.Result)

    def write_diagnosis(self, diagnosis: dict) -> None:
        self.files.write("diagnosis.json", _pretty(diagnosis))

    def diagnosis(self) -> dict | None:
        """What `longspan diagnose` found last; None if it never was run."""
        return self._read_json("diagnosis.json")

    def environment(self) -> dict:
        """Versions and machine of the last process that trained the run."""
        return self._read_json("environment.json", records.Environment) or {}

    def continue_in(self, environment: dict, *, accept: bool = False) -> None:
        """Refuse an environment in which the run would not end in the same bytes, unless it is accepted and recorded.

        A run that is done is not trained any further and may be opened anywhere.
        """
        before = self.environment()
        if self.status != "done" and check_same_environment(self.path, before, environment, accept=accept):
            self.files.write("environment.json", _pretty(succeeding_environment(before, environment)))

    @property
    def has_good_model(self) -> bool:
        """Whether the best weights exist and match their checksum."""
        try:
            return self.files.read("model.safetensors") is not None
        except InputError:
            return False

    def _read_json(self, name: str, kind: records.Kind = dict) -> dict | None:
        content = self.files.read(name)
        return None if content is None else records.document(content, kind, self.path / name)


def next_run_path(root: Path, config: TrainConfig) -> Path:
    """The first unused `root/<data>-<recipe>-<number>`."""
    stem = to_plain_name(f"{Path(config.data.split(':')[-1]).stem}-{config.recipe.replace(':', '-')}")
    number = 1
    while (root / f"{stem}-{number}").exists():
        number += 1
    return root / f"{stem}-{number}"


def create_run(
    path: Path | None, config: TrainConfig, data: DataRecord, environment: dict, given: Given | None = None
) -> Run:
    """Make a run folder at a path, or at the next free one under `runs/`, however many processes do so at once."""
    while path is None:
        try:
            return Run.create(next_run_path(Path("runs"), config), config, data, environment, given)
        except NameTaken:
            continue  # another process was faster
    return Run.create(path, config, data, environment, given)


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    with explain_disk_errors(path), try_file_lock(path / ".lock") as mine:
        if not mine:
            raise RunIsBusy(f"{path} is being trained by another process; wait for it or stop it")
        yield


def _pretty(value: dict) -> bytes:
    return msgspec.json.format(msgspec.json.encode(value), indent=2) + b"\n"
