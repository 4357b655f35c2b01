"""A search whose workers are killed without warning ends with the slots, results and bytes of a quiet one."""

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from longspan.search import storage
from longspan.search.study import open_study
from tests.support import postgresql

# Rates of which one cannot but diverge, and everything else as small as it goes, but saved after every block.
SPACE = 'learning_rate = [0.01, 0.02, 0.05, 1e30]\nrecurrent_scale = { low = 0.2, high = 1.0 }\nclip = "none"\n'
SETTINGS = ["--hidden-size", "8", "--chunk-length", "10", "--block", "2", "--max-epochs", "12", "--patience", "100"]
SLOTS = 5


def arguments(inputs: Path, folder: Path, *more: str) -> list[str]:
    where = ["--data", str(inputs / "tiny.npz"), "--space", str(inputs / "space.toml"), "--study-dir", str(folder)]
    how = ["--trials", str(SLOTS), "--study", "tiny", "--checkpoint-seconds", "0", "--json"]
    return ["sgd+crm", *where, *how, *SETTINGS, *more]


@pytest.fixture(scope="module")
def quiet(inputs, environment, tmp_path_factory) -> Path:
    """The study's folder after one worker that was left alone."""
    folder = tmp_path_factory.mktemp("quiet")
    process = search(inputs, folder, environment, "--workers", "1")
    _, errors = process.communicate()
    assert process.returncode == 0, errors
    return folder


def essence(folder: Path, url: str | None = None) -> dict:
    """All that must not depend on who ran what when."""
    study = open_study(url or storage.default_url(folder), "tiny")
    slots = {
        slot.number: (
            msgspec.structs.replace(slot.outcome, seconds=0.0),
            slot.curve,
            study.definition.config_of(slot.number),
        )
        for slot in study.slots()
    }
    result = msgspec.json.decode((folder / "result.json").read_bytes())
    del result["environment"]
    for trial in result["trials"]:
        trial["outcome"].pop("seconds", None)
        trial.get("tested", {}).pop("frames_per_second", None)
    files = {
        str(file.relative_to(folder)): file.read_bytes()
        for name in ("config.json", "metrics.jsonl", "model.safetensors", "status.json", "result.json")
        for file in sorted(folder.glob(f"trials/*/{name}"))
    }
    return {"slots": slots, "result": result, "files": files}


def children(process: subprocess.Popen) -> list[int]:
    listed = Path(f"/proc/{process.pid}/task/{process.pid}/children")
    return [int(number) for number in listed.read_text().split()] if listed.exists() else []


def search(inputs, folder, environment, *more: str) -> subprocess.Popen:
    command = [sys.executable, "-m", "longspan", "search", *arguments(inputs, folder, *more)]
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def kill_workers(process: subprocess.Popen, folder: Path, kills: int, at_once: int) -> int:
    """Kill workers that have begun to train, `kills` times, after random waits; returns how many were killed."""
    chance, killed = random.Random(0), 0
    while process.poll() is None and killed < kills:
        before = trained(folder)
        time.sleep(chance.uniform(0.0, 0.5))
        if trained(folder) == before:
            continue  # nobody has got any further since the last kill
        for worker in chance.sample(workers := children(process), min(at_once, len(workers))):
            os.kill(worker, signal.SIGKILL)
            killed += 1
    return killed


def assert_ends_like(quiet: Path, process: subprocess.Popen, folder: Path, url: str | None = None) -> None:
    output, errors = process.communicate()
    assert process.returncode == 0, errors
    assert msgspec.json.decode(output)["status"] == "done"
    assert essence(folder, url) == essence(quiet)


@pytest.mark.slow
def test_the_quiet_study_has_something_to_compare(quiet):
    slots = essence(quiet)["slots"]
    assert {outcome.status for outcome, _, _ in slots.values()} == {"done", "diverged"}
    assert len({config for _, _, config in slots.values()}) == SLOTS


@pytest.mark.slow
def test_killed_interrupted_and_gone_on_with_by_more_workers(quiet, inputs, environment, tmp_path):
    process = search(inputs, tmp_path, environment, "--workers", "2")
    assert kill_workers(process, tmp_path, kills=1, at_once=1) == 1
    while len(workers := children(process)) < 2:
        assert process.poll() is None
        time.sleep(0.02)
    process.send_signal(signal.SIGINT)
    output, _ = process.communicate()
    assert process.returncode == 130
    told = msgspec.json.decode(output)
    assert told["status"] == "interrupted"
    assert told["finished"] < SLOTS
    assert not any(Path(f"/proc/{worker}").exists() for worker in workers)
    process = search(inputs, tmp_path, environment, "--workers", "3")
    assert kill_workers(process, tmp_path, kills=1, at_once=1) == 1
    assert_ends_like(quiet, process, tmp_path)


def test_a_killed_worker_is_replaced_and_all_end_with_the_search_that_started_them(inputs, environment, tmp_path):
    process = search(inputs, tmp_path, environment, "--workers", "1", "--max-epochs", "100000")
    (first,) = wait_for(process, lambda: children(process) if trained(tmp_path) else [])
    os.kill(first, signal.SIGKILL)
    before = trained(tmp_path)
    (second,) = wait_for(process, lambda: children(process) if trained(tmp_path) > before else [])
    assert second != first
    process.kill()
    process.communicate()
    deadline = time.monotonic() + 120
    while Path(f"/proc/{second}").exists():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def trained(folder: Path) -> int:
    """Bytes of metrics written so far."""
    return sum(file.stat().st_size for file in folder.glob("trials/*/metrics.jsonl"))


def wait_for(process: subprocess.Popen, look: Callable[[], list]) -> list:
    while not (found := look()):
        assert process.poll() is None, process.communicate()[1]
        time.sleep(0.05)
    return found


@pytest.mark.parametrize("where", ["sqlite", "postgresql"])
def test_four_workers_two_of_them_killed_again_and_again(where, quiet, inputs, environment, tmp_path):
    if where == "sqlite":
        process = search(inputs, tmp_path, environment, "--workers", "4")
        assert kill_workers(process, tmp_path, kills=12, at_once=2) >= 8
        assert_ends_like(quiet, process, tmp_path)
        return
    with postgresql.server() as url:
        process = search(inputs, tmp_path, environment, "--workers", "4", "--storage", url)
        assert kill_workers(process, tmp_path, kills=12, at_once=2) >= 8
        assert_ends_like(quiet, process, tmp_path, storage.normalized(url))


@pytest.mark.slow
def test_workers_that_join_over_postgresql_and_die_elsewhere(quiet, inputs, environment, tmp_path):
    """Workers whose lock files are out of sight, as on another machine: only their silence tells that they are dead."""
    with postgresql.server() as url:
        process = search(inputs, tmp_path, environment, "--workers", "1", "--storage", url, "--heartbeat-seconds", "2")
        elsewhere = {**environment, "TMPDIR": str(tmp_path / "elsewhere")}
        (tmp_path / "elsewhere").mkdir()
        join = [
            sys.executable,
            "-m",
            "longspan",
            "worker",
            url,
            "--study",
            "tiny",
            "--study-dir",
            str(tmp_path),
            "--quiet",
        ]
        while process.poll() is None and not any(tmp_path.glob("trials/*/config.json")):
            time.sleep(0.1)
        joined = subprocess.Popen([*join, "--checkpoint-seconds", "0"], env=elsewhere)
        while process.poll() is None and len(list(tmp_path.glob("trials/*/config.json"))) < 2:
            time.sleep(0.05)
        time.sleep(0.5)
        joined.kill()
        joined.wait()
        assert_ends_like(quiet, process, tmp_path, storage.normalized(url))
