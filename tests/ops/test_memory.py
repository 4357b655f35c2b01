"""Every kernel under the address and undefined-behavior sanitizers, at odd sizes and with numbers that are not finite.

The short form runs always, all sizes and vector widths with `pytest -m slow tests/ops/test_memory.py`.
"""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

HERE = Path(__file__).parent
NATIVE = HERE.parents[1] / "src/longspan/ops/native"
CHECKS = ["-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-DLONGSPAN_SCRATCH_BLOCK=64"]
FLAGS = ["-std=c++17", "-g1", "-fno-math-errno", "-fno-trapping-math", "-pthread"]
needs_compiler = pytest.mark.skipif(shutil.which("g++") is None, reason="no C++ compiler")


def exercise(folder: Path, flags: list[str], *arguments: str) -> None:
    """Builds the driver with all kernels and runs it."""
    sources = [str(source) for source in NATIVE.glob("*.cc") if source.name != "bindings.cc"]
    program = folder / "exercise"
    build = ["g++", *FLAGS, *CHECKS, *flags, f"-I{NATIVE}", str(HERE / "native/exercise_kernels.cc"), *sources]
    subprocess.run([*build, "-o", str(program)], check=True)
    environment = os.environ | {"ASAN_OPTIONS": "detect_leaks=1"}
    ran = subprocess.run([str(program), *arguments], capture_output=True, text=True, env=environment)
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout == "all kernels ran\n"


@needs_compiler
def test_kernels_stay_inside_their_buffers_at_a_few_sizes(tmp_path):
    exercise(tmp_path, ["-O0", "-w", "-DLONGSPAN_WIDTH=4"], "short")


@pytest.mark.slow
@needs_compiler
@pytest.mark.parametrize("flags", [["-mavx2", "-mfma"], ["-DLONGSPAN_WIDTH=4"], ["-DLONGSPAN_WIDTH=16"]], ids=str)
def test_kernels_stay_inside_their_buffers_at_all_sizes(flags, tmp_path):
    if "-mavx2" in flags and "avx2" not in Path("/proc/cpuinfo").read_text():
        pytest.skip("this processor has no AVX2")
    exercise(tmp_path, ["-O1", *flags])
