"""A PostgreSQL server of the tests' own: started in a temporary folder, gone when the tests are."""

import contextlib
import os
import pwd
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

ACCOUNT = "postgres"
"""Who runs the server when the tests run as root, which PostgreSQL refuses to."""


@contextlib.contextmanager
def server() -> Iterator[str]:
    """Yield the URL of an empty database; skips, visibly, where there is no PostgreSQL to start."""
    programs, prefix = _programs(), _as_someone_else()
    folder = Path(tempfile.mkdtemp(prefix="longspan-postgresql-"))
    try:
        if prefix:
            shutil.chown(folder, ACCOUNT)
        database, port = folder / "data", _free_port()
        options = f"-c listen_addresses=127.0.0.1 -c port={port} -c unix_socket_directories={folder} -c fsync=off"
        _run([*prefix, programs / "initdb", "-D", database, "-A", "trust", "-U", "longspan", "-N"], folder)
        _run([*prefix, programs / "pg_ctl", "-D", database, "-w", "-o", options, "-l", folder / "log", "start"], folder)
        try:
            yield f"postgresql://longspan@127.0.0.1:{port}/postgres"
        finally:
            _run([*prefix, programs / "pg_ctl", "-D", database, "-w", "-m", "immediate", "stop"], folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


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
