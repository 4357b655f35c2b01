"""However a command ends, it says so in one line: a second Ctrl-C, a full standard output, a closed pipe."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from longspan.data.archive import write_set
from tests.support.catalog import tiny_music

LONGSPAN = [sys.executable, "-m", "longspan"]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
@pytest.mark.parametrize("arguments", [["--help"], ["data", "list", "--json"]])
def test_a_full_standard_output_is_one_line(arguments, tmp_path):
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [*LONGSPAN, *arguments], stdout=full, stderr=subprocess.PIPE, text=True, cwd=tmp_path, check=False
        )
    assert (done.returncode, done.stderr) == (2, "longspan: cannot write the output: No space left on device\n")


def test_a_closed_pipe_is_no_error(tmp_path):
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run([*LONGSPAN, "--help"], stdout=writing, stderr=subprocess.PIPE, text=True, check=False)
    os.close(writing)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("pause", [0.0, 0.2])
def test_a_second_interrupt_ends_the_process_without_a_traceback(tmp_path, pause):
    write_set(tmp_path / "tiny.npz", tiny_music())
    run = tmp_path / "run"
    small = ["--hidden-size", "8", "--chunk-length", "10", "--max-epochs", "100000", "--patience", "100000"]
    command = [*LONGSPAN, "train", "sgd+c", "--data", str(tmp_path / "tiny.npz"), "--run-dir", str(run), *small]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    while not (run / "metrics.jsonl").exists() or not (run / "metrics.jsonl").stat().st_size:
        assert process.poll() is None
        time.sleep(0.02)
    process.send_signal(signal.SIGINT)
    time.sleep(pause)
    process.send_signal(signal.SIGINT)
    _, told = process.communicate()
    assert process.returncode in (130, -signal.SIGINT)  # the latter while the interpreter exits
    assert told in ("longspan: stopped\n", "")  # empty if it had saved, and said so, before the second one arrived
