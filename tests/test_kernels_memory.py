"""Every kernel under the address and undefined-behaviour sanitizers, at odd sizes and with numbers that are not finite.

pytest -m slow tests/test_kernels_memory.py
"""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
NATIVE = ROOT / "src/longspan/kernels/native"
CHECKS = ["-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-DLONGSPAN_SCRATCH_BLOCK=64"]
FLAGS = ["-std=c++17", "-O1", "-g1", "-fno-math-errno", "-fno-trapping-math", "-pthread"]


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("g++") is None, reason="no C++ compiler")
@pytest.mark.parametrize("flags", [["-mavx2", "-mfma"], ["-DLONGSPAN_WIDTH=4"], ["-DLONGSPAN_WIDTH=16"]], ids=str)
def test_kernels_stay_inside_their_buffers(flags, tmp_path):
    if "-mavx2" in flags and "avx2" not in Path("/proc/cpuinfo").read_text():
        pytest.skip("this processor has no AVX2")
    sources = [str(source) for source in NATIVE.glob("*.cc") if source.name not in ("bindings.cc", "machine.cc")]
    program = tmp_path / "exercise"
    build = ["g++", *FLAGS, *CHECKS, *flags, f"-I{NATIVE}", str(ROOT / "tests/native/exercise_kernels.cc"), *sources]
    subprocess.run([*build, "-o", str(program)], check=True)
    environment = os.environ | {"ASAN_OPTIONS": "detect_leaks=1"}
    ran = subprocess.run([str(program)], capture_output=True, text=True, env=environment)
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout == "all kernels ran\n"
