"""A PostgreSQL server of the tests' own: started in a temporary folder, gone when the tests are."""

import contextlib
import os
import pwd
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

ACCOUNT = "postgres"
"""Who runs the server when the tests run as root, which PostgreSQL refuses to."""


@dataclass(frozen=True)
class Server:
    """A server that can be stopped as if its machine had failed, and started again."""

    url: str
    folder: Path
    options: str
    control: list

    def start(self) -> None:
        _run([*self.control, "-o", self.options, "-l", self.folder / "log", "start"], self.folder)

    def stop(self) -> None:
        _run([*self.control, "-m", "immediate", "stop"], self.folder)


@contextlib.contextmanager
def server() -> Iterator[str]:
    """Yield the URL of an empty database; skips, visibly, where there is no PostgreSQL to start."""
    with running_server() as started:
        yield started.url


@contextlib.contextmanager
def running_server(
    address: str = "127.0.0.1", *, tls: tuple[Path, Path] | None = None, prefix: tuple[str, ...] = ()
) -> Iterator[Server]:
    """Yield a server that listens at an address.

    With a key and a certificate it takes encrypted connections alone; `prefix` is a command to run it by.
    """
    programs, account = _programs(), _as_someone_else()
    folder = Path(tempfile.mkdtemp(prefix="longspan-postgresql-"))
    try:
        if account:
            shutil.chown(folder, ACCOUNT)
        database, port = folder / "data", _free_port()
        options = f"-c listen_addresses={address} -c port={port} -c unix_socket_directories={folder} -c fsync=off"
        _run([*account, programs / "initdb", "-D", database, "-A", "trust", "-U", "longspan", "-N"], folder)
        if tls:
            options += f" -c ssl=on {_install(tls, folder)}"
            (database / "pg_hba.conf").write_text("hostssl all all all trust\n")
        control = [*prefix, *account, programs / "pg_ctl", "-D", database, "-w"]
        started = Server(f"postgresql://longspan@{address}:{port}/postgres", folder, options, control)
        started.start()
        try:
            yield started
        finally:
            with contextlib.suppress(RuntimeError):  # it was stopped already
                started.stop()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _install(tls: tuple[Path, Path], folder: Path) -> str:
    """Copy a key and a certificate to where the server may read them; the options that name them."""
    options = []
    for file, option in zip(tls, ("ssl_key_file", "ssl_cert_file"), strict=True):
        copy = Path(shutil.copy(file, folder))
        copy.chmod(0o600)
        if os.geteuid() == 0:
            shutil.chown(copy, ACCOUNT)
        options.append(f"-c {option}={copy}")
    return " ".join(options)


def _programs() -> Path:
    found = [Path(path).parent for path in [shutil.which("pg_ctl")] if path]
    found += sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    for folder in found:
        if all((folder / name).exists() for name in ("initdb", "pg_ctl", "postgres")):
            return folder
    pytest.skip("needs a PostgreSQL server to start: apt-get install postgresql")


def _as_someone_else() -> list[str]:
    if os.geteuid() != 0:
        return []
    if shutil.which("runuser") is None or ACCOUNT not in {entry.pw_name for entry in pwd.getpwall()}:
        pytest.skip(f"PostgreSQL does not run as root, and there is no account {ACCOUNT} to run it as")
    return ["runuser", "-u", ACCOUNT, "--"]


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def _run(command: list, folder: Path) -> None:
    # A file, not a pipe: the server inherits it and a pipe would stay open as long as the server runs.
    with tempfile.TemporaryFile() as output:
        done = subprocess.run([str(word) for word in command], cwd=folder, stdout=output, stderr=output, check=False)
        if done.returncode != 0:
            output.seek(0)
            raise RuntimeError(f"{command}: {output.read().decode(errors='replace')}")
