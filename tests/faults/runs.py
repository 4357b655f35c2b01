"""Runs of five kinds that are killed, or whose disk fails, at chosen moments, and must end in the same bytes."""

import errno
import os
import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from longspan.data.archive import write_set
from tests.faults.warm import Ended, Warm
from tests.support.catalog import tiny_music, tiny_text

INJECTED = str(Path(__file__).with_name("injected.py"))
SMALL = ["--hidden-size", "8", "--chunk-length", "10", "--block", "2", "--max-epochs", "4", "--patience", "100"]
KINDS = {
    "sgd+crm": ("music", ["--learning-rate", "0.05", "--clip", "auto"]),
    "hf": ("music", ["--cg-iterations", "4"]),
    "nade:sgd+crm": ("music", ["--nade-size", "6", "--pretrain-frames", "2", "--pretrain-recurrent", "2"]),
    "rbm:sgd+c": ("music", ["--rbm-size", "6", "--pretrain-frames", "2", "--pretrain-recurrent", "2"]),
    "sgd+c": ("text", ["--learning-rate", "0.1"]),
}
"""Recipes, each with its data and its smallest sizes."""
MOMENTS = ("sync", "rename", "evaluation", "pretraining", "seconds")
STARTING, ENDING = 0.1, 6.0
"""Seconds within which a process is killed that is killed at no particular call."""


@dataclass(frozen=True)
class Subject:
    """A run of some kind, in a folder with its data."""

    recipe: str
    folder: Path
    warm: Warm

    def whole(self, more: tuple[str, ...] = ()) -> Path:
        """The folder of an undisturbed run."""
        path = self.folder / f"{self.recipe.replace(':', '-')}-whole{len(more)}"
        if not (path / "result.json").exists():
            shutil.rmtree(path, ignore_errors=True)
            done = self.go(path, more=more)
            assert done.returncode == 0, done.stderr
        return path

    def go(self, path: Path, fault: str = "", strace: str = "", more: tuple[str, ...] = ()) -> Ended:
        """Start the run, or resume it, until it ends or the fault strikes."""
        command = self.command(path, fault, more)
        (done,) = self.warm.run(command, environment={"LONGSPAN_FAULT": fault}, strace=strace)
        return done

    def command(self, path: Path, fault: str = "", more: tuple[str, ...] = ()) -> list[str]:
        """The arguments of `longspan` that start or resume the run; `more` overrides some of them."""
        data, sizes = KINDS[self.recipe]
        if (path / "config.json").exists():
            command = ["resume", str(path)]
        else:
            command = ["train", self.recipe, "--data", str(self.data(data)), "--run-dir", str(path), *SMALL, *sizes]
        plugin = ["--plugin", INJECTED] if fault else []
        return [*command, "--checkpoint-seconds", "0", "--json", *plugin, *more]

    def data(self, kind: str) -> Path:
        path = self.folder / f"{kind}.npz"
        if not path.exists():
            write_set(path, tiny_music() if kind == "music" else tiny_text(200))
        return path


def essence(run: Path) -> dict[str, bytes]:
    """All that must not depend on what happened to a run."""
    newest = max(run.glob("checkpoints/[0-9]*"))
    files = [run / name for name in ("config.json", "metrics.jsonl", "model.safetensors", "status.json", "result.json")]
    return {str(file.relative_to(run)): file.read_bytes() for file in [*files, *sorted(newest.iterdir())]}


def leftovers(run: Path) -> list[Path]:
    """What no run should leave: temporary files and folders."""
    return [path for path in run.rglob(".*") if path.name != ".lock"]


def moments(seed: int) -> Iterator[str]:
    """Endless faults, each a kill at some moment of a small run, drawn by the seed."""
    random = np.random.default_rng(seed)
    while True:
        where = MOMENTS[random.integers(len(MOMENTS))]
        last = {"sync": 60, "rename": 40, "evaluation": 4, "pretraining": 4}.get(where)
        when = random.integers(1, last) if last else round(random.uniform(STARTING, ENDING), 2)
        yield f"kill {where} {when}"


def kill(subject: Subject, path: Path, faults: list[str]) -> tuple[int, str]:
    """Hit a run by faults, one after the other, and let it end; the kills that struck, and what went wrong."""
    struck = 0
    for fault in faults:
        ended = subject.go(path, fault)
        if ended.returncode == -9:
            struck += 1
        elif ended.returncode != 0:
            return struck, f"{fault}: exit {ended.returncode}, {ended.stderr.strip()[-300:]}"
    done = subject.go(path)
    if done.returncode != 0:
        return struck, f"after {faults}: exit {done.returncode}, {done.stderr.strip()[-300:]}"
    whole = essence(subject.whole())
    different = [name for name, content in essence(path).items() if whole.get(name) != content]
    if different or leftovers(path):
        return struck, f"after {faults}: {different} differ, {leftovers(path)} are left"
    return struck, ""


CALLS = ("write", "fsync", "rename", "ftruncate")
"""The system calls by which a run reaches the disk."""
ONE_EPOCH = ("--max-epochs", "1", "--checkpoint-seconds", "60")


def calls_of(subject: Subject, folder: Path) -> list[tuple[str, int]]:
    """Every system call by which a short run of this kind reaches its folder, as its name and its number."""
    traced = subject.go(folder / "run", strace=f"-e trace={','.join(CALLS)}", more=ONE_EPOCH).trace
    seen, found = dict.fromkeys(CALLS, 0), []
    for line in traced:
        name = line.partition("(")[0]
        seen[name] += 1
        if str(folder) in line:
            found.append((name, seen[name]))
    return found


def fail(subject: Subject, path: Path, call: str, moment: int, fault: str) -> str:
    """Let one system call of a run fail; what went wrong: that it was not told in a line, or how the run ended."""
    injected = f"-e trace={call} -e inject={call}:error={fault}:when={moment}"
    ended = subject.go(path, strace=injected, more=ONE_EPOCH)
    what = f"{fault} at {call} {moment}"
    struck = next((line for line in ended.trace if "(INJECTED)" in line), "")
    if not re.search(re.escape(str(path.parent)), struck):
        return f"{what} was not where it should be: {struck}"
    told = os.strerror(getattr(errno, fault))
    if ended.returncode != 2 or ended.stderr.count("\n") != 1 or told not in ended.stderr:
        return f"{what}: exit {ended.returncode}, {ended.stderr.strip()[-300:]}; {struck[:200]}"
    done = subject.go(path, more=ONE_EPOCH)
    if done.returncode != 0:
        return f"{what}: then exit {done.returncode}, {done.stderr.strip()[-300:]}"
    whole = essence(subject.whole(ONE_EPOCH))
    different = [name for name, content in essence(path).items() if whole.get(name) != content]
    return f"{what}: {different} differ, {leftovers(path)} are left" if different or leftovers(path) else ""
