"""Runs the slots of a paired study, or a shard of them; it needs a folder but no storage.

If killed at any moment, it loses only the time since the last checkpoint of one slot and continues there when started
again. Slots that have a line in the folder, from any shard, are not run again.
"""

import os
import platform
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import jax
import msgspec

from longspan import __version__
from longspan.arms.protocol import RECIPE_SLOT, Definition, Shard, chunk_lengths, define, drawn_settings
from longspan.arms.records import DEFINITION, RESULTS, TIMINGS, SlotResult, SlotTiming, encode_line, read_lines
from longspan.config import TrainConfig
from longspan.data.dataset import Dataset
from longspan.errors import InputError
from longspan.evaluation import SplitEvaluator
from longspan.files import explain_disk_errors, write_atomic
from longspan.ops import backend
from longspan.training.loop import Outcome, train
from longspan.training.runs import Run
from longspan.training.timing import seconds_trained


def define_for(data: Dataset, *, seed: int) -> Definition:
    """The definition of the study of a loaded data set."""
    kind = data.target_kind
    chunks = {length: len(data.chunks("train", length, 1).lengths) for length in chunk_lengths(kind)}
    _, rates = data.baselines("valid").rows()[0]
    return define(data.name, kind, data.fingerprint, chunks, rates["log_likelihood"], seed=seed)


class StudyFolder:
    """The folder of a study's results, and of the runs of unfinished slots."""

    def __init__(self, folder: Path, definition: Definition, shard: Shard):
        self.folder, self.definition, self.shard = folder, definition, shard
        self.stem = f"{definition.data}-{definition.identity}"

    def open(self) -> None:
        """Create the folder and write the definition into it."""
        with explain_disk_errors(self.folder):
            self.folder.mkdir(parents=True, exist_ok=True)
        content = msgspec.json.format(msgspec.json.encode(self.definition), indent=2) + b"\n"
        write_atomic(self.folder / (self.stem + DEFINITION), content)

    def finished(self) -> dict[tuple, SlotResult]:
        """The results of all shards in the folder."""
        files = [file for file in self.folder.glob(f"{self.stem}*{RESULTS}") if not file.name.endswith(TIMINGS)]
        return {result.key: result for file in sorted(files) for result in read_lines(file, SlotResult)}

    def add(self, result: SlotResult, timing: SlotTiming) -> None:
        """Append the lines of a finished slot; the timing first, so that every slot with a result has one."""
        suffix = f"-{self.shard.number}of{self.shard.count}"
        for ending, line in ((TIMINGS, timing), (RESULTS, result)):
            _append_line(self.folder / f"{self.stem}{suffix}{ending}", encode_line(line))

    def run_path(self, arm: str, slot: int) -> Path:
        return self.folder / "runs" / self.stem / f"{arm.replace(':', '-')}--{slot:04d}"


def run_shard(
    folder: StudyFolder,
    data: Dataset,
    *,
    environment: dict,
    slots: int | None = None,
    arms: tuple[str, ...] = (),
    recipes_only: bool = False,
    interrupted: Callable[[], bool] = lambda: False,
) -> Iterator[tuple[SlotResult, SlotTiming]]:
    """Run the slots of a shard that have no result yet; yield each as it ends.

    Args:
        folder: the folder of the results.
        data: the data set of the study.
        environment: versions and machine, as recorded in runs.
        slots: run at most this many slots of every arm.
        arms: run only these arms; all if empty.
        recipes_only: run the shipped recipe of each arm instead of its slots.
        interrupted: called within a slot; returns whether to save and stop.
    """
    folder.open()
    finished = folder.finished()
    unknown = sorted(set(arms) - set(folder.definition.arms))
    if unknown:
        raise InputError(f"unknown arm {unknown[0]!r}: expected some of {', '.join(folder.definition.arms)}")
    tasks = [(RECIPE_SLOT, arm) for arm in folder.definition.arms] if recipes_only else folder.definition.tasks()
    for slot, arm in tasks:
        if not folder.shard.has(slot) or (slots is not None and slot >= slots) or (arms and arm not in arms):
            continue
        if (folder.definition.data, slot, arm) in finished:
            continue
        ended = _run_slot(folder, data, arm, slot, environment, interrupted)
        if ended is None:
            return
        folder.add(*ended)
        shutil.rmtree(folder.run_path(arm, slot), ignore_errors=True)
        jax.clear_caches()  # the next slot has other shapes
        yield ended


def _run_slot(
    folder: StudyFolder, data: Dataset, arm: str, slot: int, environment: dict, interrupted: Callable[[], bool]
) -> tuple[SlotResult, SlotTiming] | None:
    config = folder.definition.config_of(arm, slot)
    run = _opened(folder.run_path(arm, slot), config, data, environment)
    with run.locked():
        outcome = train(run, data, interrupted=interrupted)
        if outcome.status == "interrupted":
            return None
        result = _result(folder.definition, run, outcome, data, slot)
        seconds = round(seconds_trained(run, "processor_seconds"), 2)
    return result, SlotTiming(data.name, slot, arm, folder.definition.identity, seconds, processor_name())


def _opened(path: Path, config: TrainConfig, data: Dataset, environment: dict) -> Run:
    if not path.exists():
        Run.create(path, config, data.record, environment)
    run = Run.open(path)
    if run.config != config:
        raise InputError(f"{path} holds a run with other settings: remove it or name another folder")
    return run


def _result(definition: Definition, run: Run, outcome: Outcome, data: Dataset, slot: int) -> SlotResult:
    metrics = run.metrics()
    best = max(metrics, key=lambda record: record["valid_log_likelihood"], default=None)
    ended = best if outcome.status == "done" else None  # scores that a run reached before it diverged do not count
    return SlotResult(
        data=data.name,
        slot=slot,
        arm=run.config.recipe,
        status="diverged" if outcome.status == "diverged" else "done",
        valid=ended["valid_log_likelihood"] if ended else None,
        train=SplitEvaluator(data, "train").log_likelihood(outcome.model) if ended else None,
        best_epoch=ended["epoch"] if ended else None,
        epochs=len(metrics),
        updates=metrics[-1]["step"] if metrics else 0,
        reason=outcome.reason,
        settings=drawn_settings(definition, run.config),
        definition=definition.identity,
        version=__version__,
        instruction_set=backend.describe()["instruction_set"] or "xla",
    )


def processor_name() -> str:
    """The model of this machine's processor, if the system tells."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


def _append_line(file: Path, line: bytes) -> None:
    """Append a line, replacing a line torn by a crash."""
    with explain_disk_errors(file), file.open("ab+") as stream:
        stream.seek(0)
        whole = stream.read().rpartition(b"\n")
        stream.truncate(len(whole[0]) + len(whole[1]))
        stream.write(line)
        stream.flush()
        os.fsync(stream.fileno())
