"""What a process fixes and records: threads before XLA starts, what was found after, and no need of one system."""

import json
import os
import subprocess
import sys
from pathlib import Path

import jax
import pytest

import longspan
from longspan import runtime
from longspan.data.archive import write_set
from tests.support.catalog import tiny_music

SMALL = "hidden_size=8, chunk_length=10, block=4, max_epochs=1"


def run_python(program: str, *arguments, **variables) -> subprocess.CompletedProcess:
    environment = {name: value for name, value in os.environ.items() if name not in ("NPROC", "LONGSPAN_THREADS")}
    return subprocess.run(
        [sys.executable, "-c", program, *map(str, arguments)],
        capture_output=True,
        text=True,
        env={**environment, **variables},
    )


@pytest.fixture
def data(tmp_path) -> Path:
    write_set(tmp_path / "tiny.npz", tiny_music())
    return tmp_path / "tiny.npz"


COUNT_THREADS = f"""
import json, sys
from pathlib import Path
import longspan
trained = longspan.train("sgd+c", sys.argv[1], run_dir=sys.argv[2], threads=int(sys.argv[3]), {SMALL})
names = [task.read_text().strip() for task in Path("/proc/self/task").glob("*/comm")]
print(json.dumps([trained.run.environment(), sum(name.startswith("tf_XLAEigen") for name in names)]))
"""


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="threads are counted where Linux lists them")
def test_training_from_python_pins_its_threads_and_records_them(data, tmp_path):
    counted = {}
    for threads in (1, 3):
        done = run_python(COUNT_THREADS, data, tmp_path / f"run-{threads}", threads)
        assert done.returncode == 0, done.stderr
        record, counted[threads] = json.loads(done.stdout)
        assert record["threads"] == threads
        assert "threads_found" not in record
        assert record["versions"]["jax"] == jax.__version__
        assert record["versions"]["longspan"] == longspan.__version__
    assert counted[3] - counted[1] == 2


def test_once_xla_runs_the_record_says_what_was_found():
    program = (
        "import jax, json; jax.devices(); from longspan import runtime; first = runtime.prepare(2); import os;"
        "print(json.dumps([first, os.environ['NPROC']]))"
    )
    done = run_python(program, NPROC="5")
    assert done.returncode == 0, done.stderr
    record, after = json.loads(done.stdout)
    assert (record["threads"], record["threads_found"], after) == (2, 5, "5")


def test_compiled_programs_are_cached_also_where_jax_was_imported_before():
    program = (
        "import jax; from longspan import runtime; runtime.prepare(1); print(jax.config.jax_compilation_cache_dir)"
    )
    unset = "import os; os.environ.pop('JAX_COMPILATION_CACHE_DIR', None); "
    done = run_python(unset + program, XDG_CACHE_HOME="/nowhere")
    assert done.stdout.strip() == "/nowhere/longspan/compiled", done.stderr
    chosen = run_python(program, JAX_COMPILATION_CACHE_DIR="/nowhere/in/particular")
    assert chosen.stdout.strip() == "/nowhere/in/particular", chosen.stderr


def test_a_package_that_is_not_installed_has_no_version():
    assert runtime.version("no-such-package") is None
    assert runtime.version("jax") == jax.__version__


ELSEWHERE = f"""
import importlib, pkgutil, sys
import filelock, platformdirs.unix  # they know another way on each system
for name in ("fcntl", "pwd", "grp", "resource", "termios", "msvcrt"):
    sys.modules[name] = None
import os, signal
for module, names in (os, ("getuid", "geteuid", "sched_getaffinity", "sched_setaffinity")), (signal, ("SIGKILL",)):
    for name in names:
        delattr(module, name)
import longspan
for found in pkgutil.walk_packages(longspan.__path__, "longspan."):
    if not found.name.endswith("__main__") and "_native_" not in found.name:
        importlib.import_module(found.name)
trained = longspan.train("sgd+c", sys.argv[1], run_dir=sys.argv[2], {SMALL})
from longspan.search import machine
with machine.present() as name, machine.claimed_cores(2, 1) as cores:
    assert not machine.is_gone(name)
    assert cores == [set(), set()]
print(trained.run.status)
"""


def test_everything_imports_and_trains_by_xla_where_unix_has_nothing_to_offer(data, tmp_path):
    done = run_python(ELSEWHERE, data, tmp_path / "run", LONGSPAN_KERNELS="xla", USERNAME="someone")
    assert (done.returncode, done.stdout) == (0, "done\n"), done.stderr
