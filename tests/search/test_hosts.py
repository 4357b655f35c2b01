"""Several hosts with nothing in common but a server: cut off, come back, die for good; the study ends all the same.

The hosts are network namespaces of this machine, with addresses that exist only in them, folders of their own and lock
files of their own. The server speaks TLS alone.
"""

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import optuna
import pytest

from longspan.search import storage
from longspan.search.study import open_study
from tests.search.test_kill_workers import arguments, essence, search, trained
from tests.support import postgresql

LONGER = ["--max-epochs", "40", "--heartbeat-seconds", "1"]
ADDRESS = "10.77.0.1"
CUT_SECONDS = 6
"""Longer than the grace period of four heartbeats."""


@dataclass
class Host:
    """A host of the test: a network namespace, and a folder where its temporary files and runs are."""

    name: str
    folder: Path
    link: str = ""
    processes: list[subprocess.Popen] = field(default_factory=list)

    def run(self, *command: str) -> None:
        subprocess.run(["ip", "netns", "exec", self.name, *command], check=True)

    def start(self, command: list[str], environment: dict[str, str]) -> subprocess.Popen:
        (self.folder / "tmp").mkdir(parents=True, exist_ok=True)
        own = {**environment, "TMPDIR": str(self.folder / "tmp")}
        with (self.folder / "log").open("ab") as log:
            process = subprocess.Popen(
                ["ip", "netns", "exec", self.name, *command], env=own, stdout=log, stderr=log, cwd=self.folder
            )
        self.processes.append(process)
        return process

    def log(self) -> str:
        return (self.folder / "log").read_text(errors="replace")[-800:]


@contextmanager
def hosts(tmp_path: Path) -> Iterator[list[Host]]:
    """Yield three hosts, of which the first can be reached by the others; skips where namespaces are not allowed."""
    if shutil.which("ip") is None or os.geteuid() != 0:
        pytest.skip("needs root and iproute2 to make network namespaces")
    tag = f"{os.getpid() % 100000}"
    made = [Host(f"longspan-{tag}-{number}", tmp_path / f"host-{number}") for number in range(3)]
    with ExitStack() as cleanup:
        for host in made:
            if subprocess.run(["ip", "netns", "add", host.name], capture_output=True).returncode != 0:
                pytest.skip("network namespaces are not allowed here")
            cleanup.callback(subprocess.run, ["ip", "netns", "delete", host.name], check=False)
            host.run("ip", "link", "set", "lo", "up")
            host.folder.mkdir()
        made[0].run("ip", "address", "add", f"{ADDRESS}/32", "dev", "lo")
        for number, host in enumerate(made[1:], 1):
            host.link = f"l{tag}{number}"
            ends = [host.link, "type", "veth", "peer", "name", "up0", "netns", host.name]
            made[0].run("ip", "link", "add", *ends)
            made[0].run("ip", "address", "add", f"10.77.{number}.1/24", "dev", host.link)
            made[0].run("ip", "link", "set", host.link, "up")
            host.run("ip", "address", "add", f"10.77.{number}.2/24", "dev", "up0")
            host.run("ip", "link", "set", "up0", "up")
            host.run("ip", "route", "add", "default", "via", f"10.77.{number}.1")
        try:
            yield made
        finally:
            for process in (process for host in made for process in host.processes):
                process.kill()
                process.wait()


@contextmanager
def server_with_tls(host: Host, tmp_path: Path) -> Iterator[str]:
    """Yield the URL of a server on a host that takes encrypted connections alone."""
    key, certificate = tmp_path / "key.pem", tmp_path / "certificate.pem"
    new = ["openssl", "req", "-new", "-x509", "-nodes", "-days", "2", "-subj", f"/CN={ADDRESS}"]
    subject = ["-addext", f"subjectAltName=IP:{ADDRESS}", "-keyout", str(key), "-out", str(certificate)]
    subprocess.run([*new, *subject], check=True, capture_output=True)
    within = ("ip", "netns", "exec", host.name)
    with postgresql.running_server(ADDRESS, tls=(key, certificate), prefix=within) as server:
        yield f"{server.url}?sslmode=verify-ca&sslrootcert={certificate}"


@pytest.fixture(scope="module")
def quiet(inputs, environment, tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("undisturbed")
    process = search(inputs, folder, environment, "--workers", "1", *LONGER)
    _, errors = process.communicate()
    assert process.returncode == 0, errors
    return folder


def join(host: Host, url: str, inputs: Path, environment: dict[str, str]) -> subprocess.Popen:
    where = ["--study-dir", str(host.folder / "study"), "--data", str(inputs / "tiny.npz")]
    command = ["longspan", "worker", url, "--study", "tiny", *where, "--checkpoint-seconds", "0", "--quiet"]
    return host.start([sys.executable, "-m", *command], environment)


def wait_until(condition, process: subprocess.Popen, host: Host) -> None:
    deadline = time.monotonic() + 900
    while not condition():
        assert process.poll() in (None, 0), host.log()
        assert time.monotonic() < deadline, host.log()
        time.sleep(0.1)


def test_hosts_are_cut_off_come_back_and_die_and_the_study_ends_as_ever(quiet, inputs, environment, tmp_path):
    with hosts(tmp_path) as (first, second, third), server_with_tls(first, tmp_path) as url:
        more = ["--workers", "1", "--storage", url, *LONGER]
        command = ["longspan", "search", *arguments(inputs, first.folder / "study", *more)]
        main = first.start([sys.executable, "-m", *command], environment)
        wait_until(lambda: any(first.folder.glob("study/trials/*/config.json")), main, first)
        cut, doomed = (join(host, url, inputs, environment) for host in (second, third))
        wait_until(lambda: trained(third.folder / "study") or main.poll() == 0, doomed, third)
        doomed.send_signal(signal.SIGKILL)
        doomed.wait()
        shutil.rmtree(third.folder / "study")  # and its disk with it
        wait_until(lambda: trained(second.folder / "study") or main.poll() == 0, cut, second)
        first.run("ip", "link", "set", second.link, "down")
        time.sleep(CUT_SECONDS)
        first.run("ip", "link", "set", second.link, "up")
        wait_until(lambda: main.poll() is not None, main, first)
        wait_until(lambda: cut.poll() is not None, cut, second)
        assert (main.returncode, cut.returncode) == (0, 0), first.log() + second.log()
        found = essence_from(first, url)
        expected = essence(quiet)
        assert found["slots"] == expected["slots"]
        assert found["result"] == expected["result"]
        assert found["moved"], "no slot went on elsewhere from a checkpoint"


def essence_from(host: Host, url: str) -> dict:
    """What the study ended with, as a process on a host finds it, and the slots that went on elsewhere."""
    program = (
        "import sys, pickle; from pathlib import Path; from tests.search import test_hosts as t;"
        "sys.stdout.buffer.write(pickle.dumps(t.essence_and_moves(Path(sys.argv[1]), sys.argv[2])))"
    )
    command = ["ip", "netns", "exec", host.name, sys.executable, "-c", program, str(host.folder / "study"), url]
    import pickle

    done = subprocess.run(command, capture_output=True)
    assert done.returncode == 0, done.stderr.decode()
    return pickle.loads(done.stdout)


def essence_and_moves(folder: Path, url: str) -> dict:
    study = open_study(storage.normalized(url), "tiny")
    attempts: dict[int, list] = {}
    for trial in optuna.load_study(study_name="tiny", storage=study.url).get_trials(deepcopy=False):
        attempts.setdefault(trial.user_attrs["slot"], []).append(trial.user_attrs)
    moved = {
        slot
        for slot, tries in attempts.items()
        if len({each.get("worker") for each in tries}) > 1 and any(each.get("from_step", -1) > 0 for each in tries)
    }
    return {**essence(folder, storage.normalized(url)), "moved": moved}
