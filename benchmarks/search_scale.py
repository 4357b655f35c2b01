"""What a slot costs beside its training: many slots over many workers, with a stub in place of training.

    python -m benchmarks.search_scale --slots 100 1000 10000 --workers 64 --killed 0.2
    python -m benchmarks.search_scale --slots 10000 --shards

Everything but training is real: the storage on a PostgreSQL server of its own, claims, heartbeats, run folders with
their checksums, outcomes. The stub computes a score from the settings of a slot and imports no JAX. Workers are forked
from one process that has everything imported; a share of them is killed at random and started again. Processor time is
that of all workers and of all processes of the server, divided by the slots. Afterwards every slot must have the
outcome that its settings give, whatever was killed. `--shards` runs a comparison of methods of that many slots in one
process without any storage. Every line is added to results/benchmarks/search_scale.jsonl.
"""

import argparse
import hashlib
import json
import os
import platform
import random
import resource
import shutil
import signal
import sys
import tempfile
import time
import traceback
import types
from pathlib import Path
from typing import Any
from unittest import mock

import msgspec

import longspan
from longspan.config import TrainConfig
from longspan.data.dataset import DataRecord
from longspan.search import machine
from longspan.search.result import run_path
from longspan.search.slots import Outcome
from longspan.search.space import define
from longspan.search.storage import normalized, patiently
from longspan.search.study import ClaimLost, Study, create_or_continue, open_study
from longspan.search.worker import Place, work
from longspan.training.runs import Run
from tests.support import postgresql

BASE = TrainConfig(recipe="sgd+c", data="stub", learning_rate=0.5)
SPACE = {
    "learning_rate": {"low": 1e-3, "high": 10.0, "log": True},
    "hidden_size": {"low": 100, "high": 400},
    "activation": ["tanh", "sigmoid"],
    "l1": {"low": 1e-6, "high": 1e-3, "log": True},
    "recurrent_scale": {"low": 0.2, "high": 1.0},
}
EPOCHS = 3
RESULTS = Path(__file__).parents[1] / "results" / "benchmarks" / "search_scale.jsonl"
SIZES: list[int] = []
"""Bytes of memory of a worker after its first slot."""


def score(config: TrainConfig, epoch: int) -> float:
    """What the stub learns: a number that follows from the settings alone."""
    digest = hashlib.sha256(f"{config} {epoch}".encode()).digest()
    return -1.0 - int.from_bytes(digest[:4], "big") / 2**32


def outcome_of(config: TrainConfig) -> Outcome:
    scores = [score(config, epoch) for epoch in range(1, EPOCHS + 1)]
    best = scores.index(max(scores))
    return Outcome("done", "reached its end", scores[best], scores[best], best + 1, EPOCHS)


def attempt(study: Study, claim, data, place: Place, interrupted, limits) -> None:
    """A run folder and its reports without training, in place of `longspan.search.trial.attempt`."""
    config, path = study.definition.config_of(claim.slot), run_path(place.folder, claim.slot)
    assert place.artifacts is not None
    try:
        with claim.kept_alive(study.definition.heartbeat_seconds):
            if not (path / "config.json").exists():
                Run.create(path, config, data, place.environment)
            run = Run.open(path)
            with run.locked():
                run.set_status("running")
                run.truncate_metrics(0)
                for epoch in range(1, EPOCHS + 1):
                    run.append_metrics({"epoch": epoch, "valid_log_likelihood": score(config, epoch)})
                    patiently(lambda: claim.report(run.metrics()))
                run.set_status("done")
                place.artifacts.save(claim, run)
        patiently(lambda: study.record(claim, outcome_of(config)))
        patiently(lambda: forget_losers(study, claim.slot, place))
    except ClaimLost:
        pass  # the worker that has the slot now continues it
    if not SIZES:
        SIZES.append(resident())
    shutil.rmtree(path, ignore_errors=True)  # ten thousand folders are nothing to leave behind


def resident() -> int:
    """Bytes of memory of this process."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def forget_losers(study: Study, slot: int, place: Place) -> None:
    """As `longspan.search.trial` does, which cannot be imported without JAX."""
    assert place.artifacts is not None
    best, *second = study.leaders()
    for loser in {slot, *(other.number for other in second)} - {best.number}:
        place.artifacts.forget(loser)


def be_a_worker(url: str, folder: Path, number: int) -> None:
    """The life of a forked worker."""
    stub = types.SimpleNamespace(attempt=attempt, conclude=lambda *_: None)
    data: Any = DataRecord("music", "stub", 88, frames_per_beat=2)
    with machine.present() as name:
        study = open_study(url, "scale")
        place = Place(folder, {}, patiently(lambda: study.artifacts(None)))
        work(study, data, place, worker=name, interrupted=lambda: False, trial=stub)
    if SIZES:
        (folder / f"grown-{number}").write_text(str(resident() - SIZES[0]))
    assert "jax" not in sys.modules


def fork_worker(url: str, folder: Path, number: int) -> int:
    child = os.fork()
    if child == 0:
        code = 1
        try:
            be_a_worker(url, folder, number)
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)
    return child


def server_seconds(folder: Path) -> float:
    """Processor time of a server and of all it has started, also of those that have ended."""
    main = int((folder / "data" / "postmaster.pid").read_text().splitlines()[0])
    total = 0
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(stat.parent.name) == main:
            total += sum(map(int, fields[11:15]))  # its own, and that of the children it has waited for
        elif int(fields[1]) == main:
            total += sum(map(int, fields[11:13]))
    return total / os.sysconf("SC_CLK_TCK")


def grown(file: Path) -> float:
    return int(file.read_text()) / 1e6


def simulate(slots: int, workers: int, killed: float) -> dict:
    """Run a study of stubs; what it cost, and that it ended as it must."""
    folder = Path(tempfile.mkdtemp(prefix="longspan-scale-"))
    chance, kills = random.Random(slots), round(killed * workers)
    try:
        with postgresql.running_server() as server:
            url = normalized(server.url)
            study = create_or_continue(url, define("scale", BASE, SPACE, "stub"), slots)
            before, began = server_seconds(server.folder), time.monotonic()
            usage = resource.getrusage(resource.RUSAGE_CHILDREN)
            spent_before = usage.ru_utime + usage.ru_stime
            running = {fork_worker(url, folder, number) for number in range(workers)}
            number = workers
            while running:
                child, status = os.waitpid(-1, os.WNOHANG)
                if child:
                    running.discard(child)
                    if os.WIFSIGNALED(status):
                        running.add(fork_worker(url, folder, number))
                        number += 1
                elif kills and time.monotonic() - began > 1 and chance.random() < 0.3:
                    os.kill(chance.choice(sorted(running)), signal.SIGKILL)
                    kills -= 1
                else:
                    time.sleep(0.05)
            usage = resource.getrusage(resource.RUSAGE_CHILDREN)
            client = usage.ru_utime + usage.ru_stime - spent_before
            database = server_seconds(server.folder) - before
            found = open_study(url, "scale").slots()
            expected = [outcome_of(study.definition.config_of(slot)) for slot in range(slots)]
            assert [slot.outcome for slot in found] == expected, "some slots did not end as they must"
            return {
                "slots": slots,
                "workers": workers,
                "killed": number - workers,
                "client_ms": round(1000 * client / slots, 2),
                "database_ms": round(1000 * database / slots, 2),
                "largest_growth_mb": round(max(map(grown, folder.glob("grown-*")), default=0.0), 1),
                "slots_per_second": round(slots / (time.monotonic() - began), 1),
            }
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def simulate_shard(slots: int) -> dict:
    """Run one shard of a comparison with as many slots, whose training is a stub."""
    from longspan.arms import runner
    from longspan.arms.protocol import Budget, Shard, define
    from longspan.arms.records import SlotResult, SlotTiming, read_lines

    definition = define("jsb", "frames", "stub", {100: 243}, -12.0)
    definition = msgspec.structs.replace(definition, arms=("sgd+c",), budget=Budget(slots, 1000))
    data: Any = types.SimpleNamespace(name="jsb", record=DataRecord("music", "jsb", 88, frames_per_beat=2))

    def run_task(folder, data, task, environment, interrupted) -> runner.Ended:
        config = task.config_of(definition)
        run = runner._opened(folder.runs / task.name, config, data, environment)
        with run.locked():
            run.set_status("running")
            for epoch in range(1, EPOCHS + 1):
                run.append_metrics({"epoch": epoch, "valid_log_likelihood": score(config, epoch)})
            run.set_status("done")
        best = max(score(config, epoch) for epoch in range(1, EPOCHS + 1))
        marks = (definition.identity, "stub", "stub")
        result = SlotResult("jsb", task.slot, task.arm, "done", best, best, 1, EPOCHS, 1000, "", {}, *marks)
        return runner.Ended(result, SlotTiming("jsb", task.slot, task.arm, definition.identity, 0.0, "stub"))

    with (
        tempfile.TemporaryDirectory(prefix="longspan-scale-") as place,
        mock.patch.object(runner, "_run_task", run_task),
    ):
        folder, began = runner.StudyFolder(Path(place), definition, Shard()), time.monotonic()
        before = time.process_time()
        for _ in runner.run_tasks(folder, data, runner.slot_tasks(definition, Shard()), environment={}):
            pass
        spent = time.process_time() - before
        (file,) = Path(place).glob("*-1of1.jsonl")
        assert len(read_lines(file, SlotResult)) == slots
    return {
        "slots": slots,
        "workers": "one shard",
        "client_ms": round(1000 * spent / slots, 2),
        "slots_per_second": round(slots / (time.monotonic() - began), 1),
    }


def processor() -> str:
    names = [line for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("model name")]
    return names[0].partition(":")[2].strip() if names else platform.machine()


def main() -> None:
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("--slots", type=int, nargs="+", default=[100, 1000])
    parser.add_argument("--workers", type=int, default=64)
    parser.add_argument("--killed", type=float, default=0.0, help="share of the workers that is killed once")
    parser.add_argument("--shards", action="store_true", help="a shard of a comparison of methods, without storage")
    options = parser.parse_args()
    for slots in options.slots:
        found = simulate_shard(slots) if options.shards else simulate(slots, options.workers, options.killed)
        line = json.dumps({**found, "processor": processor(), "version": longspan.__version__}) + "\n"
        sys.stdout.write(line)
        sys.stdout.flush()
        with RESULTS.open("a") as file:
            file.write(line)


if __name__ == "__main__":
    main()
