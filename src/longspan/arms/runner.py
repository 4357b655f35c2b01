"""Runs the slots of a paired study, or a shard of them, and its winners; it needs a folder but no storage.

If killed at any moment, it loses only the time since the last checkpoint of one slot and continues there when started
again. Slots that have a line in the folder, from any shard, are not run again. Processes that share a folder share its
slots: each holds a lock on the one it trains.
"""

import dataclasses
import os
import platform
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import jax
import msgspec

from longspan import __version__
from longspan.arms.analysis import chosen_slot
from longspan.arms.protocol import RECIPE_SLOT, Definition, Shard, chunk_lengths, define, drawn_settings
from longspan.arms.records import (
    DEFINITION,
    RESULTS,
    TIMINGS,
    WINNERS,
    SlotResult,
    SlotTiming,
    WinnerResult,
    encode_line,
    kind_of,
    read_lines_after,
)
from longspan.config import TrainConfig
from longspan.data.dataset import Dataset
from longspan.errors import InputError
from longspan.evaluation import SplitEvaluator
from longspan.files import changing, file_lock, folder_inside, refuse_link, try_file_lock, write_atomic
from longspan.models.model import SequenceModel
from longspan.ops import backend
from longspan.training.loop import train
from longspan.training.runs import Run
from longspan.training.timing import seconds_trained


def define_for(data: Dataset, *, seed: int, ablations: bool = False) -> Definition:
    """The definition of the study of a loaded data set."""
    kind = data.target_kind
    chunks = {length: len(data.chunks("train", length, 1).lengths) for length in chunk_lengths(kind)}
    _, rates = data.baselines("valid").rows()[0]
    return define(data.name, kind, data.fingerprint, chunks, rates["log_likelihood"], seed=seed, ablations=ablations)


class Task(NamedTuple):
    """Something to train: a slot of an arm, or with a seed the slot that validation chose for it once more."""

    arm: str
    slot: int
    seed: int | None = None

    def config_of(self, definition: Definition) -> TrainConfig:
        config = definition.config_of(self.arm, self.slot)
        return config if self.seed is None else dataclasses.replace(config, seed=self.seed)

    def key_on(self, data: str) -> tuple:
        """The key of its result."""
        return (data, self.slot, self.arm) + (() if self.seed is None else (self.seed,))

    @property
    def name(self) -> str:
        """The name of its run folder."""
        again = "" if self.seed is None else f"--{self.seed}"
        return f"{self.arm.replace(':', '-')}--{self.slot:04d}{again}"


class Ended(NamedTuple):
    """The result of a task and the time it took."""

    result: SlotResult | WinnerResult
    timing: SlotTiming


class StudyFolder:
    """The folder of a study's results, and of the runs of unfinished tasks."""

    def __init__(self, folder: Path, definition: Definition, shard: Shard):
        self.folder, self.definition, self.shard = folder, definition, shard
        self.stem = f"{definition.data}-{definition.identity}"
        self.runs = folder / "runs" / self.stem
        self._known: set[tuple] = set()
        self._read: dict[Path, int] = {}
        """Bytes read of each file so far: a study has many slots, and lines are only ever added."""

    def open(self) -> None:
        """Create the folder and write the definition into it."""
        folder_inside(self.folder, "runs", self.stem)
        content = msgspec.json.format(msgspec.json.encode(self.definition), indent=2) + b"\n"
        write_atomic(self.folder / (self.stem + DEFINITION), content)

    def finished(self) -> set[tuple]:
        """The keys of all results in the folder, from any shard."""
        for file in sorted(self.folder.glob(f"{self.stem}*{RESULTS}")):
            kind = kind_of(file)
            if kind in (SlotResult, WinnerResult) and file.stat().st_size != self._read.get(file, 0):
                lines, self._read[file] = read_lines_after(file, self._read.get(file, 0), kind)
                self._known.update(line.key for line in lines)
        return self._known

    def add(self, ended: Ended) -> None:
        """Append the lines of a finished task; the timing first, so that every slot with a result has one."""
        part = self.folder / f"{self.stem}-{self.shard.number}of{self.shard.count}"
        with file_lock(self.folder / "runs" / f"{self.stem}.lock"):  # other workers append to the same file
            if isinstance(ended.result, SlotResult):
                append_line(Path(f"{part}{TIMINGS}"), encode_line(ended.timing))
            ending = RESULTS if isinstance(ended.result, SlotResult) else WINNERS
            append_line(Path(f"{part}{ending}"), encode_line(ended.result))

    @contextmanager
    def claimed(self, task: Task) -> Iterator[bool]:
        """Claim a task that has no result yet; False if it has one or another process is at it."""
        lock = self.runs / f"{task.name}.lock"
        with try_file_lock(lock) as free:
            open_task = free and task.key_on(self.definition.data) not in self.finished()
            yield open_task
            if free and not (self.runs / task.name).exists():  # it is done: the next holder of the lock finds a result
                lock.unlink(missing_ok=True)


def slot_tasks(
    definition: Definition,
    shard: Shard,
    *,
    slots: int | None = None,
    arms: tuple[str, ...] = (),
    recipes_only: bool = False,
) -> list[Task]:
    """The slots of a shard, slot by slot across all arms.

    Args:
        definition: the study.
        shard: the part of the slots to run here.
        slots: at most this many slots of every arm.
        arms: only these arms; all if empty.
        recipes_only: the shipped recipe of each arm instead of its slots.
    """
    _check_arms(definition, arms)
    tasks = [(RECIPE_SLOT, arm) for arm in definition.arms] if recipes_only else definition.tasks()
    return [
        Task(arm, slot)
        for slot, arm in tasks
        if shard.has(slot) and (slots is None or slot < slots) and (not arms or arm in arms)
    ]


def winner_tasks(
    definition: Definition,
    shard: Shard,
    results: Sequence[SlotResult],
    *,
    slots: int | None = None,
    arms: tuple[str, ...] = (),
) -> list[Task]:
    """The slot that validation chose for each arm, with fresh seeds, seed by seed across all arms.

    An arm is left out while it has fewer slots than the study gives it, or than `slots`, if that is given; the choice
    is then among the first `slots`.
    """
    _check_arms(definition, arms)
    strangers = {result.definition for result in results} - {definition.identity}
    if strangers:
        raise InputError(
            f"these are results of definition {min(strangers)}, not of {definition.identity}: choose winners with the "
            "version and seed that made them"
        )
    chosen = {arm: chosen_slot(definition, results, arm, slots) for arm in arms or definition.arms}
    every = [
        Task(arm, slot, seed) for seed in definition.fresh_seeds for arm, slot in chosen.items() if slot is not None
    ]
    return [task for number, task in enumerate(every) if shard.has(number)]


def run_tasks(
    folder: StudyFolder,
    data: Dataset,
    tasks: Sequence[Task],
    *,
    environment: dict,
    interrupted: Callable[[], bool] = lambda: False,
) -> Iterator[Ended]:
    """Run the tasks that have no result yet and that no other process is at; yield each as it ends.

    Args:
        folder: the folder of the results.
        data: the data set of the study.
        tasks: what to run, in this order.
        environment: versions and machine, as recorded in runs.
        interrupted: called within a task; returns whether to save and stop.
    """
    folder.open()
    for task in tasks:
        with folder.claimed(task) as mine:
            if not mine:
                continue
            ended = _run_task(folder, data, task, environment, interrupted)
            if ended is None:
                return
            folder.add(ended)
            shutil.rmtree(folder.runs / task.name, ignore_errors=True)
        jax.clear_caches()  # the next task has other shapes
        yield ended


def _check_arms(definition: Definition, arms: tuple[str, ...]) -> None:
    unknown = sorted(set(arms) - set(definition.arms))
    if unknown:
        raise InputError(f"unknown arm {unknown[0]!r}: expected some of {', '.join(definition.arms)}")


def _run_task(
    folder: StudyFolder, data: Dataset, task: Task, environment: dict, interrupted: Callable[[], bool]
) -> Ended | None:
    definition = folder.definition
    run = _opened(folder.runs / task.name, task.config_of(definition), data, environment)
    with run.locked():
        outcome = train(run, data, interrupted=interrupted)
        if outcome.status == "interrupted":
            return None
        model = None if outcome.status == "diverged" else outcome.model
        slot = slot_result(definition, run, data, task, reason=outcome.reason, model=model)
        result = slot if task.seed is None else _winner_result(run, slot, model, data)
    return Ended(result, slot_timing(definition, run, data, task))


def slot_timing(definition: Definition, run: Run, data: Dataset, task: Task) -> SlotTiming:
    """The time that a run of a slot took."""
    seconds = round(seconds_trained(run, "processor_seconds"), 2)
    return SlotTiming(data.name, task.slot, task.arm, definition.identity, seconds, processor_name())


def _opened(path: Path, config: TrainConfig, data: Dataset, environment: dict) -> Run:
    if not refuse_link(path).exists():
        Run.create(path, config, data.record, environment)
    run = Run.open(path)
    if run.config != config:
        raise InputError(f"{path} holds a run with other settings: remove it or name another folder")
    return run


def slot_result(
    definition: Definition, run: Run, data: Dataset, task: Task, *, reason: str, model: SequenceModel | None
) -> SlotResult:
    """The result of a slot whose run has ended; `model` has its best weights, and is None if it diverged."""
    metrics = run.metrics()
    best = max(metrics, key=lambda record: record["valid_log_likelihood"], default=None)
    ended = None if model is None else best  # scores that a run reached before it diverged do not count
    return SlotResult(
        data=data.name,
        slot=task.slot,
        arm=task.arm,
        status="diverged" if model is None else "done",
        valid=ended["valid_log_likelihood"] if ended else None,
        train=SplitEvaluator(data, "train").log_likelihood(model) if model is not None and ended else None,
        best_epoch=ended["epoch"] if ended else None,
        epochs=len(metrics),
        updates=metrics[-1]["step"] if metrics else 0,
        reason=reason,
        settings=drawn_settings(definition, run.config),
        definition=definition.identity,
        version=__version__,
        instruction_set=instruction_set(),
    )


def _winner_result(run: Run, slot: SlotResult, model: SequenceModel | None, data: Dataset) -> WinnerResult:
    scores = None if model is None or slot.valid is None else SplitEvaluator(data, "test").scores(model)
    return WinnerResult(
        data=slot.data,
        slot=slot.slot,
        arm=slot.arm,
        seed=run.config.seed,
        status=slot.status,
        valid=slot.valid,
        train=slot.train,
        test=msgspec.to_builtins(scores) if scores else {},
        updates=slot.updates,
        definition=slot.definition,
        version=slot.version,
        instruction_set=slot.instruction_set,
    )


def instruction_set() -> str:
    """The instruction set that kernels are compiled for here, which decides the last bits of results."""
    return backend.describe()["instruction_set"] or "xla"


def processor_name() -> str:
    """The model of this machine's processor, if the system tells."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


def append_line(file: Path, line: bytes) -> None:
    """Append a line, replacing a line torn by a crash."""
    with changing(file, "ab+") as stream:
        end = stream.seek(0, os.SEEK_END)
        stream.seek(max(end - 1, 0))
        if stream.read(1) not in (b"", b"\n"):
            stream.seek(0)
            stream.truncate(stream.read().rfind(b"\n") + 1)
        stream.write(line)
