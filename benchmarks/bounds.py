"""The bounds of this machine, measured: how fast a core multiplies and adds, and how fast it reads what a cache holds.

A walk with one lane reads the recurrent matrix at every step, so it cannot be faster than the matrix is read. A product
with many rows cannot be faster than multiplications with additions in registers.
"""

import ctypes
import platform
import subprocess
import tempfile
from functools import cache
from pathlib import Path

import numpy as np

SOURCE = Path(__file__).with_suffix(".cc")
INSTRUCTIONS = ("sse2", "avx", "avx2", "fma", "avx512f", "avx512bw", "avx512dq", "avx512vl", "avx512_bf16", "asimd")
TRIES = 9


@cache
def _library() -> ctypes.CDLL:
    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder) / "bounds.so"
        flags = ["-std=c++17", "-O3", "-march=native", "-shared", "-fPIC"]
        subprocess.run(["c++", *flags, str(SOURCE), "-o", str(target)], check=True)
        library = ctypes.CDLL(str(target))
    library.multiply_add.restype = library.read_floats.restype = ctypes.c_double
    return library


@cache
def gigaflops() -> float:
    """Multiplications and additions a second of one core, in units of 1e9: the best of some tries."""
    rounds, operations = 1 << 21, ctypes.c_long()
    multiply_add = _library().multiply_add
    seconds = min(multiply_add(ctypes.c_long(rounds), ctypes.byref(operations)) for _ in range(TRIES))
    return 1e-9 * rounds * operations.value / seconds


@cache
def gigabytes(size: int) -> float:
    """Gigabytes that one core reads in a second out of so many bytes, over and over: the best of some tries."""
    count = -(-size // 768) * 192
    room = np.zeros(count + 16, np.float32)
    skip = -room.ctypes.data % 64
    rounds = max(1, (1 << 28) // (4 * count))
    read = _library().read_floats
    arguments = (ctypes.c_void_p(room.ctypes.data + skip), ctypes.c_long(count), ctypes.c_long(rounds))
    return 4e-9 * count * rounds / min(read(*arguments) for _ in range(TRIES))


def processor() -> dict:
    """Model, caches of a core in bytes, and the instruction sets that matter here; what Linux tells."""
    flags, model = set(), platform.processor()
    for line in Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []:
        name, _, value = line.partition(":")
        if name.strip() in ("flags", "Features"):
            flags = set(value.split())
        elif name.strip() in ("vendor_id", "cpu family", "model", "model name"):
            model = f"{model}, {name.strip()} {value.strip()}" if value.strip() not in model else model
        elif not name.strip():
            break
    return {"model": model.strip(" ,"), "caches": _caches(), "instructions": [i for i in INSTRUCTIONS if i in flags]}


def _caches() -> dict[str, str]:
    found = {}
    for folder in sorted(Path("/sys/devices/system/cpu/cpu0/cache").glob("index*")):
        level, kind, size = ((folder / name).read_text().strip() for name in ("level", "type", "size"))
        if kind != "Instruction":
            found[f"L{level}"] = size
    return found


def measured() -> dict:
    """Peak and read bandwidths of one core, for the record."""
    sizes = {"16 KB": 1 << 14, "160 KB": 160 << 10, "400 KB": 400 << 10, "1 MB": 1 << 20, "4 MB": 4 << 20}
    read = {name: round(gigabytes(size), 1) for name, size in sizes.items()}
    return {"gigaflops": round(gigaflops(), 1), "gigabytes_read_out_of": read}
