"""Locks: one holder at a time, and none outlives its process."""

import errno
import signal
import subprocess
import sys

import pytest

from longspan.errors import InputError
from longspan.files import file_lock, try_file_lock

HOLD = """
import sys, time
from pathlib import Path
from longspan.files import file_lock
with file_lock(Path(sys.argv[1])):
    print("held", flush=True)
    time.sleep(1000)
"""


@pytest.fixture
def holder(tmp_path):
    """A process that holds tmp_path / "lock"."""
    command = [sys.executable, "-c", HOLD, str(tmp_path / "lock")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "held\n"
        yield process
        process.kill()


def test_a_lock_that_another_process_holds_is_refused_until_that_process_dies(tmp_path, holder):
    with try_file_lock(tmp_path / "lock") as mine:
        assert not mine
    holder.send_signal(signal.SIGKILL)
    holder.wait()
    with try_file_lock(tmp_path / "lock") as mine:
        assert mine


def test_whoever_waits_for_a_lock_gets_it_when_its_holder_dies(tmp_path, holder):
    waiting = subprocess.Popen([*holder.args], stdout=subprocess.PIPE, text=True)
    with try_file_lock(tmp_path / "lock") as mine:
        assert not mine
    holder.kill()
    assert waiting.stdout.readline() == "held\n"
    waiting.kill()
    waiting.communicate()


def test_a_lock_is_held_within_one_process_too_and_let_go_after_an_error(tmp_path):
    def fail_while_holding() -> None:
        with file_lock(tmp_path / "lock"), try_file_lock(tmp_path / "lock") as mine:
            raise KeyError(mine)

    with pytest.raises(KeyError, match="False"):
        fail_while_holding()
    with try_file_lock(tmp_path / "lock") as mine:
        assert mine


def test_a_place_that_cannot_be_written_is_one_line(tmp_path):
    (tmp_path / "file").touch()
    for lock in (file_lock, try_file_lock):
        with pytest.raises(InputError, match="cannot write"), lock(tmp_path / "file" / "lock"):
            pass


def test_where_the_system_has_no_locks_a_file_does_not_stand_in_for_one(tmp_path, monkeypatch):
    def not_implemented(*arguments):
        raise OSError(errno.ENOSYS, "Function not implemented")

    monkeypatch.setattr("fcntl.flock", not_implemented)
    with pytest.raises(InputError, match="Function not implemented"), try_file_lock(tmp_path / "lock"):
        pass
