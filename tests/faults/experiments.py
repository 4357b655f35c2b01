"""The experiments of the fault suite: each says how often it was tried and what went wrong, and has a control arm.

A control arm tries the same without what is to be shown, and must go wrong: an experiment that cannot fail shows
nothing.
"""

import contextlib
import errno
import functools
import os
import random
import shutil
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple
from unittest.mock import Mock

import msgspec
import pytest

from longspan import files
from longspan.errors import InputError
from longspan.library import resume, train
from longspan.search import storage
from longspan.search.study import open_study
from longspan.training import runs as training_runs
from longspan.training import seals
from tests.faults import bombs, damage, runs, searches
from tests.faults.conftest import Outcome, reader_process
from tests.faults.formats import FORMATS
from tests.faults.injected import counted
from tests.faults.runs import Subject
from tests.faults.test_mutants import outcomes
from tests.faults.warm import Warm
from tests.search.test_kill_workers import SPACE, arguments
from tests.support import postgresql
from tests.support.catalog import tiny_music

DEADLY = str(Path(__file__).with_name("deadly.py"))
BOMB_BYTES, BOMB_SECONDS = 300 * 10**6, 2.0
"""What a hostile file may take, of memory and of processor time."""


class Tally(NamedTuple):
    """How often something was tried, and what went wrong, in words."""

    tried: int
    wrong: list[str]


@dataclass(frozen=True)
class Bench:
    """A folder to work in, which keeps what undisturbed runs and searches gave from one portion to the next."""

    folder: Path

    def subject(self, recipe: str) -> Subject:
        return Subject(recipe, self.folder, self.warm)

    @functools.cached_property
    def warm(self) -> Warm:
        return Warm(self.environment())

    def close(self) -> None:
        if "warm" in self.__dict__:
            self.warm.close()

    def environment(self) -> dict[str, str]:
        compiled = {"JAX_COMPILATION_CACHE_DIR": str(self.folder / "compiled")}
        return {**os.environ, **compiled, "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0"}

    def inputs(self) -> Path:
        return searches.write_inputs(self.folder / "inputs")

    def quiet_study(self) -> Path:
        """The folder of a study that nothing happened to."""
        folder = self.folder / "quiet"
        if not (folder / "result.json").exists():
            shutil.rmtree(folder, ignore_errors=True)
            command = [sys.executable, "-m", "longspan", "search", *arguments(self.inputs(), folder, "--workers", "1")]
            subprocess.run(command, env=self.environment(), check=True, stdout=subprocess.DEVNULL)
        return folder

    def empty(self, name: str) -> Path:
        return Path(tempfile.mkdtemp(prefix=f"{name}-", dir=self.folder))


def kills_of_runs(bench: Bench, seed: int, kills: int = 4) -> Tally:
    recipe = list(runs.KINDS)[seed % len(runs.KINDS)]
    moments = runs.moments(seed)
    struck, wrong = runs.kill(bench.subject(recipe), bench.empty("run") / "run", [next(moments) for _ in range(kills)])
    return Tally(struck, [f"{recipe}: {wrong}"] if wrong else [])


def forgetful_runs(bench: Bench, seed: int) -> Tally:
    """Resumed without the state of the optimizer."""
    subject, path = bench.subject("sgd+crm"), bench.empty("run") / "run"
    subject.go(path, "kill sync 90")
    assert subject.go(path, "forget").returncode == 0
    same = runs.essence(path) == runs.essence(subject.whole())
    return Tally(1, [] if same else ["the weights differ"])


def faults_of_searches(bench: Bench, seed: int, count: int = 8) -> Tally:
    chance = random.Random(seed)
    faults = [searches.KINDS[(seed + number) % len(searches.KINDS)] for number in range(count)]
    chance.shuffle(faults)
    place = bench.empty("search")
    with postgresql.running_server() as server, searches.small_disk(place / "study") as folder:
        search = searches.Search(bench.inputs(), folder, server, bench.environment())
        met = searches.disturb(search, faults)
        wrong = searches.difference(bench.quiet_study(), search)
    return Tally(met, [f"after {faults[:met]}: {wrong}"] if wrong else [])


def another_study(bench: Bench, seed: int) -> Tally:
    """A study with another seed, which must be told from the quiet one."""
    place = bench.empty("search")
    with postgresql.running_server() as server:
        search = searches.Search(bench.inputs(), place / "study", server, bench.environment())
        command = [*search.command(), "--seed", "1"]
        subprocess.run(command, env=bench.environment(), check=True, stdout=subprocess.DEVNULL)
        wrong = searches.difference(bench.quiet_study(), search)
    return Tally(1, [wrong] if wrong else [])


def damaged_checkpoints(bench: Bench, seed: int, count: int = 1000) -> Tally:
    return Tally(count, damage.wrong_checkpoints(bench.empty("damage"), count, seed * count))


def damaged_weights(bench: Bench, seed: int, count: int = 1000) -> Tally:
    return Tally(count, damage.wrong_weights(bench.empty("damage"), count, seed * count))


def unverified_checkpoints(bench: Bench, seed: int) -> Tally:
    return Tally(300, damage.wrong_checkpoints(bench.empty("damage"), 300, seed, verified=False))


def unverified_weights(bench: Bench, seed: int) -> Tally:
    return Tally(300, damage.wrong_weights(bench.empty("damage"), 300, seed, verified=False))


def damaged_files(bench: Bench, seed: int, count: int = 400) -> Tally:
    tried, wrong = 0, []
    for name, form in FORMATS.items():
        found = outcomes(form, bench.empty("files"), count // form.rarity, seed)
        tried += len(found)
        wrong += [f"{name}: {outcome}" for outcome in found if outcome not in ("accepted", "refused")]
    return Tally(tried, wrong)


def files_for_libraries(bench: Bench, seed: int) -> Tally:
    """The same mutants, read by the libraries underneath."""
    tried, wrong = 0, []
    for name, form in FORMATS.items():
        bare = form._replace(read=lambda path, form=form: form.control(path.read_bytes()))
        with warnings.catch_warnings(action="ignore"):
            found = outcomes(bare, bench.empty("files"), 40 // form.rarity, seed)
        tried += len(found)
        wrong += [f"{name}: {outcome}" for outcome in found if outcome not in ("accepted", "refused")]
    return Tally(tried, wrong)


def set_off_bombs(bench: Bench, seed: int) -> Tally:
    made = {
        "import": bombs.NPZ | bombs.TEXT | bombs.TABLES,
        "results": bombs.RESULTS,
        "words": bombs.WORDS,
        "settings": bombs.SETTINGS,
        "score": bombs.SCORES,
        "json": bombs.JSON,
    }
    tried, wrong = 0, []
    with reader_process() as measure:
        for reader, kinds in made.items():
            for name, write in kinds.items():
                found, tried = measure(reader, write(bench.empty("bomb"))), tried + 1
                if found.outcome not in ("accepted", "refused") or too_much(found):
                    wrong.append(f"{name}: {found}")
        for name, content in bombs.MIDI.items():
            found, tried = measure("import", bombs.midi_folder(content(), bench.empty("bomb"))), tried + 1
            if found.outcome != "accepted" or too_much(found):
                wrong.append(f"{name}: {found}")
    return Tally(tried, wrong)


def too_much(found: Outcome) -> bool:
    return found.bytes > BOMB_BYTES or found.seconds > BOMB_SECONDS


def bomb_for_numpy(bench: Bench, seed: int) -> Tally:
    with reader_process() as measure:
        found = measure("numpy", bombs.zeros(bench.empty("bomb"), (1_500_000, 88)))
    return Tally(1, [f"{found.bytes / 1e6:.0f} MB"] if found.bytes > BOMB_BYTES else [])


SMALL = {"hidden_size": 8, "chunk_length": 10, "block": 2, "max_epochs": 2, "patience": 100, "dropout": 0.0}


def failing_disks(bench: Bench, seed: int, count: int = 12) -> Tally:
    """A full disk or an error of one at every flush and rename of a run, one after the other."""
    data, whole = tiny_music(), bench.folder / "disk-whole"
    calls = _calls_at_disk(data, whole)
    wrong = []
    for number in range(seed * count, (seed + 1) * count):
        fault, run = ("ENOSPC", "EIO")[number // len(calls) % 2], bench.empty("disk") / "run"
        name, moment = calls[number % len(calls)]
        what = f"{fault} at {name} {moment}"
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(os, name, counted(getattr(os, name), fault, moment))
            try:
                train("sgd+crm", data, run_dir=run, **SMALL)
                wrong.append(f"{what}: not noticed")
            except InputError as error:
                if os.strerror(getattr(errno, fault)) not in str(error):
                    wrong.append(f"{what}: {error}")
            except Exception as error:
                wrong.append(f"{what}: {type(error).__name__}: {error}")
                continue
        resume(run, data=data) if run.exists() else train("sgd+crm", data, run_dir=run, **SMALL)
        kept = ("metrics.jsonl", "model.safetensors", "status.json")
        if any((run / file).read_bytes() != (whole / file).read_bytes() for file in kept) or runs.leftovers(run):
            wrong.append(f"{what}: the run differs")
    return Tally(count, wrong)


def _calls_at_disk(data, whole: Path) -> list[tuple[str, int]]:
    """All flushes and renames of a run, in an order that begins with some of every part of it."""
    listed = whole.with_suffix(".json")
    if not listed.exists():
        shutil.rmtree(whole, ignore_errors=True)
        with pytest.MonkeyPatch.context() as patch:
            counters = {name: Mock(wraps=getattr(os, name)) for name in ("fsync", "replace")}
            for name, counter in counters.items():
                patch.setattr(os, name, counter)
            train("sgd+crm", data, run_dir=whole, **SMALL)
        calls = [(name, 1 + number) for name, counter in counters.items() for number in range(counter.call_count)]
        listed.write_bytes(msgspec.json.encode(random.Random(0).sample(calls, len(calls))))
    return msgspec.json.decode(listed.read_bytes(), type=list[tuple[str, int]])


def unexplained_disks(bench: Bench, seed: int) -> Tally:
    with pytest.MonkeyPatch.context() as patch:
        for module in (files, seals, training_runs):
            patch.setattr(module, "explain_disk_errors", lambda _: contextlib.nullcontext())
        return failing_disks(bench, 0, 4)


def failing_calls(bench: Bench, seed: int, count: int = 12) -> Tally:
    """Errors of the disk at system calls of a process, a part of all calls that a short run makes."""
    if shutil.which("strace") is None:
        pytest.skip("needs strace to let system calls fail: apt-get install strace")
    subject, listed = bench.subject("sgd+crm"), bench.folder / "calls.json"
    if not listed.exists():
        listed.write_bytes(msgspec.json.encode(runs.calls_of(subject, bench.empty("calls"))))
    calls = msgspec.json.decode(listed.read_bytes(), type=list[tuple[str, int]])
    order = random.Random(0).sample(calls, len(calls))
    chosen = [order[number % len(order)] for number in range(seed * count, (seed + 1) * count)]
    faults = [("ENOSPC", "EIO")[(seed * count + number) // len(order) % 2] for number in range(count)]
    tries = zip(chosen, faults, strict=True)
    found = [runs.fail(subject, bench.empty("call") / "run", *call, fault) for call, fault in tries]
    return Tally(count, [wrong for wrong in found if wrong])


def ignored_calls(bench: Bench, seed: int) -> Tally:
    """A process that does not look at what `fsync` returns: `forgive` makes it so."""
    subject = bench.subject("sgd+crm")
    ended = subject.go(bench.empty("call") / "run", "forgive", "-e trace=fsync -e inject=fsync:error=EIO:when=3")
    return Tally(1, ["the error was swallowed"] if ended.returncode == 0 else [])


def starts_at_once(bench: Bench, seed: int, count: int = 10) -> Tally:
    """Several trainings into one folder: one wins, and the others say in a line that they did not."""
    subject, path = bench.subject("sgd+crm"), bench.empty("starts") / "run"
    ended = bench.warm.run(*[subject.command(path)] * count)
    wrong = [
        f"exit {end.returncode}: {end.stderr[-200:]}"
        for end in ended
        if end.returncode not in (0, 2) or end.stderr.count("\n") > 1
    ]
    won = sum(end.returncode == 0 for end in ended)
    if won != 1:
        wrong.append(f"{won} of {count} won")
    elif runs.essence(path) != runs.essence(subject.whole()):
        wrong.append("the winner's bytes differ")
    return Tally(count, wrong)


def starts_apart(bench: Bench, seed: int) -> Tally:
    """Two trainings into two folders, which both win."""
    subject = bench.subject("sgd+crm")
    won = [subject.go(bench.empty("starts") / "run").returncode == 0 for _ in range(2)]
    return Tally(2, [f"{sum(won)} of 2 won"] if sum(won) != 1 else [])


def always_dying(bench: Bench, seed: int, *, deadly: bool = True) -> Tally:
    """A study with slots whose workers always die: these are given up, the others end as ever."""
    place = bench.empty("dying")
    (place / "space.toml").write_text(SPACE + "hidden_size = [8, 9]\n")
    where = ["--data", str(bench.inputs() / "tiny.npz"), "--space", str(place / "space.toml")]
    how = ["--study-dir", str(place / "study"), "--trials", "4", "--study", "tiny", "--seed", str(seed), "--json"]
    sizes = ["--chunk-length", "10", "--block", "2", "--max-epochs", "2", "--workers", "2"]
    plugin = ["--plugin", DEADLY] if deadly else []
    command = [sys.executable, "-m", "longspan", "search", "sgd+crm", *where, *how, *sizes, *plugin]
    done = subprocess.run(command, env=bench.environment(), capture_output=True, text=True)
    if done.returncode not in (0, 3):
        return Tally(1, [f"exit {done.returncode}: {done.stderr[-300:]}"])
    study = open_study(storage.default_url(place / "study"), "tiny")
    expected = {slot.number: study.definition.config_of(slot.number).hidden_size == 9 for slot in study.slots()}
    lost = {slot.number: slot.status == "lost" for slot in study.slots()}
    return Tally(sum(expected.values()), [] if lost == expected else [f"lost {lost}, expected {expected}"])


def never_dying(bench: Bench, seed: int) -> Tally:
    return always_dying(bench, 1, deadly=False)  # whose slots are some that would die


def torn_studies(bench: Bench, seed: int, count: int = 40) -> Tally:
    return Tally(count, damage.wrong_studies(bench.quiet_study(), bench.empty("torn"), count, seed * count))


def torn_studies_for_sqlite(bench: Bench, seed: int) -> Tally:
    return Tally(20, damage.unexplained_studies(bench.quiet_study(), bench.empty("torn"), 20))


def wrong_shapes(bench: Bench, seed: int, count: int = 500) -> Tally:
    return Tally(count, damage.wrong_operations(count, seed))


def wrong_shapes_unchecked(bench: Bench, seed: int) -> Tally:
    return Tally(60, damage.wrong_operations(60, seed, checked=False))


@dataclass(frozen=True)
class Experiment:
    """Something to be tried `goal` times, in portions, without anything going wrong."""

    promise: str
    goal: int
    portion: Callable[[Bench, int], Tally]
    """Tries some, drawn by a seed."""
    control: Callable[[Bench, int], Tally]
    without: str
    """What the control arm leaves out."""
    others: str = ""
    """What was measured of other systems."""


EXPERIMENTS = {
    "kills of runs": Experiment(
        "a run killed at any moment and resumed ends in the same bytes",
        200,
        kills_of_runs,
        forgetful_runs,
        "the optimizer's state forgotten on resuming",
        "files overwritten in place: 48 of 200 corrupt",
    ),
    "faults of searches": Experiment(
        "a search ends with the same slots and bytes after kills, stops, full disks, outages, Ctrl-C and wrong clocks",
        100,
        faults_of_searches,
        another_study,
        "another seed",
        "Optuna: 38 trials stuck after 50 kills",
    ),
    "damaged checkpoints": Experiment(
        "no damaged checkpoint is loaded",
        5_000,
        damaged_checkpoints,
        unverified_checkpoints,
        "no manifest",
        "Orbax: 136 of 150 loaded wrong",
    ),
    "damaged weights": Experiment(
        "no damaged weights are loaded",
        5_000,
        damaged_weights,
        unverified_weights,
        "no checksums",
        "safetensors: 2,327 of 10,000 accepted",
    ),
    "damaged files": Experiment(
        "a damaged file is read or refused in one line",
        50_000,
        damaged_files,
        files_for_libraries,
        "the libraries underneath",
        "scipy.io: 30 deaths in 10,000; mido 5, NumPy 6 types of exceptions",
    ),
    "bombs": Experiment(
        "no file takes more than 300 MB and 2 seconds of processor time",
        30,
        set_off_bombs,
        bomb_for_numpy,
        "`numpy.load`",
        "mido: 461 MB and 17 s for 4.8 MB; NumPy: 1.5 GB for 1.5 MB",
    ),
    "failing disks": Experiment(
        "a full disk or an I/O error at any write is one line, and the run goes on to the same bytes",
        200,
        failing_disks,
        unexplained_disks,
        "errors passed on as they come",
        "Orbax, Lightning: no fsync",
    ),
    "failing system calls": Experiment(
        "so it is when the system call itself fails, at every write, flush, rename and truncation of a process",
        230,
        failing_calls,
        ignored_calls,
        "errors of `fsync` ignored",
    ),
    "starts at once": Experiment(
        "of ten trainings into one folder one wins", 50, starts_at_once, starts_apart, "two folders"
    ),
    "slots that kill": Experiment(
        "a slot over which every worker dies is given up, and the others end",
        5,
        always_dying,
        never_dying,
        "workers that live",
        "-",
    ),
    "torn studies": Experiment(
        "a damaged storage or result of a study is read or refused in one line",
        200,
        torn_studies,
        torn_studies_for_sqlite,
        "SQLite and JSON underneath",
        "Optuna's journal: unreadable after 187 of 187 cuts of its last line",
    ),
    "wrong shapes": Experiment(
        "a native operation refuses operands of wrong shapes in one line",
        2_000,
        wrong_shapes,
        wrong_shapes_unchecked,
        "no contract: the kernels' own checks",
    ),
}
